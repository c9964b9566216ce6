"""What a model page says, read back for its template."""

import re
from html import unescape
from types import SimpleNamespace

from skdpfair.budget import spending
from skdpfair.privacy.statement import (
    ADJACENCY_IN_WORDS,
    BESIDES,
    CHANGED,
    DIAGNOSTICS_HELD,
    FALSE_ALARMS,
    MEMBERS,
    OF_PERSON,
    OF_TRIAL,
    PLAIN,
    PROTECTED,
    REFERENCE_HELD,
    SAMPLED,
    SAMPLED_ALL,
    SAMPLED_MORE,
    SEEDED,
    UNITS,
    percent,
    rounded_up,
)
from skdpfair.report import _spent_before as spent
from skdpfair.report._charts import curves, tradeoff

FEATURES = "public features"
_FACTS = {FEATURES, "method", "classes", "features", "groups", "records of a person", "steps"}
_FACTS |= {"expected batch size", "learning rate", "written by"}
_FACTS |= {f"{unit}s{done}" for unit in UNITS.values() for done in ("", " trained on")}
FILE, SIZE, DAY = "SHA-256 of the file", "size of the file", "day of training"
_STRICT = {
    FILE: re.compile("[0-9a-f]{64}"),
    SIZE: re.compile("[0-9]{1,3}(,[0-9]{3}){0,4} bytes"),
    DAY: re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2} \(UTC\)"),
}
_FACTS |= {*_STRICT}
SELECTION = (
    "The best of a random number of trials was released. The costliest trial has {} steps with "
    "sampling rate {} and noise {}. The number of trials and their scores are secret."
)
_WRITTEN = "<footer>Written by skdpfair "
_ROWS = re.compile(r"<dt>(.*?)</dt><dd>(.*?)</dd>")
_ITEM = re.compile(r"<li>(.*?)</li>")
_EPSILON = re.compile(
    r"<strong>ε = (\S+) at δ = (\S+)</strong>(?: for one record, <strong>ε = ([0-9.e+-]+|inf)"
    r"</strong> for a person with at most ([0-9]+) records)? \((\w+) accountant\)"
)
_SELECTION = re.compile(re.escape(SELECTION).replace(r"\{\}", r"[0-9.,e-]{1,20}"))
_BY_GROUP = re.compile(r'<tr><th scope="row">(.*?)</th><td class="n">([^<]*)</td></tr>')
_POINT = re.compile(r'( class="log")?><title>([^<]*) = (\S+): (\S+)</title></circle>')
_CATEGORY = re.compile(
    r'<tr><th scope="row">(.*?)</th><td>(.*?)</td><td class="n">([^<]*)</td></tr>'
)
_OF_CLASS = re.compile(r"<p>The logit of (.*?) is a constant, which")
_LOGIT = re.compile(r"[+-][0-9]{1,3}\.[0-9]{3}")
_MOST_POINTS, _LONGEST_NAME, _MOST_LOGITS = 50, 100, 20_000
_FALSE_ALARMS = (0.0, 0.1, 0.5, 1.0, 2.0, 5.0, *range(10, 101, 10))  # per cent
_STATED = re.compile(r'<p class="plain">(.*?)</p>', re.S)
_MU = "{}, at error rates from {} on"
_FOUND = "at {} % false alarms, at most {} %"
_MARK = re.compile(r"<title>([0-9.]+) % false alarms: at most ([0-9.e+-]+) % found</title>")
_ENTRY = re.compile(r'<tr><th scope="row">(.*?)</th>' + r'<td class="n">([^<]*)</td>' * 3 + "</tr>")


def _filled(text, **words):
    """Return the pattern of a text whose gaps hold numbers, or one of these words."""
    pattern = re.escape(text)
    for name, choices in words.items():
        pattern = pattern.replace(rf"\{{{name}\}}", f"(?:{'|'.join(choices)})")
    return re.compile(re.sub(r"\\{\w*\\}", r"(?:[0-9.,e+-]{1,12}|inf)", pattern))


_HELD = [BESIDES.format(held) for held in (DIAGNOSTICS_HELD, REFERENCE_HELD)]
_HELD.append(BESIDES.format(f"{DIAGNOSTICS_HELD} and {REFERENCE_HELD}"))
_PLAIN = _filled(
    PLAIN + "{tail}",
    what=["fitted weights", "fitted weights and thresholds"],
    protected=PROTECTED.values(),
    members=MEMBERS.values(),
    changed=CHANGED.values(),
    of_person=["", _filled(OF_PERSON).pattern],
    tail=[re.escape(seed + held) for seed in ("", SEEDED) for held in ("", *_HELD)],
)
_SPENT = re.compile(r'<p class="spent">(.*?)</p>')
_IN_LEDGER = {"ledger": ["it"], "epsilon": ["ε"], "delta": ["δ"], "fits": ["fit", "fits"]}
_COST = _filled(spending.COST, **_IN_LEDGER, budget=["", _filled(spending.OF_BUDGET).pattern])
_OWN_COST = [_filled(text).pattern for text in spent.OWN_COST]
_SPENT_SENTENCES = [  # in their order, each at most once
    _filled(
        spent.HOLDS,
        **_IN_LEDGER | {"ledger": spent.LEDGERS},
        own=spent.OWN.values(),
        unit=UNITS.values(),
    ),
    _filled(
        "{private}",
        private=[
            _filled(text, **_IN_LEDGER, cost=[_COST.pattern]).pattern
            for text in (spending.PRIVATE, spending.ONE_PRIVATE, spending.NO_PRIVATE)
        ],
    ),
    _filled(spending.PLAIN, **_IN_LEDGER),
    *(_filled(spending.NOT_COUNTED.format(why)) for why in spent.REASONS),
    *(_filled(text, own=_OWN_COST) for text in spent.NOTES),
]
_SAMPLING = [
    _filled(
        text,
        unit=UNITS.values(),
        trial=["", OF_TRIAL],
        most=["", "at most "],
        more=["", _filled(SAMPLED_MORE, unit=UNITS.values()).pattern],
    )
    for text in (SAMPLED, SAMPLED_ALL)
]


def learned(columns, log_columns, categories, of_class):
    """Return what the section on learned functions shows; None if there is nothing to show.

    Parameters
    ----------
    columns : dict of str to list of (value, logit)
        The curves, rounded as they are shown.
    log_columns : list of str
        Columns on a logarithmic axis.
    categories : list of (column, category, logit)
        Texts.
    of_class : str
        The second class, of which the logit is.

    Returns
    -------
    dict or None
    """
    if not columns and not categories:
        return None
    title = "Logit as a function of each column"
    chart = curves(columns, log_columns, title=title) if columns else None
    return {"columns": columns, "chart": chart, "categories": categories, "of_class": of_class}


def attacker(privacy):
    """Return what the section on privacy says about an attacker: numbers, and a chart.

    Parameters
    ----------
    privacy : PrivacyReport
        Of a private fit.

    Returns
    -------
    dict
        Texts, rounded up, and the chart.
    """
    curve = [(a, float(percent(privacy.detection_rate(a / 100)))) for a in _FALSE_ALARMS]
    return {
        "mu": _MU.format(rounded_up(privacy.mu), rounded_up(privacy.mu_from, 2)),
        "found": _FOUND.format(percent(FALSE_ALARMS), percent(privacy.detection_rate())),
        "curve": curve,
        "chart": tradeoff(curve, unit=privacy.unit),
    }


def context_of(text):
    """Return what a model page without figures tells, as the template model.html takes it.

    Parameters
    ----------
    text : str
        HTML.

    Returns
    -------
    dict
        To be rendered again, and compared: a page may hold more.

    Raises
    ------
    ValueError, IndexError, KeyError, AttributeError, StopIteration
        If the text is no such page.
    """
    parts = dict(re.findall(r'<section aria-labelledby="([\w-]+)">(.*?)</section>', text, re.S))
    facts = _texts(_ROWS, parts["model"])
    if not set(dict(facts)) <= _FACTS:
        raise ValueError("a fact that no model page tells")
    found = _EPSILON.findall(parts["privacy"]) or [("inf", "", "", "", "")]
    epsilon, delta, *of_person, accountant = found[0]
    adjacency = next(a for a, w in ADJACENCY_IN_WORDS.items() if not accountant or w in text)
    prepared = (
        None
        if 'class="banner' not in parts["pipeline"]
        else SimpleNamespace(steps=[], notes=_texts(_ITEM, parts["pipeline"]))
    )
    numbers = dict(_texts(_ROWS, parts["privacy"]))
    unit = UNITS[adjacency]
    marks = [(float(a), float(b)) for a, b in _MARK.findall(parts["privacy"])]
    marks = marks[: len(_FALSE_ALARMS)]
    privacy = SimpleNamespace(
        is_private=bool(accountant),
        seeded="The noise was seeded" in parts["privacy"],
        accountant=accountant,
        unit=unit,
        plain_statement=unescape("".join(_STATED.findall(parts["privacy"]))),
        sampling=numbers.get("sampling"),
        statement=unescape("".join(re.findall(r'role="note">(.*?)</p>', parts["privacy"], re.S))),
        features=dict(facts).get(FEATURES),
        assumptions=_texts(_ITEM, parts["assumed"]),
        not_accounted=_texts(_ITEM, parts["not-accounted"]),
    )
    return {
        "title": unescape(re.findall(r"<h1>(.*?)</h1>", text)[0]),
        "facts": facts,
        "privacy": privacy,
        "epsilon": epsilon,
        "delta": delta,
        "adjacency": ADJACENCY_IN_WORDS[adjacency],
        "changed": CHANGED[unit],
        "protected": PROTECTED[unit],
        "attacker": {
            "mu": numbers.get("μ"),
            "found": numbers.get("found"),
            "curve": marks,
            "chart": tradeoff(marks, unit=unit),
        },
        "of_person": of_person if any(of_person) else None,
        "selection": next(iter(_SELECTION.findall(parts["ledger"])), None),
        "group_epsilons": dict(_texts(_BY_GROUP, parts["privacy"])),
        "ledger": _texts(_ENTRY, parts["ledger"]),
        "before": {"sentences": said} if (said := _texts(_SPENT, parts["before"])) else None,
        "groups": None,
        "rare": None,
        "verdict": None,
        "costs": None,
        "classes": [],
        "findings": prepared,
        "learned": _learned_in(parts.get("learned", "")),
        "version": text.split(_WRITTEN)[1].split(". ")[0],
    }


def is_guarantee(context) -> bool:
    """Tell whether a page of a private fit states its guarantee in the sentences of a report.

    Numbers fill them, and a curve that rises at the rates of false alarms that pages show.
    """
    privacy, attacker = context["privacy"], context["attacker"]
    found = [b for _, b in attacker["curve"]]
    return (
        [a for a, _ in attacker["curve"]] == [*_FALSE_ALARMS]
        and found == sorted(found)
        and _PLAIN.fullmatch(privacy.plain_statement) is not None
        and any(pattern.fullmatch(privacy.sampling) for pattern in _SAMPLING)
        and _filled(_MU).fullmatch(attacker["mu"]) is not None
        and _filled(_FOUND).fullmatch(attacker["found"]) is not None
    )


def are_facts(facts) -> bool:
    """Tell whether no fact is repeated, and a file and a day are named by a hash and a date."""
    named = dict(facts)
    strict = {name: value for name, value in named.items() if name in _STRICT}
    return len(named) == len(facts) and all(_STRICT[k].fullmatch(v) for k, v in strict.items())


def is_spent_before(told) -> bool:
    """Tell whether a page says of a ledger what pages say, each at most once and in their order."""
    left = iter(_SPENT_SENTENCES)
    return not told or all(any(p.fullmatch(text) for p in left) for text in told["sentences"])


def are_curves(learned) -> bool:
    """Tell whether curves have short names, increasing values, few of them, and logits."""
    if learned is None:
        return True
    logits = [logit for _, _, logit in learned["categories"]]
    names = [learned["of_class"], *(name for row in learned["categories"] for name in row[:2])]
    for name, curve in learned["columns"].items():
        values = [value for value, _ in curve]
        names.append(name)
        logits += [f"{logit:+.3f}" for _, logit in curve]
        if len(curve) > _MOST_POINTS or len(logits) > _MOST_LOGITS or values != sorted(set(values)):
            return False
    return all(len(name) <= _LONGEST_NAME for name in names) and all(map(_LOGIT.fullmatch, logits))


def _learned_in(part):
    columns, log_columns = {}, set()
    for is_log, name, value, logit in _POINT.findall(part):
        columns.setdefault(unescape(name), []).append((float(value), float(logit)))
        log_columns |= {unescape(name)} if is_log else set()
    of_class = unescape("".join(_OF_CLASS.findall(part)))
    return learned(columns, log_columns, _texts(_CATEGORY, part), of_class)


def _texts(pattern, part):
    found = pattern.findall(part)
    return [unescape(v) if isinstance(v, str) else tuple(map(unescape, v)) for v in found]
