"""Private searches over quick fits."""

from skdpfair import DPFairClassifier
from skdpfair.model_selection import DPRandomizedSearch

NAME = "dpfairclassifier__"


def base(method="dpsgd", **params):
    params = {"noise_multiplier": 3.0, "max_steps": 5, "batch_size": 60} | params
    return DPFairClassifier(method, epsilon=None, **{"accountant": "rdp"} | params)


def searching(estimator=None, space=None, **params):
    estimator = estimator or base()
    name = "" if isinstance(estimator, DPFairClassifier) else NAME
    space = {name + "lr": [0.1, 1.0]} if space is None else space
    return DPRandomizedSearch(estimator, space, **{"mean_trials": 3.0} | params)
