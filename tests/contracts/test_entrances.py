"""What comes in by another form than meant is refused with a remedy, or taken as it is meant."""

import os
import re
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from sklearn.pipeline import make_pipeline
from torch import nn

from skdpfair import DPFairClassifier, load_release
from skdpfair.exceptions import InfeasibleBudgetError, UnsupportedModuleError
from skdpfair.metrics import group_table, privacy_cost
from skdpfair.model_selection import DPThresholdClassifier
from skdpfair.preprocessing import BoundedScaler, TableSchema, lint_pipeline, public_preprocessor

pytestmark = pytest.mark.filterwarnings("ignore::skdpfair.exceptions.LowSignalWarning")
RNG = np.random.default_rng(0)
N = 400
X = pd.DataFrame(RNG.normal(size=(N, 3)).clip(-3, 3), columns=list("abc"))
Y = pd.Series(np.where(X["a"] > 0, "yes", "no"), name="answer")
GROUP = pd.Series(RNG.choice(["u", "v"], N), name="group")


def quick(**params):
    settings = {"epsilon": 3.0, "module": "logistic", "max_steps": 3, "lr": 0.5}
    return DPFairClassifier("dpsgd", **settings | params)


# --- columns ----------------------------------------------------------------------------------

BORN = pd.Series(pd.Timestamp("1990-01-01") + pd.to_timedelta(np.arange(N), "D"))
DATES = {
    "dates": BORN,
    "durations": BORN - BORN[0],
    "objects": BORN.dt.date,
    "zones": BORN.dt.tz_localize("UTC"),
    "periods": BORN.dt.to_period("M"),
}


@pytest.mark.parametrize("kind", DATES)
def test_dates_have_no_unit_under_bounds(kind, tmp_path):
    table = pd.DataFrame({"born": DATES[kind], "b": X["b"]})
    bounds = {"born": (0, 1), "b": (-3, 3)}
    with pytest.raises(ValueError, match=r"dates or times \['born'\].*column - "):
        public_preprocessor(bounds).fit_transform(table)
    with pytest.raises(ValueError, match="dates or times"):
        BoundedScaler((0, 1)).fit_transform(table)
    if kind in ("dates", "durations"):
        pytest.importorskip("pyarrow")
        table.assign(answer=Y).to_parquet(tmp_path / "t.parquet")
        schema = TableSchema(bounds=bounds, target="answer", classes=["no", "yes"])
        with pytest.raises(ValueError, match="'born'"):
            schema.encode_parquet(tmp_path / "t.parquet", tmp_path / "out.npy")


def test_a_number_under_passthrough_is_noted():
    steps = public_preprocessor({"a": (-3, 3)}, passthrough=["b", "group"])
    grouped = make_pipeline(steps, quick(group_col="group"))
    assert re.search(r"\['b'\] under passthrough", str(lint_pipeline(grouped)))
    alone = public_preprocessor({"a": (-3, 3)}, passthrough=["group"])
    alone = make_pipeline(alone, quick(group_col="group"))
    assert "under passthrough" not in str(lint_pipeline(alone))


def test_categories_of_types_are_taken_as_declared():
    wards = pd.CategoricalDtype(["north", "south", "west"])
    table = pd.DataFrame({"a": X["a"], "ward": pd.Series(["south"] * N, dtype=wards)})
    steps = public_preprocessor({"a": (-3, 3)}, categories="dtype")
    encoded = steps.fit_transform(table)
    assert [c for c in encoded if "ward" in c] == [f"ward_{w}" for w in wards.categories]
    assert encoded["ward_south"].all() and not encoded["ward_west"].any()
    assert "must be public" in str(lint_pipeline(make_pipeline(steps, quick())))
    read = type("DataFrame", (), {"__module__": "polars", "schema": {"ward": "Categorical"}})
    arrow = pytest.importorskip("pyarrow")
    dictionary = arrow.array(["south"] * N).dictionary_encode()
    for rows in (read(), arrow.table({"a": X["a"], "ward": dictionary})):
        with pytest.raises(ValueError, match=r"\['ward'\] of polars' Categorical.*pl.Enum"):
            steps.fit_transform(rows)


def test_bounds_have_a_finite_width():
    with pytest.raises(ValueError, match=r"bounds must be a pair .* of a finite width"):
        public_preprocessor({"a": (-1e308, 1e308)})


def test_a_table_that_lost_listed_texts_is_named(tmp_path):
    table = X.assign(country=np.where(X["a"] > 0, "NA", "None"), answer=Y)
    schema = TableSchema(
        bounds={"b": (-3, 3)},
        categories={"country": ["NA", "None"]},
        target="answer",
        classes=["no", "yes"],
    )
    table.to_csv(tmp_path / "t.csv", index=False)
    model = make_pipeline(schema.preprocessor(), quick()).fit(table[["b", "country"]], Y)
    model[-1].save_release(tmp_path / "m.safetensors", schema=schema)
    loaded = load_release(tmp_path / "m.safetensors")
    with pytest.warns(UserWarning, match=r"\['country'\] hold values that categories does not"):
        loaded.predict(pd.read_csv(tmp_path / "t.csv"))
    own = schema.read_csv(tmp_path / "t.csv")
    assert (loaded.predict(own) == model.predict(table[["b", "country"]])).all()


# --- targets and predictions ------------------------------------------------------------------


DISPATCHED = """
import torch
from sklearn import set_config
from skdpfair import DPFairClassifier, DPFairRegressor
set_config(array_api_dispatch=True)
x = torch.rand(400, 3)
y = (x[:, 0] > 0.5).long()
model = DPFairClassifier("dpsgd", epsilon=8.0, max_steps=20).fit(x, y)
assert model.score(x, y) > 0.5
DPFairRegressor("dpsgd", epsilon=8.0, max_steps=3, y_range=(0, 1)).fit(x, y.float())
"""


def test_tensors_are_targets_under_dispatch():
    settings = os.environ | {"SCIPY_ARRAY_API": "1"}  # before scipy is imported
    subprocess.run([sys.executable, "-c", DISPATCHED], env=settings, check=True)


def test_probabilities_are_no_predictions():
    likely = quick().fit(X, Y == "yes").predict_proba(X)[:, 1]
    for measure in (
        lambda: privacy_cost(Y == "yes", likely, y_ref=likely),
        lambda: group_table(Y == "yes", {"m": likely}, reference="m", sensitive_features=GROUP),
    ):
        with pytest.raises(ValueError, match="fractions that are none"):
            measure()


def ends_with(*last):
    """Return a function that makes a network with these layers at its end."""
    return lambda: nn.Sequential(nn.Linear(3, 2), *last)


@pytest.mark.parametrize("last", [nn.Softmax(1), nn.Sigmoid()], ids=str)
def test_outputs_are_no_probabilities(last):
    with pytest.raises(UnsupportedModuleError, match="Leave that layer out"):
        quick(module=ends_with(last)).fit(X.to_numpy(np.float32), Y)


@pytest.mark.parametrize("last", [nn.LogSoftmax(1), nn.Tanh(), nn.ReLU()], ids=str)
def test_outputs_of_some_range_are_taken(last):
    quick(module=ends_with(last)).fit(X.to_numpy(np.float32), Y)


def test_logarithms_are_those_of_the_probabilities():
    model = quick().fit(X, Y)
    expected = np.log(model.predict_proba(X))
    np.testing.assert_allclose(model.predict_log_proba(X), expected, atol=1e-6)
    chosen = DPThresholdClassifier(quick()).fit(X, Y)
    expected = np.log(chosen.predict_proba(X))
    np.testing.assert_allclose(chosen.predict_log_proba(X), expected, atol=1e-6)
    far = quick(epsilon=None, noise_multiplier=0.0, lr=1e4).fit(X, Y)
    assert np.isfinite(far.predict_log_proba(X)).all()


# --- budgets ----------------------------------------------------------------------------------

FITS = {
    "plain": lambda e: quick(epsilon=e, max_steps=None, lr="auto"),
    "counts of groups": lambda e: DPFairClassifier("dp_is_sgd", epsilon=e),
    "threshold": lambda e: DPThresholdClassifier(DPFairClassifier(epsilon=e)),
}


@pytest.mark.parametrize("kind", FITS)
def test_a_feasible_number_is_feasible(kind):
    rows = X[:100], Y[:100]
    given = {"sensitive_features": GROUP[:100]}
    with pytest.raises(InfeasibleBudgetError) as caught:
        FITS[kind](0.003).fit(*rows, **given)
    named = float(re.search(r"epsilon=([\d.]+) is feasible", str(caught.value))[1])
    FITS[kind](named).fit(*rows, **given)
