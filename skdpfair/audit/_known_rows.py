"""Search for known records in all bytes of an artefact."""

import re

import numpy as np

_FORMATS = ("f2", "f4", "f8", "i1", "i2", "i4", "i8")
_WORDS = re.compile(rb"[ -~\s]{8,}")
_KIND = "rows"
_LOW = 2**20 - 1  # bits that are looked up first
_MOST_ROWS, _MOST_TEXTS = 2000, 200


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
    """Note where records lie, as bytes, as text, in arrays and in lists."""
    reader = walk.reader
    patterns = _patterns(table)
    for where, data in reader.regions:
        n = _n_in_bytes(patterns, data)
        if n:
            reader.add(_KIND, where, f"{n} of the {len(table)} rows, as binary numbers", shape=(n,))
        n = _n_in_text(table, data)
        if n:
            reader.add(_KIND, where, f"{n} of the {len(table)} rows, as text", shape=(n,))
    known = {row.tobytes() for row in table.astype(np.float32) if len(set(row.tolist())) > 1}
    for array, place in walk.arrays:
        n = _n_in_array(known, array.values(), table.shape[1])
        if n:
            reader.add(_KIND, place.path, f"{n} of the {len(table)} rows in an array", shape=(n,))
    n = _n_in_lists(known, walk.seen.values(), table.shape[1])
    if n:
        reader.add(_KIND, "", f"{n} of the {len(table)} rows in lists of numbers", shape=(n,))


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
            ordered = cast.astype(order + form)
            for i in np.flatnonzero(good):
                pattern = ordered[i].tobytes()
                if len(pattern) >= 8 and len(set(pattern)) > 3:
                    found.setdefault(pattern, int(i))
    return found


def _window(pattern):
    """Return where the 8 bytes of a pattern start that are least likely by chance."""
    return max(range(0, len(pattern) - 7), key=lambda i: len(set(pattern[i : i + 8])))


def _n_in_bytes(patterns, data):
    by_key = {}
    for pattern, i in patterns.items():
        at = _window(pattern)
        key = int.from_bytes(pattern[at : at + 8], "little")
        by_key.setdefault(key, []).append((pattern, at, i))
    keys, hits = np.array(sorted(by_key), dtype=np.uint64), set()
    if not len(keys):
        return 0
    low = np.uint64(_LOW)
    likely = np.zeros(_LOW + 1, dtype=bool)
    likely[keys & low] = True
    for shift in range(min(8, len(data))):
        words = np.frombuffer(data, "<u8", count=(len(data) - shift) // 8, offset=shift)
        places = np.flatnonzero(likely[words & low])
        near = np.minimum(np.searchsorted(keys, words[places]), len(keys) - 1)
        for j in places[keys[near] == words[places]][:100_000]:
            start = shift + 8 * int(j)
            for pattern, at, i in by_key[int(words[j])]:
                begin = start - at
                if begin >= 0 and data[begin : begin + len(pattern)] == pattern:
                    hits.add(i)
    return len(hits)


def _n_in_text(table, data):
    """Count rows of which all numbers follow one another in text."""
    text = b"\n".join(_WORDS.findall(data)).decode("ascii")
    if sum(map(text.count, "0123456789")) < 2 * table.shape[1]:
        return 0
    hits = set()
    for i, row in enumerate(table[:_MOST_TEXTS]):
        for numbers in _spellings(row):
            longest = max(numbers, key=len)
            if len(longest) < 3 or longest not in text:
                continue
            if re.search(r"[^\d.]{1,12}?".join(map(re.escape, numbers)), text):
                hits.add(i)
                break
    return len(hits)


def _spellings(row):
    single = row.astype(np.float32)
    return {
        tuple(repr(float(v)) for v in row),
        tuple(str(v) for v in single),
        tuple(f"{v:g}" for v in row),
        tuple(repr(float(v)) for v in single),
        tuple(f"{v:.6f}" for v in row),
        tuple(f"{v:.18e}" for v in row),
        tuple(str(int(v)) if v == int(v) else repr(float(v)) for v in row if np.isfinite(v)),
    }


def _n_in_array(known, values, width):
    if values is None or values.ndim < 2 or values.dtype.kind not in "fiub":
        return 0
    views = []
    if values.shape[-1] == width:
        views.append(values.reshape(-1, width))
    if values.shape[0] == width:
        views.append(values.reshape(width, -1).T)
    with np.errstate(over="ignore", invalid="ignore"):
        return max((_matches(known, v.astype(np.float32)) for v in views), default=0)


def _matches(known, rows):
    return len({row.tobytes() for row in np.ascontiguousarray(rows)} & known)


def _n_in_lists(known, nodes, width):
    hits = set()
    for node in nodes:
        if not isinstance(node, (list, tuple)) or len(node) < width:
            continue
        if not all(isinstance(v, (int, float)) for v in node):
            continue
        try:
            flat = np.array(node, dtype=np.float64).astype(np.float32)
        except OverflowError:
            continue
        for row in np.lib.stride_tricks.sliding_window_view(flat, width):
            hits.add(row.tobytes())
    return len(hits & known)
