"""Write docs/mutants.md: each mutant, the test that kills it, and what it would have cost.

Run ``python tests/mutants/table.py``; it takes some minutes.
"""

import json
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from catalogue import MUTANTS  # noqa: E402

PAGE = HERE.parents[1] / "docs" / "mutants.md"
HEAD = """\
# Mutants: ways to lose privacy, and what finds them

A test that cannot fail proves nothing. So each of these faults is put into the source, one at a
time, on every run of the tests (`tests/mutants/`), and the test named beside it must fail. Most
were made by somebody: in a paper, in published code, in another library.

*Claimed* and *spent* are epsilon at delta 1e-5, with the fault in place: what the code reports, and
what it spends: for steps at least, by `audit_step` (confidence 1 - 1e-6), for
accounting by dp-accounting alone. A dash: the fault does not show in single steps of a record, or
is none of numbers.

Made by `python tests/mutants/table.py`.

| mutant | what is wrong | claimed | spent | killed by |
| --- | --- | ---: | ---: | --- |
"""


def line(mutant, found):
    """Return a row of the table."""
    numbers = ["-", "-"] if found is None else [_number(found[k]) for k in ("claimed", "spent")]
    test = mutant.killed_by.removeprefix("tests/")
    return f"| {mutant.name} | {mutant.says} | {' | '.join(numbers)} | `{test}` |"


def _number(epsilon):
    return f"{epsilon:.2f}"


def measured(mutant):
    """Measure in a process of its own, which loads the mutant instead of the package."""
    command = [sys.executable, str(HERE / "run_with.py"), mutant.name, "--measure"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=HERE.parents[1])
    return json.loads(done.stdout.splitlines()[-1])


def main():
    """Measure all, and write the page."""
    rows = []
    for mutant in MUTANTS:
        rows.append(line(mutant, measured(mutant)))
        print(rows[-1], flush=True)
    PAGE.write_text(HEAD + "\n".join(rows) + "\n")


if __name__ == "__main__":
    main()
