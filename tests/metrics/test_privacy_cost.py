import numpy as np
import pandas as pd
import pytest
from fairlearn.metrics import MetricFrame
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import balanced_accuracy_score

from skdpfair.metrics import privacy_cost, privacy_cost_difference

label = st.sampled_from(["no", "yes"])
tables = st.lists(st.tuples(label, label, label, st.sampled_from("abc")), min_size=1, max_size=20)


def test_values_by_hand(case):
    assert privacy_cost(case.y_true, case.y_pred, y_ref=case.y_ref) == 0
    gap = privacy_cost_difference(
        case.y_true, case.y_pred, y_ref=case.y_ref, sensitive_features=case.groups
    )
    assert gap == pytest.approx(1 / 3 + 1 / 3)


def test_weights_by_hand(case):
    extra = {"y_ref": case.y_ref, "sample_weight": case.weight}
    assert privacy_cost(case.y_true, case.y_pred, **extra) == pytest.approx(5 / 8 - 4 / 8)
    gap = privacy_cost_difference(case.y_true, case.y_pred, sensitive_features=case.groups, **extra)
    assert gap == pytest.approx(2 / 4 + 1 / 4)


def test_another_metric(case):
    extra = {"y_ref": [1, 0, 1, 1, 1, 1], "metric": balanced_accuracy_score}
    assert privacy_cost([1, 0, 1, 0, 1, 1], [1, 1, 1, 1, 0, 1], **extra) == pytest.approx(
        (1 + 1 / 2) / 2 - (3 / 4 + 0) / 2
    )
    assert (
        privacy_cost_difference(case.y_true, case.y_pred, sensitive_features=case.groups, **extra)
        > 0
    )


@pytest.mark.parametrize("single", [True, False])
def test_metric_frame_agrees_with_a_loop(case, single):
    params = {"y_ref": case.y_ref, "sample_weight": case.weight}
    frame = MetricFrame(
        metrics=privacy_cost if single else {"privacy_cost": privacy_cost},
        y_true=case.y_true,
        y_pred=case.y_pred,
        sensitive_features=case.groups,
        sample_params=params if single else {"privacy_cost": params},
    )
    by_group = frame.by_group if single else frame.by_group["privacy_cost"]
    columns = pd.DataFrame({"y_true": case.y_true, "y_pred": case.y_pred, **params})
    for group, rows in columns.groupby(np.array(case.groups)):
        assert by_group[group] == privacy_cost(**{name: rows[name] for name in rows})
    gap = privacy_cost_difference(
        case.y_true, case.y_pred, sensitive_features=case.groups, **params
    )
    assert gap == by_group.max() - by_group.min()


def test_groups_may_be_a_frame_a_category_or_an_intersection(case):
    sex = pd.Series(case.groups, name="sex")
    both = pd.DataFrame({"sex": sex, "race": ["w", "w", "b", "w", "w", "w"]})
    given = case.y_true, case.y_pred
    flat = privacy_cost_difference(*given, y_ref=case.y_ref, sensitive_features=sex)
    wide = sex.astype(pd.CategoricalDtype(["F", "M", "nobody"]))
    assert privacy_cost_difference(*given, y_ref=case.y_ref, sensitive_features=wide) == flat
    # (M, b) has no record; (F, b) pays 1, (M, w) gains a third
    crossed = privacy_cost_difference(*given, y_ref=case.y_ref, sensitive_features=both)
    assert crossed == pytest.approx(1 + 1 / 3)


def test_groups_may_be_an_array_of_two_columns_even_for_one_record():
    two = np.array([["F", "w"], ["M", "w"]])
    assert privacy_cost_difference([1, 0], [1, 1], y_ref=[1, 0], sensitive_features=two) == 1
    assert privacy_cost_difference([1], [1], y_ref=[0], sensitive_features=two[:1]) == 0


def test_one_group_has_no_difference(case):
    groups = ["all"] * 6
    assert (
        privacy_cost_difference(
            case.y_true, case.y_pred, y_ref=case.y_ref, sensitive_features=groups
        )
        == 0
    )


@settings(deadline=None, max_examples=30)
@given(tables)
def test_identical_predictions_cost_nothing(rows):
    y_true, y_pred, _, groups = zip(*rows, strict=True)
    assert privacy_cost(y_true, y_pred, y_ref=y_pred) == 0
    assert privacy_cost_difference(y_true, y_pred, y_ref=y_pred, sensitive_features=groups) == 0


@settings(deadline=None, max_examples=30)
@given(tables, st.permutations("abc"))
def test_gaps_are_not_negative_and_names_of_groups_do_not_matter(rows, names):
    y_true, y_pred, y_ref, groups = zip(*rows, strict=True)
    renamed = [dict(zip("abc", names, strict=True))[group] for group in groups]
    gap, again = (
        privacy_cost_difference(y_true, y_pred, y_ref=y_ref, sensitive_features=g)
        for g in (groups, renamed)
    )
    assert gap >= 0
    assert gap == again


def test_the_reference_is_compulsory(case):
    with pytest.raises(TypeError, match=r"y_ref is missing.*sample_params=\{\"y_ref\""):
        privacy_cost(case.y_true, case.y_pred)


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        (["yes", "no"] * 3, r"y_ref must hold the same labels as y_true, but one"),
        (
            [0.5, 0.25, 1, 0, 1, 0],
            "y_ref must hold predicted labels, got fractions",
        ),
    ],
)
def test_predictions_that_can_equal_no_label_are_refused(case, wrong, match):
    with pytest.raises(ValueError, match=match):
        privacy_cost(case.y_true, case.y_pred, y_ref=wrong)
    texts = ["no", "yes", "no"]
    assert privacy_cost(texts, texts, y_ref=np.array(texts, dtype=object)) == 0
    kinds = [pd.Series(texts).astype(kind) for kind in ("category", "string", object)]
    assert privacy_cost(kinds[0], kinds[1], y_ref=kinds[2]) == 0
    assert privacy_cost([0, 1], [0.0, 1.0], y_ref=[False, True]) == 0


def test_two_columns_and_no_records_are_refused():
    with pytest.raises(ValueError, match=r"y_pred must be of shape \(n_samples,\)"):
        privacy_cost([1, 0], [[1, 0], [0, 1]], y_ref=[1, 0])
    with pytest.raises(ValueError, match="at least one record"):
        privacy_cost([], [], y_ref=[])
