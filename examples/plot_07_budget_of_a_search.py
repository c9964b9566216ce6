"""
Compute the cost of a search, and keep a budget
===============================================

A grid search makes many fits on the same records, and the epsilons of all fits add up. This example
computes the cost before the search runs, limits the search by a ledger, and uses a private search,
which costs less.
"""

# %%
# Three learning rates and three folds make nine fits and a refit, each at epsilon 1. ``forecast``
# computes their cost without a fit. It counts every fit as if it read all records.

import tempfile
from pathlib import Path

import pandas as pd
from sklearn.model_selection import GridSearchCV

from skdpfair import DPFairClassifier
from skdpfair.budget import PrivacyLedger
from skdpfair.datasets import make_two_groups
from skdpfair.exceptions import BudgetExceededError
from skdpfair.model_selection import DPRandomizedSearch, forecast

data = make_two_groups(4000, random_state=0)
X, y = data.data, data.target
clf = DPFairClassifier("dpsgd", epsilon=1.0, accountant="rdp")
search = GridSearchCV(clf, {"lr": [0.5, 1.0, 2.0]}, cv=3)
print(forecast(search, n_samples=len(y), accountant="rdp"))

# %%
# The search as a whole has an infinite epsilon. It computes the scores of the folds on private
# records without noise, and the selected model reveals which score was best.
#
# A ledger is a file that records every fit before the fit reads a record. The fits of the search
# cost as much as ``forecast`` computed.

path = Path(tempfile.mkdtemp()) / "budget.jsonl"
ledger = PrivacyLedger(path, epsilon=3.6, delta=1e-5, accountant="rdp")
ledger.fit(search, X, y)
print(ledger.report())

# %%
# One more fit would exceed the budget. The ledger refuses it, and nothing is spent.

before = ledger.epsilon()
try:
    ledger.fit(clf, X, y)
except BudgetExceededError as error:
    print(error)
print("spent since:", ledger.epsilon() - before)

# %%
# A private search draws a secret number of trials, three on average. It scores each trial by a
# noisy count, keeps the best model, and discards the scores and the number of trials. Its epsilon
# covers the choice. ``trials="geometric"`` costs less than the default distribution of the number
# of trials, but often gives few trials.

private = DPRandomizedSearch(clf, {"lr": [0.5, 1.0, 2.0]}, mean_trials=3, trials="geometric")
private.fit(X, y)
print(private.best_params_, private.privacy_.epsilon)

# %%
# The private search saves more if there are more candidates. The bars of the grid search count only
# the fits, because its scores have no epsilon. The bars of the private search count everything that
# it releases. On average, it makes as many trials as there are candidates.

rows = {}
for n in (3, 10, 30):
    grid = {"lr": [0.1 * 1.2**i for i in range(n)]}
    every = forecast(GridSearchCV(clf, grid, cv=3), n_samples=len(y), accountant="rdp")
    best = forecast(
        DPRandomizedSearch(clf, grid, mean_trials=n, trials="geometric"), n_samples=len(y)
    )
    rows[f"{n} candidates"] = [best.epsilon, every.epsilon, best.epsilon_total]
names = ["one fit", "grid search: all fits, without the scores", "private search: all it releases"]
table = pd.DataFrame.from_dict(rows, orient="index", columns=names)
ax = table.plot.bar(
    rot=0,
    figsize=(8, 4.5),
    ylabel="epsilon at delta 1e-5",
    title="Epsilon of a search on 4,000 records",
)
