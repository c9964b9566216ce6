import sys
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.svm import SVC

from skdpfair import DPFairClassifier
from skdpfair.inputs.groups import group_names
from skdpfair.preprocessing import TableSchema, public_preprocessor
from skdpfair.release import load_release, schema_of
from skdpfair.report import (
    GroupLossDisplay,
    PrivacyCostDisplay,
    ShapeDisplay,
    TradeoffDisplay,
)

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")

import matplotlib.pyplot as plt  # noqa: E402 - the backend comes first


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


def test_cost_leaves_the_reference_out_and_has_a_zero_line(table):
    ax = drawn(table)
    assert texts(ax.get_yticklabels()) == ["Female", "Male"]
    assert texts(ax.get_legend().get_texts()) == ["dpsgd", "global_adapt"]
    assert texts(ax.texts) == ["+0.9", "+5.8", "+0.0", "\N{MINUS SIGN}1.0"]
    assert "percentage points" in ax.get_xlabel()
    assert "against sgd" in ax.get_title(loc="left")
    assert list(ax.lines[0].get_xdata()) == [0, 0]


def test_cost_without_a_known_reference_shows_all(table):
    table.attrs.clear()
    assert len(drawn(table).get_legend().get_texts()) == 3


def test_a_tiny_cost_does_not_fill_the_axes(table):
    assert drawn(table / 1000).get_xlim()[1] == 1


def test_passed_axes_are_used_and_no_figure_is_opened(table):
    figure, axes = plt.subplots(1, 2)
    assert drawn(table, axes[0]) is axes[0]
    assert plt.get_fignums() == [figure.number]


@pytest.mark.parametrize("n_groups", [1, 5, 10])
@pytest.mark.parametrize("n_models", [1, 6])
@pytest.mark.parametrize("name", ["dpsgd {}", "a model with a long name {}"])
def test_nothing_overlaps_or_leaves_the_picture(n_groups, n_models, name):
    columns = {f"privacy_cost[group {g}]": [0.01 * g] * n_models for g in range(n_groups)}
    rows = pd.DataFrame(columns, index=[name.format(i) for i in range(n_models)])
    ax = drawn(rows)
    ax.figure.canvas.draw()
    page, legend = ax.figure.bbox, ax.get_legend().get_window_extent()
    ticks = [tick.get_window_extent() for tick in ax.get_yticklabels()]
    for boxes in (ticks, [text.get_window_extent() for text in ax.texts]):
        assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[i + 1 :])
    for box in (legend, ax._left_title.get_window_extent(), *ticks):
        assert page.x0 <= box.x0 and box.x1 <= page.x1
        assert page.y0 <= box.y0 and box.y1 <= page.y1


def test_a_group_without_test_records_is_named(table):
    table["privacy_cost[rare]"] = [0.0, float("nan"), float("nan")]
    ax = drawn(table)
    assert texts(ax.get_yticklabels()) == ["Female", "Male", "rare (no test records)"]
    assert texts(ax.texts)[2] == ""
    table.loc[:, table.columns.str.startswith("privacy_cost[")] = float("nan")
    with pytest.raises(ValueError, match="no number to draw"):
        drawn(table)


def curve(epsilons, means):
    return pd.DataFrame({"epsilon": epsilons, "mean": means, "se": float("nan")})


def test_what_is_not_a_number_is_not_drawn(tmp_path):
    nan = float("nan")
    curves = {"a": curve([1.0, 4.0], [nan, 0.2]), "b": curve([1.0, 4.0], [nan, nan])}
    display = TradeoffDisplay(curves, "privacy_cost_difference").plot()
    display.figure_.savefig(tmp_path / "gap.png")
    assert [text.get_text() for text in display.ax_.texts] == ["a"]
    with pytest.raises(ValueError, match="There is no 'privacy_cost_difference' to draw"):
        TradeoffDisplay({"b": curves["b"]}, "privacy_cost_difference").plot()


def test_many_methods_differ_and_the_ticks_do_not_touch():
    budgets = [0.1, 0.12, 0.15, 0.2, 0.5, 1, 1.1, 2, 9.5, 10]
    curves = {f"method {i}": curve(budgets, [i / 20] * 10) for i in range(16)}
    ax = TradeoffDisplay(curves).plot().ax_
    lines = [line for line in ax.lines if line.get_marker() != "None"]
    assert len({(a.get_color(), a.get_marker()) for a in lines}) == 16
    assert len({(a.get_color(), a.get_linestyle()) for a in lines}) == 16
    ax.figure.canvas.draw()
    ticks = [t for t in ax.get_xticklabels() if t.get_text()]
    assert (ticks[0].get_text(), ticks[-1].get_text()) == ("0.1", "10")
    boxes = [t.get_window_extent() for t in ticks]
    assert not any(a.overlaps(b) for a, b in pairwise(boxes))
    assert "#F0E442" not in {text.get_color() for text in ax.texts}  # yellow letters


def test_the_name_of_a_single_point_stands_beside_it():
    ax = TradeoffDisplay({"a": curve([1.0], [0.5]), "b": curve([1.0], [0.6])}).plot().ax_
    assert all(0.5 < text.xyann[0] < 0.6 for text in ax.texts)


def test_a_gap_of_accuracy_is_not_forced_to_zero():
    shown = {"a": curve([1.0, 2.0], [0.5, 0.51])}
    assert TradeoffDisplay(shown, "accuracy_difference").plot().ax_.get_ylim()[0] > 40
    costs = TradeoffDisplay(shown, "privacy_cost[2]").plot().ax_
    assert costs.get_ylim()[0] < 0
    assert costs.get_title(loc="left") == "Privacy cost of group 2"


@pytest.fixture
def sweep_frame():
    rows = [
        (m, e, g, 0.0 if m == "reference" else cost)
        for m, e, cost in [
            ("reference", np.inf, 0),
            ("z", 1.0, 0.1),
            ("z", 4.0, 0.2),
            ("a", 1.0, 0.3),
        ]
        for g in ("overall", "M", "F")
    ]
    return pd.DataFrame(rows, columns=["method", "epsilon", "group", "privacy_cost"])


def test_costs_of_a_sweep_are_shown_at_one_budget_in_its_order(sweep_frame):
    display = PrivacyCostDisplay.from_results(sweep_frame, epsilon=1)
    assert list(display.table.index) == ["z", "a"]
    assert list(display.table) == ["privacy_cost[M]", "privacy_cost[F]"]
    assert display.table.loc["z", "privacy_cost[F]"] == 0.1
    assert "at ε = 1, against reference" in display.plot().ax_.get_title(loc="left")
    with pytest.raises(ValueError, match=r"several budgets: \[1.0, 4.0\]"):
        PrivacyCostDisplay.from_results(sweep_frame)
    with pytest.raises(ValueError, match=r"budget of the sweep, \[1.0, 4.0\], got 3.0"):
        PrivacyCostDisplay.from_results(sweep_frame, epsilon=3.0)
    with pytest.raises(TypeError, match="Pass sweep"):
        PrivacyCostDisplay.from_results(pd.DataFrame({"a": [1]}))
    with pytest.raises(TypeError, match=r"results must be the TradeoffResults.*got DataFrame"):
        TradeoffDisplay.from_results(sweep_frame)


@pytest.mark.filterwarnings("ignore::skdpfair.exceptions.LowSignalWarning")
def test_costs_of_an_estimator_are_those_of_its_reference(two_groups):
    X, y, group = two_groups.data, two_groups.target, two_groups.sensitive_features
    clf = DPFairClassifier("dpsgd", module="logistic", max_steps=5, keep_reference=True).fit(X, y)
    model = Pipeline([("same", FunctionTransformer()), ("clf", clf)])
    for estimator in (clf, model):
        table = PrivacyCostDisplay.from_estimator(estimator, X, y, sensitive_features=group).table
        right = [(m.predict(X) == y)[group == "b"].mean() for m in (clf.reference_, clf)]
        assert table.loc["dpsgd", "privacy_cost[b]"] == pytest.approx(right[0] - right[1])


def test_displays_of_models_refuse_others():
    display = PrivacyCostDisplay
    data = ([[0.0], [1.0]], [0, 1])
    with pytest.raises(NotFittedError):
        display.from_estimator(DPFairClassifier(), *data, sensitive_features=["a", "b"])
    with pytest.raises(TypeError, match=r"estimator must be a fitted DPFairClassifier.*got dict"):
        display.from_estimator({}, *data, sensitive_features=["a", "b"])
    other = LogisticRegression().fit(*data)
    with pytest.raises(TypeError, match=r"got LogisticRegression\. Use group_table"):
        display.from_estimator(other, *data, sensitive_features=["a", "b"])


@pytest.mark.parametrize(
    "pair", [("$\\frac$", "_b"), ("", "'"), (1, "1"), (("x", "y"), ("x", "z"))]
)
def test_no_name_of_a_group_breaks_a_plot_or_is_left_out(pair):
    frame = pd.DataFrame({"step": [0, 0, 1, 1], "group": [*pair, *pair], "loss": 1.0})
    losses, _ = GroupLossDisplay(frame.assign(gradient_norm=1.0)).plot().axes_
    costs = {f"privacy_cost[{name}]": [0.5] for name in group_names(pair)}
    ax = drawn(pd.DataFrame(costs, ["$\\frac$"]))
    names = [text.strip() for text in texts(ax.get_yticklabels())]
    assert [text.strip() for text in texts(losses.texts)] == names
    assert names[0] in (r"\$\frac\$", "(missing)", "1", "x, y") and names[0] != names[1]
    assert texts(ax.get_legend().get_texts()) == [r"\$\frac\$"]
    for figure in (losses.figure, ax.figure):
        figure.draw_without_rendering()


def test_losses_are_dressed_like_the_others():
    frame = pd.DataFrame({"step": [0, 1], "group": "a", "loss": [1.0, 0.5], "gradient_norm": 1.0})
    axes = GroupLossDisplay(frame).plot().axes_
    titles = [ax.get_title(loc="left") for ax in axes]
    assert titles == ["Loss (not private)", "Gradient norm (not private)"]


def test_wrong_tables_are_named(table):
    for wrong in (table.loc[["sgd"]], table[["privacy_cost_difference"]]):
        with pytest.raises(ValueError, match=r"columns privacy_cost\[GROUP\].*group_table"):
            drawn(wrong)


def test_without_matplotlib_the_extra_is_named(table, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r'pip install "skdpfair\[plot\]"'):
        drawn(table)


@pytest.mark.parametrize("ax", [1, pd.DataFrame()])
def test_what_is_no_axes_is_refused_by_name(table, ax):
    with pytest.raises(TypeError, match=r"^ax must be matplotlib's Axes or None"):
        drawn(table, ax)


def shaped(classifier, n_classes=2):
    """Return a fitted pipeline of two columns, and its rows."""
    rng = np.random.default_rng(0)
    x = pd.DataFrame({"age": rng.uniform(20, 80, 200), "ward": rng.choice(["A", "B"], 200)})
    y = pd.cut(x["age"], n_classes, labels=False)
    features = public_preprocessor({"age": (20, 80)}, {"ward": ["A", "B"]}, encoding="auto")
    return make_pipeline(features, classifier).fit(x, y), x


def test_curves_add_up_to_the_logit():
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


NAMES = (
    "self",
    "frame",
    "$\\frac$",
    "_",
    "",
    " ",
    "class",
    "__init__",
    'a,"b"]',
    "{x} %s",
    "<b>",
    "x" * 300,
    "0",
)


@pytest.mark.parametrize("name", NAMES)
def test_no_name_of_a_column_breaks_curves(name):
    x = pd.DataFrame([[20.0, "A"], [80.0, "B"]] * 9)
    for names in ([name, "other"], ["other", name]):
        x.columns = names
        features = public_preprocessor({names[0]: (20, 80)}, {names[1]: ["A", "B"]})
        model = make_pipeline(features, LogisticRegression()).fit(x, [0, 1] * 9)
        display = ShapeDisplay.from_estimator(model, n_points=3)
        assert list(display.frame["column"]) == [names[0]] * 3 + [names[1]] * 2
        display.plot().figure_.draw_without_rendering()
        plt.close("all")


@pytest.mark.parametrize("name", [0, ("a", "b")])
def test_names_of_columns_that_are_no_texts_are_refused(name):
    for facts in ({name: (0, 1)}, {}), ({}, {name: ["A"]}):
        with pytest.raises(TypeError, match=r"must name columns by texts, got .*map\(str\)"):
            public_preprocessor(*facts)


def test_curves_of_a_release_are_those_of_the_fit(tmp_path):
    bounds = {"age": (20, 80), "gain": (0, 1e5)}
    schema = TableSchema(target="paid", classes=["no", "yes"], bounds=bounds, missing=["age"])
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({name: rng.uniform(*pair, 400) for name, pair in bounds.items()})
    X, y, _ = schema.split(rows.assign(paid=np.where(rows["age"] > 50, "yes", "no")))
    clf = DPFairClassifier(epsilon=8.0, module="logistic", max_steps=5).fit(X, y)
    clf.save_release(tmp_path / "model.safetensors", schema=schema)
    known = schema_of(tmp_path / "model.safetensors")
    loaded = load_release(tmp_path / "model.safetensors")
    released = ShapeDisplay.from_estimator(make_pipeline(known.preprocessor(), loaded))
    fitted = public_preprocessor(bounds, epsilon=1.0, missing=["age"]).fit(rows)
    expected = ShapeDisplay.from_estimator(make_pipeline(fitted, clf))
    pd.testing.assert_frame_equal(released.frame, expected.frame)
    assert released.log_columns == ["gain"] and np.ptp(released.frame["logit"]) > 0


def test_amounts_are_drawn_on_a_logarithmic_axis_and_few_of_many_bars():
    wards = [f"w{i}" for i in range(20)]
    x = pd.DataFrame({"gain": np.geomspace(1, 1e5, 200), "ward": np.resize(wards, 200)})
    features = public_preprocessor({"gain": (0, 1e5)}, {"ward": wards}, encoding="auto")
    model = make_pipeline(features, LogisticRegression()).fit(x, x["gain"] > 300)
    gain, ward = ShapeDisplay.from_estimator(model).plot().axes_
    assert gain.get_xscale() == "symlog" and (gain.lines[0].get_xdata() < 100).sum() > 30
    assert ward.get_title(loc="left") == "ward (12 of 20)" and len(ward.patches) == 12


def test_curves_of_some_columns():
    model, _ = shaped(LogisticRegression())
    assert set(ShapeDisplay.from_estimator(model, columns=["ward"]).frame["value"]) == {"A", "B"}
    with pytest.raises(ValueError, match=r"columns names \['wage'\], which the model does not use"):
        ShapeDisplay.from_estimator(model, columns=["wage"])


def test_a_model_without_curves_is_refused():
    with pytest.raises(ValueError, match="estimator is not additive"):
        ShapeDisplay.from_estimator(shaped(SVC(gamma=1.0))[0])
    with pytest.raises(ValueError, match="more than two classes"):
        ShapeDisplay.from_estimator(shaped(LogisticRegression(), n_classes=3)[0])
    with pytest.raises(ValueError, match="must be a fitted pipeline that begins with"):
        ShapeDisplay.from_estimator(LogisticRegression())


def test_a_measure_is_drawn_in_its_unit():
    ax = TradeoffDisplay({"dpsgd": curve([1.0], [0.5])}, "excessive_risk[F]").plot().ax_
    assert ax.get_ylabel() == "excessive risk (nats)" and ax.lines[0].get_ydata()[0] == 0.5
    assert ax.get_title(loc="left") == "Excessive risk of group F"
    ax = TradeoffDisplay({"dpsgd": curve([1.0], [0.5])}, "roc_auc_group_min").plot().ax_
    assert ax.get_ylabel() == "roc auc group min (%)" and ax.lines[0].get_ydata()[0] == 50
    with pytest.raises(ValueError, match="measure must be one of"):
        TradeoffDisplay({}, "auc").plot()
