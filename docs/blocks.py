"""Run the code blocks of the pages, and compare what they print with the page.

python docs/blocks.py [PAGE ...]

The blocks of a page run in order, in one process and an empty folder; a block of ``text`` after one
of ``python`` is its output; of one that says ``# unseeded``, up to its numbers. Blocks that lean on
names of the reader's own are told by ``# your``.
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
    told = io.StringIO()
    with contextlib.redirect_stdout(told):
        exec(compile(code, "block", "exec"), names)
    out.append(told.getvalue())
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
    """Return what a page prints that its blocks do not."""
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
        f"shown:\n{shown}printed:\n{told}"
        for (code, shown), told in zip(blocks, printed, strict=True)
        if shown is not None and words(told, code) != words(shown, code)
    ]


def words(text, code):
    """Return what is to be the same in what a block prints and in what the page shows."""
    return (NUMBER.sub("0", text) if "# unseeded" in code else text).split()


def main(names):
    """Run the pages named, or all; the status tells whether all are as they say."""
    pages = [Path(name) for name in names] or sorted(
        page for page in DOCS.rglob("*.md") if "_build" not in page.parts
    )
    failed = False
    for page in pages:
        wrong = faults(page) if blocks_of(page) else []
        failed |= bool(wrong)
        sys.stdout.write(f"{page.name}: {'as it says' if not wrong else 'DIFFERS'}\n")
        sys.stdout.write("\n".join(wrong) + "\n" if wrong else "")
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
