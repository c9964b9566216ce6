"""``skdpfair methods``: list what can be trained."""

import hashlib
import json
import sys
from contextlib import suppress
from pathlib import Path

import click
from rich.box import SIMPLE_HEAD
from rich.table import Table

from skdpfair.cli._input import AS_JSON, Screen, echo

_PACKAGE = Path(__file__).resolve().parents[1]
_KEPT = Path(__file__).with_name("methods.json")


@click.command()
@click.option("--markdown", is_flag=True, help="Print the table of the docs.")
@AS_JSON
def methods(markdown, as_json):
    """List the methods: paper, privacy, groups, what they release."""
    found = _rows()
    if as_json:
        return echo(json.dumps(found, separators=(",", ":")))
    if markdown:
        return echo(_markdown(found))
    table = Table(title="Methods", box=SIMPLE_HEAD)
    for column in found[0]:
        table.add_column(column, no_wrap=column == "name")
    for row in found:
        table.add_row(*row.values())
    Screen().print(table)


def _rows():
    """Return the rows of `methods_table`, from the file beside this one while no method changes.

    The classes need torch, which takes seconds to import.  The file holds the digest of the
    sources that its rows were made from; a clone writes it anew where it does not agree.
    """
    sources = _digest()
    if "skdpfair.methods" in sys.modules:  # which may hold methods from elsewhere
        return _made_rows()
    with suppress(OSError, ValueError, KeyError):
        kept = json.loads(_KEPT.read_text("utf-8"))
        if kept["sources"] == sources:
            return kept["rows"]
    rows = _made_rows()
    _keep({"sources": sources, "rows": rows})
    return rows


def _keep(found):
    """Write the file in a clone of the repository; an installed package stays as it is."""
    if (_PACKAGE.parent / "pyproject.toml").is_file():
        from skdpfair._files import replace_file  # late: it needs numpy

        with suppress(OSError):  # a clone may be read-only
            replace_file(_KEPT, (json.dumps(found, indent=1) + "\n").encode())


def _made_rows():
    from skdpfair.methods import methods_table

    return methods_table().reset_index().to_dict(orient="records")


def _digest():
    """Return a digest of the sources of the methods."""
    digest = hashlib.blake2b(digest_size=16)
    for path in (_PACKAGE / "mechanism.py", *sorted((_PACKAGE / "methods").glob("*.py"))):
        digest.update(path.name.encode() + b"\0" + path.read_bytes().replace(b"\r\n", b"\n"))
    return digest.hexdigest()


def _markdown(rows):
    """Return rows of text as lines of Markdown."""
    lines = [list(rows[0]), ["---"] * len(rows[0]), *(row.values() for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
