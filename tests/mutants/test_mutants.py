"""Every mutant is killed by the test that it names, for the right reason."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE))
from catalogue import MUTANTS  # noqa: E402

# how a test may fail on a mutant; anything else is a mutant that does not run
REASONS = {"AssertionError", "Failed", "PrivacyAccountingError", "ExceptionGroup", "FlakyFailure"}
REASONS |= {"InterruptedWarning"}  # as errors: a fit that took fewer steps says so


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Return a function that runs a mutant's test: its exit status, and what it printed."""
    command = [sys.executable, str(HERE / "run_with.py")]
    if not hasattr(os, "fork"):

        def alone(mutant):
            done = subprocess.run(
                [*command, mutant.name], capture_output=True, text=True, check=False, cwd=ROOT
            )
            return done.returncode, done.stdout + done.stderr

        yield alone
        return
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "cwd": ROOT}
    path = tmp_path_factory.mktemp("mutants") / "printed"
    with subprocess.Popen([*command, "--serve"], **pipes) as server:

        def forked(mutant):
            server.stdin.write(json.dumps([mutant.name, str(path)]) + "\n")
            server.stdin.flush()
            return int(server.stdout.readline()), path.read_text()

        yield forked


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.name)
def test_killed(mutant, run):
    status, printed = run(mutant)
    assert status == 0, printed[-3000:]
    found = json.loads(printed.splitlines()[-1])
    assert found["used"], "the mutated module was not loaded"
    assert found["code"] == 1, f"survived: {printed[-2000:]}"
    assert found["kinds"] and set(found["kinds"]) <= REASONS, printed[-3000:]


def test_each_stands_for_one_place_of_the_source():
    sources = {m.file: (ROOT / "skdpfair" / m.file).read_text() for m in MUTANTS}
    assert [m.name for m in MUTANTS if sources[m.file].count(m.old) != 1] == []


def test_names_are_unique():
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 30


def test_the_docs_list_them():
    page = (ROOT / "docs" / "evidence" / "mutants.md").read_text()
    rows = [line.split(" | ") for line in page.splitlines() if line.endswith("` |")]
    told = [(row[0].removeprefix("| "), row[-1].rstrip(" |").strip("`")) for row in rows]
    assert told == [(m.name, m.killed_by.removeprefix("tests/")) for m in MUTANTS]
