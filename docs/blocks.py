"""Run the code blocks of the pages, and compare what they print with the page.

python docs/blocks.py [PAGE ...]

The ``python`` blocks of a page run in order, in one process and in an empty folder. A ``text``
block after a ``python`` block is its output. If the ``python`` block contains ``# unseeded``,
numbers are not compared. Blocks that contain ``# your`` use names of the reader, and do not run.
"""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

DOCS = Path(__file__).parent
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
NUMBER = re.compile(r"-?\d+(\.\d+)?")
RUN = """
import contextlib, io, json, os, sys
os.environ["MPLBACKEND"] = "Agg"
names, out = {"__name__": "__main__"}, []
for code in json.load(sys.stdin):
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "block", "exec"), names)
    out.append(printed.getvalue())
json.dump(out, sys.stdout)
"""


def blocks_of(page):
    """Return the code blocks of a page, each with the output that the page shows, or None."""
    found = BLOCK.findall(page.read_text())
    after = [*found[1:], ("", "")][: len(found)]
    return [
        (code, text if kind == "text" else None)
        for (language, code), (kind, text) in zip(found, after, strict=True)
        if language == "python" and "# your" not in code
    ]


def faults(page):
    """Return the differences between the output that a page shows and that of its blocks."""
    blocks = blocks_of(page)
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-c", RUN],
            input=json.dumps([code for code, _ in blocks]),
            capture_output=True,
            text=True,
            cwd=folder,
        )
    if done.returncode:
        return [done.stderr.strip()[-1500:]]
    printed = json.loads(done.stdout)
    return [
        f"shown:\n{shown}printed:\n{output}"
        for (code, shown), output in zip(blocks, printed, strict=True)
        if shown is not None and words(output, code) != words(shown, code)
    ]


def words(text, code):
    """Return the words of an output that must be equal on the page and in a run."""
    return (NUMBER.sub("0", text) if "# unseeded" in code else text).split()


def main(names):
    """Run the named pages, or all pages; the status is 1 if an output differs."""
    pages = [Path(name) for name in names] or sorted(
        page for page in DOCS.rglob("*.md") if "_build" not in page.parts
    )
    failed = False
    for page in pages:
        wrong = faults(page) if blocks_of(page) else []
        failed |= bool(wrong)
        sys.stdout.write(f"{page.name}: {'ok' if not wrong else 'DIFFERS'}\n")
        sys.stdout.write("\n".join(wrong) + "\n" if wrong else "")
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
