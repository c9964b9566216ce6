"""Fits that audits attack, on which an attack does well."""

import pytest

from skdpfair import DPFairClassifier
from skdpfair.methods import METHODS

EXPECTED = [f"ignore::skdpfair.exceptions.{name}Warning" for name in ("LowSignal", "InsecureSeed")]
PRIVATE = sorted(name for name, method in METHODS.items() if method.private)
QUICK = "dpsgd", "dpsgd_f", "global_adapt"  # with each kind of release


def every_method(*quick, without=()):
    """Return all private methods, all but some of which are tried in the slow tests only."""
    return [
        pytest.param(name, marks=() if name in quick else pytest.mark.slow)
        for name in PRIVATE
        if name not in without
    ]


def strong(method="dpsgd", **params):
    """Return a classifier on which the attack does well: one layer, and steps that show."""
    settings = {"epsilon": 1.0, "module": "logistic", "lr": 8.0, "batch_size": 200}
    settings |= {"max_steps": 100, "accountant": "rdp", "random_state": 0}
    return DPFairClassifier(method, **settings).set_params(**params)
