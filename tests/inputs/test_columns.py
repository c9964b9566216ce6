"""Columns of any container: conversions, indexes and refusals."""

import datetime

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.model_selection import permutation_test_score

from skdpfair import DPFairClassifier
from skdpfair.inputs.columns import check_indexes, one_column, refuse_dates, refuse_unreadable
from skdpfair.metrics import privacy_cost
from skdpfair.metrics._arguments import accuracy
from skdpfair.preprocessing import (
    BoundedScaler,
    DPQuantileScaler,
    TableSchema,
    outside_public,
    public_preprocessor,
)

Y = pd.Series([0, 1, 1, 0], name="answer")
SHUFFLED, TABLE = Y.iloc[[2, 0, 3, 1]], pd.DataFrame({"a": Y}, index=Y.index + 10)
BORN = pd.Series(pd.date_range("2020", periods=3))
DATES = {
    "dates": BORN,
    "durations": BORN - BORN[0],
    "zones": BORN.dt.tz_localize("UTC"),
    "periods": BORN.dt.to_period("M"),
    "objects": BORN.dt.date,
    "objects of one day": pd.Series([datetime.date(2020, 1, 1)] * 3),
}


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"X": Y.to_frame(), "y": SHUFFLED}, r"^y has .* than X.*y\.loc\[X\.index\]"),
        ({"X": TABLE, "y": Y}, r"^y has another index than X.* y\.to_numpy"),
        ({"y": Y, "groups": {"a": SHUFFLED}}, r"^groups\['a'\] has another index than y"),
    ],
)
def test_check_indexes_refuses_values_of_other_rows(arguments, match):
    with pytest.raises(ValueError, match=match):
        check_indexes(**arguments)
    # of transformers, and without an index
    check_indexes(X=TABLE.reset_index(drop=True), y=Y.set_axis(list("abcd")), groups={"b": [1]})


@pytest.mark.filterwarnings("ignore::skdpfair.exceptions.LowSignalWarning")
def test_shuffled_labels_are_a_warning_in_fits_and_an_error_in_metrics():
    rows = pd.DataFrame({"a": np.arange(60.0)}), pd.Series(np.arange(60) % 2)
    model = DPFairClassifier("dpsgd", module="logistic", max_steps=1)
    with pytest.warns(UserWarning, match="^y has another index"):
        permutation_test_score(model, *rows, n_permutations=2, cv=2)
    with pytest.raises(ValueError, match="has another index than"):
        privacy_cost(Y, SHUFFLED, y_ref=Y)


def test_one_column_has_one_dimension():
    for values in (Y, Y.to_frame(), Y.tolist(), Y.array, torch.tensor(Y)):
        assert one_column("y", values, "one label").tolist() == [0, 1, 1, 0]


@pytest.mark.parametrize("kind", DATES)
def test_refuse_dates_names_columns_without_a_unit(kind):
    table = pd.DataFrame({"born": DATES[kind], "b": [0.5] * 3})
    prepare = public_preprocessor({"born": (0, 1), "b": (-3, 3)})
    for call in (
        lambda: refuse_dates("X", table),
        lambda: prepare.fit_transform(table),
        lambda: BoundedScaler((0, 1)).fit(table),
        lambda: DPFairClassifier("dpsgd").fit(table, [0, 1, 0]),
    ):
        with pytest.raises(ValueError, match=r"X has .*dates or times \['born'\].*column - "):
            call()


@pytest.mark.parametrize("kind", DATES)
def test_dates_and_durations_are_refused_where_limits_are_numbers(kind):
    table = pd.DataFrame({"born": DATES[kind]})
    facts = {"target": "y", "classes": ["a", "b"], "bounds": {"n": (0, 9)}}
    binned = TableSchema(bins={"born": [1960]}, **facts)
    for read in (
        BoundedScaler((1940, 2010)).fit(np.eye(1)).transform,
        DPQuantileScaler(bounds={"born": (0, 9)}).fit,
        lambda rows: outside_public(rows, {"born": (0, 9)}),
        lambda rows: BoundedScaler().fit(rows.to_numpy()),
        lambda rows: binned.split(rows.assign(n=0, y="a")),
        lambda rows: accuracy(range(3), range(3), sample_weight=rows["born"]),
        lambda rows: DPFairClassifier().fit(np.eye(3), [0, 1, 0], sample_weight=rows["born"]),
    ):
        with pytest.raises(ValueError, match="dates or times"):
            read(table)


@pytest.mark.parametrize(
    ("values", "kind", "match"),
    [
        ([np.ones((2, 2)), np.ones((3, 2))], ValueError, r"X .*such as \(2, 2\) and \(3, 2\)"),
        (pd.DataFrame({"a": pd.arrays.SparseArray([0, 1])}), TypeError, r"X\.sparse\.to_dense"),
    ],
)
def test_refuse_unreadable_names_the_remedy(values, kind, match):
    with pytest.raises(kind, match=match):
        refuse_unreadable("X", values)
