"""A budget over many fits, and its forecast."""

import json
import math
import multiprocessing
import os
import pickle
import signal
import time
from copy import deepcopy as copy_of
from dataclasses import replace

import numpy as np
import pytest
from joblib import Parallel, delayed
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    KFold,
    RandomizedSearchCV,
    RepeatedKFold,
    ShuffleSplit,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from skdpfair import DPFairClassifier, Groups, get_method
from skdpfair.analysis import GroupRecorder
from skdpfair.budget import PrivacyLedger, journal
from skdpfair.budget.active_ledger import VARIABLE
from skdpfair.budget.charging import charged, current_ledger, ledger_suspended
from skdpfair.budget.spending import DIAGNOSTICS
from skdpfair.exceptions import BudgetExceededError, UnaccountedWarning
from skdpfair.model_selection import DPThresholdClassifier, forecast
from skdpfair.preprocessing import DPQuantileScaler
from skdpfair.privacy import NoisyRelease, compute_epsilon
from skdpfair.privacy.renyi import curve_epsilon, rdp_curve

pytestmark = pytest.mark.filterwarnings("ignore::skdpfair.exceptions.LowSignalWarning")
RUN = NoisyRelease("gradient sum", 0.01, (1.0,), 100)
COST = compute_epsilon([RUN], 1e-5)


def forecast_of_200(search, **params):
    return forecast(search, 200, accountant="rdp", **params)


def quick(method="dpsgd", **params):
    params = {"noise_multiplier": 3.0, "max_steps": 4, "batch_size": 50} | params
    return DPFairClassifier(method, epsilon=None, accountant="rdp", **params)


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    return X, (X[:, 0] > 0).astype(int)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger.jsonl"


def spend(times=1, **changes):
    for _ in range(times):
        spent = []
        with charged([RUN], spent, **changes):
            spent.append(RUN)


def test_fits_add_up_to_the_budget_and_not_beyond(path):
    twice = compute_epsilon([replace(RUN, steps=200)], 1e-5)
    with PrivacyLedger(path, epsilon=twice, delta=1e-5) as ledger:
        spend(2)
        assert ledger.epsilon() == twice
        with pytest.raises(BudgetExceededError, match=r"epsilon=.* Nothing was fitted"):
            spend()
        assert ledger.epsilon() == twice
    assert list(ledger.frame().state) == ["done", "done"]
    assert list(ledger.frame().epsilon) == [COST, COST]
    assert PrivacyLedger(path).epsilon(1e-6) > twice
    spend()  # outside of the block nothing is charged
    assert len(ledger.frame()) == 2


def test_names_keep_data_sets_apart(path):
    for name in ("adult", "dutch"):
        with PrivacyLedger(path, epsilon=1.1 * COST, delta=1e-5, data=name):
            spend()
    books = PrivacyLedger(path, data="dutch")
    assert books.epsilon() == PrivacyLedger(path, data="adult").epsilon() == COST
    assert list(books.frame().data) == ["adult", "dutch"]


def test_a_fit_is_charged_for_what_it_released(path):
    with PrivacyLedger(path, delta=1e-5) as ledger:
        spent = []
        with pytest.raises(OSError), charged([RUN], spent):
            spent.append(replace(RUN, steps=7))
            raise OSError
        assert list(ledger.frame().steps) == [7]
        spent.append(RUN)
        with charged([RUN], spent):  # continues with the ledger of the first
            spent.append(replace(RUN, steps=3))
    assert list(ledger.frame().steps) == [7, 3]


def test_a_private_selection_is_charged_beside_the_fits(path):
    curve = 3.0 * rdp_curve([RUN])
    with PrivacyLedger(path, delta=1e-5) as ledger:
        spend()
        with charged((), [], curve=curve, what="private selection"):
            pass
    both = curve_epsilon(curve + rdp_curve([RUN]), 1e-5)
    assert ledger.epsilon() == pytest.approx(both) and both > curve_epsilon(curve, 1e-5)


def test_a_fit_without_privacy_exceeds_every_budget(path, tmp_path):
    with (
        PrivacyLedger(path, epsilon=100.0, delta=1e-5),
        pytest.raises(BudgetExceededError, match="not private"),
    ):
        spend(private=False)
    with PrivacyLedger(tmp_path / "ledger", delta=1e-5) as ledger:
        spend(private=False)
    assert ledger.epsilon() == math.inf
    assert list(ledger.frame().what) == ["not private"]


def _spend_many(times):
    spend(times)


def _never_ends(started):
    with charged([RUN], []):
        started.set()
        time.sleep(60)


def test_processes_that_append_together_lose_nothing(path):
    context = multiprocessing.get_context("fork")
    with PrivacyLedger(path, epsilon=100.0, delta=1e-5) as ledger:
        workers = [context.Process(target=_spend_many, args=(20,)) for _ in range(2)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    assert list(ledger.frame().state) == ["done"] * 40
    assert ledger.epsilon() == compute_epsilon([replace(RUN, steps=4000)], 1e-5)


def test_a_killed_fit_stays_charged_as_planned(path):
    context = multiprocessing.get_context("fork")
    with PrivacyLedger(path, epsilon=1.05 * COST, delta=1e-5) as ledger:
        started = context.Event()
        worker = context.Process(target=_never_ends, args=(started,))
        worker.start()
        assert started.wait(30)
        os.kill(worker.pid, signal.SIGKILL)
        worker.join()
        assert list(ledger.frame().state) == ["planned"]
        assert ledger.epsilon() == COST
        with pytest.raises(BudgetExceededError):
            spend()


def unsealed(line):
    """Return a line of a ledger as versions wrote it that sealed none."""
    return json.dumps({k: v for k, v in json.loads(line).items() if k != "seal"}) + "\n"


@pytest.mark.parametrize("kept", [-1, -20], ids=["whole", "half"])
def test_a_last_line_without_an_end_is_refused(path, kept):
    with PrivacyLedger(path, epsilon=5 * COST, delta=1e-5):
        spend()
    path.write_text("".join(map(unsealed, path.read_text().splitlines()))[:kept])
    with pytest.raises(ValueError, match=r"cut off by a crash or a copy\. Restore the file"):
        PrivacyLedger(path)


def test_a_line_for_which_the_disk_has_no_room_is_taken_back(path):
    resource = pytest.importorskip("resource")
    ledger = PrivacyLedger(path, epsilon=5 * COST, delta=1e-5)
    before, limits = path.read_bytes(), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 20, limits[1]))
    try:
        with ledger, pytest.raises(OSError, match=r"No space|too large"):
            spend()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == before
    with ledger:
        spend()
    assert ledger.report().n_fits == 1


@pytest.fixture
def lines(path):
    """The lines of a ledger with two fits and a selection, and their total."""
    ledger = PrivacyLedger(path, epsilon=50.0, delta=1e-5, accountant="rdp")
    other = NoisyRelease("gradient sum", 0.02, (1.0, 5.0), 50, strata=((0.01, 1.0), (0.02, 0.5)))
    for release in (RUN, other):
        spent = []
        with ledger, charged([release], spent, persons="id", protects="person"):
            spent.append(release)
    with ledger, charged((), [], curve=rdp_curve([RUN]), protects="person"):
        pass
    return path.read_text().splitlines(keepends=True), ledger.epsilon()


def total_of(path, lines):
    """Return the total of a ledger of some lines; infinity if an error names file and line."""
    path = path.with_name("edited")
    path.write_text("".join(lines))
    try:
        return PrivacyLedger(path).epsilon()
    except ValueError as error:
        assert str(path) in str(error) and "line" in str(error)
        return math.inf


def parts_of(value, place=()):
    yield place
    if isinstance(value, (dict, list)):
        for key in value if isinstance(value, dict) else range(len(value))[:2]:
            yield from parts_of(value[key], (*place, key))


def with_part(value, place, part):
    if not place:
        return part
    value = copy_of(value)
    value[place[0]] = with_part(value[place[0]], place[1:], part)
    return value


HOSTILE = [None, True, -1, 10**9, 1e308, math.nan, "x", [], {}, [[1.0]]]


def test_no_line_that_was_edited_moved_or_repeated_lowers_the_total(path, lines):
    lines, total = lines
    assert total_of(path, lines) == total > 0
    edited = []
    for i, line in enumerate(lines):
        edited += [[*lines[: j + 1], line, *lines[j + 1 :]] for j in range(len(lines))]
        edited += [[*lines[:i], other, *lines[i + 1 :]] for other in lines]
        edited += [[*lines[:i], line[:cut], *lines[i + 1 :]] for cut in range(0, len(line) - 1, 40)]
        edited.append([*lines[:i], *lines[i + 1 :], line])
        value = json.loads(line)
        for place in parts_of(value):
            changed = (json.dumps(with_part(value, place, part)) + "\n" for part in HOSTILE)
            edited += [[*lines[:i], change, *lines[i + 1 :]] for change in changed]
    totals = [total_of(path, each) for each in edited if each != lines]
    assert len(totals) > 500 and min(totals) >= total


NO_FIT_WRITES = {
    "a second end": lambda begin, end: [begin, end, end | {"entries": []}],
    "a second beginning": lambda begin, end: [begin, end, begin],
    "an end alone": lambda begin, end: [end],
    "a list": lambda begin, end: [begin, []],
    "null": lambda begin, end: [None, begin],
    "a number": lambda begin, end: [begin, 1],
    "an empty object": lambda begin, end: [begin, {}],
    "a text as flag": lambda begin, end: [begin | {"private": "no"}],
    "a list as name": lambda begin, end: [begin | {"fit": ["a"]}],
    "a list as data": lambda begin, end: [begin | {"data": ["a"]}],
    "a number as reason": lambda begin, end: [begin | {"reasons": [1]}],
    "another unit": lambda begin, end: [begin | {"protects": ["record"]}],
    "no entries": lambda begin, end: [begin | {"entries": None}],
    "nested entries": lambda begin, end: [begin | {"entries": [begin["entries"]]}],
    "an entry with more": lambda begin, end: [begin | {"entries": [{"rows": 1}]}],
    "a negative curve": lambda begin, end: [begin | {"curve": {"orders": [2.0], "rdp": [-1.0]}}],
    "a curve of NaN": lambda begin, end: [begin | {"curve": {"orders": [2.0], "rdp": [math.nan]}}],
    "an empty curve": lambda begin, end: [begin | {"curve": {}}],
    "a short curve": lambda begin, end: [begin | {"curve": {"orders": [2.0], "rdp": []}}],
    **{
        f"{name} {value}": lambda begin, end, name=name, value=value: [
            begin,
            end | {"entries": [end["entries"][0] | {name: value}]},
        ]
        for name, value in {
            "noise_multipliers": [math.nan],
            "sample_rate": "0.1",
            "steps": -1,
            "strata": [[0.1]],
            "is_one_time": 0,
        }.items()
    },
}


@pytest.mark.parametrize("name", NO_FIT_WRITES)
def test_a_line_that_no_fit_writes_is_named_in_a_file_without_seals(name, path, lines):
    first, begin, end, *_ = map(unsealed, lines[0])
    assert total_of(path, [first, begin, end]) > 0
    written = NO_FIT_WRITES[name](json.loads(begin), json.loads(end))
    path = path.with_name("edited")
    path.write_text(first + "".join(json.dumps(line) + "\n" for line in written))
    with pytest.raises(ValueError, match=rf"{path}.* line {1 + len(written)}|line 2") as error:
        PrivacyLedger(path).epsilon()
    assert "Restore the file" in str(error.value)


LOSSES = {
    "all": lambda lines: [],
    "all but the first": lambda lines: lines[:1],
    "the last": lambda lines: lines[:-1],
    "one in the middle": lambda lines: [*lines[:1], *lines[2:]],
    "one edited": lambda lines: [
        lines[0],
        lines[1].replace('"steps": 100', '"steps": 1'),
        *lines[2:],
    ],
    "another ledger": lambda lines: [lines[0].replace('"id": "', '"id": "0')],
}


@pytest.mark.parametrize("loss", LOSSES)
def test_a_file_that_lost_its_lines_takes_no_more(path, loss):
    ledger = PrivacyLedger(path, epsilon=5 * COST, delta=1e-5)
    copy = pickle.loads(pickle.dumps(ledger))  # as in the workers of a search
    for own in (ledger, copy):
        with own:
            spend()
    whole = path.read_text()
    path.write_text("".join(LOSSES[loss](whole.splitlines(keepends=True))))
    message = f"(?s)ledger {str(path)!r} (no longer begins|does not exist any more)"
    for own in (ledger, copy, copy_of(copy)):
        with pytest.raises((ValueError, FileNotFoundError), match=message), own:
            spend()
        with pytest.raises(ValueError, match=message):
            own.epsilon()
    path.write_text(whole)
    with ledger:
        spend()
        path.write_text("".join(LOSSES[loss](path.read_text().splitlines(keepends=True))))
        with pytest.raises((ValueError, FileNotFoundError), match=message):
            spend()
    path.unlink()
    with pytest.raises(FileNotFoundError, match="does not exist any more"), ledger:
        spend()
    with PrivacyLedger(path):  # on purpose
        spend()


def test_a_process_knows_what_the_one_that_started_it_has_seen(path, monkeypatch):
    ledger = PrivacyLedger(path, epsilon=5 * COST, delta=1e-5)
    with ledger:
        spend()
    sent = pickle.dumps(ledger)
    with ledger:
        path.write_text(path.read_text().splitlines(keepends=True)[0])
        monkeypatch.setattr(journal, "_SEEN", {})  # of another process
        with pytest.raises(ValueError, match="no longer begins with its earlier lines"):
            spend()
    monkeypatch.setattr(journal, "_SEEN", {})
    with pytest.raises(ValueError, match="no longer begins"), pickle.loads(sent):
        spend()


def test_no_file_of_other_things_becomes_a_ledger(path):
    path.write_text("notes without an end")
    with pytest.raises(ValueError, match="not a ledger"):
        PrivacyLedger(path)
    assert path.read_text() == "notes without an end"


@pytest.mark.parametrize(
    "first",
    [
        '{"budget": {"epsilon": 1.0, "delta": null, "accountant": "pld"}}',
        '{"budget": {"epsilon": 1.0}}',
        '{"budget": 1.0}',
        '{"budget": {"epsilon": "1", "delta": 1e-5, "accountant": "pld"}}',
        '{"budget": {"epsilon": NaN, "delta": 1e-5, "accountant": "pld"}}',
        '{"budget": {"epsilon": 1.0, "delta": 2, "accountant": "pld"}}',
        '{"budget": {"epsilon": 1.0, "delta": 1e-5, "accountant": ["pld"]}}',
        "null",
        "[1]",
    ],
)
def test_a_first_line_that_was_edited_is_named(path, first):
    path.write_text(first + "\n")
    with pytest.raises(ValueError, match=r"was edited|not a ledger"):
        PrivacyLedger(path)


def test_a_ledger_of_another_format_version_is_refused(path):
    PrivacyLedger(path)
    PrivacyLedger(path)  # reads its own
    first = path.read_text().replace('"format_version": 1', '"format_version": 2')
    path.write_text(first + '{"a line": "of another kind"}\n')
    with pytest.raises(ValueError, match="has format version 2; this skdpfair reads 1"):
        PrivacyLedger(path)


def test_the_file_is_locked_from_the_check_to_the_entry(path, monkeypatch):
    fcntl = pytest.importorskip("fcntl")
    ledger, tried = PrivacyLedger(path, epsilon=1.05 * COST, delta=1e-5), []

    def meanwhile(*args):
        with path.open("r+b") as other, pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        tried.append(len(path.read_text().splitlines()))

    monkeypatch.setattr(PrivacyLedger, "_check", meanwhile)
    append = journal.Journal.append
    monkeypatch.setattr(journal.Journal, "append", lambda *args: (meanwhile(), append(*args)))
    with ledger:
        spend()
    assert tried == [1, 1, 2]  # the check, the plan, the end


def test_the_file_holds_its_budget(path, tmp_path):
    PrivacyLedger(path, epsilon=1.0, delta=1e-5)
    assert (PrivacyLedger(path).budget, PrivacyLedger(path).delta) == (1.0, 1e-5)
    with pytest.raises(ValueError, match=r"epsilon=2\.0 differs from epsilon=1\.0"):
        PrivacyLedger(path, epsilon=2.0, delta=1e-5)
    with pytest.raises(ValueError, match="accountant='rdp' differs from accountant='pld'"):
        PrivacyLedger(path, accountant="rdp")
    with pytest.raises(ValueError, match="delta must be given"):
        PrivacyLedger(tmp_path / "other", epsilon=2.0)
    with pytest.raises(TypeError, match="path must name a file, got None"):
        PrivacyLedger(None)
    assert "epsilon=1, delta=1e-05, data='data'" in repr(PrivacyLedger(path))
    with pytest.raises(TypeError, match="data must be"):
        PrivacyLedger(path, data=3)
    (tmp_path / "text").write_text("hello\n")
    with pytest.raises(ValueError, match="not a ledger"):
        PrivacyLedger(tmp_path / "text")


def test_one_block_at_a_time_and_never_without_its_file(path, tmp_path):
    with PrivacyLedger(path) as ledger:
        with pytest.raises(RuntimeError, match="already open"), PrivacyLedger(tmp_path / "b"):
            pass
        assert current_ledger().path == ledger.path
        with ledger_suspended():
            assert current_ledger() is None
        path.unlink()
        with pytest.raises(FileNotFoundError, match="does not exist any more"):
            spend()
    assert current_ledger() is None
    assert VARIABLE not in os.environ


@pytest.mark.parametrize(
    "cv", [4, KFold(3), RepeatedKFold(n_splits=3, n_repeats=2), ShuffleSplit(3)]
)
def test_the_plan_of_a_search_is_the_report_of_its_ledger(path, data, cv):
    """Candidates that cost the same: then the refit is that of any."""
    model = make_pipeline(FunctionTransformer(), quick())
    grid = {"dpfairclassifier__lr": [0.1, 0.5]}
    search = GridSearchCV(model, grid, cv=cv, error_score="raise")
    foreseen = forecast(search, 200, accountant="rdp")
    ledger = PrivacyLedger(path, delta=foreseen.delta, accountant="rdp")
    ledger.fit(search, *data)
    spent = ledger.report()
    assert foreseen.epsilon == pytest.approx(spent.epsilon, rel=1e-9) and spent.n_fits > 6
    facts = {name: value for name, value in vars(spent).items() if name != "epsilon"}
    assert facts == {name: getattr(foreseen, name) for name in facts}
    every = [r for f in foreseen.fits for r in f.releases for _ in range(f.n_fits)]
    assert foreseen.epsilon == pytest.approx(
        compute_epsilon(every, foreseen.delta, "rdp"), rel=1e-9
    )


@pytest.mark.parametrize("method", ["dpsgd", "global_adapt", "dpsgd_f", "dp_is_sgd", "fairlens_dp"])
def test_the_plan_of_a_fit_is_its_ledger(path, data, method):
    clf = quick(method=method, group_col=1)
    X = data[0].copy()
    X[:, 1] = X[:, 1] > 0
    foreseen = forecast(clf, 200, n_groups=2, accountant="rdp")
    with PrivacyLedger(path, delta=foreseen.delta, accountant="rdp") as ledger:
        clone(clf).fit(X, data[1])
    assert ledger.epsilon() == pytest.approx(foreseen.epsilon, rel=1e-9)
    assert foreseen.epsilon_total == foreseen.epsilon


@pytest.mark.parametrize("in_pipeline", [False, True])
def test_the_plan_of_thresholds_is_their_ledger(path, data, in_pipeline):
    inner = quick(noise_multiplier=None).set_params(epsilon=2.0)
    model = DPThresholdClassifier(inner)
    grid = {"estimator__max_steps": [3, 4]}
    if in_pipeline:
        model = make_pipeline(FunctionTransformer(), model)
        grid = {f"dpthresholdclassifier__{name}": v for name, v in grid.items()}
    alone = forecast(model, 200, accountant="rdp")
    with PrivacyLedger(path, delta=alone.delta, accountant="rdp") as ledger:
        clone(model).fit(*data)
    assert ledger.epsilon() == pytest.approx(alone.epsilon, rel=1e-9)
    assert len(alone.fits[0].releases) == 2 and alone.epsilon == pytest.approx(2.0, rel=1e-3)
    search = GridSearchCV(model, grid, cv=4, refit=False, error_score="raise")
    foreseen = forecast(search, 200, accountant="rdp")
    with PrivacyLedger(path, delta=foreseen.delta, accountant="rdp", data="search") as ledger:
        search.fit(*data)
    made = [run for fit in foreseen.fits for run in fit.releases for _ in range(fit.n_fits)]
    assert len(made) == 2 * 8 and ledger.report().n_fits == 8
    assert ledger.epsilon() == pytest.approx(compute_epsilon(made, foreseen.delta, "rdp"), rel=1e-9)


def test_a_fit_beyond_the_budget_is_refused_before_it_starts(path, data):
    with PrivacyLedger(path, epsilon=0.8, delta=1e-4, accountant="rdp") as ledger:
        first = quick().fit(*data)
        again = quick()
        with pytest.raises(BudgetExceededError, match="above the budget epsilon=0"):
            again.fit(*data)
        assert not hasattr(again, "net_")
        with pytest.raises(BudgetExceededError, match="keep_reference"):
            quick(keep_reference=True).fit(*data)
    assert len(ledger.frame()[lambda f: f.steps > 0]) == 1
    assert ledger.epsilon() == pytest.approx(compute_epsilon(first.privacy_.releases, 1e-4, "rdp"))


def test_a_private_fit_counts_whether_or_not_a_reference_follows(path, data):
    with PrivacyLedger(path, delta=1e-4) as ledger:
        alone = compute_epsilon(quick().fit(*data).privacy_.releases, 1e-4)
        quick(keep_reference=True).fit(*data)
    assert ledger.report().epsilon > 1.1 * alone and ledger.epsilon() == math.inf
    assert (ledger.frame()["what"] == "not private").tolist() == [False, False, True]


def test_fits_that_leave_a_block_say_so(path, data, recwarn):
    model = quick(warm_start=True)
    with PrivacyLedger(path, delta=1e-4) as ledger:
        model.fit(*data).fit(*data)
        released = model.release()
        assert not [w for w in recwarn if w.category is UnaccountedWarning]
    for again in (model, released, pickle.loads(pickle.dumps(model)), clone(model)):
        with pytest.warns(UnaccountedWarning, match="this fit is not counted"):
            again.fit(*data)
    assert len(ledger.frame()) == 2


def test_workers_know_the_ledger_of_their_block_and_no_other(path):
    def seen():
        return Parallel(n_jobs=2)(delayed(os.getenv)(VARIABLE) for _ in range(2))

    assert seen() == [None, None]
    with PrivacyLedger(path):
        assert [json.loads(text)["path"] for text in seen()] == [str(path)] * 2
    assert seen() == [None, None]


def test_the_sizes_of_folds():
    def sizes(cv):
        return {f.n_samples: f.n_fits for f in forecast_of_200(quick(), cv=cv).fits}

    assert sizes(4) == {150: 4} and sizes(KFold(3)) == sizes(GroupKFold(3)) == {133: 2, 134: 1}
    assert sizes(RepeatedKFold(n_splits=4, n_repeats=3)) == {150: 12}
    assert sizes(ShuffleSplit(3, train_size=0.5, test_size=0.5)) == {100: 3}
    assert sizes([(np.arange(50), np.arange(50, 200))]) == {50: 1}


def test_the_refit_is_charged_as_the_costliest_candidate():
    grid = GridSearchCV(quick(), {"noise_multiplier": [4.0, 2.0, 3.0]}, cv=2)
    foreseen = forecast_of_200(grid)
    assert foreseen.fits[-1].candidate == 1
    assert forecast_of_200(GridSearchCV(quick(), grid.param_grid, cv=2, refit=False)).epsilon < (
        foreseen.epsilon
    )
    assert foreseen.epsilon_total == math.inf
    assert [s.startswith("scores") for s in foreseen.reasons] == [True]
    assert [f.stage for f in foreseen.fits for _ in f.releases] == ["fold"] * 3 + ["refit"]


def test_a_refit_with_strata_replaces_no_dearer_one():
    asc = get_method("asc", group_probabilities=(0.5, 0.5))
    space = [{"noise_multiplier": [2.0]}, {"method": [asc], "noise_multiplier": [1.9]}]
    foreseen = forecast_of_200(GridSearchCV(quick(), space, cv=2), n_groups=2)
    assert foreseen.fits[-1].candidate == 0
    assert foreseen.fits[-2].releases[-1].strata is not None  # a higher rate, and less noise


def test_a_reference_makes_the_search_as_a_whole_not_private():
    with_reference = forecast_of_200(GridSearchCV(quick(), {"noise_multiplier": [None, 3.0]}, cv=2))
    without = forecast_of_200(GridSearchCV(quick(), {"noise_multiplier": [3.0]}, cv=2))
    assert with_reference.epsilon == without.epsilon
    assert with_reference.reasons[0].startswith("a non-private reference model")
    single = forecast_of_200(quick(noise_multiplier=None))
    assert (single.epsilon, single.epsilon_total) == (0.0, math.inf)
    assert forecast_of_200(quick(keep_reference=True)).epsilon_total == math.inf
    assert forecast_of_200(quick(noise_multiplier=0.0)).epsilon_total == math.inf
    recorded = forecast_of_200(quick(callbacks=[GroupRecorder(terms=False)]))
    assert recorded.reasons == (DIAGNOSTICS,) and recorded.epsilon_total == math.inf


def test_a_random_search_is_forecast_if_its_candidates_are_known():
    space = {"noise_multiplier": [4.0, 2.0, 3.0]}
    search = RandomizedSearchCV(quick(), space, n_iter=2, cv=2, random_state=0)
    assert len(forecast_of_200(search).fits) == 3
    with pytest.raises(ValueError, match="random_state of the search must be an int, got None"):
        forecast_of_200(search.set_params(random_state=None))


def test_what_cannot_be_forecast_is_refused():
    with pytest.raises(TypeError, match="got LogisticRegression"):
        forecast(LogisticRegression(), 200)
    with pytest.raises(TypeError, match="n_samples must be an int"):
        forecast(quick(), [1, 2, 3])
    with pytest.raises(TypeError, match="a Pipeline that ends in one"):
        forecast(GridSearchCV(LogisticRegression(), {"C": [1.0]}), 200)
    with pytest.raises(ValueError, match="cv must be None"):
        forecast(GridSearchCV(quick(), {}), 200, cv=3)
    with pytest.raises(ValueError, match="delta"):
        forecast(quick(), 200, delta=2.0)


def test_a_scaler_that_pays_is_listed_before_and_during(tmp_path):
    scaler = DPQuantileScaler((-5, 5), epsilon=1.0)
    classifier = DPFairClassifier(
        epsilon=1.0, group_col=Groups(levels=["F", "M"]), max_steps=3, accountant="rdp"
    )
    planned = forecast_of_200(make_pipeline(scaler, classifier))
    first, *_, last = planned.fits[0].releases
    assert (first.what, last.what) == ("DPQuantileScaler", "steps")
    assert (first.steps, first.sample_rate) == (1, 1.0)
    assert first.noise_multipliers == scaler.planned(200).noise_multipliers
    assert [r.what for r in forecast_of_200(classifier).fits[0].releases] == ["steps"]
    with PrivacyLedger(tmp_path / "ledger", delta=1e-5) as ledger:
        scaler.fit(np.random.default_rng(0).normal(size=(200, 2)))
    assert list(ledger.frame().steps) == [scaler.privacy_.steps] == [1]
