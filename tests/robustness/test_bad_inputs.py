"""What cannot be used is refused by name, at once, and leaves nothing behind."""

import re
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.exceptions import NotFittedError

import skdpfair.training.loop
from skdpfair import DPFairClassifier, Groups, Persons, get_method
from skdpfair._utils.validate import safe_repr
from skdpfair.exceptions import LowSignalWarning
from skdpfair.methods import METHODS
from skdpfair.metrics import group_table, privacy_cost

from .bad_data import BAD_GROUPS, BAD_X, BAD_Y, A, F, X, Y, outcome_of
from .bad_values import FIELDS, TABLE, HostileAll, HostileLen

BASE = {"method": "dpsgd", "epsilon": 3.0, "group_col": "g", "max_steps": 6, "batch_size": 40}
FLAT = {k: v for k, v in BASE.items() if k != "group_col"}


@pytest.fixture(autouse=True)
def nothing_is_trained_or_written(monkeypatch, tmp_path):
    def trained(*args, **kwargs):
        raise AssertionError("a step was taken before the input was refused")

    monkeypatch.setattr(skdpfair.training.loop, "private_step", trained)
    monkeypatch.chdir(tmp_path)
    torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)  # the first takes seconds
    yield
    assert not list(tmp_path.iterdir())


def refused(names, params, X=X, y=Y, **fit_params):
    """Check that a fit is refused by name, in silence, and that the fit before is untouched."""
    model = DPFairClassifier().set_params(**params)
    model.net_ = model.privacy_ = model.classes_ = object()  # as if fitted before
    before = dict(vars(model))
    generators = torch.get_rng_state(), np.random.get_state()[1].copy()
    outcome = outcome_of(lambda: model.fit(X, y, **fit_params))
    assert isinstance(outcome.error, (ValueError, TypeError)), outcome.text
    assert {w.category for w in outcome.warned} <= {LowSignalWarning}  # few rows
    message = str(outcome.error)
    names = [names] if isinstance(names, str) else names
    assert any(re.search(rf"(?<![A-Za-z_]){name}(?![A-Za-z_])", message) for name in names), message
    assert len(message) < 2500
    assert vars(model).keys() == before.keys()
    assert all(value is before[name] for name, value in vars(model).items())
    assert torch.equal(generators[0], torch.get_rng_state())
    np.testing.assert_array_equal(generators[1], np.random.get_state()[1])


def some_of(values, position):
    """Return a quarter of the values, another for each of four positions."""
    return values[position % 4 :: 4]


OWN = {name: BASE | ({} if m.private else {"epsilon": None}) for name, m in METHODS.items()}
BAD_PARAMETERS = [  # name in messages, a function of a value to parameters, bad values
    (name, lambda value, n=name, o=others: BASE | o | {n: value}, [*bad, *some_of(more, i)])
    for i, (name, others, bad, more) in enumerate(TABLE)
]
BAD_PARAMETERS += [
    (
        f"{method}.{field}",
        lambda value, m=method, f=field: OWN[m] | {"method": get_method(m, **{f: value})},
        some_of(values, i),
    )
    for i, (method, field, values) in enumerate(FIELDS)
]


@pytest.mark.parametrize(
    ("name", "make", "values"), BAD_PARAMETERS, ids=[name for name, *_ in BAD_PARAMETERS]
)
def test_bad_parameters_are_refused_by_name(name, make, values):
    for value in values:
        try:
            refused(re.split(r"\.|__", name), make(value))
        except BaseException as error:
            error.add_note(f"{name}={safe_repr(value)}")
            raise


def test_the_table_of_bad_values_has_every_parameter():
    assert {n.partition("__")[0] for n, *_ in TABLE} == {*DPFairClassifier().get_params(deep=False)}
    assert sum(len(values) for *_, values in BAD_PARAMETERS) >= 900


@pytest.mark.parametrize("case", BAD_X)
def test_fit_refuses_bad_features(case):
    refused("X", FLAT, X=BAD_X[case])


@pytest.mark.parametrize("case", BAD_Y)
def test_fit_refuses_bad_labels(case):
    refused("y", FLAT, X=A, y=BAD_Y[case])


@pytest.mark.parametrize("case", BAD_GROUPS)
def test_fit_refuses_bad_groups(case):
    params = FLAT | {"method": "dpsgd_f"}
    refused("sensitive_features", params, X=A, sensitive_features=BAD_GROUPS[case])


LEVELS = pd.MultiIndex.from_tuples([("a", "u"), ("a", "v"), ("s", "k")])
DEEP = pd.DataFrame(A, columns=LEVELS)


@pytest.mark.parametrize(
    ("table", "params", "kind", "match"),
    [
        ({"a": [1.0] * len(A)}, {}, ValueError, "X is a dict.*DataFrame"),
        ((i for i in range(3)), {}, ValueError, "X is a generator.*DataFrame"),
        (torch.tensor(A).to_sparse(), {}, TypeError, r"X.to_dense\(\)"),
        (DEEP, {"group_col": ("s", "k")}, ValueError, r"columns of several levels.*X\.columns ="),
        (DEEP, {"persons": Persons("s")}, ValueError, r"columns of several levels.*X\.columns ="),
    ],
)
def test_refused_tables_are_named_with_the_remedy(table, params, kind, match):
    with pytest.raises(kind, match=match):
        DPFairClassifier(**FLAT | params).fit(table, Y)


TOGETHER = {
    "name of no column": ("group_col", {"group_col": "h"}, {}),
    "name of two columns": ("X", {}, {"X": pd.concat([X, X[["g"]]], axis=1)}),
    "name twice, by position": ("group_col", {"group_col": ["g", 3]}, {}),
    "name in an array": ("group_col", {}, {"X": A}),
    "no groups for levels": ("levels", {"group_col": Groups(levels=["u", "v"])}, {"X": A}),
    "undeclared groups": ("levels", {"group_col__levels": ["u", "w"]}, {}),
    "pairs for one column": ("levels", {"group_col__levels": [("u", 1), ("v", 2)]}, {}),
    "no pairs for two columns": ("levels", {"group_col": Groups(["g", "target"], ["u"])}, {}),
    "undeclared classes": ("classes", {"classes": [1, 2]}, {}),
    "classes of another type": ("classes", {"classes": ["0", "1"]}, {}),
    "module of many inputs": ("module", {"module": lambda: torch.nn.Linear(7, 2)}, {}),
    "cnn on a table": ("module", {"module": "cnn"}, {}),
    "two learning rates": ("lr", {"lr": 0.1, "optimizer__lr": 0.2}, {}),
}


@pytest.mark.parametrize("case", TOGETHER)
def test_parameters_and_data_that_do_not_fit_together_are_refused(case):
    names, params, given = TOGETHER[case]
    refused(names, BASE | params, **({"X": X} | given))


UNLIKE_FIT = [np.ones((5, 4)), np.ones((5, 3, 2)), np.ones((5, 3, 0))]
UNLIKE_FIT += [F[["c", "a", "b"]], F.rename(columns={"a": "z"}), X, F[["a", "b"]]]


@pytest.fixture(scope="module", params=["logistic", "custom"])
def fitted(request):
    module = "logistic" if request.param == "logistic" else lambda: torch.nn.Linear(3, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        params = FLAT | {"module": module, "epsilon": None, "noise_multiplier": 0.0}
        return [DPFairClassifier(**params).fit(features, Y) for features in (A, F)]


@pytest.mark.parametrize("method", ["predict", "predict_proba", "decision_function"])
def test_predictions_refuse_bad_features_by_name(fitted, method):
    of_array, of_frame = (getattr(model, method) for model in fitted)
    with pytest.raises(NotFittedError):
        getattr(DPFairClassifier(), method)(A)
    bad = [value for case, value in BAD_X.items() if case != "one row short"]
    for value in bad + UNLIKE_FIT:
        is_named = isinstance(value, pd.DataFrame) and value.columns.inferred_type == "string"
        predict = of_frame if is_named else of_array
        with pytest.raises((ValueError, TypeError), match=r"\bX\b|feature names"):
            predict(value)
    for value in (np.ones((5, 3, 2)), np.ones((5, 4)), np.full((5, 3), np.nan)):
        with pytest.raises(ValueError, match=r"\bX\b"):  # not the warning of missing names
            of_frame(value)


@pytest.mark.parametrize(
    "value", [None, 3, [[1, [2]]], HostileLen(), HostileAll(), {}], ids=range(6)
)
def test_metrics_refuse_bad_arguments_by_name(value):
    good = {"y_true": Y, "y_pred": Y, "y_ref": Y}
    for name in good:
        with pytest.raises((ValueError, TypeError), match=rf"\b({name}|y_true)\b"):
            privacy_cost(**(good | {name: value}))
    good = {"y_true": Y, "predictions": {"m": Y}, "sensitive_features": X["g"], "reference": "m"}
    for name in ("predictions", "sensitive_features"):
        with pytest.raises((ValueError, TypeError), match=rf"\b{name}\b"):
            group_table(**(good | {name: value}))
