"""scikit-learn's own checks, for every registered method.

One is left out: a weight of 2 is not two records.  It multiplies a gradient before it is clipped,
where two records may move the sum by twice the bound; and a record of weight 0 still counts in n.
Sparse rows are made dense before a method sees them, so one method is checked with them.
"""

import warnings

import pytest
from sklearn.utils.estimator_checks import estimator_checks_generator

from skdpfair import METHODS, DPFairClassifier
from skdpfair.postprocessing import DPThresholdClassifier

STEPS = 60  # enough for the little accuracy that the checks want


def _estimators():
    # the checks want the class of the larger probability, as at the threshold .5
    plain = DPFairClassifier("dpsgd", epsilon=None, noise_multiplier=0.0, random_state=0)
    plain.set_params(max_steps=STEPS)
    yield "threshold", DPThresholdClassifier(plain, objective=None, calibration="platt")
    for name, method in sorted(METHODS.items()):
        groups = "target" if method.needs_groups else None
        params = {"method": name, "group_col": groups, "max_sample_weight": 100.0}
        params["max_steps"] = STEPS if method.private else 2 * STEPS  # small groups need more
        if not method.private:
            yield f"{name}-not_private", DPFairClassifier(**params, epsilon=None)
            continue
        off = DPFairClassifier(**params, epsilon=None, noise_multiplier=0.0)
        yield f"{name}-no_noise", off
        yield f"{name}-epsilon_8", DPFairClassifier(**params, epsilon=8.0)


CASES = [
    pytest.param(estimator, check, id=f"{name}-{check.func.__name__}-{i}")
    for name, estimator in _estimators()
    for i, (_, check) in enumerate(estimator_checks_generator(estimator))
    if not check.func.__name__.startswith("check_sample_weight_equivalence")
    and (
        "sparse" not in check.func.__name__
        or name in ("threshold", "dpsgd-no_noise", "sgd-not_private")
    )
]


@pytest.mark.parametrize("estimator, check", CASES)
def test_scikit_learn_accepts(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few rows and fixed seeds are the checks' own choice
        check(estimator)
