"""What a model page shows of a fit beside its privacy report, and tests of these facts."""

import re

from skdpfair.privacy.statement import UNITS, percent
from skdpfair.report._charts import tradeoff

FEATURES, THRESHOLD = "public features", "threshold of the probability"
POSITIVE = "positive class"
_FACTS = {
    FEATURES,
    POSITIVE,
    "method",
    "classes",
    "features",
    "groups",
    "records of a person",
    "steps",
}
_FACTS |= {"expected batch size", "learning rate", "logit scale", "written by", THRESHOLD}
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
_FALSE_ALARMS = (0.0, 0.1, 0.5, 1.0, 2.0, 5.0, *range(10, 101, 10))  # per cent


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
