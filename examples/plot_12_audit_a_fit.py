"""
Audit steps and fits
====================

An audit attacks code that claims an epsilon, and computes a lower bound on epsilon from the success
of the attack. A lower bound above the claim proves a mistake. A lower bound below the claim proves
nothing.

Tag: reference.
"""

# %%
# The first audits attack single steps of dpsgd. The attacker knows everything except whether one
# record took part, and sees 600 steps with it and 600 without it, on each of three batches.
# Correct code passes with a probability of at least 0.999.

import pandas as pd

from skdpfair import DPFairClassifier
from skdpfair.datasets import make_two_groups
from skdpfair.testing import audit_fit, audit_step

found = {}
for noise in (0.5, 1.0):
    audit = audit_step(
        "dpsgd", noise_multiplier=noise, n_draws=600, n_features=250, confidence=0.999
    )
    found[f"step,\nnoise {noise:g}"] = audit
    print(audit)

# %%
# Suppose that, by a mistake in the accounting, epsilon 1 is claimed for the step with less noise.
# Even this small number of draws refutes the claim.

lower = found["step,\nnoise 0.5"].epsilon_lower
print(f"the claim of epsilon 1 is {'refuted' if lower > 1 else 'not refuted'}: {lower:.2f} or more")

# %%
# The next audits attack whole fits, with one run each. There are 400 canaries, which are records
# with a feature of their own. Each canary is included in the fit with probability 1/2. The
# attacker has the model only, and guesses which canaries were included.

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
# For a step with little noise, the lower bound is a large part of the claim. For a fit, one run
# gives a small lower bound, even for a large claim: such audits detect gross mistakes, such as
# missing noise. A bound of 0 is evidence neither for nor against the claim. More draws or
# canaries give larger bounds.

table = pd.DataFrame({name: vars(audit) for name, audit in found.items()}).T
names = {"epsilon_claimed": "claimed", "epsilon_lower": "found: a lower bound"}
table = table[list(names)].astype(float).rename(columns=names)
ax = table.plot.bar(rot=0, ylabel="epsilon at delta 1e-5", title="What audits of dpsgd find")
