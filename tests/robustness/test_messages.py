"""No message holds a cell, a label or a group that was not declared public."""

import copy
import re
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import GridSearchCV

from skdpfair import DPFairClassifier, Groups, get_method, metrics, report
from skdpfair.augmentations import PGD
from skdpfair.budget import PrivacyLedger
from skdpfair.model_selection import DPRandomizedSearch, GroupScorer, sweep
from skdpfair.preprocessing import BoundedScaler, DPQuantileScaler, TableSchema, public_preprocessor
from skdpfair.report import model_page
from skdpfair.testing import audit_fit

from .bad_data import NUMBER, SECRET, heard, planted

pytestmark = pytest.mark.filterwarnings("ignore::skdpfair.exceptions.LowSignalWarning")

N = 60
LABELS = np.arange(N) % 2
TEXTS = np.array(["no", "yes"])[LABELS]
GROUPS = np.where(np.arange(N) % 3 == 0, "u", "v").astype(object)
X = pd.DataFrame(np.random.default_rng(0).normal(size=(N, 3)), columns=list("abc"))
FAST = {
    "method": "dpsgd",
    "epsilon": None,
    "noise_multiplier": 1.0,
    "module": "logistic",
    "max_steps": 1,
    "lr": 0.1,
}


def cells(secret):
    """Return the features with the secret in a cell."""
    return X.astype(object).assign(b=planted(X["b"], secret))


def fit(params=None, X=X, y=LABELS, groups=None):
    DPFairClassifier(**FAST | (params or {})).fit(X, y, sensitive_features=groups)


def levels(*values):
    return {"group_col": Groups(levels=list(values))}


def grouped(params=None, groups=GROUPS, method="dpsgd_f", y=LABELS):
    fit({"method": method} | (params or {}), y=y, groups=groups)


@pytest.fixture(scope="module")
def fitted():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        clf = DPFairClassifier(**FAST, warm_start=True)
        return clf.fit(X, TEXTS, sensitive_features=GROUPS)


def again(fitted, y=TEXTS, groups=GROUPS):
    copy.deepcopy(fitted).fit(X, y, sensitive_features=groups)


def measured(name, **given):
    good = {"y_true": TEXTS, "y_pred": TEXTS, "sensitive_features": GROUPS} | given
    if name == "group_table":
        good["predictions"] = {"dpsgd": good.pop("y_pred")}
    getattr(metrics, name)(**good, **OTHERS[name])


OTHERS = {"group_table": {"reference": "dpsgd"}, "release_group_table": {"epsilon": 1.0}}


def table_file(folder, **columns):
    path = folder / "table.csv"
    frame = pd.DataFrame({"age": np.arange(N), "sex": GROUPS, "paid": TEXTS}).assign(**columns)
    frame.to_csv(path, index=False)
    return path


SCHEMA = TableSchema(
    target="paid", classes=["no", "yes"], groups={"sex": ["u", "v"]}, bounds={"age": (0, 100)}
)


def read(path, schema=SCHEMA):
    return schema.split(schema.read_csv(path))


def without_header(folder):
    path = folder / "bare.csv"
    path.write_text(f"{NUMBER},{SECRET},{SECRET}\n41,u,no\n")
    return path


ODD = np.arange(N) * 1.0
ODD[7] = NUMBER + 0.5
CASES = {
    # labels
    "labels beyond classes": lambda f, t: fit({"classes": ["no", "yes"]}, y=planted(TEXTS)),
    "labels as numbers beyond classes": lambda f, t: fit(
        {"classes": [0, 1]}, y=planted(LABELS, NUMBER).astype(int)
    ),
    "labels as classes": lambda f, t: fit({"classes": planted(TEXTS)}),
    "labels as class weights": lambda f, t: fit({"class_weight": planted(TEXTS)}),
    "class weights of other labels": lambda f, t: fit({"class_weight": {"a": 1}}, y=planted(TEXTS)),
    "labels as a parameter": lambda f, t: fit({"epsilon": planted(TEXTS)}),
    "three labels for two": lambda f, t: grouped(
        {"classes": None}, method="fairlens_dp", y=planted(TEXTS)
    ),
    # groups
    "groups beyond those declared": lambda f, t: grouped(
        {"group_col": Groups(levels=["u", "v"])}, planted(GROUPS)
    ),
    "groups in a column, beyond": lambda f, t: fit(
        {"group_col": Groups("g", ["u", "v"])}, X=X.assign(g=planted(GROUPS))
    ),
    "groups as declared ones": lambda f, t: grouped(levels(*planted(GROUPS))),
    "groups of pairs": lambda f, t: grouped(
        {"group_col": Groups(levels=[("u", 1)])}, planted(GROUPS)
    ),
    "three groups for two": lambda f, t: grouped(groups=planted(GROUPS), method="fairlens_dp"),
    "groups as the name of a column": lambda f, t: fit({"group_col": planted(GROUPS)}),
    "groups as several names": lambda f, t: fit({"group_col": pd.Series(planted(GROUPS))}),
    # features
    "a text column as features": lambda f, t: f.predict(cells(SECRET)),
    "other columns": lambda f, t: f.predict(cells(SECRET)[["a", "b"]]),
    "scores of other labels": lambda f, t: f.score(X, planted(LABELS, NUMBER).astype(int)),
    "features beyond an attack's range": lambda f, t: fit(
        {"attack": PGD(0.1, 0.1, 1, input_range=(0, 1))}, X=cells(NUMBER).astype(float)
    ),
    # public tables and second fits
    "validation labels": lambda f, t: fit(
        {"validation_data": (X, planted(LABELS, NUMBER).astype(int))}
    ),
    "validation cells": lambda f, t: fit({"validation_data": (cells(SECRET), LABELS)}),
    "validation of three": lambda f, t: fit({"validation_data": (X, planted(TEXTS), 1)}),
    "validation in a dict": lambda f, t: fit({"validation_data": {"y": planted(TEXTS)}}),
    "warm start with other labels": lambda f, t: again(f, y=planted(TEXTS)),
    "warm start with other groups": lambda f, t: again(f, groups=planted(GROUPS)),
    "warm start with one label": lambda f, t: again(f, y=[SECRET] * N),
    # searches and sweeps
    "search of other labels": lambda f, t: DPRandomizedSearch(
        DPFairClassifier(**FAST, classes=["no", "yes"]), {"lr": [0.1]}
    ).fit(X, planted(TEXTS)),
    "a scored fold with an unknown group": lambda f, t: GroupScorer()(
        f, X, TEXTS, sensitive_features=planted(GROUPS)
    ),
    "a scored fold without a group": lambda f, t: GroupScorer(levels=None)(
        f, X[:1], TEXTS[:1], sensitive_features=["u"]
    ),
    "a score by an unknown name": lambda f, t: GroupScorer(levels=[SECRET, "v"], only="f1")(
        f, X, TEXTS, sensitive_features=np.where(GROUPS == "u", SECRET, "v")
    ),
    "grid search of cells": lambda f, t: GridSearchCV(
        DPFairClassifier(**FAST), {"lr": [0.1]}, cv=2, error_score="raise"
    ).fit(cells(SECRET), LABELS),
    "sweep of a rare group": lambda f, t: sweep(
        X,
        LABELS,
        sensitive_features=planted(GROUPS),
        methods=["dpsgd"],
        epsilons=[8.0],
        seeds=1,
        module="logistic",
        max_steps=1,
    ),
    "sweep of cells": lambda f, t: sweep(
        cells(SECRET), LABELS, sensitive_features=GROUPS, methods=["dpsgd"], epsilons=[8.0], seeds=1
    ),
    "sweep without groups": lambda f, t: sweep(
        X,
        planted(TEXTS),
        sensitive_features={"g": GROUPS},
        methods=["dpsgd"],
        epsilons=[8.0],
        seeds=1,
    ),
    "audit of texts": lambda f, t: audit_fit(
        DPFairClassifier("dpsgd", epsilon=8.0), cells(SECRET), LABELS, 10
    ),
    # measures
    **{
        f"{name}, {what}": lambda f, t, n=name, g=given: measured(n, **g)
        for name in OTHERS
        for what, given in {
            "groups in a text": {"sensitive_features": SECRET},
            "groups with gaps": {"sensitive_features": [*planted(GROUPS)[:-1], None]},
            "groups that are lists": {"sensitive_features": [[[SECRET]]] * N},
            "one prediction": {"y_pred": [SECRET]},
            "predictions in a set": {"y_pred": {SECRET}},
            "predictions of complex numbers": {"y_pred": ODD + 1j},
        }.items()
    },
    "weights of text": lambda f, t: metrics.privacy_cost(
        LABELS, LABELS, y_ref=LABELS, sample_weight=planted(LABELS)
    ),
    "negative weights": lambda f, t: metrics.privacy_cost(
        LABELS, LABELS, y_ref=LABELS, sample_weight=-ODD
    ),
    "table of an unknown group": lambda f, t: metrics.release_group_table(
        TEXTS, TEXTS, sensitive_features=planted(GROUPS), levels=["u", "v"], epsilon=1.0
    ),
    "reference in texts": lambda f, t: metrics.privacy_cost(LABELS, LABELS, y_ref=planted(TEXTS)),
    "reference in fractions": lambda f, t: metrics.privacy_cost(LABELS, LABELS, y_ref=ODD),
    "risk of no chances": lambda f, t: metrics.excessive_risk(LABELS, ODD, y_ref=ODD),
    "risk of texts": lambda f, t: metrics.excessive_risk(LABELS, planted(TEXTS), y_ref=LABELS / 2),
    "training rows by text": lambda f, t: metrics.dg_gap(LABELS, LABELS, is_train=planted(TEXTS)),
    "risk of unknown labels": lambda f, t: metrics.excessive_risk(
        planted(TEXTS), np.full((N, 2), 0.5), y_ref=np.full((N, 2), 0.5), classes=["no", "yes"]
    ),
    "risk of rows that do not sum to 1": lambda f, t: metrics.excessive_risk(
        TEXTS, np.full((N, 2), 0.7), y_ref=np.full((N, 2), 0.5), classes=["no", "yes"]
    ),
    # pictures and pages
    "page of other groups": lambda f, t: model_page(
        f, X, TEXTS, sensitive_features=planted(GROUPS)
    ),
    "card of other groups": lambda f, t: report.model_card(
        f, X, TEXTS, sensitive_features=planted(GROUPS)
    ),
    "table that nobody paid for": lambda f, t: report.model_card(f, released_table=cells(SECRET)),
    "picture of a group": lambda f, t: report.PrivacyCostDisplay(
        pd.DataFrame({f"cost[{SECRET}]": [1.0]})
    ).plot(),
    # preparation
    "scaled texts": lambda f, t: BoundedScaler((0, 1)).fit_transform(cells(SECRET)),
    "scaled texts in an array": lambda f, t: BoundedScaler((0, 1)).fit_transform(
        cells(SECRET).to_numpy()
    ),
    "scaled infinity": lambda f, t: BoundedScaler((0, 1)).fit_transform(
        cells(np.inf).astype(float)
    ),
    "quantiles of texts": lambda f, t: DPQuantileScaler((0, 1)).fit(cells(SECRET)),
    "rows as bounds": lambda f, t: BoundedScaler(cells(SECRET).to_numpy()).fit(X),
    "file of a label": lambda f, t: read(table_file(t, paid=planted(TEXTS))),
    "file of a group": lambda f, t: read(table_file(t, sex=planted(GROUPS))),
    "file of a text for a number": lambda f, t: read(table_file(t, age=planted(ODD))),
    "file without a header": lambda f, t: read(without_header(t)),
}


@pytest.mark.parametrize("case", CASES)
def test_no_message_holds_a_cell(case, fitted, tmp_path):
    said = heard(lambda: CASES[case](fitted, tmp_path))
    assert said.text.strip(), "nothing was said"


REAL, WHOLE, TEXT = np.float64, np.int64, np.str_
NUMPYS_OWN = {
    "budget and noise": lambda path: fit({"epsilon": REAL(1), "noise_multiplier": REAL(2)}),
    "delta": lambda path: fit({"delta": REAL(0.5)}),
    "class": lambda path: fit({"class_weight": {WHOLE(0): REAL(1), WHOLE(5): REAL(2)}}),
    "range": lambda path: fit({"attack": PGD(REAL(0.1), input_range=(REAL(5), REAL(6)))}),
    "no delta": lambda path: PrivacyLedger(path, epsilon=REAL(1)),
    "name": lambda path: PrivacyLedger(path, delta=REAL(1e-5), data=WHOLE(3)),
    "two budgets": lambda path: [PrivacyLedger(path, epsilon=REAL(e), delta=1e-5) for e in (1, 2)],
    "schedule": lambda path: get_method("pcsgd", schedule=(REAL(1),))._validate_params(),
    "canaries": lambda path: audit_fit(DPFairClassifier(), X, LABELS, n_canaries=WHOLE(N)),
    "bounds": lambda path: BoundedScaler((REAL(1), REAL(0))).fit(X),
    "categories": lambda path: public_preprocessor({}, {TEXT("a"): [TEXT("x"), TEXT("x")]}),
    "schema": lambda path: TableSchema(target=WHOLE(3), classes=["a", "b"]),
}


@pytest.mark.parametrize("call", NUMPYS_OWN.values(), ids=NUMPYS_OWN)
def test_numbers_and_texts_of_numpy_are_shown_as_pythons_own(call, tmp_path):
    with pytest.raises((ValueError, TypeError)) as caught:
        call(tmp_path / "ledger")
    assert not re.search(r"\bnp\.|numpy", str(caught.value))
