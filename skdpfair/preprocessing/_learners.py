"""Which steps learn from the rows outside the budget, by their classes and parameters."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Number
from typing import Any

import numpy as np
import pandas as pd

SCALE = (
    "public_preprocessor with public bounds and categories, or DPQuantileScaler, whose quantiles "
    "are private"
)
_RESAMPLE = "class_weight={class: public number} of DPFairClassifier"
_FREEZE = "leave it out, or fit it on public rows and wrap it in FrozenEstimator"
REFERENCE = "its weights, or those of a non-private reference model, without noise"
FROZEN = ("FrozenEstimator", "FrozenFeatures")  # whose parts are not fitted


@dataclass(frozen=True)
class Verdict:
    """Information that a step ``learns`` outside the budget; "" is none."""

    learns: str = ""
    instead: str = ""
    spends: bool = False  # whether a budget of its own pays for what it learns


HARMLESS = Verdict()
OTHER_PROTECTION = Verdict(
    "from single records, which its own budget protects, and the classifier protects persons: "
    "their epsilons cannot be added",
    "public_preprocessor or BoundedScaler with public bounds, or a fit without persons",
)
UNKNOWN = Verdict(
    "possibly anything, as the step is unknown",
    "a step of scikit-learn, or FunctionTransformer of a function of each row; a step that was "
    "fitted on public rows, in FrozenEstimator",
)
MODEL = Verdict(
    "its parameters, without noise",
    "a model trained under differential privacy, as DPFairClassifier or DPThresholdClassifier",
)
FITTED = Verdict("what it fits to the rows", _FREEZE)
RESAMPLER = Verdict(
    "how many rows each class has, and which rows to repeat, combine or drop; the epsilon of a fit "
    "on its rows counts each of them as a record of its own",
    _RESAMPLE,
)


def _is_value(value):
    """Return whether a parameter holds values, not the name of a rule that derives them."""
    return value is not None and not isinstance(value, str)


def _has_public_categories(params):
    limits = params.get("min_frequency"), params.get("max_categories")
    return _is_value(params.get("categories")) and limits == (None, None)


def _pays(params):
    """Return whether all that the parameters of a DPFairClassifier make it train has noise."""
    from skdpfair.engine.mechanism import METHODS  # late: it needs torch, linting does not

    method = params.get("method")
    method = METHODS.get(method) if isinstance(method, str) else method
    is_bounded = params.get("epsilon") is not None or bool(params.get("noise_multiplier"))
    return is_bounded and getattr(method, "private", True) and not params.get("keep_reference")


# steps that learn nothing themselves, by package; what they contain is checked as well
_HARMLESS = {
    "sklearn": (
        "Pipeline ColumnTransformer FeatureUnion FrozenEstimator Normalizer Binarizer "
        "PolynomialFeatures HashingVectorizer FeatureHasher PatchExtractor AdditiveChi2Sampler "
        "SkewedChi2Sampler PolynomialCountSketch GaussianRandomProjection SparseRandomProjection "
        "SparseCoder OneVsRestClassifier OutputCodeClassifier MultiOutputClassifier "
        "MultiOutputRegressor ClassifierChain RegressorChain VotingClassifier VotingRegressor "
        "FixedThresholdClassifier FunctionTransformer SelectFromModel RFE"
    ),
    "imblearn": "Pipeline",
    "skdpfair": (
        "BoundedScaler PiecewiseLinearEncoder PublicEncoder Scattering2D FrozenFeatures "
        "DPThresholdClassifier"
    ),
}
# parameters with which a step learns nothing itself; one that a subclass hides counts as absent
_HARMLESS_IF: dict[str, Callable[[dict[str, Any]], bool]] = {
    "sklearn.RBFSampler": lambda p: _is_value(p.get("gamma")),
    "sklearn.OneHotEncoder": _has_public_categories,
    "sklearn.OrdinalEncoder": _has_public_categories,
    "sklearn.CountVectorizer": lambda p: _is_value(p.get("vocabulary")),
    "sklearn.TfidfVectorizer": lambda p: _is_value(p.get("vocabulary")) and not p.get("use_idf"),
    "sklearn.SimpleImputer": lambda p: (
        p.get("strategy") == "constant"
        and bool(p.get("keep_empty_features"))
        and not p.get("add_indicator")
    ),
    # a record that a bootstrap draws several times is charged once
    "sklearn.BaggingClassifier": lambda p: not p.get("bootstrap") and _is_value(p.get("estimator")),
    "sklearn.StackingClassifier": lambda p: _is_value(p.get("final_estimator")),
    "sklearn.StackingRegressor": lambda p: _is_value(p.get("final_estimator")),
    "sklearn.TransformedTargetRegressor": lambda p: _is_value(p.get("regressor")),
    "skdpfair.DPFairClassifier": _pays,
    "skdpfair.DPFairRegressor": _pays,
}
_CATEGORIES = Verdict(
    "the categories that occur, or which of them are frequent",
    "categories= with the public list, and no min_frequency or max_categories",
)
_PRIVATE = Verdict(REFERENCE, "a finite epsilon, a private method, and keep_reference=False")
# what other steps learn, by class, then by module, then by package
_LEARNS = {
    "sklearn.OneHotEncoder": _CATEGORIES,
    "sklearn.OrdinalEncoder": _CATEGORIES,
    "sklearn.TunedThresholdClassifierCV": MODEL,
    "sklearn.BaggingClassifier": Verdict(
        "more than its budget covers: it draws a record several times, but charges it once",
        "bootstrap=False, around a private estimator",
    ),
    "sklearn.OneVsOneClassifier": Verdict(
        "how many rows each class has: each fit reads two classes and assumes that n is public",
        "the classifier alone, which takes any number of classes, or OneVsRestClassifier",
    ),
    "sklearn.preprocessing": Verdict("statistics of its columns", SCALE),
    "sklearn.impute": Verdict(
        "values to fill in, or which columns miss values or are empty",
        'SimpleImputer(strategy="constant", keep_empty_features=True) with a public fill_value and '
        'no add_indicator, or missing="middle"',
    ),
    "sklearn.feature_extraction": Verdict(
        "the words that occur, or how many rows hold each",
        "HashingVectorizer, or a public vocabulary= (with use_idf=False)",
    ),
    "skdpfair.DPFairClassifier": _PRIVATE,
    "skdpfair.DPFairRegressor": _PRIVATE,
    "skdpfair.DPQuantileScaler": Verdict(spends=True),
    "imblearn": RESAMPLER,
    "fairlearn": MODEL,
}
_BOUNDED = ("bounds", "data_norm", "epsilon")  # of diffprivlib
_CONTAINERS = ("steps", "transformers", "transformer_list")
_MECHANISM = {"delta", "noise_multiplier", "accountant"}


def verdict(estimator) -> Verdict:
    """Return what an estimator learns by itself; ``learns`` is "" if its parameters rule it out."""
    params, parents = params_of(estimator), type(estimator).__mro__
    fits = {"fit", "fit_transform", "partial_fit"}
    own_fit = next((i for i, p in enumerate(parents) if not fits.isdisjoint(vars(p))), 0)
    for depth, parent in enumerate(parents):
        listed = _listed(parent, params)
        if listed is None:
            continue
        # what is known of a parent holds for its fit, not for another one
        is_other = own_fit < depth and not (listed.learns or listed.spends)
        return UNKNOWN if is_other and not is_container(estimator) else listed
    return HARMLESS if is_container(estimator) else _unlisted(estimator, params)


def is_model(estimator) -> bool:
    """Return whether an estimator transforms neither columns nor rows."""
    return not any(hasattr(estimator, n) for n in ("transform", "fit_transform", "fit_resample"))


def _listed(kind, params):
    """Return the verdict of the tables above on a class with some parameters, or None."""
    if kind.__name__.startswith("_") or kind.__name__.endswith("Mixin"):
        return None
    package, module = (".".join(kind.__module__.split(".")[:n]) for n in (1, 2))
    name = f"{package}.{kind.__name__}"
    if package == "diffprivlib":
        # its scalers and models compute bounds from the rows if none are given
        if any(n in params and params[n] is None for n in _BOUNDED):
            learns = "bounds, which it computes from the rows outside its own budget"
            return Verdict(learns, "bounds= or data_norm= from public knowledge")
        return Verdict(spends=True)
    if kind.__name__ in _HARMLESS.get(package, "").split():
        return HARMLESS
    if name in _HARMLESS_IF and _HARMLESS_IF[name](params):
        return HARMLESS
    rows = (_LEARNS[key] for key in (name, module, package) if key in _LEARNS)
    return next(rows, MODEL if name in _HARMLESS_IF else None)


def _unlisted(estimator, params):
    is_private = getattr(getattr(estimator, "privacy_", None), "is_private", None)
    if is_private is None:
        # before a fit, the parameters of a mechanism with a finite budget tell
        is_finite = params.get("epsilon") is not None or bool(params.get("noise_multiplier"))
        is_private = "epsilon" in params and is_finite and not _MECHANISM.isdisjoint(params)
    if is_private:
        return Verdict(spends=True)
    if hasattr(estimator, "fit_resample"):
        return RESAMPLER
    if type(estimator).__module__.startswith("sklearn."):
        return MODEL if is_model(estimator) else FITTED
    return MODEL if is_model(estimator) and not any(parts_of(estimator)) else UNKNOWN


def is_estimator(value) -> bool:
    """Return whether an object can be fitted; classes and strings cannot."""
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
    # remainders come last
    for name in sorted(params, key=lambda name: name not in _CONTAINERS):
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
    params, numbers, texts = params_of(estimator), [], {}
    if isinstance(params.get("bounds"), Mapping):
        numbers += params["bounds"]
    if isinstance(params.get("categories"), Mapping):
        texts |= {column: _texts_of(listed) for column, listed in params["categories"].items()}
    for _, part, columns in parts_of(estimator):
        names, lists = names_in(columns), params_of(part).get("categories")
        if type(part).__name__.endswith(("Encoder", "Vectorizer")):
            lists = lists if isinstance(lists, (list, tuple)) else [None] * len(names)
            texts |= {c: _texts_of(listed) for c, listed in zip(names, lists, strict=False)}
        else:
            numbers += names
        inner = declared_columns(part)
        numbers += [column for column, kind in inner.items() if kind == "numbers"]
        texts |= {column: kind for column, kind in inner.items() if kind != "numbers"}
    return dict.fromkeys(numbers, "numbers") | texts


def columns_kept(estimator) -> list:
    """Return the names of the columns that an estimator, a ColumnTransformer, passes through."""
    steps = params_of(estimator).get("transformers")
    steps = steps if isinstance(steps, list) else []
    kept = [s[2] for s in steps if len(s) == 3 and isinstance(s[1], str) and s[1] == "passthrough"]
    return [name for columns in kept for name in names_in(columns)]


def _texts_of(listed):
    """Return a list of categories as texts, none where there is no list."""
    return tuple(map(str, listed)) if isinstance(listed, (list, tuple, np.ndarray)) else ()


def names_in(columns) -> list:
    """Return the names that a choice of columns lists, none if it is a function or a slice."""
    names = [columns] if isinstance(columns, (str, int)) else columns
    listed = isinstance(names, (list, tuple, np.ndarray, pd.Index))
    return [n for n in names if isinstance(n, (str, int)) and n is not True] if listed else []


def is_container(estimator) -> bool:
    """Return whether an object of any class holds named steps as a Pipeline does."""
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
                # without columns, a step is never fitted
                if not (isinstance(columns, list) and not columns):
                    yield from nested(item[0], item[1], columns)
            else:
                yield from nested(f"{label}[{i}]", item)
