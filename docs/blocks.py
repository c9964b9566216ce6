"""Run the code blocks of the pages, and compare what they print with the page.

python docs/blocks.py [PAGE ...]

The ``python`` blocks of a page run in order, in one process and in an empty folder. A ``text``
block after a ``python`` block is its output. If the ``python`` block contains ``# unseeded``,
numbers are not compared; else see `agree`. Blocks that contain ``# your`` use names of the reader,
and do not run. ``docs/conf.py`` removes ``# unseeded`` and ``# your pipeline`` from built pages.
"""

import contextlib
import io
import multiprocessing
import os
import re
import sys
import tempfile
import traceback
from math import isclose
from pathlib import Path

DOCS = Path(__file__).parent
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
NUMBER = re.compile(r"-?\d+(\.\d+)?")
# runs whose values happen to be equal have no interval
INTERVAL = re.compile(rf"in all runs|{NUMBER.pattern} to {NUMBER.pattern}")


def blocks_of(page):
    """Return the code blocks of a page, each with the output that the page shows, or None."""
    found = BLOCK.findall(page.read_text())
    after = [*found[1:], ("", "")][: len(found)]
    return [
        (code, text if kind == "text" else None)
        for (language, code), (kind, text) in zip(found, after, strict=True)
        if language == "python" and "# your" not in code
    ]


def run(codes):
    """Return what each of the blocks prints, or a text that says why one failed."""
    os.environ["MPLBACKEND"] = "Agg"
    names, out = {"__name__": "__main__"}, []
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for code in codes:
            with (
                contextlib.redirect_stdout(io.StringIO()) as printed,
                contextlib.redirect_stderr(io.StringIO()),
            ):
                try:
                    exec(compile(code, "block", "exec"), names)
                except BaseException:
                    return traceback.format_exc()[-1500:]
            out.append(printed.getvalue())
    return out


def faults(blocks, printed):
    """Return the differences between the output that a page shows and that of its blocks."""
    if isinstance(printed, str):
        return [printed]
    return [
        f"shown:\n{shown}printed:\n{output}"
        for (code, shown), output in zip(blocks, printed, strict=True)
        if shown is not None and not agree(output, shown, is_seeded="# unseeded" not in code)
    ]


def agree(output, shown, *, is_seeded):
    """Return whether two outputs have the same words, and, with seeds, the same numbers.

    Decimals may differ by 2 %, or by .02, as processors round the products of matrices differently.
    """
    if not is_seeded:
        output, shown = INTERVAL.sub("0", output), INTERVAL.sub("0", shown)
    if NUMBER.sub("0", output).split() != NUMBER.sub("0", shown).split():
        return False
    pairs = zip(NUMBER.finditer(output), NUMBER.finditer(shown), strict=True)
    return not is_seeded or all(
        isclose(float(a[0]), float(b[0]), rel_tol=0.02, abs_tol=0.02)
        if a[1] or b[1]
        else a[0] == b[0]
        for a, b in pairs
    )


def main(names):
    """Run the named pages, or all pages; the status is 1 if an output differs."""
    pages = [Path(name) for name in names] or sorted(
        page for page in DOCS.rglob("*.md") if "_build" not in page.parts
    )
    blocks = [blocks_of(page) for page in pages]
    context = multiprocessing.get_context("forkserver" if hasattr(os, "fork") else "spawn")
    context.set_forkserver_preload(["pandas", "sklearn.model_selection", "torch"])
    failed = False
    with context.Pool(2, maxtasksperchild=1) as pool:  # a process for each page
        outputs = pool.imap(run, [[code for code, _ in found] for found in blocks])
        for page, found, printed in zip(pages, blocks, outputs, strict=True):
            wrong = faults(found, printed)
            failed |= bool(wrong)
            sys.stdout.write(f"{page.name}: {'ok' if not wrong else 'DIFFERS'}\n")
            sys.stdout.write("\n".join(wrong) + "\n" if wrong else "")
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
