"""Cells of a sweep: one fit and its test each, and the frames that finished ones make."""

import time
import warnings
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from numbers import Integral
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.base import clone
from sklearn.model_selection import (
    StratifiedGroupKFold,
    StratifiedKFold,
    check_cv,
    train_test_split,
)

import skdpfair
from skdpfair._utils import validate
from skdpfair._utils.describe import describe
from skdpfair.estimators.classifier import DPFairClassifier
from skdpfair.exceptions import InsecureSeedWarning, LowSignalWarning
from skdpfair.inputs.target import positions, positive_last
from skdpfair.methods._registry import get_method
from skdpfair.metrics._measures import OVERALL, compared, costs, rarest_class, values_by_group
from skdpfair.model_selection._store import key_of
from skdpfair.privacy import NoisyRelease
from skdpfair.privacy.gdp import delta_for
from skdpfair.training import defaults
from skdpfair.training.spec import FitSpec

REFERENCE = "reference"  # the method of the models without privacy, in the results
_RUN = ("method", "epsilon", "seed", "fold")
CELL_ENTRIES = (  # of a finished cell, as a store keeps it
    *(*_RUN, "reference", "n", "n_train", "test", "train"),
    *("epsilon_spent", "releases", "fit_seconds", "low_signal"),
)


@dataclass(frozen=True)
class SweepRecords:
    """The records of a sweep: their classes, the positions and names of groups, and persons."""

    X: Any
    y: np.ndarray
    code: np.ndarray
    levels: list[str]
    person: pd.Series | None


@dataclass(frozen=True)
class Cell:
    """One fit and its test, with the same result in every process."""

    method: str
    epsilon: float | None
    seed: int
    fold: int
    reference: str | None
    estimator: DPFairClassifier
    train: np.ndarray
    test: np.ndarray
    n_examples: int  # persons to train on; records if each is a person
    key: str = ""


def run_cell(cell, place, records, keep_predictions):
    """Run the cell at a place among those that run, which take the GPUs of a machine in turn."""
    try:
        return _fit_and_test(cell, place, records, keep_predictions)
    except Exception as error:
        budget = "" if cell.epsilon is None else f", epsilon {cell.epsilon:g}"
        error.add_note(f"In the cell: {cell.method}{budget}, seed {cell.seed}, fold {cell.fold}.")
        raise


def _fit_and_test(cell, place, records, keep_predictions):
    X, y, code, person = records.X, records.y, records.code, records.person
    names, model = np.asarray(records.levels, dtype=object), clone(cell.estimator)
    model.set_params(device=defaults.device_in_turn(model.device, place))
    rows, y_train, groups = _rows(X, cell.train), y[cell.train], code[cell.train]
    if person is not None:
        index = getattr(rows, "index", None)
        person = pd.Series(person.to_numpy()[cell.train], index, name=person.name)
    start = time.perf_counter()
    with warnings.catch_warnings(record=True) as recorded:
        warnings.simplefilter("always")
        warnings.simplefilter("ignore", InsecureSeedWarning)  # a sweep is for research
        model.fit(rows, y_train, sensitive_features=names[groups], persons=person)
    seconds = time.perf_counter() - start
    X_test, y_test = _rows(X, cell.test), y[cell.test]
    predicted = model.predict(X_test)
    order = positive_last(model.classes_, model.pos_label_)
    classes, likely = model.classes_[order], model.predict_proba(X_test)[:, order]
    rarest = rarest_class(positions(classes, y), len(classes))
    options = {"classes": classes, "levels": records.levels, "rarest": rarest}
    test = values_by_group(y_test, predicted, likely, code=code[cell.test], **options)
    options |= {"code": groups, "measures": ["accuracy"]}
    train = values_by_group(y_train, model.predict(rows), None, **options)
    result = {name: getattr(cell, name) for name in (*_RUN, "reference")} | {
        "n": test.pop("n").tolist(),
        "n_train": len(cell.train),
        "test": test.to_dict("list"),
        "train": train.drop(columns="n").to_dict("list"),
        "epsilon_spent": float(model.privacy_.epsilon),
        "releases": [vars(release) for release in model.privacy_.releases],
        "ledger_fit": model._ledger_fits[-1],  # its name in a ledger that was open
        "fit_seconds": seconds,
        "day": datetime.now(UTC).date().isoformat(),
        "low_signal": [
            str(w.message) for w in recorded if issubclass(w.category, LowSignalWarning)
        ],
    }
    if keep_predictions:
        result["predictions"] = {
            "true": positions(classes, y_test).tolist(),
            "predicted": positions(classes, predicted).tolist(),
            "group": code[cell.test].tolist(),
        }
    return result


def cells_of(methods, epsilons, seed, fold, rows, base, person=None):
    """Return the cells of one split: models without privacy, then every method and budget."""
    train, test = rows
    n_examples = len(train) if person is None else len(np.unique(person[train]))
    at = train, test, n_examples
    state = np.random.SeedSequence(seed, spawn_key=(1, fold)).generate_state(1)
    base = clone(base).set_params(random_state=int(state[0]))
    modules, private = {}, []
    for name, method in methods.items():
        for epsilon in epsilons if get_method(method).private else [None]:
            estimator = clone(base).set_params(method=method, epsilon=epsilon)
            network, module = _network(estimator, n_examples)
            modules[network] = module
            private.append((network, Cell(name, epsilon, seed, fold, None, estimator, *at)))
    labels = {n: f"{REFERENCE} ({n})" if len(modules) > 1 else REFERENCE for n in modules}
    references = []
    for network, module in modules.items():
        estimator = clone(base).set_params(method="sgd", epsilon=None, module=module)
        references.append(Cell(labels[network], None, seed, fold, None, estimator, *at))
    return references + [replace(cell, reference=labels[network]) for network, cell in private]


def _network(estimator, n_train):
    """Return the name and the module of the network that "auto" means here, or "as given"."""
    if estimator.module != "auto":
        return "as given", estimator.module
    delta = delta_for(estimator.delta, n_train)
    module = defaults.resolve(FitSpec.of(estimator), n_train, delta)["module"]
    return "logistic" if module == "logistic" else "mlp", module


def splits(cv, seed, y, code, person=None):
    """Return the (train, test) rows of each fold; all rows of a person are on one side."""
    state = int(np.random.SeedSequence(seed, spawn_key=(0,)).generate_state(1)[0])
    with validate.error_context("cv", f"must split the records, got {cv!r}"):
        return _hold_out(state, y, code, person) if cv is None else _folds(cv, state, y, person)


def _hold_out(state, y, code, person):
    strata = pd.Series(y).groupby([y, code]).ngroup().to_numpy()
    if np.bincount(strata).min() < 2:
        strata = y
    if person is not None:
        fifths = StratifiedGroupKFold(5, shuffle=True, random_state=state)
        return [next(fifths.split(strata, strata, person))]
    rows = np.arange(len(y))
    return [train_test_split(rows, test_size=0.2, stratify=strata, random_state=state)]


def _folds(cv, state, y, person):
    if isinstance(cv, Integral):
        cv = validate.integer("cv", cv, low=2)
        kind = StratifiedKFold if person is None else StratifiedGroupKFold
        cv = kind(cv, shuffle=True, random_state=state)
    splitter = check_cv(cv, y, classifier=True)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The groups parameter is ignored", UserWarning)
        folds = list(splitter.split(np.zeros((len(y), 1)), y, person))
    if person is not None and any(
        np.isin(person[test], person[train]).any() for train, test in folds
    ):
        raise ValueError(
            f"cv={cv!r} puts records of one person among both the training and the test records. "
            "Use GroupKFold or StratifiedGroupKFold, or pass the number of folds."
        )
    return folds


def key_of_cell(cell, data, levels, keep_predictions):
    described = describe(cell.estimator.get_params(deep=False))
    facts = (cell.method, cell.epsilon, cell.seed, cell.fold, cell.reference, keep_predictions)
    versions = (skdpfair.__version__, torch.__version__)
    return key_of(cell.train, cell.test, sorted(data.items()), levels, described, facts, versions)


def _rows(X, rows):
    # joblib hands large arrays over as memmaps, which the estimator would stream from disk
    return X.iloc[rows] if hasattr(X, "iloc") else np.asarray(X)[rows]


def frame_of(cells, levels):
    """Return one row per cell and group: measures, and comparisons with the reference."""
    frame = pd.DataFrame([row for cell in cells for row in _frame_rows(cell, levels)])
    if frame.empty:
        raise ValueError("The sweep has no finished cell yet. Let it run for longer.")
    at = ["seed", "fold", "reference", "group"]
    is_reference = frame["reference"].isna()
    frame["reference"] = frame["reference"].fillna(frame["method"])
    other = frame[is_reference].set_index(at).reindex(pd.MultiIndex.from_frame(frame[at]))
    other.index = frame.index
    for name, values in costs(frame, other).items():
        frame.insert(frame.columns.get_loc("dg_gap"), name, values)
    return frame.drop(columns="reference")


def predictions_of(cells, levels, classes):
    """Return the predictions of each cell that kept them, by method, epsilon, seed and fold."""
    groups, frames = np.asarray(levels, dtype=object), {}
    for cell in cells:
        if (columns_kept := cell.get("predictions")) is not None:
            true, predicted = (classes[np.asarray(columns_kept[k])] for k in ("true", "predicted"))
            columns = {"y_true": true, "y_pred": predicted, "group": groups[columns_kept["group"]]}
            frames[_key(cell)] = pd.DataFrame(columns)
    return frames


def releases_of(cells):
    """Return the releases of all private cells, one row per cell and kind of release."""
    rows = [
        (*_key(cell), r.sample_rate, r.joint_noise_multiplier, r.steps, r.strata)
        for cell in cells
        for r in (NoisyRelease(**release) for release in cell.get("releases", ()))
        if cell["epsilon"] is not None
    ]
    columns = [*_RUN, "sample_rate", "noise_multiplier", "steps", "strata"]
    return pd.DataFrame(rows, columns=columns)


def _frame_rows(cell, levels):
    run = dict(zip(_RUN, _key(cell), strict=True))
    whole = {name: cell[name] for name in ("epsilon_spent", "fit_seconds", "reference")}
    for i, group in enumerate([OVERALL, *levels]):
        test, train = ({m: v[i] for m, v in cell[part].items()} for part in ("test", "train"))
        sizes = {"group": group, "n": cell["n"][i], "n_train": cell.get("n_train", np.nan)}
        test["dg_gap"] = compared(test, train, "dg_gap")
        yield run | sizes | test | whole


def _key(cell):
    epsilon = np.inf if cell["epsilon"] is None else cell["epsilon"]
    return cell["method"], epsilon, cell["seed"], cell["fold"]
