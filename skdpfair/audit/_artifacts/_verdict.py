"""Decide on arrays, weights and models once a whole artefact has been walked."""

import numpy as np

from skdpfair.audit._artifacts import _modules, _names
from skdpfair.audit._artifacts._objects import DISTRIBUTION
from skdpfair.audit._artifacts._walk import FEW

_MOST_PAIRS = 5_000_000
_WHOLE = (_names.TABLE, _names.GENERATOR)  # reported as one thing
_TELLING = (_names.GRADIENTS, _names.GRADIENT, _names.OPTIMIZER, _names.LOSSES, _names.SEED)
_INSIDE_FIRST = (_names.CLOSURE, _names.CALLBACK, _names.HOOK)


def conclude(walker):
    """Note what nothing has explained."""
    for array in _modules.tied(walker.unsure, walker.dims):
        walker.explained[id(array.node)] = array
    for array, place in walker.arrays:
        _judge(walker, array, place)
    for _, place, n in walker.hidden():
        what = "numbers of a tensor's memory that no tensor shows"
        walker.reader.add(place.inside or _names.ARRAY, place.path, what, shape=(n,))
    for tally in reversed({id(t): t for t in walker.tallies}.values()):  # inner ones first
        lines = ".debug_pkl" in tally.where and not tally.floats  # of a scripted module's source
        small = lines or (tally.inside == DISTRIBUTION and tally.integers + tally.floats <= 64)
        if tally.inside not in _WHOLE and not small:
            tally.judge(walker.reader)
    _twins(walker)


def _judge(walker, array, place):
    if id(array.node) in walker.public or place.inside in _WHOLE:
        return
    kind = _names.kind_of_name(place.name)
    if id(array.node) in walker.explained:
        copies = array.letter == "f" and array.n_bytes == 8 * array.size and "f4" in walker.widths
        if copies and array.size > FEW:
            _add(walker, _names.COPY, array, place)
        return
    telling = kind in _TELLING and (kind != _names.SEED or place.fitted)
    if array.size <= FEW and not (telling and array.size > 0):
        if array.letter in "fiubc" and place.tally is not None:
            place.tally.add_array(array)
        return
    _add(walker, _kind(walker, array, place, kind), array, place)


def _kind(walker, array, place, named):
    shape = array.shape
    if place.inside in _INSIDE_FIRST:
        return place.inside
    if named is not None:
        return named
    if array.subclass == "memmap":
        return _names.FILE
    if len(shape) > 1 and shape[1:] in walker.shapes and (len(shape) > 2 or shape[0] > 1):
        return _names.GRADIENTS
    if array.letter == "u" and array.n_bytes in (16, 5056):
        return _names.GENERATOR
    if place.inside is not None:
        return place.inside
    return _names.GRADIENT if shape in walker.shapes and len(shape) > 1 else _names.ARRAY


def _add(walker, kind, array, place):
    words = _names.IN_WORDS.get(kind, kind)
    walker.reader.add(kind, place.path, f"{array.words}: {words}", array.n_bytes, array.shape)


def _twins(walker):
    seen = {}
    if len(walker.models) * len(walker.arrays) > _MOST_PAIRS:
        what = "more models than can be compared"
        walker.reader.add(_names.UNREADABLE, "", what, shape=(len(walker.models),))
        return
    weights = [(p.path, a) for a, p in walker.arrays if id(a.node) in walker.explained]
    places = [place.path for place, _ in walker.models]
    of_private = {
        (a.shape, a.data) for path, a in weights if not any(_is_under(path, p) for p in places)
    }
    for place, what in walker.models:
        inside = [a for path, a in weights if _is_under(path, place.path)]
        form = tuple(a.shape for a in inside)
        named = _names.kind_of_name(place.name) == _names.TWIN
        copied = inside and all((a.shape, a.data) in of_private for a in inside)
        same = seen.setdefault(form, inside) if len(form) > 1 and not copied else inside
        differs = same is not inside and not all(map(_is_equal, same, inside))
        if (walker.private and not copied) or named or differs or place.attached:
            walker.reader.add(_names.TWIN, place.path, f"{what}: {_names.IN_WORDS[_names.TWIN]}")


def _is_under(path, model):
    return path.startswith(model) and (not model or path[len(model) :][:1] in (".", "[", "!", ""))


def _is_equal(one, other):
    a, b = one.values(), other.values()
    return a is not None and b is not None and np.array_equal(a, b)
