"""scikit-learn's own checks, for each kind of estimator as users construct it.

One is left out.  A weight of 2 is not two records, which may move the sum by twice the bound; a
record of weight 0 still counts in n; and fits to different records must not have the same noise.
"""

import inspect
import warnings
from typing import get_type_hints

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import estimator_checks_generator

from skdpfair import DPFairClassifier, DPFairRegressor
from skdpfair.model_selection import DPRandomizedSearch, DPThresholdClassifier

EXCEPTION = "check_sample_weight_equivalence"
EXACT = DPFairClassifier(epsilon=None, noise_multiplier=0.0, max_steps=60, random_state=0)
ESTIMATORS = {
    "private": DPFairClassifier("dpsgd"),
    "with groups": DPFairClassifier("global_adapt", group_col="target"),
    "not private": DPFairClassifier("sgd", epsilon=None),
    "threshold": DPThresholdClassifier(EXACT, objective="accuracy"),
    "regressor": DPFairRegressor(),
}
CASES = [
    pytest.param(estimator, check, id=f"{name}-{check.func.__name__}-{i}")
    for name, estimator in ESTIMATORS.items()
    for i, (_, check) in enumerate(estimator_checks_generator(estimator))
    if not check.func.__name__.startswith(EXCEPTION)
    # sparse matrices are read as sparse arrays are: once
    and (name == "private" or check.func.__name__ != "check_estimator_sparse_matrix")
    # wants the class of the larger probability, whatever the threshold
    and (name != "threshold" or check.func.__name__ != "check_classifiers_train")
]


@pytest.mark.parametrize("estimator, check", CASES)
def test_scikit_learn_accepts(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few rows and fixed seeds are the checks' own choice
        check(estimator)


@pytest.mark.parametrize(
    "estimator", [DPFairClassifier, DPFairRegressor, DPThresholdClassifier, DPRandomizedSearch]
)
def test_constructors_have_types(estimator):
    names = list(inspect.signature(estimator, eval_str=True).parameters)
    assert [*get_type_hints(estimator.__init__)] == [*names, "return"]


INNER = {
    "classifier": DPFairClassifier,
    "regressor": DPFairRegressor,
    "threshold": lambda: DPThresholdClassifier(DPFairClassifier()),
    "foreign": LogisticRegression,
    "nothing": lambda: None,
    "pipeline": lambda: make_pipeline(FunctionTransformer(), DPFairClassifier()),
}
OUTER = {
    "threshold": DPThresholdClassifier,
    "search": lambda estimator: DPRandomizedSearch(estimator, {"lr": [1.0]}),
    "grid": lambda estimator: GridSearchCV(DPThresholdClassifier(estimator), {"by_group": [True]}),
    "pipeline": lambda estimator: make_pipeline(DPRandomizedSearch(estimator, {"lr": [1.0]})),
}


@pytest.mark.parametrize("inner", INNER)
@pytest.mark.parametrize("outer", OUTER)
def test_wrappers_of_anything_have_a_repr_and_refuse_other_estimators_in_fit(outer, inner):
    model = OUTER[outer](INNER[inner]())
    assert repr(model) and model._repr_html_() and get_tags(model)
    assert repr(clone(model)) == repr(model) and model.get_params(deep=False)
    if inner not in ("classifier", "pipeline") and outer != "grid":
        with pytest.raises(TypeError, match="estimator must be a DPFairClassifier"):
            model.fit(np.zeros((4, 2)), [0, 1, 0, 1])
