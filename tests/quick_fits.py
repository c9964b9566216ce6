"""Quick fits to a small table of two groups, which the tests of several files share."""

import numpy as np
import pytest

from skdpfair import DPFairClassifier
from skdpfair.datasets import make_two_groups

DATA = make_two_groups(600, random_state=0)
X, Y, GROUP = DATA.data, DATA.target.to_numpy(), DATA.sensitive_features
TABLE = X.assign(group=GROUP)
QUIET = pytest.mark.filterwarnings(
    "ignore::skdpfair.exceptions.InsecureSeedWarning",
    "ignore::skdpfair.exceptions.LowSignalWarning",
)


def quick(method="dpsgd", **params):
    defaults = {"max_steps": 20, "batch_size": 100, "epsilon": 5.0, "random_state": 0}
    return DPFairClassifier(method).set_params(**defaults | params)


def weights(model):
    return np.concatenate([p.detach().numpy().ravel() for p in model.net_.module_.parameters()])
