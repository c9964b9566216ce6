"""All that a user sees follows from public facts and noisy releases, whose noise never comes again.

Each noisy release is replaced by fixed numbers: fits to two tables that share their public facts
and little else then agree in everything.  In two unseeded fits to the same table, on the other
hand, no place that draws draws the same numbers.
"""

import contextlib
import gc
import io
import re
import sys
import types
import warnings
from collections import defaultdict
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse
from sklearn.base import clone
from sklearn.pipeline import make_pipeline

from skdpfair import DPFairClassifier, DPFairRegressor, Groups, Persons
from skdpfair._utils import progress
from skdpfair._utils.keystream import Keystream
from skdpfair.budget import PrivacyLedger
from skdpfair.engine import PoissonSampler, Streams, step
from skdpfair.engine.noise import Noise
from skdpfair.inputs import persons as _persons
from skdpfair.metrics import release_group_table
from skdpfair.model_selection import DPRandomizedSearch, DPThresholdClassifier
from skdpfair.preprocessing import DPQuantileScaler, public_preprocessor
from skdpfair.privacy import one_time_noise
from skdpfair.training import defaults
from skdpfair.training.run import Run

N = 900
BOUNDS = {"age": (0, 120), "pay": (0, 1e5), "debt": (0, 1e5)}
LEVELS = ["a", "b", "c"]
QUICK = {"epsilon": None, "noise_multiplier": 4.0, "accountant": "rdp"}  # nothing to calibrate


@dataclass
class Table:
    """N records of N / 3 persons, of three groups and two classes, and rows in several forms."""

    X: pd.DataFrame
    y: np.ndarray
    group: np.ndarray
    persons: np.ndarray
    sample_weight: np.ndarray
    sensitive_features = None  # where a fit asks for the argument

    def __post_init__(self):
        encoder = public_preprocessor(BOUNDS, epsilon=3.0, n_intervals=8, missing="middle")
        # with the columns of amounts, for which a fit may choose fine curves
        self.encoded = encoder.set_output(transform="pandas").fit(self.X).transform(self.X)
        self.grouped = self.encoded.assign(g=self.group)
        self.of_two_groups = self.encoded.assign(g=np.where(self.group == "a", "a", "b"))
        self.raw = self.X.fillna(0)
        self.sparse = sparse.csr_array(self.encoded.to_numpy())


def various():
    """A table in which exact amounts of pay decide."""
    rng = np.random.default_rng(1)
    which, popular = rng.integers(0, 40, N), np.round(np.exp(rng.uniform(3, 11, 40)))
    debt = np.where(rng.random(N) < 0.1, np.nan, np.exp(rng.normal(6, 2, N)).clip(0, 99_000))
    X = pd.DataFrame({"age": rng.uniform(17, 90, N), "pay": popular[which], "debt": debt})
    group = rng.choice(np.array(LEVELS, dtype=object), N)
    return Table(X, which % 2, group, np.arange(N) // 3, rng.uniform(0, 1, N))


def monotonous():
    """A table of nearly the same records, most of one person."""
    X = pd.DataFrame({"age": np.full(N, 90.0), "pay": np.full(N, 5e6), "debt": np.ones(N)})
    y, group = np.zeros(N, int), np.full(N, "a", dtype=object)
    y[1], group[1], group[2] = 1, "b", "c"
    return Table(X, y, group, np.minimum(np.arange(N), N // 3 - 1), np.full(N, 0.5))


@pytest.fixture(scope="module")
def tables():
    return various(), monotonous()


def classifier(*method, levels=(), **params):
    given = {"epsilon": 3.0, "max_steps": 6, "classes": [0, 1]}
    groups = {"group_col": Groups("g", levels=list(levels))} if levels else {}
    return DPFairClassifier(*method, **(given | groups | params))


TWO_RECORDS = {"persons": Persons(max_records=2)}
OF_PERSONS = classifier("dp_is_sgd", levels=LEVELS, **TWO_RECORDS)
REGRESSOR = DPFairRegressor(y_range=(0, 1), epsilon=3.0, max_steps=6, **TWO_RECORDS)
BY_GROUP = DPThresholdClassifier(classifier("dpsgd", levels=LEVELS), by_group=True)
EQUAL_ODDS = DPThresholdClassifier(OF_PERSONS, constraint="equalized_odds")
LAW = {"mean_trials": 2.0, "trials": "geometric"}  # at least one trial
SEARCH = DPRandomizedSearch(classifier("dpsgd"), {"lr": [0.5, 1.0]}, **LAW)
WEIGHTS = {"max_sample_weight": 2.0, "class_weight": {0: 1, 1: 5}}
# an estimator, the form of its rows, and what else it is fitted to
FITS = {
    "amounts": (classifier(), "encoded"),
    "counts of a step": (classifier("dpsgd_f", levels=LEVELS), "grouped"),
    "losses of groups": (classifier("asc", levels=LEVELS, **QUICK), "grouped"),
    "early queries": (classifier("fairlens_dp", levels="ab"), "of_two_groups"),
    "scores by group": (BY_GROUP, "grouped"),
    "counts of persons": (EQUAL_ODDS, "grouped", "persons"),
    "persons of a regression": (REGRESSOR, "encoded", "persons"),
    "quantiles": (make_pipeline(DPQuantileScaler((0, 1e5), epsilon=0.5), classifier()), "raw"),
    "warm start": (classifier("dpsgd", warm_start=True, module="mlp", **QUICK), "encoded"),
    "search": (SEARCH, "encoded", "sensitive_features"),
    "sparse rows": (classifier("bam"), "sparse"),
    "weights": (classifier("dpsgd"), "encoded", "sample_weight"),
    "verbose": (classifier("dpsgd", verbose=1, **WEIGHTS), "encoded", "sample_weight"),
}


def fitted(name, table):
    estimator, rows, *columns = FITS[name]
    model, given = clone(estimator), {column: getattr(table, column) for column in columns}
    for _ in range(2 if name == "warm start" else 1):
        model.fit(getattr(table, rows), table.y, **given)
    return model


def replaced(monkeypatch, function, by):
    """Put another function where the modules of the package have this one."""
    for module in [m for name, m in sys.modules.items() if name.startswith("skdpfair")]:
        for name in [n for n, value in vars(module).items() if value is function]:
            monkeypatch.setattr(module, name, by)


# ---- non-interference ---------------------------------------------------------------------------

SEED = 2**200 + 12345  # which nobody may find on a model
TIMES = {"dur", "epoch_start_time_"}  # of skorch


def fix(monkeypatch):
    """Let releases be numbers of fixed noise alone; return what their noise is scaled by."""
    rng, scales = np.random.default_rng(5), []
    noisy, noisy_sums, clip_weights = one_time_noise.noisy, step.noisy_sums, step.clip_weights

    def noise_alone(values, sensitivity, multiplier, generator, kind="standard"):
        scales.append((values.shape, sensitivity, multiplier, kind))
        return 20 + 5 * sensitivity * max(multiplier, 1) * rng.standard_normal(values.shape)

    def fixed_sums(queries, *args, **kwargs):
        scales.extend((q.name, q.sensitivity, q.noise_multiplier) for q in queries)
        sums = noisy_sums(queries, *args, **kwargs)
        fixed = {name: 5 + 3 * abs(rng.standard_normal(v.shape)) for name, v in sums.items()}
        return {name: torch.as_tensor(fixed[name]).to(v) for name, v in sums.items()}

    def weigh_for_nothing(*args, **kwargs):
        clipped = clip_weights(*args, **kwargs)

        def add_weighted(weight, out):
            clipped.add_weighted(weight, torch.zeros_like(out))

        return replace(clipped, add_weighted=add_weighted)

    replaced(monkeypatch, noisy, noise_alone)
    replaced(monkeypatch, noisy_sums, fixed_sums)
    replaced(monkeypatch, clip_weights, weigh_for_nothing)
    monkeypatch.setattr(Streams, "fresh", lambda: Streams((SEED,), (1,)))
    monkeypatch.setattr(Keystream, "fresh", lambda: Keystream(b"search"))
    return scales


def leaves(what, at, seen):
    """Yield all that an object leads to, with the ways there; ``seen`` keeps what was met."""
    if isinstance(what, torch.Tensor):
        what = what.numpy(force=True)
    is_array = isinstance(what, np.ndarray) and what.dtype != object
    if is_array or isinstance(what, (str, bytes, int, float, complex, np.generic)):
        yield at, f"{what.dtype} {what.tolist()}" if is_array else repr(what)
        return
    if id(what) in seen:
        return
    seen[id(what)] = what
    yield at, f"{type(what).__name__} {getattr(what, '__qualname__', '')}"
    parts = {}
    if isinstance(what, dict):
        parts = {repr(key): value for key, value in what.items()}
    elif isinstance(what, (list, tuple, np.ndarray)):
        parts = dict(enumerate(what))
    elif isinstance(what, (set, frozenset)):
        parts = dict(enumerate(sorted(what, key=repr)))
    elif isinstance(what, types.FunctionType):
        cells = [cell.cell_contents for cell in what.__closure__ or ()]
        parts = {"cells": cells, "defaults": what.__defaults__}
    elif isinstance(what, types.MethodType):
        parts = {"self": what.__self__}
    elif not isinstance(what, (type, types.ModuleType)):
        slots = [s for kind in type(what).__mro__ for s in getattr(kind, "__slots__", ())]
        parts = {s: getattr(what, s) for s in slots if hasattr(what, s)}
        # of what has no attributes, such as `functools.partial`, all that it holds
        parts |= getattr(what, "__dict__", {}) or dict(enumerate(gc.get_referents(what)))
    for name, part in parts.items():
        if str(name).strip("'") not in TIMES:
            yield from leaves(part, f"{at}.{name}", seen)


def observed(name, table, path, monkeypatch):
    """Return everything that a fit with fixed noise shows, by where it is seen."""
    with monkeypatch.context() as patch, contextlib.ExitStack() as stack:
        scales, text = fix(patch), io.StringIO()
        # one line of progress, however long a fit takes
        patch.setattr(progress, "PAUSE", float("inf"))
        caught = stack.enter_context(warnings.catch_warnings(record=True))
        warnings.simplefilter("always")
        stack.enter_context(contextlib.redirect_stdout(text))
        stack.enter_context(contextlib.redirect_stderr(text))
        with PrivacyLedger(path, delta=1e-6):
            model = fitted(name, table)
        seen = {"repr": repr(model)}
        # of a pipeline, the last step
        report = (model[-1] if hasattr(model, "steps") else model).privacy_
        seen |= {"details": report.details(), "facts": report.facts(), "report": repr(report)}
        seen |= dict(leaves(model, "model", {}))
    seen |= {"scales": scales, "text": text.getvalue(), "ledger": path.read_text()}
    seen["warnings"] = [f"{w.category.__name__}: {w.message}" for w in caught]
    # fits in ledgers have random names
    return {at: re.sub(r"\b[0-9a-f]{32}\b", "NAME", str(value)) for at, value in seen.items()}


def differences(name, tables, folder, monkeypatch):
    """Return what differs between fits to two tables, and how."""
    monkeypatch.setattr(defaults, "FINE_SIGNAL_TO_NOISE", 0.0)  # few records are counted, too
    one, other = (observed(name, t, folder / f"{t.y.sum()}.jsonl", monkeypatch) for t in tables)
    assert str(SEED) not in str(one)
    at = sorted(one.keys() | other.keys())
    return {k: (one.get(k), other.get(k)) for k in at if one.get(k) != other.get(k)}


@pytest.mark.parametrize("name", sorted(FITS.keys() - {"weights"}))
def test_records_show_in_noisy_releases_alone(name, tables, tmp_path, monkeypatch):
    assert differences(name, tables, tmp_path, monkeypatch) == {}


def test_differences_hold_what_is_taken_as_public(tables, tmp_path, monkeypatch):
    """The largest weight, if nobody declares one, is an assumption that the report names."""
    seen = differences("weights", tables, tmp_path, monkeypatch)
    assert {"details", "facts", "model.privacy_.max_sample_weight"} <= seen.keys()


# ---- fresh noise --------------------------------------------------------------------------------


def spy(monkeypatch):
    """Return what each place draws, which fits add to, and the seeds of all generators."""
    drawn, seeds = defaultdict(list), []

    def noted(function, place, numbers):
        def call(*args, **kwargs):
            found = function(*args, **kwargs)
            drawn[place(*args)].append(np.ravel(numbers(found, *args)))
            return found

        return call

    def standard(found, values, sensitivity, multiplier, *_):
        return (found - values) / (sensitivity * multiplier)

    def of_step(found, _, out, sensitivity, multiplier=1.0):
        return found.numpy(force=True) / (float(sensitivity) * multiplier)

    def begin(self, seed, plain=Keystream.__init__):
        seeds.append(seed)
        plain(self, seed)

    functions = {
        one_time_noise.noisy: (lambda values, *_: f"noise {values.shape}", standard),
        one_time_noise.discrete_laplace: (lambda *_: "table", lambda found, *_: found),
        _persons.thinned: (lambda *_: "thinning", lambda found, *_: found),
    }
    for function, (place, numbers) in functions.items():
        replaced(monkeypatch, function, noted(function, place, numbers))
    methods = {
        (Noise, "fill_"): (lambda _, out, *__: "gradients" if len(out) > 9 else "counts", of_step),
        (PoissonSampler, "draw"): (lambda *_: "batches", lambda found, *_: torch.cat(found)),
        # whatever is drawn: what is released
        (Run, "noisy_counts"): (lambda _, __, release, *___: release.what, lambda found, *_: found),
    }
    for (kind, name), (place, numbers) in methods.items():
        monkeypatch.setattr(kind, name, noted(getattr(kind, name), place, numbers))
    monkeypatch.setattr(Keystream, "__init__", begin)
    return drawn, seeds


PLACES = {"gradients", "counts", "batches", "thinning", "table", "group counts", "column counts"}
# of counts of groups, columns, scores and quantiles, and of a score of a trial
PLACES |= {f"noise {shape}" for shape in ((3,), (1240,), (6, 128), (3, 2046), (1,))}


@pytest.mark.filterwarnings("ignore::UserWarning")  # by noise, thresholds may be poor
def test_no_two_fits_and_no_two_places_draw_the_same_noise(tables, monkeypatch):
    monkeypatch.setattr(defaults, "FINE_SIGNAL_TO_NOISE", 0.0)
    monkeypatch.setattr(defaults, "PAIR_SIGNAL_TO_NOISE", 0.0)
    drawn, seeds = spy(monkeypatch)
    t, numbers = tables[0], {}
    for i in range(2):
        for fit in ("counts of persons", "counts of a step", "quantiles", "search"):
            fitted(fit, t)
        given = {"levels": LEVELS, "persons": t.persons, "epsilon": 0.01}
        release_group_table(t.y, t.y, sensitive_features=t.group, **given)
        numbers |= {(place, i): np.concatenate(parts) for place, parts in drawn.items()}
        drawn.clear()
    assert numbers.keys() == {(place, i) for place in PLACES for i in range(2)}
    shared = [
        (one, other)
        for (one, a), (other, b) in combinations(numbers.items(), 2)
        if np.allclose(a[: len(b)], b[: len(a)], rtol=1e-6, atol=0)
    ]
    assert shared == []
    # a generator of initial weights is made for each use
    of_noise = [seed for seed in seeds if not seed.startswith(b"('weights'")]
    assert len(set(of_noise)) == len(of_noise)
