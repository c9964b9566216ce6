"""The Fairlearn dashboard (now part of raiwidgets) for all models of a sweep."""

import sys
import types
from contextlib import nullcontext, redirect_stdout
from functools import partial
from importlib.util import find_spec
from io import StringIO
from typing import Any

import numpy as np
import sklearn.metrics as skm

from skdpfair._utils import validate
from skdpfair._utils.validate import safe_repr
from skdpfair.metrics._group_tables import accuracy_interval
from skdpfair.metrics._measures import OVERALL, chosen_measures, described, rarest_class

_MISSING = (
    'The dashboard needs two things, see docs/report.md: pip install "skdpfair[dashboard]" and '
    "pip install --no-deps -r requirements/dashboard.txt"
)
# measures that labels alone do not give: the sweep has them, and raiwidgets knows one of them
_OF_RUNS = {"roc_auc": "auc", "log_loss": "run_log_loss"}
_OF_RUNS |= {name: f"run_{name}" for name in ("calibration_error", "excessive_risk", "dg_gap")}
_NOT_SHOWN = {  # raiwidgets' names of what it does not show among figures that it is given
    "fallout_rate": "False positive rate",
    "selection_rate": "Selection rate",
    "specificity_score": "Recall of class 0",
}
_SHOWN_IF_THERE = {"accuracy_score", "balanced_accuracy_score", "f1_score", "precision_score"}
# what would end the text of a script in which raiwidgets puts the names as they are
_SAFE = str.maketrans(
    {"<": "‹", ">": "›", '"': "”", "`": "’", "\\": "⧵", "$": "＄", "&": "＆"}
    | {chr(i): " " for i in (*range(32), 127)}
)


def to_fairness_dashboard(results, *, seed=None, fold=0):
    """Return the arguments of raiwidgets' FairnessDashboard, see `TradeoffResults`."""
    parts = numbered(results, results.predictions_of(seed=seed, fold=fold))
    first, safe = next(iter(parts.values())), _safe_names(results.frame["group"])
    models = _safe_names(parts)
    return {
        "sensitive_features": {_grouping(results): [safe[group] for group in first["group"]]},
        "y_true": first["y_true"].tolist(),
        "y_pred": {models[name]: part["y_pred"].tolist() for name, part in parts.items()},
    }


def numbered(results, parts):
    """Return predictions as numbers of classes, as Fairlearn's functions take them."""
    classes = _classes(results, parts.values())
    number = partial(np.searchsorted, classes)
    return {
        name: part.assign(y_true=number(part["y_true"]), y_pred=number(part["y_pred"]))
        for name, part in parts.items()
    }


def _grouping(results):
    """Return the name of what the groups are groups by."""
    return _safe(" and ".join(results.variables[1:]) or "group")


def _classes(results, parts):
    """Return all classes in order, those that nobody has or predicts here among them."""
    if results.spec.classes:
        return np.asarray(results.spec.classes)
    return np.unique(np.concatenate([p[c] for p in parts for c in ("y_true", "y_pred")]))


def launch(results, port=None, *, seed=None, fold=0, measures=None):
    """Serve the dashboard, see `TradeoffResults.launch_fairness_dashboard`."""
    given = to_fairness_dashboard(results, seed=seed, fold=fold)
    if port is not None:
        port = validate.integer("port", port, low=1, high=65_535)
    if max(map(max, (given["y_true"], *given["y_pred"].values()))) > 1:
        raise ValueError(
            "results has more than two classes, for which raiwidgets' dashboard has no metric. "
            "Use results.to_html(), or results.to_fairlearn()."
        )
    metrics = _metrics(_performance(results, given["y_true"], measures))
    figures = _figures(results, given, metrics, measures, seed, fold)
    made = _fairness_dashboard()
    quiet = nullcontext() if _in_notebook() else redirect_stdout(StringIO())
    try:
        with quiet:
            board = made(**given, port=port, fairness_metric_mapping=metrics)
    except RuntimeError as error:
        # raiwidgets looks at the port
        raise ValueError(f"port={safe_repr(port)} cannot be used: {error}") from None
    board.model_data.update(figures)
    return board


def _figures(results, given, metrics, measures, seed, fold):
    """Return what the dashboard shows: the metrics, and measures that labels do not give.

    It shows figures that it is given; else it would ask for its own metrics only.
    """
    ((grouping, column),) = given["sensitive_features"].items()
    groups, y_true = sorted(set(column)), np.asarray(given["y_true"])
    rows_of = {group: np.asarray(column) == group for group in groups}
    seed = next(iter(results.predictions))[2] if seed is None else seed
    frame = results.frame.query("seed == @seed and fold == @fold")
    frame = frame.assign(group=frame["group"].map(_safe_names(results.frame["group"])))
    others = _others(results, metrics, measures)
    if not others:
        return {}
    asked = [n for n in _NOT_SHOWN if metrics[n]["model_type"]]
    frame[others] = frame[others].fillna(0.0)
    models = dict(iter(frame.set_index("group").groupby(["method", "epsilon"])))
    kept = [key[:2] for key in results.predictions if key[2:] == (seed, fold)]
    figures = []
    for model, y_pred in zip(kept, map(np.asarray, given["y_pred"].values()), strict=True):
        rows, shown = models[model], {}
        for name, metric in metrics.items():
            if not metric["model_type"] and name in _SHOWN_IF_THERE:
                continue
            parts = [(y_true[r], y_pred[r]) for r in rows_of.values()]
            how = metric["function"]
            shown[name] = {"global": how(y_true, y_pred), "bins": [how(*part) for part in parts]}
            if limits := metric.get("error_function"):
                ends = [dict(zip(("lower", "upper"), limits(*part), strict=True)) for part in parts]
                both = dict(zip(("lower", "upper"), limits(y_true, y_pred), strict=True))
                shown[name] |= {"bounds": both, "binBounds": ends}
        for name in others:
            values = rows[name]
            shown[_OF_RUNS[name]] = {"global": values[OVERALL], "bins": values[groups].tolist()}
        shown |= {f"run_{name}": shown[name] for name in asked}
        figures.append(shown)
    bins = {"binVector": [groups.index(group) for group in column], "binLabels": groups}
    return {
        "precomputedMetrics": [figures],
        "precomputedFeatureBins": [{"featureBinName": grouping} | bins],
        "customMetrics": [{"id": _OF_RUNS[m], "name": _title(m)} for m in others]
        + [{"id": f"run_{name}", "name": _NOT_SHOWN[name]} for name in asked],
        "predictionType": "binaryClassification",
    }


def _others(results, metrics, measures):
    """Return the measures that raiwidgets does not compute; it opens with accuracy or with one."""
    there = [name for name in _OF_RUNS if name in results.frame]
    if measures is not None:
        return [name for name in there if name in measures]
    return there if metrics["accuracy_score"]["model_type"] else []


def _title(name):
    """Return the title of a measure; the dashboard shows all such figures times 100."""
    title, unit, factor = described(name)
    return title if factor == 100 else f"{title} (hundredths of {unit})"


def _fairness_dashboard():
    """Return the class, without executing what else is in its package and needs older ones."""
    found = find_spec("raiwidgets")
    if found is None:
        raise ImportError(_MISSING)
    if "raiwidgets" not in sys.modules:
        package = types.ModuleType("raiwidgets")
        package.__path__ = list(found.submodule_search_locations or ())
        sys.modules["raiwidgets"] = package
    try:
        from rai_core_flask.environments import local_ipython_environment as local
        from raiwidgets.fairness_dashboard import FairnessDashboard
    except ImportError as error:
        # a later import would find it empty
        sys.modules.pop("raiwidgets", None)
        raise ImportError(f"{_MISSING} ({error}).") from error
    if not _in_notebook():
        local.CORS = lambda app: None
    return _kept_at_home(FairnessDashboard)


def _kept_at_home(dashboard: Any):
    """Return the class with pages that ask nobody else for anything, as for fonts they did."""

    class FairnessDashboard(dashboard):
        def add_route(self):
            super().add_route()
            self._service.app.after_request(_closed)

            def nothing(name=None):
                return "", 204

            self._service.app.add_url_rule("/widget/<path:name>", view_func=nothing)
            self._service.app.add_url_rule("/favicon.ico", view_func=nothing)

        def load_index(self):
            return _OWN_FONTS + super().load_index()

        @property
        def url(self):
            return self._service.env.base_url

    return FairnessDashboard


# Microsoft's fonts are asked for on the network otherwise; without that of the icons they are boxes
_OWN_FONTS = """<script>window.FabricConfig = {fontBaseUrl: ""}</script><style>
[data-icon-name] { font-size: 0 !important; }
[data-icon-name]::before { font: 14px sans-serif; }
[data-icon-name^=ChevronDown]::before { content: "\\25be"; }
[data-icon-name=CheckMark]::before { content: "\\2713"; }
[data-icon-name=Info]::before { content: "\\24d8"; }
</style>"""


def _closed(response):
    response.headers["Content-Security-Policy"] = (
        "default-src 'self' 'unsafe-inline' 'unsafe-eval' data: blob:"
    )
    return response


def _in_notebook():
    from IPython import get_ipython

    return getattr(get_ipython(), "kernel", None) is not None


def _safe(name):
    return str(name).translate(_SAFE)


def _safe_names(names):
    """Return, by name, distinct names that do not end the text of a script."""
    found = {}
    for name in dict.fromkeys(names):
        safe = _safe(name)
        while safe in found.values():
            safe += "’"
        found[name] = safe
    return found


def _performance(results, y_true, measures):
    """Return raiwidgets' names of the measures of performance; it opens with accuracy, if there."""
    names = {
        "accuracy": "accuracy_score",
        "balanced_accuracy": "balanced_accuracy_score",
        "rarest_class_recall": ("specificity_score", "recall_score")[rarest_class(y_true, 2)],
        "true_positive_rate": "recall_score",
        "false_positive_rate": "fallout_rate",
        "false_negative_rate": "miss_rate",
        "selection_rate": "selection_rate",
    }
    known = names | {name: None for name in _OF_RUNS if name in results.frame}
    chosen = chosen_measures(measures, known, results.leading_measures)
    chosen = [names[name] for name in chosen if name in names]
    if measures is None:
        chosen += ["precision_score", "recall_score", "balanced_accuracy_score", "f1_score"]
    return list(dict.fromkeys(chosen))


def _metrics(performance):
    """Return the metrics by raiwidgets' names; with intervals where they are shares of records."""
    everybody, correct = (lambda t, p: t == t), (lambda t, p: t == p)
    selected, refused = (lambda t, p: p == 1), (lambda t, p: p == 0)
    positive, negative = (lambda t, p: t == 1), (lambda t, p: t == 0)
    shares = {
        "accuracy_score": _share(correct, everybody),
        "zero_one_loss": _share(lambda t, p: t != p, everybody),
        "precision_score": _share(positive, selected),
        "recall_score": _share(selected, positive),
        "selection_rate": _share(selected, everybody),
        "miss_rate": _share(refused, positive),
        "fallout_rate": _share(selected, negative),
        "specificity_score": _share(refused, negative),
    }
    balanced = partial(skm.recall_score, average="macro", zero_division=0)
    f1 = partial(skm.f1_score, zero_division=0)
    metrics = shares | {
        "balanced_accuracy_score": {"function": lambda t, p: float(balanced(t, p))},
        "f1_score": {"function": lambda t, p: float(f1(t, p))},
    }
    return {
        name: {"model_type": ["classification"] if name in performance else []} | metrics[name]
        for name in dict.fromkeys([*performance, *metrics])
    }


def _share(of, among):
    """Return the share of one kind of records among another, and Wilson's interval."""

    def counts(y_true, y_pred):
        y_true, y_pred = np.asarray(y_true), np.asarray(y_pred)
        hits = of(y_true, y_pred)[among(y_true, y_pred)]
        return np.array(hits.sum()), np.array((~hits).sum())

    def function(y_true, y_pred):
        hits, misses = counts(y_true, y_pred)
        return float(hits / (hits + misses)) if hits + misses else 0.0

    def error_function(y_true, y_pred):
        hits, misses = counts(y_true, y_pred)
        _, low, high = accuracy_interval(hits, misses, 0.0, 0.95)
        return float(low), float(high)

    return {"function": function, "error_function": error_function}
