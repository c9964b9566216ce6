"""Shapes and dtypes as pickles state them."""

import re

from skdpfair.audit._artifacts._graph import Call, Seq


def shape_of(node) -> tuple[int, ...]:
    """Return a shape that a pickle states; sizes that are none count as 0."""
    items = node.items if isinstance(node, Seq) else [node] if isinstance(node, int) else []
    return tuple(v if isinstance(v, int) and v >= 0 else 0 for v in items)


def dtype_of(node) -> str | None:
    """Return a dtype that a pickle states, such as "<f8", "V64" or "O"; None if it is none."""
    if not isinstance(node, Call):
        return None
    code = next((a for a in (node.args.items if isinstance(node.args, Seq) else ()) if a), None)
    if not isinstance(code, str) or not re.fullmatch(r"[|<>=]?[biufcSUVOmM?]\d{0,9}", code):
        return None
    if code.lstrip("|").startswith("O"):
        return "O"
    state = node.states[0].items if node.states and isinstance(node.states[0], Seq) else []
    order = state[1] if len(state) > 1 and state[1] in ("<", ">") else ""
    return order + code


def size_of(dtype: str) -> int:
    """Return the bytes of one item of a dtype."""
    kind, digits = re.match(r"[|<>=]?(\D)(\d*)", dtype).groups()  # "<M8[ns]" has a unit
    size = int(digits or (8 if kind in "mMO" else 1))
    return 4 * size if kind == "U" else size
