"""What each known step learns from the rows it is fitted on, as a table."""

from collections.abc import Callable
from dataclasses import dataclass

from skdpfair.mechanism import METHODS
from skdpfair.preprocessing._functions import reads_all_rows

_SCALE = "BoundedScaler with public bounds, or DPQuantileScaler, which pays for its quantiles"
_ROWWISE = "a function of each row alone, with axis=1 in calls; to scale, " + _SCALE
_CATEGORIES = "categories= with the public list, and no min_frequency or max_categories"
_IMPUTE = (
    'SimpleImputer(strategy="constant", keep_empty_features=True) with a public fill_value, '
    'or missing="middle"'
)
_EMPTY = _IMPUTE + "; no add_indicator"
_BINS = 'FunctionTransformer(np.digitize, kw_args={"bins": public edges}), a column at a time'
_PROJECT = "GaussianRandomProjection, which reads no rows, or components of public rows, frozen"
_SELECT = "columns chosen beforehand by public knowledge"
_TEXT = "HashingVectorizer, or a public vocabulary= (with use_idf=False)"
_RESAMPLE = "class_weight={class: public number} of DPFairClassifier"
_MODEL = "a model trained under differential privacy, as DPFairClassifier"
_FREEZE = "leave it out, or fit it on public rows and wrap it in FrozenEstimator"
_DECLARE = "a listed step; if fit reads no rows here, let the tags say requires_fit=False"
TWIN = "its weights, or those of a twin, without noise"
_THRESHOLD = "FixedThresholdClassifier with a threshold chosen beforehand or on public rows"


@dataclass(frozen=True)
class Row:
    """What a step learns outside the budget.

    Parameters
    ----------
    learns : str
        In words; "" for nothing.
    instead : str
        What to use instead.
    when : callable or None
        Takes the dict of parameters and tells whether the step learns at all; None if it always
        does.
    goes_in : bool
        Whether its parts are looked at too.
    like : str or None
        Parameter that holds a model: if that is private, so is what the step makes of it.
    absent : tuple of (str, str)
        Parameters that stand for a class while they are None.
    spends : bool
        Whether it pays for what it learns, by a budget of its own.
    """

    learns: str = ""
    instead: str = ""
    when: Callable[[dict], bool] | None = None
    goes_in: bool = False
    like: str | None = None
    absent: tuple[tuple[str, str], ...] = ()
    spends: bool = False


def _where(**tests):
    """Return the condition that a parameter which the step has passes its test."""
    return lambda params: any(name in params and t(params[name]) for name, t in tests.items())


def _named(value):
    return isinstance(value, str)


def _given(value):
    return value is not None


def _missing(value):
    return value is None


def _not(*allowed):
    return lambda value: not (isinstance(value, str) and value in allowed)


def _is(*flagged):
    return lambda value: isinstance(value, str) and value in flagged


def _without_noise(params):
    method = params.get("method")
    method = METHODS.get(method) if isinstance(method, str) else method
    unbounded = params.get("epsilon") is None and not params.get("noise_multiplier")
    return unbounded or not getattr(method, "private", True) or bool(params.get("keep_reference"))


def _reads_all_rows(params):
    return reads_all_rows(params.get("func"), params.get("kw_args"))


FREE = Row(goes_in=True)
FROZEN = Row()
UNKNOWN = Row("unknown things: it is not known to learn nothing", _DECLARE, goes_in=True)
MODEL = Row("its parameters, without noise", _MODEL, goes_in=True)
RESAMPLER = Row("how many rows each class has, and rows made or chosen from others", _RESAMPLE)

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
    "FixedThresholdClassifier"
)
_SKLEARN = {
    **dict.fromkeys(_NOTHING.split(), FREE),
    **{name: Row(learns, _SCALE) for name, learns in _SCALES.items()},
    "KBinsDiscretizer": Row("the edges of the bins", _BINS),
    "FrozenEstimator": FROZEN,
    "FunctionTransformer": Row(
        "statistics of all rows, in its function, as far as can be seen", _ROWWISE, _reads_all_rows
    ),
    "SplineTransformer": Row(
        "the smallest and largest values or quantiles, for the knots",
        "knots= as an array of public numbers",
        _where(knots=_named),
    ),
    "KernelCenterer": Row("the mean of each column of the kernel", _FREEZE),
    "RBFSampler": Row("the variance", "a number for gamma", _where(gamma=_named)),
    "Nystroem": Row("rows, which it keeps", "RBFSampler"),
    "OneHotEncoder": Row(
        "the categories that occur, or which of them are frequent",
        _CATEGORIES,
        _where(categories=_named, min_frequency=_given, max_categories=_given),
    ),
    "OrdinalEncoder": Row(
        "the categories that occur, or which of them are frequent",
        _CATEGORIES,
        _where(categories=_named, min_frequency=_given, max_categories=_given),
    ),
    "TargetEncoder": Row(
        "the mean target of each category", "OneHotEncoder(categories=the public list)"
    ),
    "LabelEncoder": Row("the labels that occur", "a public mapping"),
    "LabelBinarizer": Row("the labels that occur", "a public mapping"),
    "MultiLabelBinarizer": Row(
        "the labels that occur", "classes= with the public list", _where(classes=_missing)
    ),
    "DictVectorizer": Row("the names and categories that occur", "FeatureHasher"),
    "CountVectorizer": Row("the words that occur", _TEXT, _where(vocabulary=_missing)),
    "TfidfVectorizer": Row(
        "the words that occur and how many rows hold each",
        _TEXT,
        _where(vocabulary=_missing, use_idf=bool),
    ),
    "TfidfTransformer": Row("how many rows hold each word", "use_idf=False", _where(use_idf=bool)),
    "SimpleImputer": Row(
        "the value that it fills in, or which columns miss values or are empty",
        _EMPTY,
        _where(
            strategy=_not("constant"),
            add_indicator=bool,
            keep_empty_features=lambda kept: not kept,
        ),
    ),
    "MissingIndicator": Row(
        "which columns miss values", 'features="all"', _where(features=_not("all"))
    ),
    "BernoulliRBM": Row("the weights of its units", _FREEZE),
    "RandomTreesEmbedding": Row("splits of the columns", "RBFSampler"),
    "NeighborhoodComponentsAnalysis": Row("a metric, from labels of the rows", _PROJECT),
    "KNNImputer": Row("rows, which it keeps", _IMPUTE),
    "IterativeImputer": Row("a regression of each column on the others", _IMPUTE),
    "SelectFromModel": Row(
        "which columns a model finds important",
        _SELECT,
        _where(prefit=lambda on: not on),
        like="estimator",
    ),
    "RFE": Row("which columns a model finds important", _SELECT, like="estimator"),
    "RFECV": Row("which columns raise a score on the rows", _SELECT),
    "CalibratedClassifierCV": Row(
        "how to correct probabilities, from labels of the rows",
        "the probabilities as they are, or calibration on public rows",
        goes_in=True,
        absent=(("estimator", "LinearSVC"),),
    ),
    "TunedThresholdClassifierCV": Row(
        "the threshold that scores best on the rows", _THRESHOLD, goes_in=True
    ),
    "BaggingClassifier": Row(
        "more than is paid for: a record is drawn several times, and charged as one",
        "bootstrap=False",
        _where(bootstrap=bool),
        goes_in=True,
        absent=(("estimator", "DecisionTreeClassifier"),),
    ),
    "OneVsOneClassifier": Row(
        "how many rows each class has: each fit reads two classes, and takes its n as public",
        "the classifier as it is, which takes any number of classes, or OneVsRestClassifier",
        goes_in=True,
    ),
    "AdaBoostClassifier": Row(
        "weights of rows and models, from errors on the rows",
        "VotingClassifier, whose weights are given",
        goes_in=True,
        absent=(("estimator", "DecisionTreeClassifier"),),
    ),
    "SelfTrainingClassifier": Row(
        "which rows get labels, and when to stop", _MODEL + " on labelled rows", goes_in=True
    ),
    "StackingClassifier": Row(goes_in=True, absent=(("final_estimator", "LogisticRegression"),)),
    "StackingRegressor": Row(goes_in=True, absent=(("final_estimator", "RidgeCV"),)),
    "TransformedTargetRegressor": Row(goes_in=True, absent=(("regressor", "LinearRegression"),)),
    "DummyClassifier": Row(
        "how frequent the classes are",
        'strategy="uniform" or "constant"',
        _where(strategy=_not("uniform", "constant")),
    ),
    "DummyRegressor": Row(
        "a mean or quantile of the target",
        'strategy="constant"',
        _where(strategy=_not("constant")),
    ),
}
_BOUNDED = "its own budget, but the bounds are read off the rows"
ROWS = {
    **{f"sklearn.{name}": row for name, row in _SKLEARN.items()},
    "imblearn.Pipeline": FREE,
    "fairlearn.ThresholdOptimizer": Row(
        "a threshold for each group, from labels of the rows", _THRESHOLD, goes_in=True
    ),
    "fairlearn.CorrelationRemover": Row("the covariance with the sensitive columns", _FREEZE),
    "skdpfair.BoundedScaler": FREE,
    "skdpfair.DPQuantileScaler": Row(spends=True),
    "skdpfair.DPFairClassifier": Row(
        TWIN,
        "a finite epsilon, a private method, and keep_reference=False",
        _without_noise,
    ),
}
MODULES = {
    "sklearn.decomposition": Row("components of the rows", _PROJECT),
    "sklearn.cross_decomposition": Row("components of the rows and the target", _PROJECT),
    "sklearn.manifold": Row("an embedding of the rows", _PROJECT),
    "sklearn.feature_selection": Row("which columns go with the target or vary", _SELECT),
    "sklearn.cluster": Row("centres of clusters, or groups of columns", _FREEZE),
    "sklearn.neighbors": Row("the rows, which it keeps", _FREEZE),
    "imblearn": RESAMPLER,
    "category_encoders": Row("the categories that occur, or their targets", _CATEGORIES),
    "diffprivlib": Row(
        _BOUNDED,
        "bounds= or data_norm= from public knowledge",
        _where(bounds=_missing, data_norm=_missing, epsilon=_missing),
        spends=True,
    ),
}
