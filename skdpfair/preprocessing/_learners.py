"""A table of the steps that learn from the rows, and of what each of them learns."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from numbers import Number

import numpy as np
import pandas as pd
from sklearn.utils import get_tags

from skdpfair.preprocessing._row_wise import WORDS

_SCALE = "BoundedScaler with public bounds, or DPQuantileScaler, whose quantiles are private"
_CATEGORIES = "categories= with the public list, and no min_frequency or max_categories"
_IMPUTE = (
    'SimpleImputer(strategy="constant", keep_empty_features=True) with a public fill_value, '
    'or missing="middle"'
)
_BINS = 'FunctionTransformer(np.digitize, kw_args={"bins": public edges}), for one column at a time'
_PROJECT = "GaussianRandomProjection, which reads no rows, or components of public rows, frozen"
_SELECT = "columns chosen beforehand by public knowledge"
_TEXT = "HashingVectorizer, or a public vocabulary= (with use_idf=False)"
_RESAMPLE = "class_weight={class: public number} of DPFairClassifier"
_MODEL = "a model trained under differential privacy, such as DPFairClassifier"
_FREEZE = "leave it out, or fit it on public rows and wrap it in FrozenEstimator"
_DECLARE = "a listed step; if fit reads no rows, set requires_fit=False in the tags of the step"
REFERENCE = "its weights, or those of a non-private reference model, without noise"
_THRESHOLD = "DPThresholdClassifier, which pays for its thresholds, or one chosen on public rows"


@dataclass(frozen=True)
class Row:
    """An entry of the table: what a step ``learns`` outside the budget; "" is nothing."""

    learns: str = ""
    instead: str = ""
    when: Callable[[dict], bool] | None = None  # of its parameters: whether it learns at all
    goes_in: bool = False  # whether its parts are looked at too
    spends: bool = False  # whether a budget of its own pays for what it learns


def _where(**tests):
    """Return the condition that a parameter which the step has passes its test."""
    return lambda params: any(name in params and t(params[name]) for name, t in tests.items())


def _is_text(value):
    return isinstance(value, str)


def _is_missing(value):
    return value is None


def _is_set(value):
    return value is not None


def _not(*allowed):
    return lambda value: not (isinstance(value, str) and value in allowed)


def _without_noise(params):
    from skdpfair.engine.mechanism import METHODS  # late: it needs torch, linting does not

    method = params.get("method")
    method = METHODS.get(method) if isinstance(method, str) else method
    unbounded = params.get("epsilon") is None and not params.get("noise_multiplier")
    return unbounded or not getattr(method, "private", True) or bool(params.get("keep_reference"))


FREE = Row(goes_in=True)
FROZEN = Row()
STATELESS = Row(goes_in=True)  # by its tags: what it does to rows is tried
UNKNOWN = Row("possibly anything, as the step is unknown", _DECLARE, goes_in=True)
READS = Row(
    "statistics of all rows: the result of a row depends on the other rows",
    "a function of each row alone, with axis=1 in calls; for scaling, " + _SCALE,
)
UNTRIED = Row(
    "possibly anything, as it could not be run on made-up rows ({})",
    "a function that runs on a DataFrame or array of any rows; name its columns by a "
    "ColumnTransformer",
)
MODEL = Row("its parameters, without noise", _MODEL, goes_in=True)
FITTED = Row("what it fits to the rows", _FREEZE, goes_in=True)
RESAMPLER = Row(
    "how many rows each class has, and which rows to repeat, combine or drop; the epsilon of a fit "
    "on its rows counts each of them as a record of its own",
    _RESAMPLE,
)

_SCALES = {
    "StandardScaler": "the mean and standard deviation of each column",
    "MinMaxScaler": "the smallest and largest value of each column",
    "MaxAbsScaler": "the largest absolute value of each column",
    "RobustScaler": "the median and interquartile range of each column",
    "QuantileTransformer": "the quantiles of each column",
    "PowerTransformer": "the exponent, mean and standard deviation of each column",
}
_NOTHING = (
    "Pipeline ColumnTransformer FeatureUnion Normalizer Binarizer PolynomialFeatures "
    "HashingVectorizer FeatureHasher PatchExtractor AdditiveChi2Sampler SkewedChi2Sampler "
    "PolynomialCountSketch GaussianRandomProjection SparseRandomProjection SparseCoder "
    "OneVsRestClassifier OutputCodeClassifier MultiOutputClassifier "
    "MultiOutputRegressor ClassifierChain RegressorChain VotingClassifier VotingRegressor "
    "FixedThresholdClassifier FunctionTransformer SelectFromModel RFE"
)
_SKLEARN = {
    **dict.fromkeys(_NOTHING.split(), FREE),
    **{name: Row(learns, _SCALE) for name, learns in _SCALES.items()},
    "KBinsDiscretizer": Row("the edges of the bins", _BINS),
    "FrozenEstimator": FROZEN,
    "SplineTransformer": Row(
        "the smallest and largest values or quantiles, for the knots",
        "knots= as an array of public numbers",
        _where(knots=_is_text),
    ),
    "RBFSampler": Row("the variance", "a number for gamma", _where(gamma=_is_text)),
    **dict.fromkeys(
        ("OneHotEncoder", "OrdinalEncoder"),
        Row(
            "the categories that occur, or which of them are frequent",
            _CATEGORIES,
            _where(categories=_is_text, min_frequency=_is_set, max_categories=_is_set),
        ),
    ),
    "TargetEncoder": Row(
        "the mean target of each category", "OneHotEncoder(categories=the public list)"
    ),
    "CountVectorizer": Row("the words that occur", _TEXT, _where(vocabulary=_is_missing)),
    "TfidfVectorizer": Row(
        "the words that occur and how many rows hold each",
        _TEXT,
        _where(vocabulary=_is_missing, use_idf=bool),
    ),
    "SimpleImputer": Row(
        "the value that it fills in, or which columns miss values or are empty",
        _IMPUTE + "; no add_indicator",
        _where(
            strategy=_not("constant"),
            add_indicator=bool,
            keep_empty_features=lambda kept: not kept,
        ),
    ),
    "MissingIndicator": Row(
        "which columns miss values", 'features="all"', _where(features=_not("all"))
    ),
    "CalibratedClassifierCV": Row(
        "how to correct probabilities, from labels of the rows",
        "the probabilities as they are, or calibration on public rows",
        goes_in=True,
    ),
    "TunedThresholdClassifierCV": Row(
        "the threshold that scores best on the rows", _THRESHOLD, goes_in=True
    ),
    "BaggingClassifier": Row(
        "more than its budget covers: it draws a record several times, but charges it once",
        "bootstrap=False, around a private estimator",
        _where(bootstrap=bool, estimator=_is_missing),
        goes_in=True,
    ),
    "OneVsOneClassifier": Row(
        "how many rows each class has: each fit reads two classes and assumes that n is public",
        "the classifier alone, which takes any number of classes, or OneVsRestClassifier",
        goes_in=True,
    ),
    **dict.fromkeys(
        ("StackingClassifier", "StackingRegressor", "TransformedTargetRegressor"),
        Row(
            "the parameters of its default model, without noise",
            _MODEL,
            _where(final_estimator=_is_missing, regressor=_is_missing),
            goes_in=True,
        ),
    ),
    **dict.fromkeys(
        ("DummyClassifier", "DummyRegressor"),
        Row(
            "how frequent the classes are, or a statistic of the target",
            'strategy="constant"',
            _where(strategy=_not("uniform", "constant")),
        ),
    ),
}
_REDUCTION = Row(
    "weights of rows, and which models to use, from labels, groups and predictions",
    "a DPFairClassifier with a method that treats groups differently, or DPThresholdClassifier, "
    "which pays for its thresholds",
    goes_in=True,
)
_OURS = "BoundedScaler PiecewiseLinearEncoder PublicEncoder Scattering2D FrozenFeatures"
_BOUNDED = "bounds, which it computes from the rows outside its own budget"
ROWS = {
    **{f"sklearn.{name}": row for name, row in _SKLEARN.items()},
    "imblearn.Pipeline": FREE,
    "fairlearn.ThresholdOptimizer": Row(
        "a threshold for each group, from labels of the rows", _THRESHOLD, goes_in=True
    ),
    "fairlearn.ExponentiatedGradient": _REDUCTION,
    "fairlearn.GridSearch": _REDUCTION,
    "fairlearn.CorrelationRemover": Row("the covariance with the sensitive columns", _FREEZE),
    **{f"skdpfair.{name}": FREE for name in _OURS.split()},
    "skdpfair.DPQuantileScaler": Row(spends=True),
    "skdpfair.DPThresholdClassifier": Row(goes_in=True),  # its fit pays for the thresholds
    **dict.fromkeys(
        ("skdpfair.DPFairClassifier", "skdpfair.DPFairRegressor"),
        Row(
            REFERENCE,
            "a finite epsilon, a private method, and keep_reference=False",
            _without_noise,
        ),
    ),
}
MODULES = {
    "sklearn.decomposition": Row("components of the rows", _PROJECT),
    "sklearn.cross_decomposition": Row("components of the rows and the target", _PROJECT),
    "sklearn.manifold": Row("an embedding of the rows", _PROJECT),
    "sklearn.feature_selection": Row("which columns go with the target or vary", _SELECT),
    "sklearn.impute": Row("rows or models of them, to fill in values", _IMPUTE),
    "sklearn.cluster": Row("centres of clusters, or groups of columns", _FREEZE),
    "sklearn.neighbors": Row("the rows, which it keeps", _FREEZE),
    "imblearn": RESAMPLER,
    "category_encoders": Row("the categories that occur, or their targets", _CATEGORIES),
    "diffprivlib": Row(
        _BOUNDED,
        "bounds= or data_norm= from public knowledge",
        _where(bounds=_is_missing, data_norm=_is_missing, epsilon=_is_missing),
        spends=True,
    ),
}
_CONTAINERS = ("steps", "transformers", "transformer_list")
_MECHANISM = {"delta", "noise_multiplier", "accountant"}


def verdict(estimator) -> Row:
    """Return what an estimator learns by itself; ``learns`` is "" if its parameters rule it out."""
    params, parents = params_of(estimator), type(estimator).__mro__
    own_fit = _depth(parents, "fit", "fit_transform", "partial_fit")
    if _says_it_reads_nothing(estimator, own_fit):
        return STATELESS
    for depth, parent in enumerate(parents):
        row = _known(parent)
        if row is None:
            continue
        if row.learns and row.when is not None and not row.when(params):
            row = replace(row, learns="")
        overridden = own_fit < depth and not (row.learns or row.spends or is_container(estimator))
        return UNKNOWN if overridden else row
    return FREE if is_container(estimator) else _unlisted(estimator, params)


def kind_of(estimator) -> str:
    """Return "resampler", "transformer" or "model"."""
    if hasattr(estimator, "fit_resample"):
        return "resampler"
    transforms = hasattr(estimator, "transform") or hasattr(estimator, "fit_transform")
    return "transformer" if transforms else "model"


def _unlisted(estimator, params):
    private = getattr(getattr(estimator, "privacy_", None), "is_private", None)
    if private or (private is None and _seems_private(params)):
        return Row(spends=True)
    if hasattr(estimator, "fit_resample"):
        return RESAMPLER
    if _root(type(estimator)) == "sklearn":
        return MODEL if kind_of(estimator) == "model" else FITTED
    plain = kind_of(estimator) == "model" and not any(parts_of(estimator))
    return MODEL if plain else UNKNOWN


def _known(parent):
    if parent.__name__.startswith("_") or parent.__name__.endswith("Mixin"):
        return None
    module = f"{parent.__module__}."
    rows = (row for name, row in MODULES.items() if module.startswith(f"{name}."))
    return ROWS.get(f"{_root(parent)}.{parent.__name__}") or next(rows, None)


def _root(kind):
    return kind.__module__.partition(".")[0]


def _depth(parents, *names):
    """Return how far up one of the methods is defined."""
    return next(
        (i for i, p in enumerate(parents) if any(n in vars(p) for n in names)), len(parents)
    )


def _says_it_reads_nothing(estimator, own_fit):
    """Tell whether the tags of a class that is not listed say so, and are no older than ``fit``."""
    if kind_of(estimator) != "transformer" or _known(type(estimator)) is not None:
        return False
    try:
        requires_fit = get_tags(estimator).requires_fit
    except (AttributeError, TypeError, ValueError):
        return False
    return not requires_fit and _depth(type(estimator).__mro__, "__sklearn_tags__") <= own_fit


def _seems_private(params):
    """Tell whether the parameters are those of a mechanism with a budget."""
    is_finite = params.get("epsilon") is not None or bool(params.get("noise_multiplier"))
    return "epsilon" in params and is_finite and not _MECHANISM.isdisjoint(params)


def is_estimator(value) -> bool:
    """Tell whether an object can be fitted; classes and strings cannot."""
    fits = any(hasattr(value, name) for name in ("fit", "fit_transform", "fit_resample"))
    return fits and not isinstance(value, type)


def params_of(estimator) -> dict:
    """Return the parameters of an estimator, or the public attributes of one without."""
    if hasattr(estimator, "get_params"):
        return estimator.get_params(deep=False)
    attributes = getattr(estimator, "__dict__", {})
    return {k: v for k, v in attributes.items() if not (k.startswith("_") or k.endswith("_"))}


def parts_of(estimator):
    """Yield the name, the estimator and the columns, or None, of each part of an estimator."""
    params = params_of(estimator)
    for name in sorted(params, key=lambda name: name not in _CONTAINERS):  # remainders come last
        yield from nested(name, params[name])


def refuse_resamplers(estimator) -> None:
    """Raise ValueError if a part of an estimator resamples rows, so that epsilon would be wrong."""
    for _, part, _ in parts_of(estimator):
        if hasattr(part, "fit_resample"):
            raise ValueError(
                f"estimator holds a {type(part).__name__}, which repeats, combines or drops "
                "records by what other records hold, and no epsilon covers that. Leave it out; "
                f"for rare classes, use {_RESAMPLE}."
            )
        refuse_resamplers(part)


def declared_columns(estimator) -> dict:
    """Return the columns that parts of an estimator name: "numbers", or texts that they hold."""
    params = params_of(estimator)
    pairs = []  # of columns and the texts that they hold, None for numbers
    if isinstance(params.get("bounds"), Mapping):
        pairs += [(column, None) for column in params["bounds"]]
    if isinstance(params.get("categories"), Mapping):
        pairs += [(column, _texts_of(v)) for column, v in params["categories"].items()]
    for _, part, columns in parts_of(estimator):
        names, lists = names_in(columns), params_of(part).get("categories")
        if type(part).__name__.endswith(("Encoder", "Vectorizer")):
            lists = lists if isinstance(lists, (list, tuple)) else [None] * len(names)
            pairs += [(c, _texts_of(v)) for c, v in zip(names, lists, strict=False)]
        else:
            pairs += [(column, None) for column in names]
        pairs += [(c, None if v == "numbers" else v) for c, v in declared_columns(part).items()]
    numbers = {column: "numbers" for column, _ in pairs}
    return numbers | {column: texts for column, texts in pairs if texts is not None}


def _texts_of(listed):
    """Return a list of categories as texts, or some words where there is none."""
    return tuple(map(str, listed)) if isinstance(listed, (list, tuple, np.ndarray)) else WORDS


def names_in(columns) -> list:
    """Return the names that a choice of columns lists, none if it is a function or a slice."""
    names = [columns] if isinstance(columns, (str, int)) else columns
    listed = isinstance(names, (list, tuple, np.ndarray, pd.Index))
    return [n for n in names if isinstance(n, (str, int)) and n is not True] if listed else []


def is_container(estimator) -> bool:
    """Tell whether an object of any class holds named steps as a Pipeline does."""
    params = params_of(estimator)
    return any(any(nested(name, params.get(name))) for name in _CONTAINERS)


def nested(label, value, columns=None):
    if is_estimator(value):
        yield label, value, columns
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from nested(str(key), item)
    elif isinstance(value, (list, tuple)) and not all(isinstance(v, (str, Number)) for v in value):
        for i, item in enumerate(value):
            if isinstance(item, (list, tuple)) and len(item) > 1 and isinstance(item[0], str):
                columns = item[2] if len(item) > 2 else None
                if not (isinstance(columns, list) and not columns):  # no columns: never fitted
                    yield from nested(item[0], item[1], columns)
            else:
                yield from nested(f"{label}[{i}]", item)
