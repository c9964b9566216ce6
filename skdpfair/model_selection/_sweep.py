"""Sweeps over methods, budgets and seeds: independent cells, in parallel, resumable."""

import warnings
from dataclasses import asdict, dataclass, replace
from typing import Any

import joblib
import numpy as np
import pandas as pd
import torch
from sklearn.base import clone
from sklearn.exceptions import UndefinedMetricWarning

import skdpfair
from skdpfair._networks import CNN, MLP, network_of
from skdpfair._utils import validate
from skdpfair._utils.describe import describe
from skdpfair._utils.group_names import escape_reserved, group_names
from skdpfair._utils.progress import ProgressBar
from skdpfair._utils.validate import safe_repr
from skdpfair.budget.charging import current_ledger, entry_of
from skdpfair.estimators.classifier import DPFairClassifier
from skdpfair.exceptions import InterruptedWarning, LowSignalWarning
from skdpfair.inputs import groups, target
from skdpfair.inputs import persons as _persons
from skdpfair.inputs.columns import check_indexes
from skdpfair.inputs.provenance import origin_of
from skdpfair.inputs.rows import numbers_of
from skdpfair.inputs.table import read as read_table
from skdpfair.methods._registry import get_method
from skdpfair.metrics._measures import OVERALL, rarest_class
from skdpfair.model_selection import _cells
from skdpfair.model_selection._cells import CELL_ENTRIES, REFERENCE, SweepRecords
from skdpfair.model_selection._forecast import planned_fit
from skdpfair.model_selection._results import TradeoffResults, empty_runs
from skdpfair.model_selection._store import Store, digest_of, run_missing
from skdpfair.model_selection._sweep_spec import SweepSpec
from skdpfair.preprocessing._piecewise_linear import monotone_axes
from skdpfair.privacy.gdp import delta_for
from skdpfair.training import defaults, pictures
from skdpfair.training import plan as _planning
from skdpfair.training.spec import FitSpec

_TAKEN = {
    "method": "Use methods= instead.",
    "epsilon": "Use epsilons= instead.",
    "random_state": "Use seeds= instead.",
    "group_col__columns": "Use sensitive_features= instead.",
    "noise_multiplier": "Use epsilons= instead.",
    "keep_reference": "Leave it out: reference models are always trained.",
    "warm_start": "Leave it out: cells are independent.",
    "persons__column": "Use persons= instead.",
}


def sweep(
    X,
    y,
    *,
    sensitive_features,
    methods,
    epsilons,
    seeds=5,
    cv=None,
    n_jobs=None,
    store=None,
    progress=True,
    keep_predictions=False,
    persons=None,
    **params,
):
    """Train all methods at all budgets with all seeds, and a non-private reference model.

    Parameters
    ----------
    X : DataFrame or array of shape (n_samples, n_features, ...)
        Numbers, see `skdpfair.preprocessing.public_preprocessor`, or pictures.
    y : array-like of shape (n_samples,)
        Class labels.
    sensitive_features : array, Series or DataFrame of n_samples rows
        The groups; several columns make intersections.
    methods : list of str or Method, or dict of str to these
        Methods to compare; a dict names them. A method that is not private runs once per seed.
    epsilons : list of float > 0
        Budgets, each for a single fit.
    seeds : int or list of int >= 0, default=5
        A number n means 0 to n - 1. The seed sets the split, initial weights, batches and noise.
    cv : int, splitter or None, default=None
        None holds out 20 % per seed, stratified by class and group. With a number of folds, each
        seed shuffles the records again. With ``persons``, all records of a person are on one side.
        Test sets of one seed must not overlap, because intervals treat them as folds.
    n_jobs : int or None, default=None
        Number of joblib processes; any backend chosen by ``joblib.parallel_config`` works. With
        ``device`` "auto" or "cuda", the cells take the GPUs of a machine in turn.
    store : path-like or None, default=None
        Folder for finished cells; repeating the call continues where it stopped. Its manifest
        holds digests of X, y and the groups, the names of the groups, and the number of records of
        each class in each group.
    progress : bool, default=True
        On a terminal, show finished cells and remaining time; elsewhere, print a line for a
        finished cell, at most one in 30 s, to the standard error.
    keep_predictions : bool, default=False
        Keep predictions for `TradeoffResults.to_fairlearn`, also in the store. They include labels
        and groups of private records.
    persons : array of shape (n_samples,), optional
        The person of each record, with ``persons=Persons(max_records=...)`` among the parameters.
    **params
        Parameters of `DPFairClassifier` that all fits share.

    Returns
    -------
    TradeoffResults
        The results are not private, like all comparisons on private records: for research only.

    Raises
    ------
    TypeError, ValueError
        If a parameter cannot be used, or ``store`` holds another sweep, or private fits that an
        open `PrivacyLedger` has not recorded.
    BudgetExceededError
        If the remaining fits together would exceed the budget of an open `PrivacyLedger`. Reference
        models, which are not private, exceed any budget. Nothing is fitted in this case.

    Warns
    -----
    UndefinedMetricWarning
        If a group has no test records in a run; its scores are NaN in that run.

    Notes
    -----
    The reference model has ``epsilon=None``, the same rows and, for the same seed, the same initial
    weights. Each network that ``module="auto"`` chooses has its own reference model; all other
    "auto" settings are resolved for each model. Ctrl-C returns the finished cells.

    A fit of your own on the same rows equals that of fold ``k`` of a seed if its ``random_state``
    is ``int(numpy.random.SeedSequence(seed, spawn_key=(1, k)).generate_state(1)[0])``.

    If ``module`` is a linear model on public features of pictures, the features are computed once
    for all fits.

    Examples
    --------
    >>> from skdpfair.datasets import make_two_groups
    >>> from skdpfair.model_selection import sweep
    >>> data = make_two_groups(3000, random_state=0)
    >>> results = sweep(
    ...     data.data, data.target, sensitive_features=data.sensitive_features,
    ...     methods=["dpsgd"], epsilons=[4.0], seeds=2,
    ...     module="logistic", lr=0.5, batch_size=500, max_steps=5,
    ... )
    >>> results.frame.query("seed == 0")[["method", "epsilon", "group", "n"]]
          method  epsilon    group    n
    0  reference      inf  overall  600
    1  reference      inf        a  420
    2  reference      inf        b  180
    3      dpsgd      4.0  overall  600
    4      dpsgd      4.0        a  420
    5      dpsgd      4.0        b  180
    """
    records = {"X": X, "y": y, "sensitive_features": sensitive_features}
    options = {"cv": cv, "n_jobs": n_jobs, "store": store, "persons": persons}
    options |= {"keep_predictions": keep_predictions}
    planned = planned_sweep(methods, epsilons, seeds, records, **options, **params)
    planned.check(current_ledger())
    return planned.run(progress)


def planned_sweep(
    methods,
    epsilons,
    seeds,
    records,
    *,
    cv=None,
    n_jobs=None,
    store=None,
    keep_predictions=False,
    persons=None,
    **params,
):
    """Return a sweep, see `sweep`, that has passed all checks but those of a ledger.

    ``records`` are X, y and sensitive_features by name.
    """
    methods, epsilons, seeds = _named(methods), budgets_of(epsilons), seeds_of(seeds)
    _check(params)
    try:
        joblib.effective_n_jobs(n_jobs)
    except (TypeError, ValueError):
        problem = f"must be None or an integer other than 0, got {safe_repr(n_jobs)}."
        raise validate.invalid("n_jobs", problem) from None
    validate.flag("keep_predictions", keep_predictions)
    for name, values in records.items():
        if values is None:
            raise ValueError(f"{name} must hold a value for each row, got None.")
    check_indexes(**records, persons=persons)
    X, y, sensitive_features = records.values()
    variables = groups.variables_of(y, X, None, sensitive_features)
    y, base = target.read_labels(y), DPFairClassifier().set_params(**params)
    declared = groups.Groups.of(base.group_col)
    encoded = groups.encode(X, y, group_col=declared, sensitive_features=sensitive_features)
    assert encoded.levels is not None
    levels = escape_reserved(group_names(encoded.levels), [OVERALL])
    classes, label = target.public_classes(y, base.classes, base.pos_label)
    public = {"classes": classes.tolist(), "pos_label": None}
    base.set_params(group_col=declared.set_params(levels=levels), **public)
    person, _, name = _persons.encode(X, len(y), persons)
    # as a fit reads them, before anything is written
    one, names = clone(base), np.array(levels, object)
    read_table(one, FitSpec.of(one), X, y, names[encoded.code], persons=persons)
    base, features = pictures.head_of(base, np.shape(X)[1:])
    # the fits of cells read an array, without names
    if validate.is_auto(base.module):
        base.set_params(module=defaults.network_for(getattr(X, "columns", origin_of(X).columns)))
    data = {"X": digest_of(X), "y": digest_of(y), "groups": digest_of(encoded.code)}
    data |= {} if features is None else {"features": features.described}
    data |= {} if person is None else {"persons": digest_of(person)}
    cells = [
        replace(cell, key=_cells.key_of_cell(cell, data, levels, keep_predictions))
        for seed in seeds
        for fold, rows in enumerate(_cells.splits(cv, seed, y, encoded.code, person))
        for cell in _cells.cells_of(methods, epsilons, seed, fold, rows, base, person)
    ]
    n_examples = len(y) if person is None else int(person.max()) + 1
    delta = delta_for(base.delta, n_examples)
    sizes, counts = [cell.n_examples for cell in cells], np.zeros((len(levels), len(classes)), int)
    np.add.at(counts, (encoded.code, label), 1)
    spec = SweepSpec(
        methods={name: describe(method) for name, method in methods.items()},
        epsilons=epsilons,
        seeds=seeds,
        cv=describe(cv),
        params={k: describe(v) for k, v in sorted(_flat(params).items())},
        keep_predictions=keep_predictions,
        delta=delta,
        n_samples=len(y),
        n_features=int(np.prod(np.shape(X)[1:])),
        n_examples=n_examples,
        protects="record" if person is None else "person",
        n_persons_of_fit=None if person is None else [min(sizes), max(sizes)],
        variables=list(variables),
        classes=classes.tolist(),
        groups=levels,
        rarest_class=str(classes[rarest_class(label, len(classes))]),
        counts=counts.tolist(),
        features=origin_of(X).features if features is None else features.described,
        skdpfair=skdpfair.__version__,
        torch=torch.__version__,
    )
    _check_models(cells, len(levels), np.shape(X)[1:], classes)
    if store is not None:
        digests = {f"data {name}": digest for name, digest in data.items()}
        store = Store.open(store, asdict(spec) | digests, needs=CELL_ENTRIES)
    person_column = None if person is None else pd.Series(person, name=name)
    return PlannedSweep(
        cells=cells,
        records=SweepRecords(X, y, encoded.code, levels, person_column),
        classes=classes,
        features=features,
        spec=spec,
        store=store,
        done={} if store is None else store.finished(cell.key for cell in cells),
        n_jobs=n_jobs,
    )


@dataclass(frozen=True)
class PlannedSweep:
    """A sweep before anything is written or fitted; ``done`` are cells that a store has, by key."""

    cells: list
    records: SweepRecords
    classes: np.ndarray
    features: Any
    spec: SweepSpec
    store: Store | None
    done: dict
    n_jobs: int | None

    @property
    def missing(self) -> list:
        return [cell for cell in self.cells if cell.key not in self.done]

    def check(self, ledger):
        """Raise if a ledger lacks finished cells, or the missing ones exceed its budget."""
        if ledger is None:
            return
        counted = list(self.done.values())
        if ledger.budget is not None:  # which admits no models without privacy
            counted = [cell for cell in counted if cell["epsilon"] is not None]
        if lacking := ledger.n_unrecorded(cell.get("ledger_fit") for cell in counted):
            assert self.store is not None  # which has them
            raise ValueError(
                f"store={str(self.store.folder)!r} holds {lacking} finished "
                f"fit{'s' * (lacking > 1)} that the ledger {str(ledger.path)!r} has not recorded "
                f"for data={ledger.data!r}, so it would miss their cost. Use the ledger "
                "from the first run on, name another folder, or leave the ledger out."
            )
        n_groups, kind = len(self.records.levels), self.spec.protects
        planned = (planned_fit(c.estimator, c.n_examples, n_groups) for c in self.missing)
        ledger.check(entry_of(r, private=private, protects=kind) for private, r in planned)

    def run(self, progress=True):
        """Run the missing cells, and return the results of all."""
        done, records, missing = self.done, self.records, self.missing
        if self.store is not None:
            self.store.begin()
        # once for all fits and predictions
        if self.features is not None and missing:
            records = replace(records, X=pictures.transformed(self.features, records.X))
        # the names of monotone columns say so
        elif missing and hasattr(records.X, "iloc") and not monotone_axes(records.X.columns):
            records = replace(records, X=numbers_of(records.X))
        run_cell, keep = joblib.delayed(_cells.run_cell), self.spec.keep_predictions
        tasks = {cell.key: run_cell(cell, i, records, keep) for i, cell in enumerate(missing)}
        n_cells = len(self.cells)
        with ProgressBar("sweep", "cell", total=n_cells, visible=progress, leave=True) as bar:
            bar.start_at(len(done))
            show = {"n_jobs": self.n_jobs, "on_result": lambda _: bar.move_to(len(done))}
            complete = run_missing(tasks, done, self.store, **show)
        if not complete:
            remedy = ""
            if self.store is not None:
                remedy = f" Repeat the call to resume from {str(self.store.folder)!r}."
            warnings.warn(
                f"The sweep was interrupted after {len(done)} of {n_cells} cells; the results "
                f"hold only these.{remedy}",
                InterruptedWarning,
                stacklevel=3,
            )
        _warn_once(done.values())
        finished = [done[cell.key] for cell in self.cells if cell.key in done]
        results = TradeoffResults.from_cells(finished, records.levels, self.classes, self.spec)
        if empty_runs(results.frame):
            warnings.warn(
                "Some groups have no test records in some runs, as print(results) shows: their "
                "scores are NaN there, and differences leave them out. Set cv=5, which tests every "
                "record, or merge rare groups.",
                UndefinedMetricWarning,
                stacklevel=3,
            )
        return results


def _named(methods):
    if isinstance(methods, str) or not hasattr(methods, "__iter__"):
        methods = [methods]
    if not hasattr(methods, "items"):
        methods = list(methods)
        named = {str(method): method for method in methods}
        if len(named) < len(methods):
            raise ValueError(f"methods={methods} has a name twice. Name each once, or pass a dict.")
        methods = named
    if not methods:
        raise ValueError("methods is empty. Name at least one, such as 'dpsgd'.")
    if any(str(name).startswith(REFERENCE) for name in methods):
        raise ValueError(
            f"methods must not have names that start with {REFERENCE!r}, which are those of the "
            "models without privacy. Rename yours."
        )
    for method in methods.values():
        get_method(method)  # raises
    return {str(name): method for name, method in methods.items()}


def _check(params):
    for name in sorted(params.keys() & _TAKEN.keys()):
        raise ValueError(f"sweep does not take {name}={safe_repr(params[name])}. {_TAKEN[name]}")
    unknown = {name.partition("__")[0] for name in params} - DPFairClassifier().get_params().keys()
    if unknown:
        raise TypeError(f"sweep and DPFairClassifier have no parameters {sorted(unknown)}.")


def _flat(params):
    """Return parameters as the command line takes them: sizes of a network by their own names."""
    flat = dict(params)
    for name, value in params.items():
        if isinstance(value, (MLP, CNN)):
            default = type(value)().get_params()
            changed = {k: v for k, v in value.get_params().items() if v != default[k]}
            flat[name] = type(value).__name__.lower()
            flat |= {f"{name}__{k}": v for k, v in changed.items()}
    return flat


def _check_models(cells, n_groups, shape, classes):
    """Raise if some model of the sweep cannot be fitted, or cannot meet its budget."""
    tightest = min((cell.epsilon for cell in cells if cell.epsilon is not None), default=None)
    models = {(cell.method, cell.epsilon): cell for cell in cells}.values()
    for cell in models:
        defaults.check_network(network_of(cell.estimator.module), shape, len(classes))
        FitSpec.of(cell.estimator).check_data(classes, n_groups)
        # calibrating takes a while, and a larger budget is met if this one is
        if cell.epsilon == tightest:
            _planning.check(cell.estimator, cell.n_examples, n_groups)


def budgets_of(epsilons) -> list:
    """Return the budgets of a sweep as distinct numbers > 0, else raise."""
    epsilons = list(epsilons) if hasattr(epsilons, "__iter__") else [epsilons]
    if None in epsilons:
        raise ValueError(
            "epsilons must not hold None: reference models are always trained. Leave None out."
        )
    if not epsilons or len(set(epsilons)) < len(epsilons):
        raise ValueError(f"epsilons must be numbers > 0, each once, got {safe_repr(epsilons)}.")
    return [validate.number("epsilons", e, low=0, low_open=True, high=1e10) for e in epsilons]


def seeds_of(seeds) -> list[int]:
    """Return checked seeds; a number n means 0 to n - 1."""
    if isinstance(seeds, str) or not hasattr(seeds, "__iter__"):
        return list(range(validate.integer("seeds", seeds)))
    seeds = [validate.integer("seeds", seed, low=0) for seed in seeds]
    if not seeds or len(set(seeds)) < len(seeds):
        raise ValueError(f"seeds must be integers >= 0, each once, got {safe_repr(seeds)}.")
    return seeds


def _warn_once(results):
    """Warn once of all low signals, which the fits met in other processes."""
    cells = [(r["epsilon"], text) for r in results for text in r["low_signal"]]
    if cells:
        budgets = sorted({epsilon for epsilon, _ in cells})
        warnings.warn(
            f"At epsilon {', '.join(f'{e:g}' for e in budgets)}: {cells[0][1]}",
            LowSignalWarning,
            stacklevel=4,
        )
