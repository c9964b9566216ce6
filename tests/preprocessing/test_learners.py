"""Verdicts on single steps and wrappers, against what they really do."""

import warnings

import numpy as np
import pytest
from fairlearn.postprocessing import ThresholdOptimizer
from fairlearn.reductions import DemographicParity, ExponentiatedGradient
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin, clone
from sklearn.pipeline import make_pipeline
from sklearn.utils import all_estimators

from skdpfair import DPFairClassifier
from skdpfair.preprocessing import BoundedScaler, DPQuantileScaler, lint_pipeline

from .pipelines import class_name, sk, steps

private = DPFairClassifier()
OTHER_INPUT = {  # text, dicts, labels, images, kernels, a single column
    *("CountVectorizer", "TfidfVectorizer", "HashingVectorizer", "DictVectorizer"),
    *("FeatureHasher", "LabelEncoder", "LabelBinarizer", "MultiLabelBinarizer"),
    *("PatchExtractor", "KernelCenterer", "IsotonicRegression"),
}
CHEAP = {"random_state": 0, "n_components": 1, "max_iter": 5, "n_estimators": 5}
UNKNOWN = {
    "OneHotEncoder": {"handle_unknown": "ignore"},
    "OrdinalEncoder": {"handle_unknown": "use_encoded_value", "unknown_value": -1},
}


def transformers():
    for name, kind in all_estimators(type_filter="transformer"):
        try:
            step = kind()
        except TypeError:  # a wrapper, which needs its parts
            continue
        params = {k: v for k, v in CHEAP.items() if k in step.get_params()}
        if name not in OTHER_INPUT and hasattr(step, "transform"):
            yield pytest.param(step.set_params(**params | UNKNOWN.get(name, {})), id=name)


def fitted_on(step, rows, labels, probe):
    out = clone(step).fit(rows, labels).transform(probe)
    return np.asarray(out.todense() if hasattr(out, "todense") else out, dtype=float)


RNG = np.random.default_rng(0)
ROWS = [(RNG.integers(0, 6, (60, 4)) ** 1.0, np.arange(60) % 2)]
ROWS.append((RNG.integers(0, 6, (60, 4)) ** 2.0 + 1, (ROWS[0][0][:, 0] > 2).astype(int)))


@pytest.mark.parametrize("step", list(transformers()))
def test_verdict_finds_every_transformer_that_depends_on_the_rows(step):
    """Fitted on two tables, it treats the same five rows differently."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        one, two = (fitted_on(step, *rows, ROWS[0][0][:5]) for rows in ROWS)
    if one.shape != two.shape or not np.array_equal(one, two, equal_nan=True):
        assert lint_pipeline(step).findings


LISTED, WORDS = [["F", "M"]], ["a", "b"]
constant, words = {"strategy": "constant", "fill_value": 0}, {"vocabulary": WORDS}
HARMLESS = make_pipeline(
    "passthrough",
    sk.Normalizer(),
    sk.GaussianRandomProjection(n_components=2),
    sk.RBFSampler(gamma=0.5),
    *(sk.CountVectorizer(**words), sk.TfidfVectorizer(**words, use_idf=False)),
    sk.SimpleImputer(**constant, keep_empty_features=True),
    sk.OneHotEncoder(categories=LISTED, handle_unknown="ignore"),
    sk.OrdinalEncoder(categories=LISTED),
    *(BoundedScaler((0, 1)), DPQuantileScaler((0, 1)), sk.FunctionTransformer(np.log1p)),
    sk.FrozenEstimator(sk.StandardScaler()),
    private,
)
LEAKS = [  # by their parameters; others are found by behaviour, above
    *(sk.RBFSampler(gamma="scale"), sk.TfidfVectorizer(**words), sk.SimpleImputer(**constant)),
    sk.SimpleImputer(strategy="constant", keep_empty_features=True, add_indicator=True),
    sk.OneHotEncoder(categories=LISTED, min_frequency=5),
    sk.OrdinalEncoder(categories=LISTED, max_categories=1),
]
scaled = make_pipeline(sk.StandardScaler(), private)
selected = make_pipeline(sk.SelectFromModel(sk.LogisticRegression()), private)
CASES = [  # a pipeline, wrapper or model, and the steps that learn in it
    (HARMLESS, []),
    *((make_pipeline(s, private), [f"{class_name(s).lower()}: {class_name(s)}"]) for s in LEAKS),
    *((kind(private), [kind.__name__]) for kind in (
        sk.TunedThresholdClassifierCV, sk.SelfTrainingClassifier, sk.SequentialFeatureSelector,
        sk.RFECV, sk.AdaBoostClassifier, sk.BaggingClassifier)),
    *((kind(private), []) for kind in (
        sk.FixedThresholdClassifier, sk.MultiOutputClassifier, sk.ClassifierChain,
        sk.OutputCodeClassifier, sk.RFE)),
    (sk.BaggingClassifier(private, bootstrap=False), []),
    (
        sk.CalibratedClassifierCV(scaled),
        ["CalibratedClassifierCV", "estimator.standardscaler: StandardScaler"],
    ),
    (sk.OneVsRestClassifier(sk.LogisticRegression()), ["estimator: LogisticRegression"]),
    (ExponentiatedGradient(private, DemographicParity()), ["ExponentiatedGradient"]),
    (ThresholdOptimizer(estimator=private), ["ThresholdOptimizer"]),
    (sk.VotingClassifier([("a", private), ("b", sk.Ridge()), ("c", "drop")]), ["b: Ridge"]),
    (sk.StackingClassifier([("a", private)], final_estimator=private), []),
    (sk.StackingClassifier([("a", private)]), ["StackingClassifier"]),
    (
        sk.TransformedTargetRegressor(sk.Ridge(), transformer=sk.StandardScaler()),
        ["regressor: Ridge", "transformer: StandardScaler"],
    ),
    (selected, ["selectfrommodel.estimator: LogisticRegression"]),
    (DPFairClassifier(epsilon=None, noise_multiplier=1.0), []),
    *((DPFairClassifier(**params), ["DPFairClassifier"]) for params in (
        {"epsilon": None}, {"method": "sgd", "epsilon": None}, {"keep_reference": True})),
]  # fmt: skip


@pytest.mark.parametrize(("pipe", "expected"), CASES)
def test_verdict_of_steps_wrappers_and_models_by_their_parameters(pipe, expected):
    assert steps(pipe) == expected
    assert all(finding.learns and finding.instead for finding in lint_pipeline(pipe).findings)


class CountsRows(ClassifierMixin, BaseEstimator):
    """Remembers how many rows each fit had."""

    seen = []

    def fit(self, X, y):
        self.seen.append(len(X))
        self.classes_ = np.unique(y)
        return self

    def predict(self, X):
        return np.resize(self.classes_, len(X))

    def decision_function(self, X):
        return np.zeros(len(X))


SPLITS = [
    sk.OneVsRestClassifier(CountsRows()),
    sk.OneVsOneClassifier(CountsRows()),
    sk.VotingClassifier([("a", CountsRows())]),
    sk.StackingClassifier([("a", CountsRows())], CountsRows(), cv=3),
    sk.OutputCodeClassifier(CountsRows(), random_state=0),
]


@pytest.mark.parametrize("wrapper", SPLITS, ids=class_name)
def test_verdict_finds_wrappers_whose_fits_show_the_sizes_of_classes(wrapper, monkeypatch):
    sizes = []
    for counts in ([40, 30, 20], [60, 20, 10]):
        X, y = np.arange(180.0).reshape(90, 2), np.repeat([0, 1, 2], counts)
        monkeypatch.setattr(CountsRows, "seen", [])
        clone(wrapper).fit(X, y)
        sizes.append(CountsRows.seen)
    assert (sizes[0] != sizes[1]) == (class_name(wrapper) in steps(wrapper))


class Fits(BaseEstimator):
    def fit(self, X, y=None):
        return self


class Renamed(sk.StandardScaler):
    pass


class LearningNormalizer(Fits, sk.Normalizer):
    pass


class Stranger(TransformerMixin, Fits):
    def transform(self, X):
        return X


class Noisy(ClassifierMixin, Fits):
    def __init__(self, epsilon=1.0, delta=1e-5):
        self.epsilon, self.delta = epsilon, delta

    def predict(self, X):
        return X


class Sampler(BaseEstimator):
    def fit_resample(self, X, y):
        return X, y


class Chain:
    """A pipeline of another library: steps, and nothing of scikit-learn."""

    def __init__(self, *steps):
        self.steps = [(class_name(step).lower(), step) for step in steps]

    fit = Fits.fit


OTHERS = [  # what is known of a step of another library: part of what it learns, or nothing
    (Renamed(), {"Renamed": "statistics"}),  # by its parent
    (LearningNormalizer(), {"LearningNormalizer": "possibly anything"}),
    (make_pipeline(Stranger(), private), {"Stranger": "possibly anything"}),
    (make_pipeline(BoundedScaler(), Noisy()), {}),
    (make_pipeline(BoundedScaler(), Noisy(epsilon=None)), {"Noisy": "parameters"}),
    (
        Chain(Sampler(), sk.StandardScaler(), private),
        {"Sampler": "how many rows", "StandardScaler": "statistics"},
    ),
    (Chain(private), {}),
]


@pytest.mark.parametrize(("pipe", "learned"), OTHERS)
def test_verdict_of_steps_and_pipelines_of_other_libraries(pipe, learned):
    findings = {finding.name: finding for finding in lint_pipeline(pipe).findings}
    assert findings.keys() == learned.keys()
    assert all(part in findings[name].learns for name, part in learned.items())
    assert "Sampler" not in findings or "class_weight" in findings["Sampler"].instead
