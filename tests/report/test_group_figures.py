"""Figures of test records by group: counts, errors, intervals and differences, by hand."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom, binomtest
from sklearn.metrics import log_loss

from skdpfair import DPFairClassifier, Groups
from skdpfair.report import model_card, model_page
from skdpfair.report._group_figures import differences, figures_of, markdown_table, measured

ERRORS = ["false_negative_rate", "false_positive_rate"]


def figures(clf, X, y, groups, measures=None):
    table, names = measured(clf, clf, X, y, groups, measures)
    return figures_of(clf, table, names)


def of_share(hits):
    """Return a share with Wilson's interval as texts."""
    low, high = binomtest(int(hits.sum()), len(hits)).proportion_ci(method="wilson")
    return f"{100 * hits.mean():.1f}", f"{100 * low:.1f} to {100 * high:.1f}"


def test_figures_count_all_records_and_groups(fitted, hostile):
    clf, data, groups = fitted
    found = figures(clf, data.data, data.target, groups)
    right = clf.predict(data.data) == data.target
    parts = {"all": np.ones(len(groups), bool), hostile: groups == hostile, "b": groups == "b"}
    at = found["measures"].index("Accuracy")
    rows = {group: (n, values[at]) for group, n, values, _ in found["groups"]}
    assert rows == {g: (f"{part.sum():,}", of_share(right[part])) for g, part in parts.items()}
    apart = abs(right[groups == "b"].mean() - right[groups == hostile].mean())
    (difference,) = (d for d in found["differences"] if d["measure"] == "accuracy")
    assert (difference["value"], difference["unit"]) == (f"{100 * apart:.1f}", "points")
    verdict = found["verdict"]
    constant = max(data.target.mean(), 1 - data.target.mean())
    assert (verdict["n"], verdict["least_score"]) == ("3,000", f"{100 * constant:.1f}")
    assert (verdict["score"], verdict["interval"]) == of_share(right)
    low = binomtest(int(right.sum()), len(right)).proportion_ci(method="wilson").low
    assert verdict["is_better"] == (low > constant) and verdict["few"] == ""
    few = np.flatnonzero(groups == "b")[:29].tolist() + np.flatnonzero(groups != "b")[:40].tolist()
    found = figures(clf, data.data.iloc[few], data.target.iloc[few], groups[few])
    assert found["verdict"]["few"] == "b"


def test_figures_state_who_is_wrongly_refused_and_accepted(fitted):
    _, data, groups = fitted
    y = np.where(data.target == 1, "granted", "refused")
    clf = DPFairClassifier("dpsgd", epsilon=3.0, max_steps=10, classes=["refused", "granted"])
    clf.fit(data.data, y, sensitive_features=groups)
    found, predicted = figures(clf, data.data, y, groups), clf.predict(data.data)
    rows = {group: values for group, _, values, _ in found["groups"]}
    measures = [d["measure"] for d in found["differences"]]
    for actual, other in (clf.classes, clf.classes[::-1]):
        head = f"actual “{actual}” predicted as “{other}”"
        wrong = predicted[(y == actual) & (groups == "b")] == other
        assert rows["b"][found["measures"].index(head)] == of_share(wrong) and head in measures
    assert figures(clf, data.data, y, groups, ["accuracy"])["measures"] == ["Accuracy"]
    one = y == clf.classes[1]
    (row,) = figures(clf, data.data[one], y[one], None, ERRORS[1:])["groups"]
    assert row[2] == [("–", "")]


def test_groups_without_test_records_are_not_compared(fitted, hostile):
    _, data, groups = fitted
    levels = Groups(levels=[hostile, "b", "c"])
    clf = DPFairClassifier("dpsgd", epsilon=3.0, group_col=levels, max_steps=10)
    clf.fit(data.data, data.target, sensitive_features=groups)
    found = figures(clf, data.data, data.target, groups, ["accuracy"])
    right = clf.predict(data.data) == data.target
    apart = abs(right[groups == "b"].mean() - right[groups == hostile].mean())
    assert found["groups"][-1][:3] == ("c", "0", [("–", "")])
    assert [d["value"] for d in found["differences"]] == [f"{100 * apart:.1f}"]
    only = groups == "b"
    found = figures(clf, data.data[only], data.target[only], groups[only], ["accuracy"])
    assert [d["value"] for d in found["differences"]] == ["not compared"]


@pytest.mark.parametrize("names", [("all", "overall"), (1, "1")])
def test_groups_of_odd_names_stay_apart(names, fitted):
    data = fitted[1]
    groups = np.array(names, dtype=object)[(data.sensitive_features == "a").astype(int)]
    levels = Groups(levels=list(names))
    clf = DPFairClassifier("dpsgd", epsilon=3.0, group_col=levels, max_steps=1)
    clf.fit(data.data, data.target, sensitive_features=groups)
    table, _ = measured(clf, clf, data.data, data.target, groups, None)
    sizes = [int((data.sensitive_features == side).sum()) for side in "ba"]
    assert table["n"].tolist() == [3000, *sizes]
    assert table.index[0] == "all" and len(set(table.index)) == 3


@pytest.mark.parametrize("kind", [bool, float, object])
def test_labels_may_be_flags(fitted, kind):
    clf, data, groups = fitted
    flags = pd.Series(np.asarray(data.target, dtype=bool).astype(kind))
    found = [figures(clf, data.data, y, groups) for y in (data.target, flags)]
    assert found[0] == found[1]
    with pytest.raises(ValueError, match=r"^y .*texts .*numbers"):
        figures(clf, data.data, np.asarray(data.target).astype(str), groups)


def test_interval_of_a_difference_is_newcombes(fitted, hostile):
    """Its ends are as far off as those of Wilson's intervals, added as variances."""
    clf, data, groups = fitted
    rows = np.r_[np.flatnonzero(groups == "b")[:40], np.flatnonzero(groups == hostile)[:300]]
    X, y, of = data.data.iloc[rows], data.target.iloc[rows], groups[rows]
    (row,) = figures(clf, X, y, of, ["accuracy"])["differences"]
    right = (clf.predict(X) == y).to_numpy()
    names = sorted(("b", hostile), key=lambda g: right[of == g].mean())
    parts = [right[of == g] for g in names]
    (low, l1, u1), (high, l2, u2) = (
        (part.mean(), *binomtest(int(part.sum()), len(part)).proportion_ci(method="wilson"))
        for part in parts
    )
    gap = high - low
    ends = gap - np.hypot(high - l2, u1 - low), gap + np.hypot(u2 - high, low - l1)
    assert [float(v) for v in row["interval"].split(" to ")] == pytest.approx(
        [100 * e for e in ends], abs=0.051
    )
    assert row["may_be_chance"] == (ends[0] <= 0)
    assert [row["lower"], row["higher"]] == names
    assert row["records"] == f"{len(parts[1])} and {len(parts[0])}"


def test_differences_count_the_records_of_their_class(fitted):
    clf, data, groups = fitted
    y, measures = data.target, [*ERRORS, "rarest_class_recall", "roc_auc"]
    rows = figures(clf, data.data, y, groups, measures)["differences"]
    for row, label in zip(rows, (1, 0, np.bincount(y).argmin(), None), strict=True):
        sizes = {
            f"{((groups == g) & ((y == label) | (label is None))).sum():,}" for g in set(groups)
        }
        records, _, of_class = row["records"].partition(" of ")
        assert set(records.split(" and ")) == sizes
        assert of_class == ("" if label is None else f"target “{label}”")


@pytest.mark.parametrize("n_groups", [2, 3, 5, 10, 20])
@pytest.mark.parametrize("spread", [0.0, 0.2])
def test_interval_of_the_largest_difference_covers_it(n_groups, spread):
    """Of the two groups that differ most, whichever they are; without any, it may be chance."""
    rng, n_draws = np.random.default_rng(0), 200
    n, of = rng.integers(50, 500, n_groups), 0.85 - spread * np.arange(n_groups) / n_groups
    covered, chance = 0, 0
    for shares in rng.binomial(n, of, (n_draws, n_groups)) / n:
        table = pd.DataFrame({"n": n, "accuracy": shares, "rarest_class_share": 0.2})
        table = pd.concat([table[:1], table])
        table.attrs["rarest"] = 1
        (row,) = differences(table, ["accuracy"], [0, 1])
        low, high = (float(v) / 100 for v in row["interval"].split(" to "))
        true = of[shares.argmax()] - of[shares.argmin()]
        covered += low - 5e-4 <= true <= high + 5e-4
        chance += row["may_be_chance"]
    least = binom.ppf(0.001, n_draws, 0.95)
    assert covered >= least and (spread > 0 or chance >= least)


def test_rare_class_is_named_and_its_recall_comes_first(fitted, hostile):
    """11 % of the test records are of class 1, in all groups."""
    clf, data, groups = fitted
    negative, positive = (np.flatnonzero(data.target == label) for label in (0, 1))
    rows = np.sort(np.r_[negative, positive[: len(negative) // 8]])
    X, y, of = data.data.iloc[rows], data.target[rows], groups[rows]
    found = figures(clf, X, y, of)
    recalls = {g: clf.predict(X)[(y == 1) & (of == g)] for g in (hostile, "b")}
    worst = min(recalls, key=lambda g: recalls[g].mean())
    assert found["rare"] == {
        "label": "target “1”",
        "share": f"{100 * y.mean():.1f}",
        "recall": f"{100 * clf.predict(X)[y == 1].mean():.1f}",
        "group": worst,
        "least": f"{100 * recalls[worst].mean():.1f}",
    }
    heads = ["Balanced accuracy", "Recall of the rarest class", "Accuracy"]
    assert found["measures"][:3] == heads
    rows = {group: values for group, _, values, _ in found["groups"]}
    assert rows["b"][1] == of_share(recalls["b"])
    table, names = measured(clf, clf, X, y, of, None)
    assert markdown_table(clf, table, names)[0][2:5] == heads
    assert figures(clf, data.data, data.target, groups)["rare"] is None


def test_measures_are_chosen_by_name(fitted):
    clf, data, groups = fitted
    found = figures(clf, data.data, data.target, groups, ["log_loss", "calibration_error"])
    loss = log_loss(data.target, clf.predict_proba(data.data))
    assert found["measures"] == ["Log loss, nats", "Calibration error"]
    assert found["groups"][0][2][0] == (f"{loss:.3f}", "")
    with pytest.raises(ValueError, match=r"^measures=\['accuracy'\] .* X is None"):
        model_page(clf, measures=["accuracy"])
    with pytest.raises(ValueError, match=r"^measures .*'privacy_cost'"):
        figures(clf, data.data, data.target, groups, ["privacy_cost"])


def test_unusable_test_records_are_refused_by_name(fitted):
    clf, data, groups = fitted
    with pytest.raises(ValueError, match=r"^y .* index .* X"):
        model_page(clf, data.data[::-1], pd.Series(np.asarray(data.target)))
    with pytest.raises(ValueError, match=r"^y .* with X"):
        model_page(clf, data.data)
    with pytest.raises(ValueError, match="sensitive_features"):
        model_card(clf, data.data, data.target, sensitive_features=groups[:5])
