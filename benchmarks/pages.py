"""Tables of results in Markdown, and in the pages of docs/, between two markers."""

from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"


def table(heads, rows, left=(0,)):
    """Return the lines of a table; all columns but those at the places ``left`` are flush right."""
    rule = ["---" if i in left else "---:" for i in range(len(heads))]
    return [f"| {' | '.join(map(str, row))} |" for row in (heads, rule, *rows)]


def put(page, name, lines):
    """Write ``lines`` between the markers called ``name`` of a page."""
    path = DOCS / page
    path.write_text(filled(path.read_text(encoding="utf-8"), name, lines), encoding="utf-8")


def filled(text, name, lines):
    """Return a page's text with ``lines`` between the markers called ``name``."""
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    before, _, rest = text.partition(begin)
    after = rest.partition(end)[2]
    return "\n".join([f"{before}{begin}", *lines, f"{end}{after}"])
