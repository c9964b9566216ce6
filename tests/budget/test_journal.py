"""The file of a ledger: what edits, losses and other processes do to its lines."""

import json
import math
import multiprocessing
import pickle
import re
from copy import deepcopy
from dataclasses import replace

import pytest

from skdpfair.budget import PrivacyLedger, journal
from skdpfair.budget.charging import charged
from skdpfair.privacy import NoisyRelease, compute_epsilon
from skdpfair.privacy.renyi import rdp_curve
from tests.budget.charged_fits import COST, RUN, spend


def test_journal_loses_no_line_of_processes_that_append_together(path):
    context = multiprocessing.get_context("fork")
    with PrivacyLedger(path, epsilon=100.0, delta=1e-5) as ledger:
        workers = [context.Process(target=spend, args=(20,)) for _ in range(2)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    assert list(ledger.frame().state) == ["done"] * 40
    assert ledger.epsilon() == compute_epsilon([replace(RUN, steps=4000)], 1e-5)


def test_journal_is_locked_from_the_check_to_the_entry(path, monkeypatch):
    fcntl = pytest.importorskip("fcntl")
    ledger, n_lines = PrivacyLedger(path, epsilon=1.05 * COST, delta=1e-5), []

    def try_to_lock(*args):
        with path.open("r+b") as other, pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        n_lines.append(len(path.read_text().splitlines()))

    monkeypatch.setattr(PrivacyLedger, "_check", try_to_lock)
    append = journal.Journal.append
    monkeypatch.setattr(journal.Journal, "append", lambda *args: (try_to_lock(), append(*args)))
    with ledger:
        spend()
    assert n_lines == [1, 1, 2]  # the check, the plan, the end


def test_append_takes_back_a_line_for_which_the_disk_has_no_room(path):
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


# lines that were edited


@pytest.fixture
def lines(path):
    """The lines of a ledger with two fits and a selection, and their total."""
    ledger = PrivacyLedger(path, epsilon=50.0, delta=1e-5, accountant="rdp")
    other = NoisyRelease("gradient sum", 0.02, (1.0, 5.0), 50, strata=((0.01, 1.0), (0.02, 0.5)))
    for release in (RUN, other):
        with ledger, charged([release], spent := [], persons="id", protects="person"):
            spent.append(release)
    with ledger, charged((), [], curve=rdp_curve([RUN]), protects="person"):
        pass
    return path.read_text().splitlines(keepends=True), ledger.epsilon()


def total_of(path, lines):
    """Return the total of a ledger of some lines; infinity if an error names what is wrong."""
    path = path.with_name("edited")
    path.write_text("".join(lines))
    try:
        return PrivacyLedger(path).epsilon()
    except ValueError as error:
        assert re.search(rf"{path}.*( line \d|no longer begins|format version)", str(error))
        return math.inf


def places_in(value, place=()):
    yield place
    if isinstance(value, (dict, list)):
        for key in value if isinstance(value, dict) else range(len(value))[:2]:
            yield from places_in(value[key], (*place, key))


def with_part(value, place, part):
    if not place:
        return part
    value = deepcopy(value)
    value[place[0]] = with_part(value[place[0]], place[1:], part)
    return value


HOSTILE = [None, True, -1, 10**9, 1e308, math.nan, "x", [], {}, [[1.0]]]


def test_journal_total_is_lowered_by_no_line_edited_moved_or_repeated(path, lines):
    lines, total = lines
    assert total_of(path, lines) == total > 0
    edited = []
    for i, line in enumerate(lines):
        edited += [[*lines[: j + 1], line, *lines[j + 1 :]] for j in range(len(lines))]
        edited += [[*lines[:i], other, *lines[i + 1 :]] for other in lines]
        edited += [[*lines[:i], line[:cut], *lines[i + 1 :]] for cut in range(0, len(line) - 1, 40)]
        edited.append([*lines[:i], *lines[i + 1 :], line])
        value = json.loads(line)
        for place in places_in(value):
            changed = (json.dumps(with_part(value, place, part)) + "\n" for part in HOSTILE)
            edited += [[*lines[:i], change, *lines[i + 1 :]] for change in changed]
    totals = [total_of(path, each) for each in edited if each != lines]
    assert len(totals) > 500 and min(totals) >= total


def unsealed(line):
    """Return a line of a ledger as versions wrote it that sealed none."""
    return json.dumps({k: v for k, v in json.loads(line).items() if k != "seal"}) + "\n"


@pytest.mark.parametrize("end", [-1, -20], ids=["whole", "half"])
def test_journal_refuses_a_last_line_without_an_end(path, end):
    with PrivacyLedger(path, epsilon=5 * COST, delta=1e-5):
        spend()
    path.write_text("".join(map(unsealed, path.read_text().splitlines()))[:end])
    with pytest.raises(ValueError, match=rf"{path}.*line 3 .*the last line has no end"):
        PrivacyLedger(path)


# lines after the first, by those that begin and end a fit
NO_LINES_OF_FITS = {
    "a second end": lambda begin, end: [begin, end, end | {"entries": []}],
    "a second beginning": lambda begin, end: [begin, end, begin],
    "an end alone": lambda begin, end: [end],
    "a list": lambda begin, end: [begin, []],
    "null": lambda begin, end: [None, begin],
    "a number": lambda begin, end: [begin, 1],
    "an empty object": lambda begin, end: [begin, {}],
}
# entries of the line that begins a fit
NO_ENTRIES_OF_FITS = [
    ("private", "no"),
    ("fit", ["a"]),
    ("data", ["a"]),
    ("reasons", [1]),
    ("protects", ["record"]),
    ("entries", None),
    ("entries", [[{}]]),
    ("entries", [{"rows": 1}]),
    ("curve", {"orders": [2.0], "rdp": [-1.0]}),
    ("curve", {"orders": [2.0], "rdp": [math.nan]}),
    ("curve", {}),
    ("curve", {"orders": [2.0], "rdp": []}),
]
NO_RELEASES = {
    "noise_multipliers": [math.nan],
    "sample_rate": "0.1",
    "steps": -1,
    "strata": [[0.1]],
    "is_one_time": 0,
}
NO_LINES_OF_FITS |= {
    f"{name} {value}": lambda begin, end, change={name: value}: [begin | change]
    for name, value in NO_ENTRIES_OF_FITS
}
NO_LINES_OF_FITS |= {
    f"{name} {value}": lambda begin, end, change={name: value}: [
        begin,
        end | {"entries": [end["entries"][0] | change]},
    ]
    for name, value in NO_RELEASES.items()
}


@pytest.mark.parametrize("name", NO_LINES_OF_FITS)
def test_journal_names_a_line_of_no_fit_in_a_file_without_seals(name, path, lines):
    first, begin, end, *_ = map(unsealed, lines[0])
    assert total_of(path, [first, begin, end]) > 0
    edited = NO_LINES_OF_FITS[name](json.loads(begin), json.loads(end))
    path = path.with_name("edited")
    path.write_text(first + "".join(json.dumps(line) + "\n" for line in edited))
    with pytest.raises(ValueError, match=rf"{path}.* line {1 + len(edited)}|line 2"):
        PrivacyLedger(path).epsilon()


# lines that were lost

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
def test_journal_that_lost_lines_takes_no_more(path, loss):
    ledger = PrivacyLedger(path, epsilon=5 * COST, delta=1e-5)
    copy = pickle.loads(pickle.dumps(ledger))  # as in the workers of a search
    for each in (ledger, copy):
        with each:
            spend()
    whole = path.read_text()
    path.write_text("".join(LOSSES[loss](whole.splitlines(keepends=True))))
    lost = pytest.raises(ValueError, match=f"(?s){str(path)!r} no longer begins")
    for each in (ledger, copy, deepcopy(copy)):
        with lost, each:
            spend()
        with lost:
            each.epsilon()
    path.write_text(whole)
    with ledger:
        spend()
        path.write_text("".join(LOSSES[loss](path.read_text().splitlines(keepends=True))))
        with lost:
            spend()
    path.unlink()
    with pytest.raises(FileNotFoundError, match=str(path)), ledger:
        spend()
    with PrivacyLedger(path):  # on purpose
        spend()


def test_journal_leaves_a_file_of_other_things_unchanged(path):
    path.write_text("notes without an end")
    with pytest.raises(ValueError, match="not a ledger"):
        PrivacyLedger(path)
    assert path.read_text() == "notes without an end"


def test_journal_refuses_another_format_version(path):
    PrivacyLedger(path)
    PrivacyLedger(path)  # reads its own
    first = path.read_text().replace('"format_version": 1', '"format_version": 2')
    path.write_text(first + '{"a line": "of another kind"}\n')
    with pytest.raises(ValueError, match="version 2; this skdpfair reads 1"):
        PrivacyLedger(path)
