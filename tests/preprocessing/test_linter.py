"""The linter against what steps really do, and against pipelines with planted leaks."""

import warnings

import numpy as np
import pytest
from fairlearn.postprocessing import ThresholdOptimizer
from fairlearn.reductions import DemographicParity, ExponentiatedGradient
from scipy import stats
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin, clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import (
    ColumnTransformer,
    TransformedTargetRegressor,
    make_column_selector,
    make_column_transformer,
)
from sklearn.decomposition import PCA
from sklearn.ensemble import (
    AdaBoostClassifier,
    BaggingClassifier,
    StackingClassifier,
    VotingClassifier,
)
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.feature_selection import (
    RFE,
    RFECV,
    SelectFromModel,
    SequentialFeatureSelector,
)
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.kernel_approximation import RBFSampler
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import (
    FixedThresholdClassifier,
    GridSearchCV,
    RandomizedSearchCV,
    TunedThresholdClassifierCV,
)
from sklearn.multiclass import OneVsOneClassifier, OneVsRestClassifier, OutputCodeClassifier
from sklearn.multioutput import ClassifierChain, MultiOutputClassifier
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    OrdinalEncoder,
    StandardScaler,
)
from sklearn.random_projection import GaussianRandomProjection
from sklearn.semi_supervised import SelfTrainingClassifier
from sklearn.utils import all_estimators

from skdpfair import DPFairClassifier, Persons
from skdpfair.exceptions import PrivacyLeakWarning
from skdpfair.model_selection import DPRandomizedSearch
from skdpfair.preprocessing import (
    BoundedScaler,
    DPQuantileScaler,
    lint_pipeline,
)


def steps(pipe):
    return [finding.step for finding in lint_pipeline(pipe).findings]


def private(**params):
    return DPFairClassifier(**params)


def class_name(value):
    return type(value).__name__


# ------------------------------------------------------------- every transformer, by behaviour


OTHER_INPUT = {  # text, dicts, labels, images, kernels, a single column
    *("CountVectorizer", "TfidfVectorizer", "HashingVectorizer", "DictVectorizer"),
    *("FeatureHasher", "LabelEncoder", "LabelBinarizer", "MultiLabelBinarizer"),
    *("PatchExtractor", "KernelCenterer", "IsotonicRegression"),
}
CHEAP = {"random_state": 0, "n_components": 1, "max_iter": 5, "n_estimators": 5}


def _transformers():
    for name, kind in all_estimators(type_filter="transformer"):
        try:
            step = kind()
        except TypeError:  # a wrapper, which needs its parts
            continue
        params = {k: v for k, v in CHEAP.items() if k in step.get_params()}
        if name in {"OneHotEncoder", "OrdinalEncoder"}:
            params |= {"handle_unknown": "ignore"}
        if name == "OrdinalEncoder":
            params |= {"handle_unknown": "use_encoded_value", "unknown_value": -1}
        if name not in OTHER_INPUT and hasattr(step, "transform"):
            yield pytest.param(step.set_params(**params), id=name)


def _fitted_on(step, rows, labels, probe):
    out = clone(step).fit(rows, labels).transform(probe)
    return np.asarray(out.todense() if hasattr(out, "todense") else out, dtype=float)


RNG = np.random.default_rng(0)
ROWS = [(RNG.integers(0, 6, (60, 4)) ** 1.0, np.arange(60) % 2)]
ROWS.append((RNG.integers(0, 6, (60, 4)) ** 2.0 + 1, (ROWS[0][0][:, 0] > 2).astype(int)))


@pytest.mark.parametrize("step", list(_transformers()))
def test_what_depends_on_the_rows_is_a_finding(step):
    """Fitted on two tables, it treats the same five rows differently."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        one, two = (_fitted_on(step, *rows, ROWS[0][0][:5]) for rows in ROWS)
    if one.shape != two.shape or not np.array_equal(one, two, equal_nan=True):
        assert lint_pipeline(step).findings


HARMLESS = [
    "passthrough",
    Normalizer(),
    GaussianRandomProjection(n_components=2),
    RBFSampler(gamma=0.5),
    CountVectorizer(vocabulary=["a", "b"]),
    TfidfVectorizer(vocabulary=["a", "b"], use_idf=False),
    SimpleImputer(strategy="constant", fill_value=0, keep_empty_features=True),
    OneHotEncoder(categories=[["F", "M"]], handle_unknown="ignore"),
    OrdinalEncoder(categories=[["F", "M"]]),
    BoundedScaler((0, 1)),
    DPQuantileScaler((0, 1)),
    FunctionTransformer(np.log1p),
    FrozenEstimator(StandardScaler()),
]
LEAKS = [  # by their parameters; others are found by behaviour, above
    RBFSampler(gamma="scale"),
    TfidfVectorizer(vocabulary=["a", "b"]),
    SimpleImputer(strategy="constant", fill_value=0),
    SimpleImputer(strategy="constant", keep_empty_features=True, add_indicator=True),
    OneHotEncoder(categories=[["F", "M"]], min_frequency=5),
    OrdinalEncoder(categories=[["F", "M"]], max_categories=1),
]


@pytest.mark.parametrize("step", HARMLESS, ids=class_name)
def test_steps_that_learn_nothing_pass(step):
    assert steps(make_pipeline(step, private())) == []


@pytest.mark.parametrize("step", LEAKS, ids=class_name)
def test_steps_that_learn_are_named(step):
    (finding,) = lint_pipeline(make_pipeline(step, private())).findings
    assert finding.step == f"{type(step).__name__.lower()}: {type(step).__name__}"
    assert finding.learns and finding.instead


def centred(rows):
    return rows - rows.mean(axis=0)


def doubled(rows):
    return 2 * rows


def test_functions_of_the_user_are_noted():
    for function in (centred, doubled, lambda X: X.dropna()):
        report = lint_pipeline(FunctionTransformer(function))
        assert report.findings == [] and "each row by itself" in report.notes[0]
    assert lint_pipeline(FunctionTransformer(np.log1p)).notes == []


# ----------------------------------------------------------------------------------- nesting


def leaky_columns():
    numeric = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
    return ColumnTransformer(
        [
            ("numeric", numeric, ["age"]),
            ("text", OneHotEncoder(), make_column_selector(dtype_include=object)),
            ("out", "drop", ["id"]),
            ("kept", "passthrough", ["sex"]),
            ("never", PCA(), []),
        ],
        remainder=MinMaxScaler(),
    )


LEAKY = {
    "columns.numeric.simpleimputer: SimpleImputer",
    "columns.numeric.standardscaler: StandardScaler",
    "columns.text: OneHotEncoder",
    "columns.remainder: MinMaxScaler",
}


def test_paths_lead_through_columns_and_pipelines():
    found = steps(Pipeline([("columns", leaky_columns()), ("model", private())]))
    assert set(found) == LEAKY
    assert len(found) == len(LEAKY)
    assert "remainder" in found[-1]  # in the order of the pipeline


def test_unions():
    union = FeatureUnion([("norm", Normalizer()), ("pca", PCA()), ("same", "passthrough")])
    assert steps(union) == ["pca: PCA"]


WRAPPED = [
    (TunedThresholdClassifierCV(private()), ["TunedThresholdClassifierCV"]),
    (
        CalibratedClassifierCV(make_pipeline(StandardScaler(), private())),
        ["CalibratedClassifierCV", "estimator.standardscaler: StandardScaler"],
    ),
    (OneVsRestClassifier(LogisticRegression()), ["estimator: LogisticRegression"]),
    (BaggingClassifier(private(), bootstrap=False), []),
    (BaggingClassifier(private()), ["BaggingClassifier"]),
    (ExponentiatedGradient(private(), DemographicParity()), ["ExponentiatedGradient"]),
    (ThresholdOptimizer(estimator=private()), ["ThresholdOptimizer"]),
    (VotingClassifier([("a", private()), ("b", Ridge()), ("c", "drop")]), ["b: Ridge"]),
    (StackingClassifier([("a", private())], final_estimator=private()), []),
    (StackingClassifier([("a", private())]), ["StackingClassifier"]),
    (
        TransformedTargetRegressor(Ridge(), transformer=StandardScaler()),
        ["regressor: Ridge", "transformer: StandardScaler"],
    ),
    (FixedThresholdClassifier(private(), threshold=0.4), []),
    (MultiOutputClassifier(private()), []),
    (ClassifierChain(private()), []),
    (OutputCodeClassifier(private()), []),
    (SelfTrainingClassifier(private()), ["SelfTrainingClassifier"]),
    (SequentialFeatureSelector(private()), ["SequentialFeatureSelector"]),
    (RFECV(private()), ["RFECV"]),
    (AdaBoostClassifier(private()), ["AdaBoostClassifier"]),
    (make_pipeline(RFE(private()), private()), []),
    (
        make_pipeline(SelectFromModel(LogisticRegression()), private()),
        ["selectfrommodel.estimator: LogisticRegression"],
    ),
    (private(epsilon=None), ["DPFairClassifier"]),
    (private(epsilon=None, noise_multiplier=1.0), []),
    (private(method="sgd", epsilon=None), ["DPFairClassifier"]),
    (private(keep_reference=True), ["DPFairClassifier"]),
]


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
    OneVsRestClassifier(CountsRows()),
    OneVsOneClassifier(CountsRows()),
    VotingClassifier([("a", CountsRows())]),
    StackingClassifier([("a", CountsRows())], CountsRows(), cv=3),
    OutputCodeClassifier(CountsRows(), random_state=0),
]


@pytest.mark.parametrize("wrapper", SPLITS, ids=class_name)
def test_a_wrapper_whose_fits_tell_how_many_rows_a_class_has_is_found(wrapper, monkeypatch):
    sizes = []
    for counts in ([40, 30, 20], [60, 20, 10]):
        X, y = np.arange(180.0).reshape(90, 2), np.repeat([0, 1, 2], counts)
        monkeypatch.setattr(CountsRows, "seen", [])
        clone(wrapper).fit(X, y)
        sizes.append(CountsRows.seen)
    assert (sizes[0] != sizes[1]) == (class_name(wrapper) in steps(wrapper))


@pytest.mark.parametrize(("pipe", "expected"), WRAPPED, ids=class_name)
def test_wrappers_and_models(pipe, expected):
    assert steps(pipe) == expected


# ---------------------------------------------------------------------------------- searches


def scaled(step):
    return Pipeline([("scale", step), ("model", private())])


def test_a_search_is_judged_by_its_candidates_not_by_what_they_replace():
    grid = {"scale": [BoundedScaler(), "passthrough"], "model__lr": [0.1, 1.0]}
    report = lint_pipeline(GridSearchCV(scaled(StandardScaler()), grid))
    assert report.findings == []
    assert "scores on private records" in report.notes[0]


@pytest.mark.parametrize("search", [GridSearchCV, RandomizedSearchCV, DPRandomizedSearch])
def test_steps_that_a_grid_swaps_in_are_named(search):
    grid = {"scale": [BoundedScaler(), StandardScaler()], "model__lr": [0.1, 1.0]}
    (finding,) = lint_pipeline(search(scaled("passthrough"), grid)).findings
    assert finding.step == "estimator.scale: StandardScaler"


IMPUTER = SimpleImputer(keep_empty_features=True)


def test_parameters_of_steps_and_nested_steps_are_followed():
    columns = ("columns", make_column_transformer((IMPUTER, ["a"])))
    pipe = Pipeline([columns, ("scale", "passthrough"), ("model", private())])
    fixed = {"columns__simpleimputer__strategy": ["constant"]}
    assert steps(RandomizedSearchCV(pipe, fixed | {"model__lr": stats.loguniform(0.1, 1)})) == []
    swapped = fixed | {"scale": [make_pipeline(PCA())]}
    assert steps(GridSearchCV(pipe, [fixed, swapped])) == ["estimator.scale.pca: PCA"]
    whole = {"steps": [[("model", private())], [("pca", PCA()), ("model", private())]]}
    assert steps(GridSearchCV(pipe, whole)) == ["estimator.pca: PCA"]


def test_references_in_a_grid_are_named():
    search = GridSearchCV(private(), {"epsilon": [None, 1.0]})
    assert steps(search) == ["estimator: DPFairClassifier"]
    assert steps(GridSearchCV(private(epsilon=None), {"epsilon": [1.0, 2.0]})) == []


def test_a_private_search_does_not_pay_for_other_steps():
    pipe = make_pipeline(DPQuantileScaler(), private())
    grid = {"dpfairclassifier__lr": [0.1, 1.0]}
    report = lint_pipeline(pipe)
    assert "its own epsilon" in report.notes[0]
    assert report.spending == [pipe.steps[0][1]]
    (finding,) = lint_pipeline(DPRandomizedSearch(pipe, grid)).findings
    assert finding.step == "estimator.dpquantilescaler: DPQuantileScaler"


# --------------------------------------------------------------- subclasses, unknown, outside


class Renamed(StandardScaler):
    pass


class LearningNormalizer(Normalizer):
    def fit(self, X, y=None):
        self.mean_ = X.mean(0)
        return self


class Stranger(TransformerMixin, BaseEstimator):
    def fit(self, X, y=None):
        return self

    def transform(self, X):
        return X


class Noisy(ClassifierMixin, BaseEstimator):
    def __init__(self, epsilon=1.0, delta=1e-5):
        self.epsilon, self.delta = epsilon, delta

    def fit(self, X, y):
        return self

    def predict(self, X):
        return X


def test_subclasses_are_known_by_their_parents():
    (finding,) = lint_pipeline(Renamed()).findings
    assert (finding.name, "statistics" in finding.learns) == ("Renamed", True)
    assert steps(LearningNormalizer()) == ["LearningNormalizer"]


def test_strangers_are_named():
    (finding,) = lint_pipeline(make_pipeline(Stranger(), private())).findings
    assert finding.name == "Stranger" and "possibly anything" in finding.learns


def test_other_private_models_are_known_by_their_budget():
    assert steps(make_pipeline(BoundedScaler(), Noisy())) == []
    assert steps(make_pipeline(BoundedScaler(), Noisy(epsilon=None))) == ["noisy: Noisy"]


class Chain:
    """A pipeline of another library: steps, and nothing of scikit-learn."""

    def __init__(self, steps):
        self.steps = steps

    def fit(self, X, y):
        return self


class Sampler(BaseEstimator):
    def fit_resample(self, X, y):
        return X, y


def test_resamplers_and_pipelines_of_other_libraries():
    chain = Chain([("more", Sampler()), ("scale", StandardScaler()), ("model", private())])
    findings = lint_pipeline(chain).findings
    assert [f.step for f in findings] == ["more: Sampler", "scale: StandardScaler"]
    assert "class_weight" in findings[0].instead
    assert steps(Chain([("model", private())])) == []


# ------------------------------------------------------------------------------- the report


def test_the_report_names_all_in_print_and_in_one_warning():
    report = lint_pipeline(Pipeline([("columns", leaky_columns()), ("model", private())]))
    text = repr(report)
    assert "4 steps learn" in text and all(step in text for step in LEAKY)
    assert max(map(len, text.splitlines())) < 100
    with pytest.warns(PrivacyLeakWarning) as caught:
        report.warn()
    (warning,) = caught
    assert all(step in str(warning.message) for step in LEAKY)
    assert warning.filename == __file__


def test_a_clean_report_warns_of_nothing_and_does_not_promise_what_it_cannot_see():
    report = lint_pipeline(make_pipeline(BoundedScaler(), private()))
    assert repr(report) == "PipelineReport: no step learns from private rows outside the budget"
    report.warn()  # warnings are errors here
    first = repr(lint_pipeline(FunctionTransformer(doubled))).splitlines()[0]
    assert first.endswith("outside the budget, as far as can be seen; 1 note")


def test_what_cannot_be_seen_is_noted():
    columns = make_column_transformer((BoundedScaler(), lambda table: table.columns))
    notes = lint_pipeline(make_pipeline(columns, private())).notes
    assert "chosen by a function" in notes[0]
    assert "FrozenEstimator" in lint_pipeline(FrozenEstimator(PCA())).notes[0]


@pytest.mark.parametrize(
    ("name", "asks"),
    [
        *((n, True) for n in ("id", "patient_id", "user.name", "nhs-number", "customerId", "aID")),
        *((n, True) for n in ("Borrower No", "patient_nbr", "CUSTOMER", "newApplicant", "ID2")),
        *((n, False) for n in ("paid", "valid", "personal", "clients2", "grid")),
        *((n, False) for n in ("account_never_delinq_percent", "memberSince", "customer age")),
    ],
)
def test_a_column_that_may_name_persons_asks_what_a_row_is(name, asks):
    columns = make_column_transformer((BoundedScaler((0, 1)), [name, "height"]))
    report = lint_pipeline(make_pipeline(columns, private()))
    assert report.findings == [] and len(report.notes) == asks
    assert all(f"Persons({name!r}" in note for note in report.notes)


def test_the_question_what_a_row_is_can_be_answered():
    """By a column or a bound; a search asks if one candidate does."""
    columns = make_column_transformer((BoundedScaler((0, 1)), ["user_id"]))
    for answer in (Persons("user_id"), Persons(max_records=3)):
        assert lint_pipeline(make_pipeline(columns, private(persons=answer))).notes == []
    assert lint_pipeline(columns).notes == []  # nothing is trained
    pipe = make_pipeline(columns, private(persons=Persons(max_records=3)))
    grid = {"dpfairclassifier__persons__max_records": [2, None]}
    assert "Is a row a person?" in lint_pipeline(GridSearchCV(pipe, grid)).notes[-1]


@pytest.mark.parametrize("pipe", [StandardScaler, "passthrough", None, [("a", PCA())]])
def test_what_is_no_estimator_is_refused(pipe):
    with pytest.raises(TypeError, match="pipe must be an estimator"):
        lint_pipeline(pipe)
