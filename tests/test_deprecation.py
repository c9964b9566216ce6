"""Old names work until they are removed, and a warning names the new ones."""

import sys
from types import ModuleType

import pytest
from sklearn.base import BaseEstimator, clone
from sklearn.pipeline import Pipeline

from skdpfair._deprecation import renamed_attributes, renamed_parameters
from skdpfair.metrics import privacy_cost

WARNING = r"'old' was renamed 'new'\. The old name will be removed in version 0\.3\."


@renamed_parameters("0.3", old="new")
class Estimator(BaseEstimator):
    def __init__(self, other=0, *, new=1):
        self.other = other
        self.new = new


def test_an_old_parameter_sets_the_new_one_and_the_callers_line_is_named():
    with pytest.warns(FutureWarning, match=WARNING) as warned:
        made = Estimator(old=5)
    assert warned[0].filename == __file__
    assert made.get_params() == {"other": 0, "new": 5}


def test_searches_may_set_the_old_parameter_and_clones_do_not_warn():
    pipeline = Pipeline([("last", Estimator(7, new=2))])  # new names warn of nothing
    with pytest.warns(FutureWarning, match=WARNING):
        pipeline.set_params(last__old=3)
    assert clone(pipeline)[-1].get_params() == {"other": 7, "new": 3}


def test_a_parameter_given_by_both_names_is_refused():
    with pytest.raises(TypeError, match="'new' was given twice, as 'old' too"):
        Estimator(old=1, new=1)


def test_unknown_parameters_are_refused_as_before():
    with pytest.raises(TypeError, match="unknown"):
        Estimator(unknown=1)


def test_an_old_name_in_a_module_is_the_new_object(monkeypatch):
    module = ModuleType("with_old_names")
    path = "skdpfair.metrics.privacy_cost"
    module.__getattr__ = renamed_attributes("with_old_names", "0.3", cost=path)
    monkeypatch.setitem(sys.modules, "with_old_names", module)
    with pytest.warns(FutureWarning, match=f"'with_old_names.cost' was renamed '{path}'") as warned:
        from with_old_names import cost
    assert cost is privacy_cost
    assert warned[0].filename == __file__
    with pytest.raises(AttributeError, match="'with_old_names' has no attribute 'other'"):
        _ = module.other
