"""
Audit a fit
===========

An audit attacks code that claims an epsilon, and computes a lower bound on epsilon from the success
of the attack. A lower bound above the claim proves a mistake. A lower bound below the claim proves
nothing.
"""

# %%
# The audit adds 400 canaries: records that each have a feature of their own. Each canary takes part
# in the fit with probability 1/2. The attacker has only the model, and guesses which canaries took
# part.

import pandas as pd

from skdpfair import DPFairClassifier
from skdpfair.datasets import make_two_groups
from skdpfair.testing import audit_fit

data = make_two_groups(3000, random_state=0)
audits = {}
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
    audits[f"epsilon {epsilon:g}"] = audit
    print(audit)

# %%
# One run gives a small lower bound, even for a large claim: such an audit detects gross mistakes,
# such as missing noise. A bound of 0 shows only that the attack failed. More canaries give
# larger bounds.

table = pd.DataFrame({name: vars(audit) for name, audit in audits.items()}).T
names = {"epsilon_claimed": "claim", "epsilon_lower": "lower bound of the audit"}
table = table[list(names)].astype(float).rename(columns=names)
ax = table.plot.bar(rot=0, ylabel="epsilon at delta 1e-5", title="Audits of two fits of dpsgd")
