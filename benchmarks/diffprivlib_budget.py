"""The epsilon that the accountant of diffprivlib reports after a grid search.

It needs an environment of its own, since diffprivlib 0.6.6 does not import on scikit-learn 1.9:
pip install diffprivlib==0.6.6 "scikit-learn<1.7"; python -m benchmarks.diffprivlib_budget
"""

import warnings

import numpy as np
from diffprivlib import BudgetAccountant
from diffprivlib.models import LogisticRegression
from sklearn.model_selection import GridSearchCV


def main():
    warnings.simplefilter("ignore")
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(2000, 3))
    y = (X[:, 0] > 0).astype(int)
    accountant = BudgetAccountant()
    model = LogisticRegression(epsilon=1.0, data_norm=2.0, accountant=accountant)
    search = GridSearchCV(model, {"C": [0.1, 1.0, 10.0]}, cv=3).fit(X, y)
    kept = search.best_estimator_.accountant
    print(f"9 fits and a refit of epsilon 1: the accountant reports {accountant.total()[0]:g}")
    print(f"the refitted model's own copy of it reports {kept.total()[0]:g}")
    model.fit(X, y)
    print(f"one fit without a search: it reports {accountant.total()[0]:g}")


if __name__ == "__main__":
    main()
