"""Write docs/evidence/mutants.md: each mutant, the test that kills it, and what it would have cost.

Run ``python tests/mutants/table.py``; it takes some minutes.
"""

import json
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from catalogue import MUTANTS  # noqa: E402

PAGE = HERE.parents[1] / "docs" / "evidence" / "mutants.md"
HEAD = """\
# Mutation tests of the privacy guarantees

Each fault in the table is put into the source, one at a time, on every run of the tests
(`tests/mutants/`), and the test in its row must fail. This shows that the tests detect such faults.
Most of the faults have occurred in a paper, in published code or in another library.

The columns *claimed* and *spent* are epsilon at delta 1e-5, measured with the fault in place.
*Claimed* is the epsilon that the code reports. *Spent* is the epsilon that the code spends: for
faults in a step, the lower bound of `audit_step` in `benchmarks/audits` (confidence 1 - 1e-6); for
faults in accounting, the result of dp-accounting alone. A dash means that the fault has no effect
on single steps of a record, or does not concern numbers.

`python tests/mutants/table.py` makes this page.

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
    command = [sys.executable, str(HERE / "run_with.py"), "--measure", mutant.name]
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
