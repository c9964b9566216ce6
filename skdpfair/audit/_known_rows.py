"""Search for known records in all that an artefact holds."""

import numpy as np

from skdpfair.audit._findings import ROWS

_FORMATS = ("f2", "f4", "f8", "i1", "i2", "i4", "i8")
_MOST_ROWS, _MOST_HITS, _LOW = 500, 100_000, 2**20 - 1  # the bits that are looked up first


def rows_of(rows):
    """Return rows as float64 (n_rows, n_features >= 2), or raise ValueError."""
    try:
        table = np.asarray(rows, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError("rows must hold numbers: encode its text columns, or drop them.") from None
    table = table.reshape(len(table), -1) if table.ndim > 2 else table
    if table.ndim != 2 or table.shape[1] < 2 or not len(table):
        raise ValueError(
            f"rows must have the shape (n_rows, n_features >= 2), got {np.shape(rows)}. Give whole "
            "records: single numbers are found everywhere by chance."
        )
    return table[:_MOST_ROWS]


def find_rows(table, walk):
    """Note where records lie: as bytes, in arrays by column, and in lists."""
    places, patterns = list(walk.reader.regions), _patterns(table)
    for array, where, _ in walk.arrays:
        values = array.values()
        if values is not None and values.ndim > 1:
            places += [(where, v.tobytes()) for v in (values, np.moveaxis(values, 0, -1))]
    lists = [v for v in walk.seen.values() if isinstance(v, (list, tuple))]
    plain = [v for v in lists if all(isinstance(n, (int, float)) and not abs(n) > 2**64 for n in v)]
    places.append(("", b"".join(np.array(v, "f8").tobytes() for v in plain)))
    for where, data in places:
        if hits := _n_in_bytes(patterns, data):
            walk.add(ROWS, where, f"{hits} of the {len(table)} rows, as numbers", shape=(hits,))


def _patterns(table):
    """Return {8 bytes: [(row in bytes, where they lie in it, its number)]} in every format."""
    found = {}
    for form in _FORMATS:
        with np.errstate(over="ignore", invalid="ignore"):
            cast = table.astype(form)
            good = np.isfinite(cast.astype(np.float64)).all(1)
            good &= (form[0] != "i") | (cast == table).all(1)
        for i in np.flatnonzero(good):
            for order in "<>":
                row = cast[i].astype(order + form).tobytes()
                if len(row) >= 8 and len(set(row)) > 3:  # the 8 bytes that are least likely
                    at = -max((len(set(row[j : j + 8])), -j) for j in range(len(row) - 7))[1]
                    key = int.from_bytes(row[at : at + 8], "little")
                    found.setdefault(key, []).append((row, at, int(i)))
    return found


def _n_in_bytes(patterns, data):
    """Count the rows in some bytes: eight bytes of each are looked up, then the rest."""
    keys, hits = np.array(sorted(patterns), dtype=np.uint64), set()
    likely = np.zeros(_LOW + 1, dtype=bool)
    likely[keys & np.uint64(_LOW)] = True
    for shift in range(min(8, len(data)) if len(keys) else 0):
        found = np.frombuffer(data, "<u8", count=(len(data) - shift) // 8, offset=shift)
        places = np.flatnonzero(likely[found & np.uint64(_LOW)])
        for j in places[np.isin(found[places], keys)][:_MOST_HITS]:
            for row, at, i in patterns[int(found[j])]:
                begin = shift + 8 * int(j) - at
                if begin >= 0 and data[begin : begin + len(row)] == row:
                    hits.add(i)
    return len(hits)
