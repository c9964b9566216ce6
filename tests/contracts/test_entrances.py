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
from skdpfair.preprocessing import TableSchema, lint_pipeline, public_preprocessor

pytestmark = pytest.mark.filterwarnings("ignore::skdpfair.exceptions.LowSignalWarning")
RNG = np.random.default_rng(0)
N = 400
X = pd.DataFrame(RNG.normal(size=(N, 3)).clip(-3, 3), columns=list("abc"))
Y = pd.Series(np.where(X["a"] > 0, "yes", "no"), name="answer")
GROUP = pd.Series(RNG.choice(["u", "v"], N), name="group")
TARGET = {"target": "answer", "classes": ["no", "yes"]}


def quick(**params):
    settings = {"epsilon": 3.0, "module": "logistic", "max_steps": 3, "lr": 0.5}
    return DPFairClassifier("dpsgd", **settings | params)


@pytest.mark.parametrize("kind", ["dates", "durations"])
def test_dates_of_a_parquet_file_are_refused_under_bounds(kind, tmp_path):
    pytest.importorskip("pyarrow")
    born = pd.Series(pd.date_range("1990", periods=N))
    table = X.assign(born=born if kind == "dates" else born - born[0], answer=Y)
    table.to_parquet(tmp_path / "t.parquet")
    schema = TableSchema(bounds={"born": (0, 1), "b": (-3, 3)}, **TARGET)
    with pytest.raises(ValueError, match="'born'"):
        schema.encode_parquet(tmp_path / "t.parquet", tmp_path / "out.npy")


@pytest.mark.parametrize("passed", [["b", "group"], ["group"]])
def test_lint_pipeline_notes_a_number_under_passthrough(passed):
    steps = public_preprocessor({"a": (-3, 3)}, passthrough=passed)
    linted = str(lint_pipeline(make_pipeline(steps, quick(group_col="group"))))
    assert ("['b'] under passthrough" in linted) == ("b" in passed)


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


def test_public_bounds_must_have_a_finite_width():
    with pytest.raises(ValueError, match=r"bounds must be a pair .* finite"):
        public_preprocessor({"a": (-1e308, 1e308)})


def test_a_table_that_lost_listed_texts_is_named(tmp_path):
    table = X.assign(country=np.where(X["a"] > 0, "NA", "None"), answer=Y)
    schema = TableSchema(bounds={"b": (-3, 3)}, categories={"country": ["NA", "None"]}, **TARGET)
    table.to_csv(tmp_path / "t.csv", index=False)
    features = table[["b", "country"]]
    model = make_pipeline(schema.preprocessor(), quick()).fit(features, Y)
    model[-1].save_release(tmp_path / "m.safetensors", schema=schema)
    loaded = load_release(tmp_path / "m.safetensors")
    with pytest.warns(UserWarning, match=r"\['country'\] hold values"):
        loaded.predict(pd.read_csv(tmp_path / "t.csv"))
    own = schema.read_csv(tmp_path / "t.csv")
    assert (loaded.predict(own) == model.predict(features)).all()


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
    likely, y = quick().fit(X, Y == "yes").predict_proba(X)[:, 1], Y == "yes"
    for measure in (
        lambda: privacy_cost(y, likely, y_ref=likely),
        lambda: group_table(y, {"m": likely}, reference="m", sensitive_features=GROUP),
    ):
        with pytest.raises(ValueError, match="fractions"):
            measure()


@pytest.mark.parametrize(
    "last",
    [nn.Softmax(1), nn.Sigmoid(), nn.LogSoftmax(1), nn.Tanh(), nn.ReLU()],
    ids=lambda layer: type(layer).__name__,
)
def test_outputs_of_some_range_are_taken_but_no_probabilities(last):
    model = quick(module=lambda: nn.Sequential(nn.Linear(3, 2), last))
    rows = X.to_numpy(np.float32), Y
    if not isinstance(last, (nn.Softmax, nn.Sigmoid)):
        model.fit(*rows)
        return
    with pytest.raises(UnsupportedModuleError, match="Leave that layer out"):
        model.fit(*rows)


def test_predict_log_proba_is_the_logarithm_of_predict_proba():
    for model in (quick(), DPThresholdClassifier(quick())):
        model.fit(X, Y)
        expected = np.log(model.predict_proba(X))
        np.testing.assert_allclose(model.predict_log_proba(X), expected, atol=1e-6)
    far = quick(epsilon=None, noise_multiplier=0.0, lr=1e4).fit(X, Y)
    assert np.isfinite(far.predict_log_proba(X)).all()


FITS = {
    "plain": lambda e: quick(epsilon=e, max_steps=None, lr="auto"),
    "counts of groups": lambda e: DPFairClassifier("dp_is_sgd", epsilon=e),
    "threshold": lambda e: DPThresholdClassifier(DPFairClassifier(epsilon=e)),
}


@pytest.mark.parametrize("kind", FITS)
def test_the_epsilon_that_an_error_calls_feasible_is_feasible(kind):
    rows, given = (X[:100], Y[:100]), {"sensitive_features": GROUP[:100]}
    with pytest.raises(InfeasibleBudgetError) as caught:
        FITS[kind](0.003).fit(*rows, **given)
    named = float(re.search(r"epsilon=([\d.]+) is feasible", str(caught.value))[1])
    FITS[kind](named).fit(*rows, **given)
