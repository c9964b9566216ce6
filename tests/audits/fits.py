"""Fits that audits attack, on which an attack does well."""

import pytest

from skdpfair import DPFairClassifier
from skdpfair.methods import METHODS

PRIVATE = sorted(name for name, method in METHODS.items() if method.private)
QUICK = [  # methods with each kind of release; the slow tests try all
    pytest.param(
        name, marks=() if name in ("dpsgd", "dpsgd_f", "global_adapt") else pytest.mark.slow
    )
    for name in PRIVATE
]


def strong(method="dpsgd", **params):
    """Return a classifier on which the attack does well: one layer, and steps that show."""
    settings = {"epsilon": 1.0, "module": "logistic", "lr": 8.0, "batch_size": 200}
    settings |= {"max_steps": 100, "accountant": "rdp", "random_state": 0}
    return DPFairClassifier(method, **settings).set_params(**params)
