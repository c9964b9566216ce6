"""The linter's walk through columns, wrappers and searches, its notes and its report."""

import numpy as np
import pytest
from scipy import stats
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.pipeline import make_pipeline

from skdpfair import DPFairClassifier, Persons
from skdpfair.exceptions import PrivacyLeakWarning
from skdpfair.model_selection import DPRandomizedSearch
from skdpfair.preprocessing import (
    BoundedScaler,
    DPQuantileScaler,
    lint_pipeline,
    public_preprocessor,
)

from .pipelines import sk, steps

private = DPFairClassifier()


def doubled(rows):
    return 2 * rows


def leaky():
    numeric = make_pipeline(sk.SimpleImputer(strategy="median"), sk.StandardScaler())
    columns = sk.ColumnTransformer(
        [
            ("numeric", numeric, ["age"]),
            ("text", sk.OneHotEncoder(), make_column_selector(dtype_include=object)),
            ("out", "drop", ["id"]),
            ("kept", "passthrough", ["sex"]),
            ("never", sk.PCA(), []),
        ],
        remainder=sk.MinMaxScaler(),
    )
    return sk.Pipeline([("columns", columns), ("model", private)])


LEAKY = [  # in the order of the pipeline
    "columns.numeric.simpleimputer: SimpleImputer",
    "columns.numeric.standardscaler: StandardScaler",
    "columns.text: OneHotEncoder",
    "columns.remainder: MinMaxScaler",
]


def test_lint_pipeline_gives_paths_through_columns_pipelines_and_unions():
    assert steps(leaky()) == LEAKY
    union = [("norm", sk.Normalizer()), ("pca", sk.PCA()), ("same", "passthrough")]
    assert steps(sk.FeatureUnion(union)) == ["pca: PCA"]


def scaled(step):
    return sk.Pipeline([("scale", step), ("model", private)])


RATES = {"model__lr": [0.1, 1.0]}


def test_lint_pipeline_judges_a_search_by_its_candidates():
    grid = {"scale": [BoundedScaler(), "passthrough"], **RATES}
    report = lint_pipeline(sk.GridSearchCV(scaled(sk.StandardScaler()), grid))
    assert report.findings == [] and "forecast" in report.notes[0]
    grid = {"scale": [BoundedScaler(), sk.StandardScaler()], **RATES}
    for search in (sk.GridSearchCV, sk.RandomizedSearchCV, DPRandomizedSearch):
        assert steps(search(scaled("passthrough"), grid)) == ["estimator.scale: StandardScaler"]


def test_lint_pipeline_follows_parameters_of_nested_steps():
    imputer = sk.SimpleImputer(keep_empty_features=True)
    columns = ("columns", make_column_transformer((imputer, ["a"])))
    pipe = sk.Pipeline([columns, ("scale", "passthrough"), ("model", private)])
    fixed = {"columns__simpleimputer__strategy": ["constant"]}
    drawn = fixed | {"model__lr": stats.loguniform(0.1, 1)}
    assert steps(sk.RandomizedSearchCV(pipe, drawn)) == []
    swapped = fixed | {"scale": [make_pipeline(sk.PCA())]}
    assert steps(sk.GridSearchCV(pipe, [fixed, swapped])) == ["estimator.scale.pca: PCA"]
    whole = {"steps": [[("model", private)], [("pca", sk.PCA()), ("model", private)]]}
    assert steps(sk.GridSearchCV(pipe, whole)) == ["estimator.pca: PCA"]
    for before, values in ((1.0, [None, 1.0]), (None, [1.0, 2.0])):  # a candidate without budget
        search = sk.GridSearchCV(DPFairClassifier(epsilon=before), {"epsilon": values})
        assert steps(search) == ["estimator: DPFairClassifier"] * (None in values)


def test_lint_pipeline_notes_budgets_and_private_searches_do_not_pay_them():
    pipe = make_pipeline(DPQuantileScaler(), private)
    report = lint_pipeline(pipe)
    assert "its own epsilon" in report.notes[0] and report.spending == [pipe.steps[0][1]]
    search = DPRandomizedSearch(pipe, {"dpfairclassifier__lr": [0.1, 1.0]})
    assert steps(search) == ["estimator.dpquantilescaler: DPQuantileScaler"]


@pytest.mark.parametrize(
    ("pipe", "noted"),
    [
        *((sk.FunctionTransformer(f), "each row") for f in (doubled, lambda X: X.dropna())),
        (make_column_transformer((BoundedScaler(), lambda table: table.columns)), "a function"),
        (sk.FrozenEstimator(sk.PCA()), "public rows"),
        (sk.FunctionTransformer(np.log1p), None),
    ],
)
def test_lint_pipeline_notes_what_parameters_do_not_show(pipe, noted):
    report = lint_pipeline(pipe)
    assert report.findings == [] and len(report.notes) == (noted is not None)
    assert all(noted in note for note in report.notes)


@pytest.mark.parametrize("passed", [["b", "group"], ["group"]])
def test_lint_pipeline_notes_a_number_under_passthrough(passed):
    encoder = public_preprocessor({"a": (-3, 3)}, passthrough=passed)
    linted = str(lint_pipeline(make_pipeline(encoder, DPFairClassifier(group_col="group"))))
    assert ("['b'] under passthrough" in linted) == ("b" in passed)


def test_pipeline_report_names_all_in_print_and_in_one_warning():
    report = lint_pipeline(leaky())
    text = repr(report)
    assert "4 steps learn" in text and all(step in text for step in LEAKY)
    assert max(map(len, text.splitlines())) < 100
    with pytest.warns(PrivacyLeakWarning) as caught:
        report.warn()
    (warning,) = caught
    assert all(step in str(warning.message) for step in LEAKY)
    assert warning.filename == __file__


def test_pipeline_report_without_findings():
    report = lint_pipeline(make_pipeline(BoundedScaler(), private))
    report.warn()  # warnings are errors here
    clean = "PipelineReport: no step learns from private rows outside the budget"
    assert repr(report) == clean
    noted = repr(lint_pipeline(sk.FunctionTransformer(doubled))).splitlines()[0]
    assert noted == f"{clean}, as far as can be seen; 1 note"


@pytest.mark.parametrize(
    ("name", "is_noted"),
    [
        *((n, True) for n in ("id", "patient_id", "user.name", "nhs-number", "customerId", "aID")),
        *((n, True) for n in ("Borrower No", "patient_nbr", "CUSTOMER", "newApplicant", "ID2")),
        *((n, False) for n in ("paid", "valid", "personal", "clients2", "grid")),
        *((n, False) for n in ("account_never_delinq_percent", "memberSince", "customer age")),
    ],
)
def test_lint_pipeline_notes_columns_named_like_persons(name, is_noted):
    columns = make_column_transformer((BoundedScaler((0, 1)), [name, "height"]))
    report = lint_pipeline(make_pipeline(columns, private))
    assert report.findings == [] and len(report.notes) == is_noted
    assert all(f"Persons({name!r}" in note for note in report.notes)
    assert lint_pipeline(columns).notes == []  # nothing is trained


def test_lint_pipeline_notes_no_column_of_declared_persons():
    """By a column or a bound; a search has a note if one candidate does not declare them."""
    columns = make_column_transformer((BoundedScaler((0, 1)), ["user_id"]))
    for persons in (Persons("user_id"), Persons(max_records=3)):
        pipe = make_pipeline(columns, DPFairClassifier(persons=persons))
        assert lint_pipeline(pipe).notes == []
    grid = {"dpfairclassifier__persons__max_records": [2, None]}
    assert "Persons('user_id'" in lint_pipeline(sk.GridSearchCV(pipe, grid)).notes[-1]


@pytest.mark.parametrize("pipe", [sk.StandardScaler, "passthrough", None, [("a", sk.PCA())]])
def test_lint_pipeline_refuses_what_is_no_estimator(pipe):
    with pytest.raises(TypeError, match=r"^pipe .*estimator"):
        lint_pipeline(pipe)
