"""The lines of a `PrivacyLedger`'s file, which holds what was spent and nothing of the data."""

_KINDS = (
    {"budget", "id"},
    {"fit", "state", "data", "private", "curve", "what", "reasons", "place", "entries", "around"},
    {"around", "data", "outermost", "reasons", "notes"},
    {"search", "splits", "data", "folds", "public"},
    {"refused", "root"},
    {"torn"},
)
_NESTED = ("entries", "curve", "reasons", "notes", "place", "budget")
_TEXTS = ("reasons", "notes")
_MOST_ORDERS, _MOST_NOISES = 400, 8


def words_of(lines) -> list[str] | None:
    """Return the texts in the lines of a ledger, each once; None if they are no ledger's."""
    if not lines or not all(isinstance(line, dict) for line in lines) or "budget" not in lines[0]:
        return None
    if not all(map(_is_line, lines)):
        return None
    texts = {v for line in lines for v in line.values() if isinstance(v, str)}
    texts |= {why for line in lines for name in _TEXTS for why in line.get(name) or ()}
    texts |= {entry[0] for line in lines for entry in line.get("entries") or ()}
    return sorted(text for text in texts if not _is_name(text))


def _is_line(line):
    known = any(set(line) <= kind for kind in _KINDS)
    entries, curve = line.get("entries") or [], line.get("curve")
    place, said = line.get("place") or {}, [line.get(name) or [] for name in _TEXTS]
    budget = line.get("budget") or {}
    return (
        known
        and isinstance(entries, list)
        and all(map(_is_entry, entries))
        and (curve is None or _is_curve(curve))
        and all(isinstance(texts, list) for texts in said)
        and all(isinstance(text, str) for texts in said for text in texts)
        and all(isinstance(part, dict) and _are_plain(part) for part in (place, budget))
        and _are_plain({k: v for k, v in line.items() if k not in _NESTED})
    )


def _are_plain(table):
    few = len(table) <= 12 and all(len(str(key)) < 40 for key in table)
    return few and all(v is None or isinstance(v, (str, int, float)) for v in table.values())


def _is_entry(entry):
    if not isinstance(entry, list) or len(entry) != 5:
        return False
    what, rate, noises, steps, once = entry
    noises = noises if isinstance(noises, list) and len(noises) <= _MOST_NOISES else [None]
    numbers = all(isinstance(v, (int, float)) for v in (rate, steps, *noises))
    return isinstance(what, str) and numbers and isinstance(once, bool)


def _is_curve(curve):
    if not isinstance(curve, dict) or set(curve) != {"orders", "rdp"}:
        return False
    return all(isinstance(v, list) and len(v) <= _MOST_ORDERS for v in curve.values())


def _is_name(text):
    return len(text) <= 64 and text.replace("/", "").isalnum()
