"""Cards that notebooks show: tiles, a table and folds, as HTML without scripts."""

import re
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

Rows = Iterable[Sequence[str]]  # of a table, the first cell of each its head

_STYLE = """<style>
.skdpfair-card { max-width: 56rem; font: 14px/1.5 system-ui, sans-serif; text-align: left; }
.skdpfair-card .tiles { display: flex; flex-wrap: wrap; gap: .6rem; margin: .4rem 0; }
.skdpfair-card .tile { flex: 1 1 9rem; max-width: 18rem; padding: .5rem .8rem; border-radius: .4rem;
  border: 1px solid color-mix(in srgb, currentColor 25%, transparent); }
.skdpfair-card .tile b { display: block; font-size: 1.35em; line-height: 1.3; }
.skdpfair-card .tile span, .skdpfair-card caption { opacity: .75; }
.skdpfair-card table { border-collapse: collapse; margin: .3rem 0; font-size: 1em; }
.skdpfair-card th, .skdpfair-card td { padding: .15rem .9rem .15rem 0; text-align: left;
  vertical-align: top; background: none; font-variant-numeric: tabular-nums; max-width: 44rem;
  border: 0 solid color-mix(in srgb, currentColor 18%, transparent); border-bottom-width: 1px; }
.skdpfair-card th { font-weight: 600; white-space: nowrap; }
.skdpfair-card summary { cursor: pointer; } .skdpfair-card ul { margin: .2rem 0; }
.skdpfair-card .warn { font-weight: 600; }
</style>"""
_GREEK = {"epsilon": "ε", "delta": "δ", "mu": "μ"}
_POWERS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
_NAMED = re.compile(r"\b(epsilon|delta|mu)( = | (?=\d))")
_QUOTED = re.compile(r'"([^"]*)"')
_SMALL = re.compile(r"(?<![\w.])(\d(?:\.\d+)?)e-0*(\d+)\b")


def count(n: int, noun: str) -> str:
    """Return a number of things in words: "no fact", "1 fact", "2 facts"."""
    return f"{n:,} {noun}{'s' * (n > 1)}" if n else f"no {noun}"


def typeset(text: str) -> str:
    """Return a text for HTML: Greek letters, powers of ten and curly quotes."""
    text = _NAMED.sub(lambda match: f"{_GREEK[match[1]]} = ", text)
    return _QUOTED.sub(r"“\1”", _SMALL.sub(_as_power, text))


def _as_power(match: re.Match[str]) -> str:
    factor = "" if match[1] == "1" else f"{match[1]} · "
    return f"{factor}10⁻{match[2].translate(_POWERS)}"


def card(title: str, *parts: str) -> str:
    """Return a card of parts, which are HTML."""
    head = f"<b>{_text(title)}</b>" if title else ""
    return f'{_STYLE}<div class="skdpfair-card">{head}{"".join(parts)}</div>'


def tiles(*each: tuple[str, str, str | None]) -> str:
    """Return tiles of a label, a value and a remark."""
    texts = (
        f'<div class="tile"><span>{_text(label)}</span><b>{_text(value)}</b>'
        f"<span>{_text(remark or '')}</span></div>"
        for label, value, remark in each
    )
    return f'<div class="tiles">{"".join(texts)}</div>'


def table(rows: Rows, heads: Sequence[str] = ()) -> str:
    """Return a table, "" without rows."""
    head = "".join(f'<th scope="col">{_text(h)}</th>' for h in heads)
    body = "".join(
        f'<tr><th scope="row">{_text(first)}</th>'
        + "".join(f"<td>{_text(cell)}</td>" for cell in cells)
        + "</tr>"
        for first, *cells in rows
    )
    return f"<table>{f'<thead><tr>{head}</tr></thead>' * bool(head)}<tbody>{body}</tbody></table>"


def items(texts: Iterable[Any]) -> str:
    """Return texts as a list, "" without any."""
    each = "".join(f"<li>{_text(str(text))}</li>" for text in texts)
    return f"<ul>{each}</ul>" if each else ""


def fold(title: str, content: str, style: str = "") -> str:
    """Return content that is folded under its title, "" without content."""
    details = f"<details><summary>{_text(title)}</summary>{content}</details>"
    return content and f'<div class="{style}">{details}</div>'


def warning(text: str) -> str:
    """Return a sentence that must be seen."""
    return f'<p class="warn">{_text(text)}</p>'


def _text(text: str) -> str:
    return escape(typeset(text))
