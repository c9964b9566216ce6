"""One fit and its test, of a sweep: what it is, what decides it, how it runs."""

import threading
import time
import warnings
from dataclasses import dataclass, replace
from numbers import Integral

import numpy as np
import torch
from sklearn.base import clone
from sklearn.model_selection import StratifiedKFold, check_cv, train_test_split

import skdpfair
from skdpfair import _validate, networks
from skdpfair._describe import describe
from skdpfair.estimator import DPFairClassifier
from skdpfair.exceptions import InsecureSeedWarning, LowSignalWarning
from skdpfair.methods import get_method
from skdpfair.model_selection._store import key_of
from skdpfair.privacy.gdp import delta_for
from skdpfair.training import defaults

TWIN = "twin"
KEPT = (  # entries of a finished cell
    *("method", "epsilon", "seed", "fold", "twin", "n", "right", "n_train", "right_train"),
    *("epsilon_spent", "runs", "fit_seconds", "low_signal"),
)
_ALONE = threading.Lock()  # warning filters and torch's number of threads belong to a process


@dataclass(frozen=True)
class Cell:
    """One fit and its test, which anybody can run anywhere with the same result."""

    method: str
    epsilon: float | None
    seed: int
    fold: int
    twin: str | None
    estimator: DPFairClassifier
    train: np.ndarray
    test: np.ndarray
    key: str = ""

    @property
    def name(self) -> str:
        """The cell in words."""
        budget = "" if self.epsilon is None else f", epsilon {self.epsilon:g}"
        return f"{self.method}{budget}, seed {self.seed}, fold {self.fold}"


def run_cell(cell, X, y, code, levels, store, keep_predictions):
    """Fit and test one cell, keep it in the store if there is one, and return it."""
    with _ALONE:
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            result = _fit_and_test(cell, X, y, code, levels, keep_predictions)
        except Exception as error:
            error.add_note(f"In the cell: {cell.name}.")
            raise
        finally:
            torch.set_num_threads(threads)
    if store is not None:
        store.save(cell.key, result)
    return result


def _fit_and_test(cell, X, y, code, levels, keep_predictions):
    names = np.asarray(levels, dtype=object)
    start = time.perf_counter()
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        warnings.simplefilter("ignore", InsecureSeedWarning)  # a sweep is for research
        model = clone(cell.estimator).fit(
            _rows(X, cell.train), y[cell.train], sensitive_features=names[code[cell.train]]
        )
    seconds = time.perf_counter() - start
    said = [str(w.message) for w in heard]
    if cell.estimator.callbacks is None and any("fit was interrupted" in text for text in said):
        raise KeyboardInterrupt  # skorch ends a fit quietly, with half-trained weights
    predicted, group = model.predict(_rows(X, cell.test)), code[cell.test]
    seen = model.predict(_rows(X, cell.train)) == y[cell.train]
    n, right = _counts(predicted == y[cell.test], group, levels)
    n_train, right_train = _counts(seen, code[cell.train], levels)
    result = {
        "method": cell.method,
        "epsilon": cell.epsilon,
        "seed": cell.seed,
        "fold": cell.fold,
        "twin": cell.twin,
        "n": n,
        "right": right,
        "n_train": n_train,
        "right_train": right_train,
        "epsilon_spent": float(model.privacy_.epsilon),
        "runs": [[*map(float, e.run[:2]), e.run.steps] for e in model.privacy_.ledger.entries],
        "fit_seconds": seconds,
        "low_signal": [str(w.message) for w in heard if issubclass(w.category, LowSignalWarning)],
    }
    if keep_predictions:
        result["predictions"] = {
            "true": np.searchsorted(model.classes_, y[cell.test]).tolist(),
            "predicted": np.searchsorted(model.classes_, predicted).tolist(),
            "group": group.tolist(),
        }
    return result


def _counts(right, group, levels):
    """Return how many records there are and are right, in all and in each group."""
    parts = [right, *(right[group == i] for i in range(len(levels)))]
    return [len(part) for part in parts], [int(part.sum()) for part in parts]


def cells_of(methods, epsilons, seed, fold, rows, base):
    """Return the cells of one split: the twins first, then every method at every budget."""
    train, test = rows
    state = np.random.SeedSequence(seed, spawn_key=(1, fold)).generate_state(1)
    base = clone(base).set_params(random_state=int(state[0]))
    private = []
    for name, method in methods.items():
        for epsilon in epsilons if get_method(method).private else [None]:
            network = _network(base, len(train), epsilon)
            estimator = clone(base).set_params(method=method, epsilon=epsilon)
            private.append((network, Cell(name, epsilon, seed, fold, None, estimator, train, test)))
    networks_used = list(dict.fromkeys(network for network, _ in private))
    labels = {n: TWIN if len(networks_used) == 1 else f"{TWIN} ({n})" for n in networks_used}
    twins = [
        Cell(label, None, seed, fold, None, _twin(base, network), train, test)
        for network, label in labels.items()
    ]
    return twins + [replace(cell, twin=labels[network]) for network, cell in private]


def _network(base, n_train, epsilon):
    """Return which network "auto" means here, or that the user named one."""
    if base.module != "auto":
        return "as given"
    delta = delta_for(base.delta, n_train)
    return defaults.resolve(
        n_samples=n_train, epsilon=epsilon, delta=delta, batch_size=base.batch_size
    ).module


def _twin(base, network):
    twin = clone(base).set_params(method="sgd", epsilon=None)
    if network != "as given":
        twin.set_params(module=network)
    if network == "mlp":
        params = {"zero_output": True} | (base.module_params or {})
        twin.set_params(hidden_layer_sizes=(networks.AUTO_HIDDEN,), module_params=params)
    return twin


def splits(cv, seed, y, code):
    """Return the (train, test) rows of each fold."""
    state = int(np.random.SeedSequence(seed, spawn_key=(0,)).generate_state(1)[0])
    if cv is None:
        strata = np.unique(
            np.stack([np.unique(y, return_inverse=True)[1], code]), axis=1, return_inverse=True
        )[1].reshape(-1)
        if np.bincount(strata).min() < 2:
            strata = y
        return [
            train_test_split(np.arange(len(y)), test_size=0.2, stratify=strata, random_state=state)
        ]
    if isinstance(cv, Integral):
        cv = _validate.integer("cv", cv, low=2)
        cv = StratifiedKFold(cv, shuffle=True, random_state=state)
    splitter = check_cv(cv, y, classifier=True)
    folds, again = (list(splitter.split(np.zeros((len(y), 1)), y)) for _ in range(2))
    if not all(np.array_equal(a[1], b[1]) for a, b in zip(folds, again, strict=True)):
        raise ValueError(
            f"cv={cv!r} splits differently each time, so that a sweep could not be resumed. Give "
            "it a random_state, or pass the number of folds."
        )
    return folds


def key_of_cell(cell, data, levels, keep_predictions):
    described = describe(cell.estimator.get_params(deep=False))
    facts = (cell.method, cell.epsilon, cell.seed, cell.fold, cell.twin, keep_predictions)
    versions = (skdpfair.__version__, torch.__version__)
    return key_of(cell.train, cell.test, sorted(data.items()), levels, described, facts, versions)


def _rows(X, rows):
    # joblib hands large arrays over as memmaps, which the estimator would stream from disk
    return X.iloc[rows] if hasattr(X, "iloc") else np.asarray(X)[rows]
