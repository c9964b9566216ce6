"""What a model page shows of a fit beside its privacy report, and tests of these facts."""

import re

from skdpfair.privacy.statement import UNITS, percent
from skdpfair.report._charts import curves, tradeoff

FEATURES, THRESHOLD = "public features", "threshold of the probability"
_FACTS = {FEATURES, "method", "classes", "features", "groups", "records of a person", "steps"}
_FACTS |= {"expected batch size", "learning rate", "written by", THRESHOLD}
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
_LOGIT = re.compile(r"[+-][0-9]{1,3}\.[0-9]{3}")
_MAX_POINTS, _MAX_NAME, _MAX_LOGITS = 50, 100, 20_000
_FALSE_ALARMS = (0.0, 0.1, 0.5, 1.0, 2.0, 5.0, *range(10, 101, 10))  # per cent


def drawn(columns, log_columns, categories, of_class):
    """Return the section on learned functions: curves, and the logits of categories.

    ``columns`` holds pairs (value, logit) by name, rounded as they are shown, ``categories`` rows
    (column, category, logit) of texts; ``of_class`` is the second class, of which the logit is.
    """
    title = "Logit as a function of each column"
    chart = curves(columns, log_columns, title=title) if columns else None
    return {"columns": columns, "chart": chart, "categories": categories, "of_class": of_class}


def attacker(privacy):
    """Return a chart of what a private fit lets an attacker find, rounded up."""
    curve = [(a, float(percent(privacy.detection_rate(a / 100)))) for a in _FALSE_ALARMS]
    return tradeoff(curve, unit=privacy.unit)


def are_facts(facts) -> bool:
    """Return whether facts are known, none repeated, and files and days a hash and a date."""
    named = dict(facts)
    strict = {name: value for name, value in named.items() if name in _STRICT}
    known = set(named) <= _FACTS and len(named) == len(facts)
    return known and all(_STRICT[k].fullmatch(v) for k, v in strict.items())


def are_curves(learned) -> bool:
    """Return whether curves have short names, increasing values, few of them, and logits."""
    curves, categories = learned["columns"], learned["categories"]
    logits = [logit for _, _, logit in categories]
    for curve in curves.values():
        values = [value for value, _ in curve]
        logits += [f"{logit:+.3f}" for _, logit in curve]
        is_rounded = curve == [[rounded(value, ".6g"), rounded(y, ".3f")] for value, y in curve]
        if len(curve) > _MAX_POINTS or values != sorted(set(values)) or not is_rounded:
            return False
    names = [learned["of_class"], *curves, *(name for row in categories for name in row[:2])]
    return (
        len(logits) <= _MAX_LOGITS
        and set(learned["log_columns"]) <= set(curves)
        and all(len(name) <= _MAX_NAME for name in names)
        and all(map(_LOGIT.fullmatch, logits))
    )


def rounded(value, digits) -> float:
    """Return a number with as many digits as a page shows."""
    return float(f"{value:{digits}}")
