"""Which attributes of estimators are public facts, by name AND by form."""

import math
import re
from dataclasses import fields

from skdpfair.audit._artifacts._arrays import is_scalar
from skdpfair.audit._artifacts._graph import Call, Global, Map, Node, Seq
from skdpfair.audit._artifacts._names import LABELS, LOSSES, RECORDS, SEED, STATISTICS, kind_of_name
from skdpfair.audit._artifacts._parameters import allows, are_dense
from skdpfair.audit._artifacts._text import judge_text
from skdpfair.privacy import PrivacyReport

_WEIGHTS = {"coef_", "intercept_", "coefs_", "intercepts_"}
_NAMES = {"feature_names_in_", "feature_names", "classes_", "groups_", "classes", "groups"}
_KEEPS_ROWS = {
    *("_fit_X", "X_fit_", "X_train_", "support_vectors_", "_X", "_X_fit", "_raw_data", "_tree"),
    *("embedding_", "training_data_", "X_transformed_fit_", "components_indices_", "dual_coef_"),
    *("subcluster_centers_", "core_sample_indices_", "support_", "_sparse_fit", "X_thresholds_"),
}
_KEEPS_LABELS = {"y_train_", "_y", "labels_", "y_thresholds_", "decision_scores_", "_y_train"}

_SIZES = re.compile(
    r"\w*(size|sizes|shape|kernel|stride|padding|dilation|padding_repeated_twice|channels|features|"
    r"dims?|layers|hidden|heads|blocks|widths?|depths?|__constants__)\w*"
)
_STATEMENT = {"statement", "releasable", *(f.name for f in fields(PrivacyReport))}
_SEARCHES = re.compile(r"param_(grid|distributions|space)")


def is_ours(cls, name=None) -> bool:
    """Tell whether a class, or the class of that name, is of this package."""
    return cls is not None and cls.module.split(".")[0] == "skdpfair" and name in (None, cls.name)


def is_public(cls, name, node, facts) -> bool:
    """Tell whether an attribute's plain numbers are parameters or public facts.

    ``facts`` are the plain attributes of the same object.
    """
    if not isinstance(name, str) or cls is None:
        return False
    root = cls.module.split(".")[0]
    if cls.path == "collections.OrderedDict" and name == "_metadata":  # versions of layers
        versions = plain_leaves(node, 100_000)
        return versions is not None and all(v in range(10) for v in versions if _is_number(v))
    if root not in ("skdpfair", "sklearn") and not _SIZES.fullmatch(name):
        return False
    leaves = plain_leaves(node, 2000)
    if leaves is None or _names_a_seed(node):
        return False
    numbers = [v for v in leaves if _is_number(v)]
    if root in ("skdpfair", "sklearn") and _SEARCHES.fullmatch(name):
        return _is_grid(node)
    if root == "skdpfair" and name == "bounds":
        return _are_bounds(node, facts.get("n_features_in_"))
    if root in ("skdpfair", "sklearn"):
        if name == "groups" and _cross(node):
            return True
        return allows(name, leaves, facts.get("n_features_in_")) and not _has_rows(node)
    return len(numbers) <= 32 and all(isinstance(v, int) and v >= 0 for v in numbers)


def _names_a_seed(node):
    keys = [k for k, _ in node.pairs] if isinstance(node, Map) else []
    return any(kind_of_name(key) == SEED or key == "random_state" for key in keys)


def _is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def is_statement(node) -> bool:
    """Tell whether a dict that has its keys holds no more than a privacy statement does."""
    leaves = plain_leaves(node, 4000)
    if leaves is None:
        return False
    names = {k for k, _ in node.pairs}
    wide = sum(isinstance(v, Seq) and len(v.items) > 200 for _, v in node.pairs)
    numbers = sum(map(_is_number, leaves))
    return names <= _STATEMENT and not wide and numbers <= 20 + 8 * len(names) * 20


def is_public_array(cls, name, array, facts) -> bool:
    """Tell whether an array is a parameter that a user of this package gives, in its form."""
    short = len(array.shape) == 1 and array.size <= 256
    if not is_ours(cls):
        return short and cls.module.startswith("sklearn") and is_search(name)
    if is_search(name):
        return short
    if name == "bounds":
        n, values = facts.get("n_features_in_"), array.values()
        fits = array.shape == (2,) or (array.shape[1:] == (2,) and n in (None, array.shape[0]))
        return fits and values is not None and bool((values[..., 0] < values[..., 1]).all())
    if name == "quantiles_" and cls.name == "DPQuantileScaler":  # released with noise
        return array.shape == (facts.get("n_features_in_"), 2)
    values = array.values()
    shares = name == "group_probabilities" and short and values is not None
    return bool(shares and ((values >= 0) & (values <= 1)).all())


def is_search(name) -> bool:
    """Tell whether an attribute is what a search tries."""
    return isinstance(name, str) and bool(_SEARCHES.fullmatch(name))


def plain_leaves(node, most) -> list | None:
    """Return the plain values in lists and dicts; None if there is more, or anything else."""
    leaves, todo, steps = [], [node], 0
    while todo:
        steps += 1
        value = todo.pop()
        if isinstance(value, Seq):
            todo += value.items
        elif isinstance(value, Map):
            todo += [v for pair in value.pairs for v in pair]
        elif is_scalar(value):
            leaves.append(0.5)
        elif isinstance(value, Call):
            if not isinstance(value.func, Global) or value.func.path not in _PLAIN_CALLS:
                return None
            todo += [*(value.args.items if isinstance(value.args, Seq) else []), *value.items]
            todo += [v for pair in value.pairs for v in pair]
        elif isinstance(value, Global):
            continue
        elif isinstance(value, Node) or not _is_short(value):
            return None
        else:
            leaves.append(value)
        if len(todo) > 4 * most or steps > 8 * most:
            return None
    return leaves


_PLAIN_CALLS = {"builtins.slice", "builtins.range", "builtins.set", "collections.OrderedDict"}
_PLAIN_CALLS |= {"builtins.complex", "builtins.frozenset", "__builtin__.slice", "torch.Size"}


def _is_short(value):
    if isinstance(value, str):
        return len(value) <= 400 and judge_text(value)[0] is None
    return not isinstance(value, int) or value.bit_length() <= 63


def _has_rows(node):
    """Tell whether it is a list of many lists of as many numbers, or has long runs of floats."""
    items = node.items if isinstance(node, Seq) else []
    widths = {len(v.items) for v in items if isinstance(v, Seq)}
    floats = sum(isinstance(v, float) for v in items)
    return (len(items) > 16 and widths and max(widths) > 1 and len(widths) == 1) or floats > 64


def _cross(node):
    """Tell whether rows are intersections: each once, of a quarter or more of all that there are.

    Rows of people, who rarely fill a quarter of the ways to combine what they are, are none.
    """
    items = node.items if isinstance(node, Seq) else []
    if not 1 < len(items) <= 1000 or not all(isinstance(row, Seq) for row in items):
        return False
    rows = [tuple(map(repr, row.items)) for row in items]
    if {len(row) for row in rows} - set(range(2, 9)) or len({len(row) for row in rows}) > 1:
        return False
    plain = all(isinstance(v, (str, int)) for row in items for v in row.items)
    levels = [len(set(column)) for column in zip(*rows, strict=True)]
    often = max(levels) <= len(rows) / 2
    return plain and often and len(set(rows)) == len(rows) >= math.prod(levels) / 4


def _are_bounds(node, n_features):
    """Tell whether it is pairs low < high, by name, by position, or one."""
    values = node.pairs if isinstance(node, Map) else getattr(node, "items", [])
    pairs = [v[1] if isinstance(node, Map) else v for v in values]
    if len(pairs) > (max(n_features, 2) if isinstance(n_features, int) else 256):
        return False
    if len(pairs) == 2 and all(isinstance(v, (int, float)) for v in pairs):
        return pairs[0] < pairs[1]
    return all(
        isinstance(p, Seq)
        and len(p.items) == 2
        and all(isinstance(v, (int, float)) for v in p.items)
        and p.items[0] < p.items[1]
        for p in pairs
    )


def _is_grid(node):
    """Tell whether it is what a search tries: names, each with a short list of values."""
    grids = node.items if isinstance(node, Seq) else [node]
    pairs = [pair for grid in grids for pair in (grid.pairs if isinstance(grid, Map) else [(0, 0)])]
    return len(grids) <= 64 and all(_is_choice(key, values) for key, values in pairs)


def _is_choice(key, values):
    named = isinstance(key, str) and re.fullmatch(r"[A-Za-z_]\w*", key)
    if not named or not isinstance(values, Seq) or len(values.items) > 256:
        return False
    return not _has_rows(values) and all(plain_leaves(v, 16) is not None for v in values.items)


def are_names(array, leaves, name, facts) -> bool:
    """Tell whether an array holds the names of features, classes or groups: each one once."""
    if name not in _NAMES and name not in ("categories", "categories_"):
        return False
    if len(array.shape) != 1 or array.size > 100_000:
        return False
    if name == "categories_" and facts.get("categories") == "auto":
        return False
    if name == "feature_names_in_":
        n = facts.get("n_features_in_")
        if isinstance(n, int) and n != array.size:
            return False
    values = leaves if leaves is not None else list(_tolist(array))
    if len(values) > array.size > 0 and name in ("groups_", "groups"):
        return _are_intersections(values, array.size)
    distinct = len({repr(v) for v in values})
    if array.letter in "fiu" and not _are_codes(name, values):
        return False
    return distinct == len(values) == array.size and (array.size <= 1000 or array.letter in "OU")


def _are_codes(name, values):
    whole = all(v == int(v) for v in values if math.isfinite(v))
    ascending = name == "classes_" and values == sorted(values)
    return whole and (ascending or are_dense(values))


def _are_intersections(leaves, size):
    """Tell whether groups are made of several parts each, or intervals, and each is named once."""
    width, rest = divmod(len(leaves), size)
    rows = [tuple(map(repr, leaves[i : i + width])) for i in range(0, len(leaves), width)]
    columns = [len(set(column)) for column in zip(*rows, strict=True)] if not rest else []
    edges = len({v for v in leaves if isinstance(v, float)})
    repeated = all(n <= max(8, size / 2) for n in columns) or edges <= size + 1
    return rest == 0 and width <= 8 and size <= 1000 and len(set(rows)) == size and repeated


def _tolist(array):
    values = array.values()
    if values is not None:
        return values.tolist()
    if array.letter in "US" and array.data is not None and array.size:
        width = array.n_bytes // array.size
        return [array.data[i : i + width] for i in range(0, len(array.data), max(width, 1))]
    return []


def judge_fitted(cls, name, array, facts):
    """Return the kind of a fitted attribute of a scikit-learn estimator; "" if it is public.

    None if nothing is known of it.
    """
    if name in _KEEPS_ROWS:
        return RECORDS
    if name in _KEEPS_LABELS:
        return LABELS
    if name in ("loss_curve_", "validation_scores_", "train_score_", "validation_score_"):
        return LOSSES
    if name in _WEIGHTS:
        n = facts.get("n_features_in_")
        tied = not isinstance(n, int) or n in array.shape or name != "coef_"
        most = 1 if name == "intercept_" else 2
        return "" if len(array.shape) <= most and tied else STATISTICS
    if name == "class_prior_" and cls.name == "DummyClassifier":
        values = array.values()
        even = values is not None and array.size and math.isclose(values.min(), values.max())
        return "" if even else STATISTICS
    if name == "n_iter_" and array.size <= 64:
        return ""
    if name == "categories_" and facts.get("categories") != "auto":
        return ""
    if name.endswith("_") and not name.startswith("__") and name not in _NAMES:
        return STATISTICS
    return None
