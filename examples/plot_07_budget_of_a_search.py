"""
Compute the cost of a search, and keep a budget
===============================================

A grid search makes many fits on the same records, and the epsilons of all fits add up. This example
computes the cost before the search runs, limits the search by a ledger, and uses a private search,
which costs less.

Tag: reference.
"""

# %%
# Three learning rates in three folds are nine fits and the refit, each at epsilon 1. ``forecast``
# does not fit. Every fit is charged as if it read all records.

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
# The epsilon of the whole search is infinite. The scores of the folds are computed on private
# records without noise, they determine the choice, and the selected model reveals the choice.
#
# The ledger is a file. Every fit is recorded there before it reads a record. The whole search
# costs what ``forecast`` computed.

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
# noisy count, and keeps the best model, but neither the scores nor their number. Its epsilon
# covers the choice. ``trials="geometric"`` is a law of the number of trials that costs little
# privacy and often draws fewer trials.

private = DPRandomizedSearch(clf, {"lr": [0.5, 1.0, 2.0]}, mean_trials=3, trials="geometric")
private.fit(X, y)
print(private.best_params_, private.privacy_.epsilon)

# %%
# The difference grows with the number of candidates. The bars of the grid search count the fits
# only: its scores have no epsilon. The bars of the private search, with as many trials on
# average, count its whole cost.

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
    title="What 4,000 records pay for a search",
)
