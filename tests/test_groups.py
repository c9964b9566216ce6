"""Where groups come from, and which of them are refused."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skdpfair import DPFairClassifier, DPFairRegressor, Groups
from skdpfair._utils.group_names import group_names
from skdpfair.budget import PrivacyLedger
from skdpfair.inputs.groups import MAX_READ, as_columns, encode, encode_features
from skdpfair.metrics import release_group_table
from skdpfair.model_selection import DPRandomizedSearch, DPThresholdClassifier, sweep


def coded(column, **params):
    table = pd.DataFrame({"g": column})
    defaults = {"group_col": "g", "levels": None, "sensitive_features": None}
    return encode(table, np.zeros(len(table)), **(defaults | params))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from(["a", "b", "c", "<script>", "ü", ""]), min_size=2, max_size=30))
def test_codes_point_at_the_levels(values):
    if len(set(values)) < 2:
        with pytest.raises(ValueError, match="one group"):
            coded(values)
        return
    groups = coded(values)
    assert [groups.levels[c] for c in groups.code] == values and not groups.declared


@pytest.mark.parametrize(
    "values",
    [
        [1, 2, 1],
        [True, False, True],
        [1.5, 2.5, 1.5],
        ["x", 1, "x"],
        pd.Categorical(["a", "b", "a"]),
    ],
)
def test_kinds_of_values(values):
    groups = coded(values)
    assert list(groups.code) in ([0, 1, 0], [1, 0, 1]) and groups.n_groups == 2


@pytest.mark.parametrize("missing", [None, np.nan, pd.NA])
def test_missing_values_need_a_level(missing):
    with pytest.raises(ValueError, match="missing values"):
        coded(["a", "b", missing])
    groups = coded(["a", "b", missing], levels=["a", "b", None])
    assert list(groups.code) == [0, 1, 2] and groups.declared


def test_declared_levels_keep_their_order_and_may_be_absent():
    groups = coded(["b", "a"], levels=["c", "b", "a"])
    assert list(groups.code) == [1, 2] and groups.n_groups == 3
    with pytest.raises(ValueError, match="outside levels"):
        coded(["b", "z"], levels=["a", "b"])
    with pytest.raises(ValueError, match="twice"):
        coded(["b", "a"], levels=["a", "b", "a"])


def test_intersections_are_the_product():
    table = pd.DataFrame({"s": ["f", "m", "f"], "r": [1, 1, 2]})
    groups = encode(table, np.zeros(3), group_col=["s", "r"], sensitive_features=None)
    assert list(groups.levels) == [("f", 1), ("f", 2), ("m", 1), ("m", 2)]
    assert list(groups.code) == [0, 2, 1]
    with pytest.raises(ValueError, match="tuples of 2"):
        encode(table, np.zeros(3), group_col=["s", "r"], levels=["f"], sensitive_features=None)


def test_no_groups_at_all():
    none = {"group_col": None, "sensitive_features": None}
    groups = encode(np.zeros((3, 1)), np.zeros(3), **none)
    assert groups.n_groups == 1 and groups.levels is None and not groups.code.any()
    with pytest.raises(ValueError, match=r"no groups are given.*sensitive_features"):
        encode(np.zeros((3, 1)), np.zeros(3), levels=["a"], **none)


@pytest.mark.parametrize("shape", [(6,), (6, 2)])
def test_groups_may_have_names_that_are_half_a_character(shape):
    names = np.array(["\ud800", "b"], dtype=object)[np.arange(np.prod(shape)) % 3 // 2]
    found = encode(None, np.zeros(6), group_col=None, sensitive_features=names.reshape(shape))
    assert found.n_groups == 2 ** len(shape)


@pytest.mark.parametrize("wrong", [np.timedelta64(1, "D"), [np.timedelta64(1)]])
def test_a_duration_is_no_column(wrong):
    with pytest.raises(TypeError, match="group_col must be"):
        as_columns(wrong)


@pytest.mark.parametrize(
    ("levels", "names"),
    [
        (["F", "x, y", 1, 0.5, None], ["F", "x, y", "1", "0.5", "None"]),
        ([1, "1"], ["1", "'1'"]),
        ([1.0, "1"], ["1.0", "'1'"]),
        ([True, "True", "F"], ["True", "'True'", "F"]),
        ([None, "None"], ["None", "'None'"]),
        ([1, "1", "'1'"], ["1", "'1'", "\"'1'\""]),
        (["F", "F ", "M"], ["'F'", "'F '", "M"]),
        (["F", "\u200bF"], ["'F'", "'\\u200bF'"]),
        (["\xe5", "a\u030a"], ["'\\xe5'", "'a\\u030a'"]),
        ([("F", "a"), ("M", "a")], ["F, a", "M, a"]),
        ([("x, y", "z"), ("x", "y, z"), ("x", "y")], ["'x, y', z", "x, 'y, z'", "x, y"]),
        ([("a", 1), ("a", "1")], ["a, 1", "a, '1'"]),
    ],
)
def test_no_two_groups_have_one_name(levels, names):
    assert group_names(levels) == names and len(set(names)) == len(levels)
    assert group_names(levels[::-1]) == names[::-1]


MANY = np.array([f"employer {k % (MAX_READ + 1)}" for k in range(400)])
FAST = {"epsilon": 5.0, "module": "logistic", "max_steps": 1}
X, Y = np.random.default_rng(0).random((400, 2)), np.resize(["no", "yes"], 400)
TABLE = pd.DataFrame(X, columns=["a", "b"]).assign(job=MANY)


def fast(**params):
    return DPFairClassifier("dpsgd", **FAST, **params)


READERS = {
    "an array": lambda: fast().fit(X, Y, sensitive_features=MANY),
    "columns": lambda: fast().fit(
        X, Y, sensitive_features=pd.DataFrame({"a": MANY, "b": Y}).replace(MANY[0], MANY[1])
    ),
    "a column of X": lambda: fast(group_col="job").fit(TABLE, Y),
    "Groups": lambda: fast(group_col=Groups("job")).fit(TABLE, Y),
    "classes": lambda: fast().fit(X, MANY),
    "the target": lambda: fast(group_col="target").fit(X, MANY),
    "a regressor": lambda: DPFairRegressor("dpsgd", y_range=(0, 1), **FAST).fit(
        X, X[:, 0], sensitive_features=MANY
    ),
    "thresholds": lambda: DPThresholdClassifier(fast()).fit(X, Y, sensitive_features=MANY),
    "a search": lambda: DPRandomizedSearch(fast(), {"lr": [0.1]}).fit(
        X, Y, sensitive_features=MANY
    ),
    "classes of a search": lambda: DPRandomizedSearch(fast(), {"lr": [0.1]}).fit(X, MANY),
    "a sweep": lambda: sweep(
        X, Y, sensitive_features=MANY, methods=["dpsgd"], epsilons=[1.0], seeds=1, progress=False
    ),
    "classes of a sweep": lambda: sweep(
        X, MANY, sensitive_features=Y, methods=["dpsgd"], epsilons=[1.0], seeds=1, progress=False
    ),
    "a table": lambda: release_group_table(Y, Y, sensitive_features=MANY, epsilon=1.0),
}


@pytest.mark.parametrize("reader", READERS)
def test_many_undeclared_values_are_refused_before_anything_is_spent(reader, tmp_path):
    ledger = PrivacyLedger(tmp_path / "spent.jsonl", delta=1e-5)
    with ledger, pytest.raises(ValueError, match=f"more than {MAX_READ}.*declare") as error:
        READERS[reader]()
    remedies = ("classes=",) if "classes" in str(error.value) else ("levels=", "persons=")
    assert all(remedy in str(error.value) for remedy in remedies)
    assert "employer" not in str(error.value) and ledger.frame().empty


def test_declared_and_measured_groups_may_be_many():
    levels, n = sorted(set(MANY)), MAX_READ + 1
    declared = fast(group_col=Groups("job", levels=levels)).fit(TABLE, Y)
    assert len(declared.levels_) == n
    assert declared.privacy_.read_from_rows == (("classes", ("no", "yes")),)
    by_class = fast(group_col="target", classes=levels).fit(X, MANY)
    assert list(by_class.levels_) == levels and by_class.privacy_.read_from_rows == ()
    assert encode_features(MANY, len(MANY)).n_groups == n


def test_reports_name_the_values_that_were_read():
    sex, area = np.resize(["F", "M", "M"], 400), np.resize(["A, B", "C"], 400)
    named = pd.DataFrame({"sex": sex, "area": area})
    y = pd.Series(Y, name="deny")
    read = (("deny", ("no", "yes")), ("sex", ("F", "M")), ("area", ("A, B", "C")))
    search = DPRandomizedSearch(fast(), {"lr": [0.1, 0.2]}, mean_trials=2, trials="geometric")
    fits = [
        fast().fit(X, y, sensitive_features=named),
        fast(group_col=["sex", "area"]).fit(TABLE[["a", "b"]].join(named), y),
        DPThresholdClassifier(fast()).fit(X, y, sensitive_features=named),
        search.fit(X, y, sensitive_features=named),
        fast(warm_start=True)
        .fit(X, y, sensitive_features=named)
        .fit(X, y, sensitive_features=named),
    ]
    for model in fits:
        report = model.privacy_
        assert report.read_from_rows == read
        for text in ("deny = no, yes", "sex = F, M", 'area = "A, B", C'):
            assert text in report.statement and text in " ".join(report.details().split())
        assert "values of deny, sex, area" in str(report)
    unnamed = fast(classes=["no", "yes"]).fit(X, Y, sensitive_features=named.to_numpy())
    assert unnamed.privacy_.read_from_rows == (("groups", ("F", "M")), ("groups", ("A, B", "C")))
    table = release_group_table(Y, Y, sensitive_features=named["sex"], epsilon=1.0)
    assert "sex = F, M" in table.attrs["privacy"]["statement"]


@pytest.mark.filterwarnings("ignore::skdpfair.exceptions.InsecureSeedWarning")
def test_trials_of_a_search_take_the_groups_of_all_records():
    rare = np.where(np.arange(400) == 7, "rare", np.resize(["F", "M"], 400))
    search = DPRandomizedSearch(
        fast(group_col="job"), {"lr": [0.1]}, mean_trials=2, trials="geometric"
    )
    for seed in range(6):  # the half that is held out has the rare one in some
        fitted = search.set_params(random_state=seed, holdout=0.5).fit(TABLE.assign(job=rare), Y)
        assert list(fitted.best_estimator_.levels_) == ["F", "M", "rare"]
        assert fitted.privacy_.read_from_rows[1:] == (("job", ("F", "M", "rare")),)
