"""Features, class codes and group codes of the tables given to fit and predict."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.utils.validation import _get_feature_names, validate_data

from skdpfair._utils.describe import digest
from skdpfair._utils.keystream import Keystream
from skdpfair._utils.validate import LARGE, error_context, error_context_without_data, safe_repr
from skdpfair.inputs import groups as _groups
from skdpfair.inputs import persons as _persons
from skdpfair.inputs import rows as _rows
from skdpfair.inputs import target
from skdpfair.inputs.columns import check_indexes, refuse_dates, refuse_unreadable
from skdpfair.inputs.provenance import UNKNOWN, Origin, origin_of, row_hashes
from skdpfair.inputs.rows import Rows, select


@dataclass(frozen=True)
class Table:
    """The rows of a fit."""

    x: Rows  # float32 in memory; a memory map or a tensor is kept as it is
    y: np.ndarray  # codes into classes, int64; without these, targets in [-1, 1], float32
    classes: np.ndarray | None  # sorted; None for a regression
    groups: _groups.GroupCodes
    group_positions: list[int]  # in X, of the group columns, which are no features
    validation: tuple[np.ndarray, np.ndarray] | None = None  # public records (x, y), likewise
    weight: np.ndarray | None = None  # float64
    max_sample_weight: float | None = None  # public: declared, or else the largest
    # number of each record's person, int64, -1 for records that take no part; None if each record
    # is a person
    person: np.ndarray | None = None
    persons: str | None = None  # name of the column of the persons, if it has one
    origin: Origin = UNKNOWN  # what computed x from each record alone, as far as known
    variables: tuple[str, ...] = ("",)  # names of target and group columns, "" for none

    @property
    def n_outputs(self) -> int:
        """Number of outputs of a module: one for each class, or the prediction."""
        return 1 if self.classes is None else len(self.classes)

    @property
    def n_examples(self) -> int:
        """Number of persons; of records, if each is a person."""
        return len(self.y) if self.person is None else int(self.person.max()) + 1

    @property
    def adjacency(self) -> str:
        """The relation between neighbouring tables."""
        return "zero_out" if self.person is None else "zero_out_person"

    def digest(self, key: bytes) -> bytes:
        """Return a keyed digest of features and labels, which does not depend on their order."""
        parts = _rows.in_parts(self.x)
        hashes = [row_hashes(select(self.x, rows), self.y[rows], key) for rows in parts]
        return digest(np.sort(np.concatenate(hashes)))

    def thinned(self, max_records: int | None, generator: Keystream) -> "Table":
        """Return the table with at most ``max_records`` records of a person, who has one group."""
        if self.person is None or max_records is None:
            return self
        groups = _persons.grouped(self.groups, self.person)  # all her records vote
        person = _persons.thinned(self.person, max_records, generator)
        return replace(self, person=person, groups=groups)


def read(
    estimator: Any,
    spec: Any,
    X: Any,
    y: Any,
    sensitive_features: Any,
    sample_weight: Any = None,
    persons: Any = None,
) -> Table:
    """Check the data given to ``fit`` and split it; no message holds a cell of them.

    The estimator reads y, and gets ``n_features_in_``, ``feature_names_in_`` and ``_scale``; its
    ``spec`` names the columns of groups and persons.
    """
    origin, X, given_y = origin_of(X), _rows.table_of(X), y
    # scikit-learn compares a text with texts of its own
    if isinstance(y, str):
        raise ValueError("y should be a 1d array, one value for each row, got a text.")
    validate_data(estimator, X, y, skip_check_array=True)
    extra = {"sensitive_features": sensitive_features, "sample_weight": sample_weight}
    check_indexes(X=X, y=y, **extra, persons=persons, warns_of="y")
    y, classes, codes = estimator._read_target(y)
    group_col = spec.groups.columns
    if len(X) != len(y):
        raise ValueError(f"X and y have inconsistent numbers of samples: {[len(X), len(y)]}.")
    if isinstance(X, _rows.SparseRows) and group_col not in (None, [_groups.TARGET]):
        raise ValueError(
            f"group_col={safe_repr(group_col)} names columns of X, but X is sparse. Give "
            "the groups as fit(..., sensitive_features=...), or let a ColumnTransformer return a "
            'dense table: sparse_threshold=0, sparse_output=False, set_output(transform="pandas").'
        )
    levels = spec.groups.levels
    if levels is None and spec.classes is not None and group_col == [_groups.TARGET]:
        levels = classes
    groups = _groups.encode(
        X, y, group_col=group_col, sensitive_features=sensitive_features, levels=levels
    )
    variables = _groups.variables_of(given_y, X, group_col, sensitive_features)
    hidden = [] if spec.groups.as_feature else _groups.positions(X, group_col)
    # before a column of persons is a feature
    person = _persons.encode(X, len(y), persons, spec.persons, spec.groups)
    hidden += person.positions
    visible = _without(X, hidden)
    x, estimator._scale = _rows.numbers_of(visible), _rows.scale_of(visible)
    validation = None
    if classes is not None and spec.validation_data is not None:
        validation = _validation(estimator, spec.validation_data, hidden, x.shape[1:], classes)
    rows = x, codes, classes, groups, hidden, validation
    weights = _weights(sample_weight, len(y), spec.max_sample_weight)
    return Table(*rows, *weights, person.code, person.name, origin, variables)


def _weights(
    weights: Any, n_samples: int, declared: float | None
) -> tuple[np.ndarray | None, float | None]:
    """Return the sample weights and their bound, the largest if none is declared; None for none.

    They may all be 0: whether a fit succeeds must not tell the weight of one record.
    """
    if weights is None:
        return None, None
    largest = LARGE if declared is None else declared
    bound = f"{largest:g}" if declared is None else f"max_sample_weight={largest:g}"
    wanted = f"must hold one number from 0 to {bound} for each of the {n_samples} rows"
    refuse_unreadable("sample_weight", weights)
    refuse_dates("sample_weight", weights)
    with error_context_without_data("sample_weight", wanted):
        weight = np.asarray(weights, dtype=np.float64)
    if weight.shape != (n_samples,):
        raise ValueError(f"sample_weight {wanted}, got an array of {weight.shape}.")
    if not ((weight >= 0) & (weight <= largest)).all():
        raise ValueError(
            f"sample_weight {wanted}, but some are outside or NaN. Declare a larger "
            "max_sample_weight, or clip them: np.clip(sample_weight, 0, max_sample_weight)."
        )
    return weight, float(weight.max()) if declared is None else declared


def read_for_prediction(estimator: Any, X: Any) -> Rows:
    """Return the features of X, with or without the group columns that fit had."""
    x, features = read_rows(estimator, estimator._encoded(X)), estimator.features_
    in_shape = estimator.net_.module.in_shape
    return x if features is None else _rows.MappedRows(x, features.transform, in_shape)


def read_rows(estimator: Any, X: Any) -> Rows:
    """Return X without group columns, before features are computed that the classifier chose."""
    features = estimator.features_
    shape = estimator.net_.module.in_shape if features is None else features.in_shape_
    return _like_fitted(estimator, X, estimator._group_positions, shape)


def _like_fitted(estimator: Any, X: Any, hidden: list[int], shape: tuple[int, ...]) -> Rows:
    """Return the features of rows like those of the fit, each of the same ``shape``."""
    X = _rows.table_of(X)
    present, is_frame = _hidden_in(estimator, X, hidden), hasattr(X, "iloc")
    n_absent = len(hidden) - len(present)
    width, expected = X.shape[1] + n_absent, estimator.n_features_in_
    if not is_frame and width != expected and X.ndim == 2 and len(shape) == 1:
        remedy = " Give raw records as a DataFrame." * hasattr(estimator, "_schema")
        raise ValueError(
            f"X has {width} features, but {type(estimator).__name__} is expecting {expected} "
            f"features as input.{remedy}"
        )
    if not n_absent and is_frame:
        validate_data(estimator, X, reset=False, skip_check_array=True)
    visible = _without(X, present)
    # errors of an array come before the warning that it has no names
    lacks_names = not is_frame and hasattr(estimator, "feature_names_in_")
    x = _rows.numbers_of(visible, at_once=lacks_names)
    if x.shape[1:] != tuple(shape):
        raise ValueError(
            f"X must have records of shape {tuple(shape)}, as in fit, got {tuple(x.shape[1:])}."
        )
    _rows.refuse_other_scale(getattr(estimator, "_scale", None), _rows.scale_of(visible), x)
    if not n_absent and not is_frame:  # warns if fit saw names
        validate_data(estimator, X, reset=False, skip_check_array=True)
    return x


def _validation(
    estimator: Any, pair: Any, hidden: list[int], shape: tuple[int, ...], classes: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    X, y = pair
    with error_context("validation_data", "must be (X, y) like the records of the fit"):
        check_indexes(X=X, y=y)
        x = select(_like_fitted(estimator, X, hidden, shape), slice(None))
        y = target.read_labels(y)
        if len(x) != len(y):
            raise ValueError(f"X has {len(x)} rows and y has {len(y)} labels.")
        return x, target.codes_in(classes, y)


def _hidden_in(estimator: Any, X: Any, hidden: list[int]) -> list[int]:
    """Return the positions in X of the columns that the model does not see; all may be absent."""
    names = _get_feature_names(X)
    if names is None or not hasattr(estimator, "feature_names_in_"):
        return [] if X.shape[1] == estimator.n_features_in_ - len(hidden) else hidden
    unseen = set(estimator.feature_names_in_[hidden])
    visible = [i for i, name in enumerate(names) if name in unseen]
    if list(np.delete(names, visible)) == list(np.delete(estimator.feature_names_in_, hidden)):
        return visible
    return hidden


def _without(X: Any, columns: list[int]) -> Any:
    if not columns:
        return X
    if _rows.is_streamed(X):
        raise ValueError(
            "Columns of groups and persons cannot be taken out of a numpy.memmap or a torch.Tensor "
            "without copying it. Give groups as fit(..., sensitive_features=...) or "
            "group_col=Groups(..., as_feature=True), and persons as fit(..., persons=...)."
        )
    if hasattr(X, "iloc"):
        rest = np.delete(np.arange(X.shape[1]), columns)
        is_slice = len(rest) > 0 and rest[-1] - rest[0] == len(rest) - 1  # which needs no copy
        return X.iloc[:, slice(rest[0], rest[-1] + 1) if is_slice else rest]
    return np.delete(X, columns, axis=1)
