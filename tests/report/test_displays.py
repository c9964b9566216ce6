"""Figures of matplotlib: costs, curves over budgets, shapes, losses by group."""

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.svm import SVC

from skdpfair import DPFairClassifier
from skdpfair.analysis import GroupRecorder
from skdpfair.model_selection import TradeoffResults
from skdpfair.preprocessing import public_preprocessor
from skdpfair.report import GroupLossDisplay, PrivacyCostDisplay, ShapeDisplay
from skdpfair.report._displays import TradeoffDisplay
from tests.model_selection.runs import CELLS, UNSURE, results_of, with_splits

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")

import matplotlib.pyplot as plt  # noqa: E402 - the backend comes first
from matplotlib.legend import Legend  # noqa: E402
from matplotlib.transforms import Bbox  # noqa: E402


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


@pytest.fixture
def table():
    table = pd.DataFrame(
        {
            "accuracy": [0.85, 0.82, 0.84],
            "accuracy[Female]": [0.93, 0.921, 0.93],
            "accuracy[Male]": [0.81, 0.752, 0.80],
            "privacy_cost[Female]": [0.0, 0.009, 0.0],
            "privacy_cost[Male]": [0.0, 0.058, -0.01],
            "privacy_cost_difference": [0.0, 0.049, 0.01],
        },
        index=pd.Index(["sgd", "dpsgd", "global_adapt"], name="model"),
    )
    table.attrs["reference"] = "sgd"
    return table


def drawn(table, ax=None):
    return PrivacyCostDisplay(table).plot(ax).ax_


def texts(items):
    return [item.get_text() for item in items]


def named(ax):
    """Return the names beside the ends of lines, from the bottom."""
    return [text for key in ax.findobj(Legend) for text in texts(key.get_texts())]


def notes(ax):
    return " ".join(text for text in texts(ax.texts) if "interval" in text)


def is_light(bar):
    return bar.get_facecolor()[3] < 1


def curves_of(ax):
    """Return the lines of the methods, not their hollow points, ends of whiskers or arrows."""
    lines = [line for line in ax.lines if line.get_marker() in [*"os^Dv"]]
    return [line for line in lines if line.get_linestyle() != "None"]


def test_cost_display_leaves_the_reference_out_and_has_a_zero_line(table):
    ax = drawn(table)
    methods = ["dpsgd", "global_adapt"]
    assert texts(ax.get_yticklabels()) == ["Female", *methods, "Male", *methods]
    assert all(is_light(bar) for bar in ax.patches)  # of one fit
    assert texts(ax.texts)[:-1] == ["+0.9", "+0.0", "+5.8", "−1.0"]
    assert UNSURE in notes(ax)
    assert "percentage points" in ax.get_xlabel()
    assert "against sgd" in ax.get_title(loc="left")
    assert list(ax.lines[0].get_xdata()) == [0, 0]


def test_cost_without_a_known_reference_shows_all_models(table):
    table.attrs.clear()
    assert len(drawn(table).patches) == 6
    for scale in (1e-3, -1e-3):  # a tiny cost does not fill the axes
        low, high = drawn(scale * table).get_xlim()
        assert low < 0 < high and high - low >= 0.2
    assert drawn(table / 10).get_xlim()[1] < 0.7  # nor is a small one made smaller


def test_plot_draws_into_the_axes_that_are_passed(table):
    figure, axes = plt.subplots(1, 2)
    assert drawn(table, axes[0]) is axes[0]
    assert plt.get_fignums() == [figure.number]


@pytest.mark.parametrize("n_groups", [1, 5, 10])
@pytest.mark.parametrize("n_models", [1, 6])
@pytest.mark.parametrize("name", ["dpsgd {}", "a model with a long name {}"])
def test_cost_display_has_no_overlaps_and_stays_inside_the_figure(n_groups, n_models, name):
    columns = {f"privacy_cost[group {g}]": [0.01 * g] * n_models for g in range(n_groups)}
    rows = pd.DataFrame(columns, index=[name.format(i) for i in range(n_models)])
    ax = drawn(rows)
    ax.figure.canvas.draw()
    page = ax.figure.bbox
    ticks = [tick.get_window_extent() for tick in ax.get_yticklabels()]
    numbers = [text.get_window_extent() for text in ax.texts]
    for boxes in (ticks, numbers):
        assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[i + 1 :])
    for box in (ax._left_title.get_window_extent(), *ticks, *numbers):
        assert page.x0 <= box.x0 and box.x1 <= page.x1
        assert page.y0 <= box.y0 and box.y1 <= page.y1


def test_cost_display_names_groups_without_test_records(table):
    table["privacy_cost[rare]"] = [0.0, float("nan"), float("nan")]
    ax = drawn(table)
    assert texts(ax.get_yticklabels())[-1] == "rare (no test records)"
    assert len(ax.patches) == 4  # of the others
    table.loc[:, table.columns.str.startswith("privacy_cost[")] = float("nan")
    with pytest.raises(ValueError, match=r"^table must"):
        drawn(table)


def curve(epsilons, means):
    frame = pd.DataFrame({"epsilon": epsilons, "mean": means})
    return frame.assign(low=frame["mean"] - 0.01, high=frame["mean"] + 0.01)


def test_tradeoff_display_draws_no_nan(tmp_path):
    nan = float("nan")
    curves = {"a": curve([1.0, 4.0], [nan, 0.2]), "b": curve([1.0, 4.0], [nan, nan])}
    display = TradeoffDisplay(curves, "privacy_cost_difference").plot()
    display.figure_.savefig(tmp_path / "gap.png")
    assert named(display.ax_) == ["a"]
    with pytest.raises(ValueError, match="'privacy_cost_difference' to draw"):
        TradeoffDisplay({"b": curves["b"]}, "privacy_cost_difference").plot()


def test_tradeoff_display_of_many_methods_differs_in_style():
    budgets = [0.1, 0.12, 0.15, 0.2, 0.5, 1, 1.1, 2, 9.5, 10]
    curves = {f"method {i}": curve(budgets, [i / 20] * 10) for i in range(16)}
    ax = TradeoffDisplay(curves).plot().ax_
    assert len({(a.get_color(), a.get_marker()) for a in curves_of(ax)}) == 16
    assert len({(a.get_color(), str(a._dash_pattern)) for a in curves_of(ax)}) == 16
    assert texts(ax.get_xticklabels()) == ["0.1", "0.2", "0.5", "1", "2", "10"]
    assert named(ax) == [f"method {i}" for i in range(16)]


def test_one_wide_interval_does_not_set_the_axes():
    part = curve([1.0, 4.0], [0.8, 0.82])
    part.loc[0, ["low", "high"]] = 0.3, 0.95
    ax = TradeoffDisplay({"a": part}).plot().ax_
    low, high = ax.get_ylim()
    assert 70 < low < 79 and 83 < high < 90
    arrows = {
        line.get_marker(): line.get_ydata()[0] for line in ax.lines if line.get_marker() in (6, 7)
    }
    assert arrows == {7: low, 6: high}
    assert "arrows" in notes(ax)
    assert "arrows" not in notes(TradeoffDisplay({"a": curve([1.0, 4.0], [0.8, 0.8])}).plot().ax_)


def shaped(classifier, n_classes=2):
    """Return a fitted pipeline of two columns, and its rows."""
    rng = np.random.default_rng(0)
    x = pd.DataFrame({"age": rng.uniform(20, 80, 200), "ward": rng.choice(["A", "B"], 200)})
    y = pd.cut(x["age"], n_classes, labels=False)
    features = public_preprocessor({"age": (20, 80)}, {"ward": ["A", "B"]}, encoding="auto")
    return make_pipeline(features, classifier).fit(x, y), x


def test_shape_display_curves_add_up_to_the_logit():
    model, x = shaped(LogisticRegression())
    display = ShapeDisplay.from_estimator(model).plot()
    curves = {name: rows.set_index("value") for name, rows in display.frame.groupby("column")}
    age = np.interp(
        x["age"], curves["age"].index.astype(float), curves["age"]["logit"].astype(float)
    )
    added = age + curves["ward"]["logit"].loc[x["ward"]].to_numpy()
    constant = model.decision_function(x) - added
    assert np.ptp(constant) < 1e-4  # the points include all knots
    assert [panel.get_title(loc="left") for panel in display.axes_] == ["age", "ward"]


def test_shape_display_of_a_private_model_has_its_curves():
    rng = np.random.default_rng(0)
    x = pd.DataFrame({"age": rng.uniform(20, 80, 2000), "ward": rng.choice(["A", "B"], 2000)})
    y = (abs(x["age"] - 50) < 15).astype(int)
    features = public_preprocessor({"age": (20, 80)}, {"ward": ["A", "B"]}, encoding="auto")
    model = make_pipeline(features, DPFairClassifier(epsilon=8.0)).fit(x, y)
    display = ShapeDisplay.from_estimator(model)
    age = display.frame.query("column == 'age'").set_index("value")["logit"]
    assert age[50.0] > age[20.0] and {*display.frame["column"]} >= {"age", "ward"}


@pytest.mark.filterwarnings("ignore::skdpfair.exceptions.InsecureSeedWarning")
@pytest.mark.parametrize(("a", "wards"), [("a", ["A", "B"]), ("a_log", ["x_A", "x_B"])])
def test_shape_display_draws_what_a_pair_adds_to_its_columns(a, wards):
    rng = np.random.default_rng(0)
    x = pd.DataFrame({c: rng.uniform(-1, 1, 8000) for c in (a, "b")})
    x["ward"] = rng.choice(wards, 8000)
    y = (np.where(x["ward"] == wards[0], 1, -1) * x[a] + x["b"] > 0).astype(int)
    features = public_preprocessor(dict.fromkeys((a, "b"), (-1, 1)), {"ward": wards}, epsilon=3.0)
    model = DPFairClassifier("dpsgd", epsilon=3.0, random_state=0)
    display = ShapeDisplay.from_estimator(make_pipeline(features, model).fit(x, y)).plot()
    pair = display.frame.query(f"column == '{a} × ward'").pivot(
        index="value", columns="other", values="logit"
    )
    first, second = pair.to_numpy(float).T
    assert [*pair] == wards and (np.diff(first) > 0).all()
    np.testing.assert_allclose(first, -second, atol=1e-5)
    assert f"{a} × ward" in [panel.get_title(loc="left") for panel in display.axes_]


def test_shape_display_refuses_models_without_curves():
    with pytest.raises(ValueError, match=r"^estimator is not additive"):
        ShapeDisplay.from_estimator(shaped(SVC(gamma=1.0))[0])
    with pytest.raises(ValueError, match=r"^estimator has more"):
        ShapeDisplay.from_estimator(shaped(LogisticRegression(), n_classes=3)[0])
    with pytest.raises(ValueError, match=r"^estimator must .*LogisticRegression"):
        ShapeDisplay.from_estimator(LogisticRegression())


@pytest.mark.parametrize(
    ("measure", "label", "title", "y", "is_cost"),
    [
        ("excessive_risk[F]", "excessive risk (nats)", "Excessive risk of group F", 0.5, True),
        ("privacy_cost[2]", None, "Privacy cost of group 2", 50, True),
        ("accuracy_difference", None, "Accuracy: difference between groups", 50, False),
        ("roc_auc_group_min", "roc auc group min (%)", None, 50, False),
    ],
)
def test_tradeoff_display_has_the_unit_of_its_measure(measure, label, title, y, is_cost):
    ax = TradeoffDisplay({"dpsgd": curve([1.0, 2.0], [0.5, 0.51])}, measure).plot().ax_
    assert ax.lines[0].get_ydata()[0] == y and (ax.get_ylim()[0] < 0) == is_cost
    assert label in (None, ax.get_ylabel()) and title in (None, ax.get_title(loc="left"))
    with pytest.raises(ValueError, match=r"^measure must .*'auc'"):
        TradeoffDisplay({}, "auc").plot()


@pytest.fixture(scope="module")
def recorded(two_groups):
    """Return fits to two groups without and with a recorder."""
    params = {"module": "logistic", "max_steps": 12, "batch_size": 100, "lr": 0.5}
    recorder = GroupRecorder(every=4, n_batches=2, n_vectors=2, random_state=0)
    return [
        DPFairClassifier("dpsgd", **params, callbacks=callbacks).fit(
            two_groups.data, two_groups.target, sensitive_features=two_groups.sensitive_features
        )
        for callbacks in (None, [recorder])
    ]


LOW_SIGNAL = pytest.mark.filterwarnings("ignore::skdpfair.exceptions.LowSignalWarning")


@LOW_SIGNAL
def test_group_loss_display_has_a_line_of_each_group(recorded):
    display = GroupLossDisplay.from_estimator(recorded[1]).plot()
    assert [len(axes.lines) for axes in display.axes_] == [2, 2]
    n = display.frame.groupby("group")["n_samples"].max()
    assert sorted(named(display.axes_[-1])) == [f"{g} (n = {n[g]:,.0f})" for g in "ab"]
    with pytest.raises(ValueError, match="GroupRecorder"):
        GroupLossDisplay.from_estimator(recorded[0])
    with pytest.raises(ValueError, match="gradient_norm"):
        GroupLossDisplay(display.frame.drop(columns="gradient_norm"))


@LOW_SIGNAL
def test_group_loss_display_of_recorded_values_has_bands(recorded):
    frame = recorded[1].diagnostics_
    measures = ["direction", "magnitude", "noise", "lambda_max"]
    display = GroupLossDisplay(frame, measures).plot()
    for axes, measure in zip(display.axes_, measures, strict=True):
        assert "not private" in axes.get_title(loc="left")
        assert (axes.get_xlabel(), axes.get_ylabel()) == ("step", measure.replace("_", " "))
        own = frame[frame["group"] == "b"]
        np.testing.assert_allclose(axes.lines[1].get_ydata(), own[measure])
        assert len(axes.collections) == 2 * (measure != "lambda_max")
    with pytest.raises(ValueError, match=r"\['direction'\]"):
        GroupLossDisplay(frame.drop(columns="direction"), measures)


@LOW_SIGNAL
def test_axes_make_room_for_what_is_added(recorded):
    display = GroupLossDisplay(recorded[1].diagnostics_, ["loss"]).plot()
    display.ax_.axhline(100.0)
    assert display.ax_.get_ylim()[1] > 100


@pytest.fixture
def results():
    return results_of(CELLS)


@pytest.mark.parametrize(
    "y", ["accuracy", "accuracy_difference", "privacy_cost[F]", "privacy_cost_difference"]
)
def test_plot_has_one_labelled_curve_a_method(results, y):
    display = TradeoffDisplay.from_results(results, measure=y).plot()
    ax = display.ax_
    assert ax.get_xscale() == "log"
    assert texts(ax.get_xticklabels()) == ["1", "4"]
    methods = ["poor", "even"] + ["reference"] * y.startswith("accuracy")
    assert sorted(named(ax)) == sorted(methods)
    assert len({line.get_color() for line in curves_of(ax)}) == len(curves_of(ax)) == 2
    assert display.figure_ is ax.figure


def test_cost_display_has_a_bar_for_each_group_at_one_epsilon(results):
    display = PrivacyCostDisplay.from_results(results, epsilon=1.0)
    costs = results.table()["privacy_cost[F]"]["mean"].xs(1.0, level="epsilon")
    assert display.table["privacy_cost[F]"].tolist() == costs.tolist()
    assert texts(display.plot().ax_.get_yticklabels())[::3] == ["F (n = 100)", "M (n = 200)"]
    with pytest.raises(ValueError, match=r"epsilon .*\[1\.0, 4\.0\].* 2"):
        PrivacyCostDisplay.from_results(results, epsilon=2)


def test_plot_has_the_intervals_as_whiskers(results):
    ax = plt.figure().add_subplot()
    assert results.plot("accuracy[M]", ax=ax).ax_ is ax
    paths = [path for c in ax.collections for path in c.get_paths()]
    drawn = np.concatenate([path.vertices[:, 1] for path in paths])
    rows = results.estimates()["accuracy[M]"].loc["even"]
    for end in (*rows["low"], *rows["high"]):
        assert np.isclose(drawn, 100 * end).any()
    assert "95 %" in notes(ax) and "n = 200" in ax.get_title(loc="left")
    points = [curve.get_transform().transform([(1.0, 50.0)])[0, 0] for curve in curves_of(ax)]
    assert len({*points}) == 2  # side by side
    with pytest.raises(ValueError, match=r"measure .*'f1'"):
        results.plot("f1")


def test_displays_mark_values_without_an_interval(results):
    """Filled is what has an interval; not a constant, a single run, or a group of 29 records."""
    one = TradeoffResults(results.frame.query("seed == 0"))
    few = TradeoffResults(results.frame.assign(n=results.frame["n"].where(lambda n: n != 100, 29)))
    for found, light in (
        (results, [0, 1, 1, 0]),
        (one, [1, 1, 1, 1]),
        (few, [1, 1, 1, 0]),
    ):
        ax = PrivacyCostDisplay.from_results(found, epsilon=1.0).plot().ax_
        assert [is_light(bar) for bar in ax.patches] == [bool(v) for v in light]
        assert UNSURE in notes(ax)
    ax = results.plot("privacy_cost[F]").ax_
    hollow = [line for line in ax.lines if line.get_markerfacecolor() == ax.get_facecolor()]
    assert sum(len(line.get_xdata()) for line in hollow) == 2  # of "even", whose cost is the same
    assert UNSURE not in notes(with_splits(1, 3, 9).plot().ax_)


def boxes_of(artist):
    """Return the boxes of the curves, bars and whiskers of axes, on the page."""
    lines = [line.get_window_extent() for line in curves_of(artist)]
    bars = [patch.get_window_extent() for patch in artist.patches]
    paths = [
        c.get_transform().transform_path(path).get_extents()
        for c in artist.collections
        for path in c.get_paths()
    ]
    panel = artist.get_window_extent()
    return [Bbox.intersection(box, panel) for box in (*lines, *bars, *paths)]


@LOW_SIGNAL
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("layout", [None, "constrained"])
def test_displays_draw_into_axes_and_cover_no_data(results, recorded, dark, layout):
    displays = [
        TradeoffDisplay.from_results(results),
        PrivacyCostDisplay.from_results(results, 1.0),
        GroupLossDisplay(recorded[1].diagnostics_, ["loss"]),
        ShapeDisplay(ShapeDisplay.from_estimator(shaped(LogisticRegression())[0]).frame[:9]),
    ]
    with plt.style.context("dark_background" if dark else "default"):
        figure, axes = plt.subplots(2, 2, figsize=(12, 8), layout=layout)
        for display, ax in zip(displays, axes.flat, strict=True):
            assert display.plot(ax=ax) is display
            assert display.ax_ is ax and display.figure_ is figure
        figure.canvas.draw()
    page = figure.get_tightbbox().transformed(figure.dpi_scale_trans)
    assert figure.bbox.x0 <= page.x0 + 1 and page.x1 <= figure.bbox.x1 + 1
    for ax in axes.flat:
        words = [text for key in ax.findobj(Legend) for text in key.get_texts()] + [*ax.texts]
        names = [text.get_window_extent() for text in words]
        assert not any(name.overlaps(box) for name in names for box in boxes_of(ax) if box)
        assert not any(a.overlaps(b) for i, a in enumerate(names) for b in names[:i])
        assert all(text.get_color() == ("white" if dark else "black") for text in words)


def test_costs_of_the_reference_alone_are_a_line_at_zero():
    reference = curve([np.inf], [0.0])
    ax = TradeoffDisplay({"reference": reference}, "privacy_cost").plot().ax_
    assert [*ax.lines[0].get_ydata()] == [0, 0] and named(ax) == []
