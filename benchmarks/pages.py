"""Tables of results in the pages of docs/, between two markers."""

from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"


def put(page, name, lines):
    """Write ``lines`` between the markers called ``name`` of a page."""
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    path = DOCS / page
    before, _, rest = path.read_text().partition(begin)
    after = rest.partition(end)[2]
    path.write_text("\n".join([f"{before}{begin}", *lines, f"{end}{after}"]))
