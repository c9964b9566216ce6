"""The privacy statement of a release, read without torch."""

import json
import re

from skdpfair.privacy.statement import PrivacyReport
from skdpfair.release import _file
from skdpfair.release._file import decode, encode

# files without the name of a class are of classifiers
CLASSIFIER, REGRESSOR = "DPFairClassifier", "DPFairRegressor"
_DAY, _NAME_OF_FIT = re.compile("[0-9]{4}-[0-9]{2}-[0-9]{2}"), re.compile("[0-9a-f]{32}")
_STATED = ("epsilon", "delta", "adjacency", "is_private", "seeded")


def statement(privacy):
    """Return the fields of a privacy report in plain JSON types; infinity is the text "inf"."""
    return json.loads(json.dumps(privacy.facts(), default=encode))


def read_statement(path):
    """Return the privacy statement of a release file, and its facts on the file, as plain types."""
    privacy, content = read_report(path)
    facts, weights = content[:2]
    day, fits = origin_of(facts)
    return statement(privacy) | {
        "release": {
            "estimator": facts.get("estimator", CLASSIFIER),
            "n_weights": sum(w.size for w in weights.values()),
            "skdpfair_version": facts.get("skdpfair_version"),
            "format_version": _file.FORMAT_VERSION,
            "sha256": _file.digest(facts, weights),
            "file_sha256": content.sha256,
            "n_bytes": content.n_bytes,
            "trained": day,
            "ledger_fits": fits,
        }
    }


def read_report(path):
    """Return the privacy report of a release file, and its content."""
    content = _file.opened(path)
    facts = content.facts
    try:
        privacy = decode(facts["fitted"]["privacy_"])
        if not isinstance(privacy, PrivacyReport):
            raise TypeError(f"a {type(privacy).__name__} in place of a privacy report")
        check_statement(facts, privacy)
        origin_of(facts)
    except Exception as error:  # facts may be anything
        raise ValueError(
            f"{path} holds no privacy statement that can be read: {type(error).__name__}: "
            f"{str(error)[:300]}"
        ) from None
    return privacy, content


def origin_of(facts):
    """Return the day of the last fit, and the names of the fits in a ledger, else ValueError."""
    day, fits = (decode(facts["fitted"][name]) for name in ("_day", "_ledger_fits"))
    if not is_day(day):
        raise ValueError("a day of training that is no date")
    if not are_ledger_fits(fits):
        raise ValueError("names of fits that no ledger gives")
    return day, list(fits)


def is_day(value) -> bool:
    """Return whether a value is a day, such as 2026-11-25."""
    return isinstance(value, str) and _DAY.fullmatch(value) is not None


def are_ledger_fits(values) -> bool:
    """Return whether values are names of fits in a ledger, or None for fits that are in none."""
    return type(values) in (list, tuple) and all(
        v is None or _NAME_OF_FIT.fullmatch(v) is not None for v in values
    )


def check_statement(facts, privacy) -> None:
    """Raise a ValueError if the statement of a release is not that of its privacy report."""
    stated, expected = facts["privacy_statement"], statement(privacy)
    for name in _STATED:
        if stated.get(name) != expected[name]:
            raise ValueError(
                f"its statement says {name}={stated.get(name)!r}, its facts {expected[name]!r}"
            )
