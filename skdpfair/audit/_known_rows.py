"""Search for known records in all that an artefact holds."""

import numpy as np

_FORMATS = ("f2", "f4", "f8", "i1", "i2", "i4", "i8")
_MOST_ROWS, _LONGEST = 500, 1 << 16  # rows, and numbers of a list
_LOW, _MOST_HITS = 2**20 - 1, 100_000  # bits that are looked up first, and places
_KIND = "rows"


def rows_of(rows):
    """Return rows as float64 (n_rows, n_features).

    Raises
    ------
    ValueError
        If they are no table of numbers with at least two columns.
    """
    try:
        table = np.asarray(rows, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError("rows must hold numbers: encode its text columns, or drop them.") from None
    if table.ndim > 2:
        table = table.reshape(len(table), -1)
    if table.ndim != 2 or table.shape[1] < 2 or not len(table):
        raise ValueError(
            f"rows must have the shape (n_rows, n_features >= 2), got {np.shape(rows)}. Give whole "
            "records: single numbers are found everywhere by chance."
        )
    return table[:_MOST_ROWS]


def find_rows(table, walk):
    """Note where records lie: as bytes, in arrays and in lists.

    Parameters
    ----------
    table : ndarray of shape (n_rows, n_features)
    walk : Walk
        That has visited the artefact.
    """
    patterns, n, width = _patterns(table), len(table), table.shape[1]
    for where, data in walk.reader.regions:
        hits = _n_in_bytes(patterns, data)
        if hits:
            what = f"{hits} of the {n} rows, as binary numbers"
            walk.add(_KIND, where, what, shape=(hits,))
    known = {row.tobytes() for row in table.astype(np.float32) if len(set(row.tolist())) > 1}
    for array, place in walk.arrays:
        values = array.values()
        if values is not None and values.ndim > 1 and values.dtype.kind in "fiub":
            sides = [values.reshape(len(values), -1), np.moveaxis(values, 0, -1)]
            parts = [v.reshape(-1, width) for v in sides if v.size and v.shape[-1] == width]
            hits = max((len(known & _as_rows(part)) for part in parts), default=0)
            if hits:
                what = f"{hits} of the {n} rows in an array"
                walk.add(_KIND, place.path, what, shape=(hits,))
    lists = [v for v in walk.seen.values() if isinstance(v, (list, tuple)) and len(v) >= width]
    plain = [v for v in lists if all(isinstance(item, (int, float)) for item in v)]
    found = set().union(*(known & _windows(v[:_LONGEST], width) for v in plain))
    if found:
        what = f"{len(found)} of the {n} rows in lists of numbers"
        walk.add(_KIND, "", what, shape=(len(found),))


def _patterns(table):
    """Return {row in bytes: its number}, for every format that keeps its values."""
    found = {}
    for form in _FORMATS:
        with np.errstate(over="ignore", invalid="ignore"):
            cast = table.astype(form)
            good = np.isfinite(cast.astype(np.float64)).all(1)
            if form[0] == "i":
                good &= (cast == table).all(1)
        for order in "<>":
            rows = cast.astype(order + form)
            each = {rows[i].tobytes(): int(i) for i in np.flatnonzero(good)}
            found |= {key: i for key, i in each.items() if len(key) >= 8 and len(set(key)) > 3}
    return found


def _window(pattern):
    """Return where the 8 bytes of a pattern start that are least likely by chance."""
    return max(range(len(pattern) - 7), key=lambda i: len(set(pattern[i : i + 8])))


def _n_in_bytes(patterns, data):
    """Count the rows in some bytes: their 8 least likely bytes are looked up, then the rest."""
    by_key, hits = {}, set()
    for pattern, i in patterns.items():
        at = _window(pattern)
        key = int.from_bytes(pattern[at : at + 8], "little")
        by_key.setdefault(key, []).append((pattern, at, i))
    keys = np.array(sorted(by_key), dtype=np.uint64)
    likely = np.zeros(_LOW + 1, dtype=bool)
    likely[keys & np.uint64(_LOW)] = True
    for shift in range(min(8, len(data)) if len(keys) else 0):
        words = np.frombuffer(data, "<u8", count=(len(data) - shift) // 8, offset=shift)
        places = np.flatnonzero(likely[words & np.uint64(_LOW)])
        for j in places[np.isin(words[places], keys)][:_MOST_HITS]:
            start = shift + 8 * int(j)
            for pattern, at, i in by_key[int(words[j])]:
                begin = start - at
                if begin >= 0 and data[begin : begin + len(pattern)] == pattern:
                    hits.add(i)
    return len(hits)


def _as_rows(rows):
    with np.errstate(over="ignore", invalid="ignore"):
        return {row.tobytes() for row in np.ascontiguousarray(rows, dtype=np.float32)}


def _windows(numbers, width):
    try:
        flat = np.array(numbers, dtype=np.float64)
    except OverflowError:
        return set()
    return _as_rows(np.lib.stride_tricks.sliding_window_view(flat, width))
