"""Every mutant is killed by the test that it names, for the right reason."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from catalogue import MUTANTS  # noqa: E402

# how a test may fail on a mutant; anything else is a mutant that does not run
REASONS = {"AssertionError", "Failed", "PrivacyAccountingError", "ExceptionGroup", "FlakyFailure"}
REASONS |= {"UserWarning"}  # as errors: a fit that took fewer steps says so


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.name)
def test_killed(mutant):
    command = [sys.executable, str(HERE / "run_with.py"), mutant.name]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=600, cwd=HERE.parents[1], check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["used"], "the mutated module was not loaded"
    assert found["code"] == 1, f"survived: {done.stdout[-2000:]}"
    assert found["kinds"] and set(found["kinds"]) <= REASONS, done.stdout[-3000:]


def test_names_are_unique():
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 30


def test_the_docs_list_them():
    page = (HERE.parents[1] / "docs" / "mutants.md").read_text()
    rows = [line.split(" | ") for line in page.splitlines() if line.endswith("` |")]
    told = [(row[0].removeprefix("| "), row[-1].rstrip(" |").strip("`")) for row in rows]
    assert told == [(m.name, m.killed_by.removeprefix("tests/")) for m in MUTANTS]
