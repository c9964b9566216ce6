"""scikit-learn's own checks, for every registered method, with no expected failure."""

import warnings

import pytest
from sklearn.utils.estimator_checks import estimator_checks_generator

from skdpfair import METHODS, DPFairClassifier
from skdpfair.postprocessing import DPThresholdClassifier


def _estimators():
    # the checks want the class of the larger probability, as at the threshold .5
    plain = DPFairClassifier("dpsgd", epsilon=None, noise_multiplier=0.0, random_state=0)
    yield "threshold", DPThresholdClassifier(plain, objective=None, calibration="platt")
    for name, method in sorted(METHODS.items()):
        params = {"method": name, "group_col": "target" if method.needs_groups else None}
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
]


@pytest.mark.parametrize("estimator, check", CASES)
def test_scikit_learn_accepts(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few rows and fixed seeds are the checks' own choice
        check(estimator)
