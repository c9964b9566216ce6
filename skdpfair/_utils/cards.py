"""Cards that notebooks show: tiles, a table and folds, as HTML without scripts."""

import re
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files
from typing import Any

Rows = Iterable[Sequence[str]]  # of a table, the first cell of each its head

_GREEK = {"epsilon": "ε", "delta": "δ", "mu": "μ"}
_POWERS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
_NAMED = re.compile(r"\b(epsilon|delta|mu)( = | (?=\d))")
# a number and its unit stay on one line
_UNIT = re.compile(r"(?<=\d) %")
_SMALL = re.compile(r"(?<![\w.])(\d(?:\.\d+)?)e-0*(\d+)\b")


def count(n: int, noun: str) -> str:
    """Return a number of things in words: "no fact", "1 fact", "2 facts"."""
    return f"{n:,} {noun}{'s' * (n > 1)}" if n else f"no {noun}"


def typeset(text: str) -> str:
    """Return a text for HTML, with Greek letters, powers of ten and numbers beside their unit."""
    text = _NAMED.sub(lambda match: f"{_GREEK[match[1]]} = ", text)
    return _SMALL.sub(_as_power, _UNIT.sub("\u00a0%", text))


def _as_power(match: re.Match[str]) -> str:
    factor = "" if match[1] == "1" else f"{match[1]} · "
    return f"{factor}10⁻{match[2].translate(_POWERS)}"


def card(title: str, *parts: str) -> str:
    """Return a card of parts, which are HTML."""
    head = f"<b>{_text(title)}</b>" if title else ""
    style = files("skdpfair._utils").joinpath("cards.css").read_text("utf-8")
    return f'<style>{style}</style><div class="skdpfair-card">{head}{"".join(parts)}</div>'


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
