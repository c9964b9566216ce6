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
REASONS |= {"UnsupportedModuleError"}  # the engine notices before the first step
REASONS |= {"InterruptedWarning"}  # as errors: a fit that took fewer steps says so


@pytest.fixture(scope="session")
def run():
    """Return a function that runs a mutant's tests: the kinds of failures, and what they say."""
    if not hasattr(os, "fork"):
        pytest.skip("each mutant is a fork of a process, which this system does not have")
    command = [sys.executable, str(HERE / "run_with.py")]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, text=True, cwd=ROOT, **pipes) as server:

        def failures(mutant):
            server.stdin.write(mutant.name + "\n")
            server.stdin.flush()
            answer = server.stdout.readline()
            assert answer, f'no answer: see python tests/mutants/run_with.py "{mutant.name}"'
            return json.loads(answer)

        yield failures


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.name)
def test_mutant_is_killed_by_its_test(mutant, run):
    failures = run(mutant)
    if failures["kinds"] == ["Skipped"]:
        pytest.skip("its test cannot run with these versions of the libraries")
    assert failures["kinds"], f"survived: {failures['text']}"
    assert set(failures["kinds"]) <= REASONS, failures["text"]


def test_mutant_replaces_one_place_of_the_source():
    sources = {m.file: (ROOT / "skdpfair" / m.file).read_text() for m in MUTANTS}
    assert [m.name for m in MUTANTS if sources[m.file].count(m.old) != 1] == []


def test_names_are_unique():
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 30


def test_docs_list_the_mutants():
    page = (ROOT / "docs" / "evidence" / "mutants.md").read_text()
    rows = [line.split(" | ") for line in page.splitlines() if line.endswith("` |")]
    listed = [(row[0].removeprefix("| "), row[-1].rstrip(" |").strip("`")) for row in rows]
    assert listed == [(m.name, m.killed_by.removeprefix("tests/")) for m in MUTANTS]
