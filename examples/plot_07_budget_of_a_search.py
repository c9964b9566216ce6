"""
What a search costs, and how to keep a budget
=============================================

A grid search is many fits on the same records, and the epsilons of all of them count. Here the
price is asked for before anything runs, a ledger holds the search to a budget, and a private search
chooses for less.
"""

# %%
# Three learning rates in three folds: nine fits and the refit, each at epsilon 1. ``plan`` fits
# nothing. A record is left out of one of three folds, so it meets seven of the ten fits.

import tempfile
from pathlib import Path

import pandas as pd
from sklearn.model_selection import GridSearchCV

from skdpfair import DPFairClassifier
from skdpfair.datasets import make_two_groups
from skdpfair.model_selection import BudgetExceeded, DPRandomizedSearch, PrivacyLedger, plan
from skdpfair.plotting import plot_group_bars

data = make_two_groups(4000, random_state=0)
X, y = data.data, data.target
clf = DPFairClassifier("dpsgd", epsilon=1.0, accountant="rdp")
search = GridSearchCV(clf, {"lr": [0.5, 1.0, 2.0]}, cv=3)
print(plan(search, n_samples=len(y), accountant="rdp"))

# %%
# As a whole the epsilon is infinite, because the fold scores are computed on private records
# without noise, and so is the choice that they make. Who sees the model sees that choice.
#
# The ledger is a file: every fit is entered there before it reads a record. It looks at what it is
# to fit; of a search (from scikit-learn 1.9 on) it knows the folds, and charges what the plan said.

path = Path(tempfile.mkdtemp()) / "budget.jsonl"
ledger = PrivacyLedger(path, epsilon=3.0, delta=1e-5, accountant="rdp")
ledger.fit(search, X, y)
print(ledger.report())

# %%
# One more fit would exceed the budget. It is refused, and nothing is spent.

before = ledger.epsilon()
try:
    ledger.fit(clf, X, y)
except BudgetExceeded as error:
    print(error)
print("spent since:", ledger.epsilon() - before)

# %%
# A private search draws a secret number of trials, three on average, scores each by a noisy count,
# and keeps the best model, but neither the scores nor their number. Its epsilon covers the choice.
# ``shape=1.0`` is a law of that number which costs little, and often draws fewer.

private = DPRandomizedSearch(clf, {"lr": [0.5, 1.0, 2.0]}, mean_trials=3, shape=1.0)
private.fit(X, y)
print(private.best_params_, private.privacy_.epsilon)

# %%
# The more candidates, the wider apart. The bars of the grid search count the fits only: its scores
# have no epsilon. Those of the private search, with as many trials on average, count all.

rows = {}
for n in (3, 10, 30):
    grid = {"lr": [0.1 * 1.2**i for i in range(n)]}
    every = plan(GridSearchCV(clf, grid, cv=3), n_samples=len(y), accountant="rdp")
    best = plan(DPRandomizedSearch(clf, grid, mean_trials=n, shape=1.0), n_samples=len(y))
    rows[f"{n} candidates"] = [best.epsilon, every.epsilon, best.epsilon_total]
names = ["one fit", "grid search: all fits, without the scores", "private search: all it releases"]
table = pd.DataFrame.from_dict(rows, orient="index", columns=names)
ax = plot_group_bars(
    table,
    names,
    ylabel="epsilon at delta 1e-5",
    title="What 4,000 records pay for a search",
    value_format="{:.2f}",
)
