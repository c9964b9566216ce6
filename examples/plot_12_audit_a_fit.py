"""
Attack a fit, and compare with its claim
========================================

An epsilon is a claim about code, and code may be wrong. An audit attacks it, and turns success into
a lower bound: one above the claim proves a mistake, one below it proves nothing.
"""

# %%
# First single steps of dpsgd. The attacker knows all but whether one record took part, and sees 600
# steps with it and 600 without, on each of three batches. Correct code passes with probability
# 0.999 at least.

import pandas as pd

from skdpfair import DPFairClassifier
from skdpfair.audit import audit_fit, audit_step
from skdpfair.datasets import make_two_groups
from skdpfair.plotting import plot_group_bars

found = {}
for noise in (0.5, 1.0):
    audit = audit_step(
        "dpsgd", noise_multiplier=noise, n_draws=600, n_features=250, confidence=0.999
    )
    found[f"step,\nnoise {noise:g}"] = audit
    print(audit)

# %%
# What if the step with less noise were sold as epsilon 1, by a mistake in the accounting? Even so
# few draws refute that.

lower = found["step,\nnoise 0.5"].epsilon_lower
print(f"the claim of epsilon 1 is {'refuted' if lower > 1 else 'not refuted'}: {lower:.2f} or more")

# %%
# Then whole fits, once each. A coin decides about each of 400 canaries, records with a feature of
# their own, whether the fit sees it. The attacker has the model only, and guesses which it saw.

data = make_two_groups(3000, random_state=0)
for epsilon in (4.0, 16.0):
    clf = DPFairClassifier(
        "dpsgd",
        epsilon=epsilon,
        module="logistic",
        lr=8.0,
        batch_size=200,
        max_steps=100,
        accountant="rdp",
    )
    audit = audit_fit(clf, data.data, data.target, n_canaries=400)
    found[f"fit,\nepsilon {epsilon:g}"] = audit
    print(audit)

# %%
# Of a step with little noise, the attack finds a good part of the claim. Of a fit, one run finds
# little, even of a large claim: it is there to catch gross mistakes, such as missing noise. A bound
# of 0 shows nothing, neither for nor against the claim. More draws or canaries show more.

table = pd.DataFrame({name: vars(audit) for name, audit in found.items()}).T
names = {"epsilon_claimed": "claimed", "epsilon_lower": "found: a lower bound"}
ax = plot_group_bars(
    table[list(names)].astype(float),
    names,
    ylabel="epsilon at delta 1e-5",
    title="What audits of dpsgd find",
)
