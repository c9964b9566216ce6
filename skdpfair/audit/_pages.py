"""Model pages, explained if our template writes them again from facts on the closed list."""

import re
from html import unescape
from types import SimpleNamespace

from skdpfair.audit import _public_facts as facts_
from skdpfair.privacy.statement import ADJACENCY_IN_WORDS, ASSUMPTIONS

FIGURES = "<strong>This page contains non-private figures"
_WRITTEN = "<footer>Written by skdpfair "
_ROWS = re.compile(r"<dt>(.*?)</dt><dd>(.*?)</dd>")
_ITEM = re.compile(r"<li>(.*?)</li>")
_EPSILON = re.compile(r"<strong>ε = (\S+) at δ = (\S+)</strong> \((\w+) accountant\)")
_BY_GROUP = re.compile(r'<tr><th scope="row">(.*?)</th><td class="n">([^<]*)</td></tr>')
_ENTRY = re.compile(r'<tr><th scope="row">(.*?)</th>' + r'<td class="n">([^<]*)</td>' * 3 + "</tr>")
_AMOUNT = re.compile(r"[\d.,e+\- ]{1,60}|inf")
_FACTS = ("method", "features", "records trained on", "steps", "expected batch size")
_FACTS += ("learning rate", "written by")


def is_page(text) -> bool:
    """Tell whether a text says that this package has written it as a page."""
    return text.startswith("<!doctype html>") and _WRITTEN in text


def is_model_page(text) -> bool:
    """Tell whether a text is a model page without figures on records, and no more than that."""
    from skdpfair.report._rendering import render  # needs jinja2

    context = _context_of(text)
    return _are_public(context) and render("model.html", context) == text


def _context_of(text):
    """Return the facts that a page tells, as its template takes them."""
    parts = dict(re.findall(r'<section aria-labelledby="([\w-]+)">(.*?)</section>', text, re.S))
    epsilon, delta, accountant = (_EPSILON.findall(parts["privacy"]) or [("inf", "", "")])[0]
    prepared = (
        None
        if "No pipeline was given" in parts["pipeline"]
        else SimpleNamespace(steps=[], notes=_texts(_ITEM, parts["pipeline"]))
    )
    privacy = SimpleNamespace(
        is_private=bool(accountant),
        seeded="The noise was seeded" in parts["privacy"],
        accountant=accountant,
        statement=unescape("".join(re.findall(r'role="note">(.*?)</p>', parts["privacy"], re.S))),
        assumptions=_texts(_ITEM, parts["assumed"]),
        not_accounted=_texts(_ITEM, parts["not-accounted"]),
    )
    return {
        "title": unescape(re.search(r"<h1>(.*?)</h1>", text).group(1)),
        "facts": _texts(_ROWS, parts["model"]),
        "privacy": privacy,
        "epsilon": epsilon,
        "delta": delta,
        "adjacency": next(w for w in ADJACENCY_IN_WORDS.values() if not accountant or w in text),
        "group_epsilons": dict(_texts(_BY_GROUP, parts["privacy"])),
        "ledger": _texts(_ENTRY, parts["ledger"]),
        "groups": None,
        "classes": [],
        "gap": None,
        "findings": prepared,
        "version": text.split(_WRITTEN)[1].split(". ")[0],
    }


def _texts(pattern, part):
    found = pattern.findall(part)
    return [unescape(v) if isinstance(v, str) else tuple(map(unescape, v)) for v in found]


def _are_public(context):
    """Tell whether the facts that a page tells are such as pages may tell."""
    facts, privacy = dict(context["facts"]), context["privacy"]
    sets = [facts.pop(name, "").split(", ") for name in ("classes", "groups")]
    words = [context["title"], context["version"], *facts.values()]
    amounts = [v for row in context["ledger"] for v in row[1:]]
    amounts += [context["epsilon"], *context["group_epsilons"].values()]
    said = privacy.is_private or privacy.statement.startswith("This fit is NOT differentially")
    return (
        set(facts) <= set(_FACTS)
        and all(map(facts_.is_word, words))
        and all(_AMOUNT.fullmatch(v) for v in amounts)
        and all(map(facts_.are_levels, (*sets, context["group_epsilons"])))
        and all(facts_.WHAT.fullmatch(row[0]) for row in context["ledger"])
        and set(privacy.assumptions) <= set(ASSUMPTIONS.values())
        and all(map(facts_.is_not_accounted, privacy.not_accounted))
        and (context["findings"] is None or not context["findings"].notes)
        and said
        and len(privacy.statement) <= 400
    )
