"""No message holds a cell, a label or a group that was not declared public."""

import copy
import re
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import GridSearchCV

from skdpfair import DPFairClassifier, Groups, get_method, metrics
from skdpfair.augmentations import PGD
from skdpfair.budget import PrivacyLedger
from skdpfair.model_selection import DPRandomizedSearch, GroupScorer, sweep
from skdpfair.preprocessing import BoundedScaler, DPQuantileScaler, TableSchema, public_preprocessor
from skdpfair.report import PrivacyCostDisplay, model_card, model_page
from skdpfair.testing import audit_fit

from .bad_data import NUMBER, SECRET, outcome_of, planted

pytestmark = pytest.mark.filterwarnings("ignore::skdpfair.exceptions.LowSignalWarning")

N = 60
LABELS = np.arange(N) % 2
TEXTS = np.array(["no", "yes"])[LABELS]
GROUPS = np.where(np.arange(N) % 3 == 0, "u", "v").astype(object)
X = pd.DataFrame(np.random.default_rng(0).normal(size=(N, 3)), columns=list("abc"))
FAST = {"method": "dpsgd", "epsilon": None, "noise_multiplier": 1.0}
FAST |= {"module": "logistic", "max_steps": 1, "lr": 0.1}
ODD = np.arange(N) * 1.0
ODD[7] = NUMBER + 0.5
HALVES = np.full((N, 2), 0.5)
ODD_TEXTS, ODD_GROUPS, ODD_LABELS = planted(TEXTS), planted(GROUPS), planted(LABELS)
ODD_CODES = planted(LABELS, NUMBER).astype(int)
U_V = {"group_col": Groups(levels=["u", "v"])}


def cells(secret):
    """Return the features with the secret in a cell."""
    return X.astype(object).assign(b=planted(X["b"], secret))


CELLS = cells(SECRET)


def fit(X=X, y=LABELS, groups=None, **params):
    DPFairClassifier(**FAST | params).fit(X, y, sensitive_features=groups)


def grouped(groups=GROUPS, method="dpsgd_f", **params):
    fit(method=method, groups=groups, **params)


@pytest.fixture(scope="module")
def fitted():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        clf = DPFairClassifier(**FAST, warm_start=True)
        return clf.fit(X, TEXTS, sensitive_features=GROUPS)


def again(fitted, y=TEXTS, groups=GROUPS):
    copy.deepcopy(fitted).fit(X, y, sensitive_features=groups)


def swept(X=X, y=LABELS, groups=GROUPS):
    settings = {"seeds": 1, "module": "logistic", "max_steps": 1}
    sweep(X, y, sensitive_features=groups, methods=["dpsgd"], epsilons=[8.0], **settings)


def scored(fitted, n, groups, **params):
    GroupScorer(**params)(fitted, X[:n], TEXTS[:n], sensitive_features=groups)


OTHERS = {"group_table": {"reference": "dpsgd"}, "release_group_table": {"epsilon": 1.0}}


def measured(name, **given):
    good = {"y_true": TEXTS, "y_pred": TEXTS, "sensitive_features": GROUPS} | given
    if name == "group_table":
        good["predictions"] = {"dpsgd": good.pop("y_pred")}
    getattr(metrics, name)(**good, **OTHERS[name])


def cost(**given):
    metrics.privacy_cost(**{"y_true": LABELS, "y_pred": LABELS, "y_ref": LABELS} | given)


def risk(y, probabilities, reference=HALVES, **params):
    metrics.excessive_risk(y, probabilities, y_ref=reference, **params)


def read(folder, bare=None, **columns):
    """Read a table from a file, of which some columns are others, or all the text is."""
    schema = TableSchema(
        target="paid", classes=["no", "yes"], groups={"sex": ["u", "v"]}, bounds={"age": (0, 100)}
    )
    path = folder / "table.csv"
    frame = pd.DataFrame({"age": np.arange(N), "sex": GROUPS, "paid": TEXTS}).assign(**columns)
    path.write_text(bare or frame.to_csv(index=False))
    schema.split(schema.read_csv(path))


FLAWS = {
    "groups in a text": {"sensitive_features": SECRET},
    "groups with gaps": {"sensitive_features": [*ODD_GROUPS[:-1], None]},
    "groups that are lists": {"sensitive_features": [[[SECRET]]] * N},
    "one prediction": {"y_pred": [SECRET]},
    "predictions in a set": {"y_pred": {SECRET}},
    "predictions of complex numbers": {"y_pred": ODD + 1j},
}
OF_CLASSES, BEYOND = {"classes": ["no", "yes"]}, PGD(0.1, 0.1, 1, input_range=(0, 1))
CASES = {  # of a fitted classifier and a folder
    # labels
    "labels beyond classes": lambda f, t: fit(y=ODD_TEXTS, **OF_CLASSES),
    "labels as numbers beyond classes": lambda f, t: fit(y=ODD_CODES, classes=[0, 1]),
    "labels as classes": lambda f, t: fit(classes=ODD_TEXTS),
    "labels as class weights": lambda f, t: fit(class_weight=ODD_TEXTS),
    "class weights of other labels": lambda f, t: fit(y=ODD_TEXTS, class_weight={"a": 1}),
    "labels as a parameter": lambda f, t: fit(epsilon=ODD_TEXTS),
    "three labels for two": lambda f, t: grouped(method="fairlens_dp", y=ODD_TEXTS),
    # groups
    "groups beyond those declared": lambda f, t: grouped(ODD_GROUPS, **U_V),
    "groups in a column, beyond": lambda f, t: fit(
        X.assign(g=ODD_GROUPS), group_col=Groups("g", ["u", "v"])
    ),
    "groups as declared ones": lambda f, t: grouped(group_col=Groups(levels=[*ODD_GROUPS])),
    "groups of pairs": lambda f, t: grouped(ODD_GROUPS, group_col=Groups(levels=[("u", 1)])),
    "three groups for two": lambda f, t: grouped(ODD_GROUPS, method="fairlens_dp"),
    "groups as the name of a column": lambda f, t: fit(group_col=ODD_GROUPS),
    "groups as several names": lambda f, t: fit(group_col=pd.Series(ODD_GROUPS)),
    # features
    "a text column as features": lambda f, t: f.predict(CELLS),
    "other columns": lambda f, t: f.predict(CELLS[["a", "b"]]),
    "scores of other labels": lambda f, t: f.score(X, ODD_CODES),
    "features beyond an attack's range": lambda f, t: fit(cells(NUMBER).astype("f"), attack=BEYOND),
    # public tables and second fits
    "validation labels": lambda f, t: fit(validation_data=(X, ODD_CODES)),
    "validation cells": lambda f, t: fit(validation_data=(CELLS, LABELS)),
    "validation of three": lambda f, t: fit(validation_data=(X, ODD_TEXTS, 1)),
    "validation in a dict": lambda f, t: fit(validation_data={"y": ODD_TEXTS}),
    "warm start with other labels": lambda f, t: again(f, y=ODD_TEXTS),
    "warm start with other groups": lambda f, t: again(f, groups=ODD_GROUPS),
    "warm start with one label": lambda f, t: again(f, y=[SECRET] * N),
    # searches and sweeps
    "search of other labels": lambda f, t: DPRandomizedSearch(
        DPFairClassifier(**FAST, **OF_CLASSES), {"lr": [0.1]}
    ).fit(X, ODD_TEXTS),
    "a scored fold with an unknown group": lambda f, t: scored(f, N, ODD_GROUPS),
    "a scored fold without a group": lambda f, t: scored(f, 1, ["u"], levels=None),
    "a score by an unknown name": lambda f, t: scored(
        f, N, np.where(GROUPS == "u", SECRET, "v"), levels=[SECRET, "v"], only="f1"
    ),
    "grid search of cells": lambda f, t: GridSearchCV(
        DPFairClassifier(**FAST), {"lr": [0.1]}, cv=2, error_score="raise"
    ).fit(CELLS, LABELS),
    "sweep of a rare group": lambda f, t: swept(groups=ODD_GROUPS),
    "sweep of cells": lambda f, t: swept(CELLS),
    "sweep without groups": lambda f, t: swept(y=ODD_TEXTS, groups={"g": GROUPS}),
    "audit of texts": lambda f, t: audit_fit(DPFairClassifier("dpsgd"), CELLS, LABELS, 10),
    # measures
    **{
        f"{name}, {flaw}": lambda f, t, n=name, g=given: measured(n, **g)
        for name in OTHERS
        for flaw, given in FLAWS.items()
    },
    "weights of text": lambda f, t: cost(sample_weight=ODD_LABELS),
    "negative weights": lambda f, t: cost(sample_weight=-ODD),
    "table of an unknown group": lambda f, t: metrics.release_group_table(
        TEXTS, TEXTS, sensitive_features=ODD_GROUPS, levels=["u", "v"], epsilon=1.0
    ),
    "reference in texts": lambda f, t: cost(y_ref=ODD_TEXTS),
    "reference in fractions": lambda f, t: cost(y_ref=ODD),
    "risk of no chances": lambda f, t: risk(LABELS, ODD, ODD),
    "risk of texts": lambda f, t: risk(LABELS, ODD_TEXTS, LABELS / 2),
    "training rows by text": lambda f, t: metrics.dg_gap(LABELS, LABELS, is_train=ODD_TEXTS),
    "risk of unknown labels": lambda f, t: risk(ODD_TEXTS, HALVES, **OF_CLASSES),
    "risk of rows that do not sum to 1": lambda f, t: risk(TEXTS, HALVES + 0.2, **OF_CLASSES),
    # pictures and pages
    "page of other groups": lambda f, t: model_page(f, X, TEXTS, sensitive_features=ODD_GROUPS),
    "card of other groups": lambda f, t: model_card(f, X, TEXTS, sensitive_features=ODD_GROUPS),
    "table that nobody paid for": lambda f, t: model_card(f, released_table=CELLS),
    "picture of a group": lambda f, t: PrivacyCostDisplay(
        pd.DataFrame({f"cost[{SECRET}]": [1.0]})
    ).plot(),
    # preparation
    "scaled texts": lambda f, t: BoundedScaler((0, 1)).fit_transform(CELLS),
    "scaled texts in an array": lambda f, t: BoundedScaler((0, 1)).fit_transform(CELLS.to_numpy()),
    "scaled infinity": lambda f, t: BoundedScaler((0, 1)).fit_transform(cells(np.inf).astype("d")),
    "quantiles of texts": lambda f, t: DPQuantileScaler((0, 1)).fit(CELLS),
    "rows as bounds": lambda f, t: BoundedScaler(CELLS.to_numpy()).fit(X),
    "file of a label": lambda f, t: read(t, paid=ODD_TEXTS),
    "file of a group": lambda f, t: read(t, sex=ODD_GROUPS),
    "file of a text for a number": lambda f, t: read(t, age=planted(ODD)),
    "file without a header": lambda f, t: read(t, f"{NUMBER},{SECRET},{SECRET}\n41,u,no\n"),
}


@pytest.mark.parametrize("case", CASES)
def test_no_message_holds_a_cell(case, fitted, tmp_path):
    outcome = outcome_of(lambda: CASES[case](fitted, tmp_path))
    assert outcome.text.strip(), "neither an error nor a warning"


REAL, WHOLE, TEXT = np.float64, np.int64, np.str_
NUMPYS_OWN = {
    "budget and noise": lambda path: fit(epsilon=REAL(1), noise_multiplier=REAL(2)),
    "delta": lambda path: fit(delta=REAL(0.5)),
    "class": lambda path: fit(class_weight={WHOLE(0): REAL(1), WHOLE(5): REAL(2)}),
    "range": lambda path: fit(attack=PGD(REAL(0.1), input_range=(REAL(5), REAL(6)))),
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
def test_numbers_and_texts_of_numpy_are_shown_as_those_of_python(call, tmp_path):
    with pytest.raises((ValueError, TypeError)) as caught:
        call(tmp_path / "ledger")
    assert not re.search(r"\bnp\.|numpy", str(caught.value))
