"""The Fairlearn dashboard (now part of raiwidgets) for all models of a sweep."""

import sys
import types
from contextlib import nullcontext, redirect_stdout
from functools import partial
from importlib.util import find_spec
from io import StringIO
from typing import Any

import fairlearn.metrics as flm
import numpy as np
import sklearn.metrics as skm

from skdpfair._utils.validate import integer, safe_repr
from skdpfair.inputs.target import positions

_MISSING = (
    'The dashboard needs two things, see docs/report.md: pip install "skdpfair[dashboard]" and '
    "pip install --no-deps -r requirements/dashboard.txt"
)
# raiwidgets' names of the measures of performance, then of those that it compares groups by
_PERFORMANCE = {
    "accuracy_score": skm.accuracy_score,
    "balanced_accuracy_score": partial(skm.recall_score, average="macro", zero_division=0),
    "precision_score": partial(skm.precision_score, zero_division=0),
    "recall_score": partial(skm.recall_score, zero_division=0),
    "f1_score": partial(skm.f1_score, zero_division=0),
}
_OTHERS = {
    "zero_one_loss": skm.zero_one_loss,
    "selection_rate": flm.selection_rate,
    "miss_rate": flm.false_negative_rate,
    "fallout_rate": flm.false_positive_rate,
    "specificity_score": flm.true_negative_rate,
}
# what would end the text of a script in which raiwidgets puts the names as they are
_SAFE = str.maketrans(
    {"<": "‹", ">": "›", '"': "”", "`": "’", "\\": "⧵", "$": "＄", "&": "＆"}
    | {chr(i): " " for i in (*range(32), 127)}
)


def to_fairness_dashboard(results, *, seed=None, fold=0):
    """Return the arguments of raiwidgets' FairnessDashboard, see `TradeoffResults`."""
    parts = numbered(results, results.predictions_of(seed=seed, fold=fold))
    first, safe = next(iter(parts.values())), _safe_names(results.frame["group"])
    models, by = _safe_names(parts), " and ".join(results.variables[1:]) or "group"
    return {
        "sensitive_features": {by.translate(_SAFE): [safe[group] for group in first["group"]]},
        "y_true": first["y_true"].tolist(),
        "y_pred": {models[name]: part["y_pred"].tolist() for name, part in parts.items()},
    }


def numbered(results, parts):
    """Return predictions as numbers of classes, as Fairlearn's functions take them."""
    columns = ["y_true", "y_pred"]
    classes = results.spec.classes  # also those that nobody has or predicts here
    classes = classes or np.unique(np.concatenate([p[columns] for p in parts.values()]))
    number = partial(positions, np.asarray(classes))
    return {
        name: part.assign(**{column: number(part[column].to_numpy()) for column in columns})
        for name, part in parts.items()
    }


def launch(results, port=None, *, seed=None, fold=0):
    """Serve the dashboard, see `TradeoffResults.launch_fairness_dashboard`."""
    arguments = to_fairness_dashboard(results, seed=seed, fold=fold)
    if port is not None:
        port = integer("port", port, low=1, high=65_535)
    if max(map(max, (arguments["y_true"], *arguments["y_pred"].values()))) > 1:
        raise ValueError(
            "results has more than two classes, for which raiwidgets' dashboard has no metric. "
            "Use results.to_html(), or results.to_fairlearn()."
        )
    dashboard = _fairness_dashboard()
    quiet = nullcontext() if _in_notebook() else redirect_stdout(StringIO())
    try:
        with quiet:
            return dashboard(**arguments, port=port, fairness_metric_mapping=_metrics(results))
    except RuntimeError as error:
        # raiwidgets looks at the port
        raise ValueError(f"port={safe_repr(port)} cannot be used: {error}") from None


def _metrics(results):
    """Return the metrics by raiwidgets' names; it opens with accuracy if that is of performance."""
    hidden = _OTHERS if "accuracy" in results.leading_measures else {*_OTHERS, "accuracy_score"}
    return {
        name: {"model_type": [] if name in hidden else ["classification"], "function": function}
        for name, function in (_PERFORMANCE | _OTHERS).items()
    }


def _fairness_dashboard():
    """Return the class, without executing what else is in its package and needs older ones."""
    package_spec = find_spec("raiwidgets")
    if package_spec is None:
        raise ImportError(_MISSING)
    if "raiwidgets" not in sys.modules:
        package = types.ModuleType("raiwidgets")
        package.__path__ = list(package_spec.submodule_search_locations or ())
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
    return _offline(FairnessDashboard)


def _offline(dashboard: Any):
    """Return the class with pages that ask nobody else for anything, as for fonts they did."""

    class FairnessDashboard(dashboard):
        def add_route(self):
            super().add_route()
            self._service.app.after_request(_with_policy)

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


def _with_policy(response):
    response.headers["Content-Security-Policy"] = (
        "default-src 'self' 'unsafe-inline' 'unsafe-eval' data: blob:"
    )
    return response


def _in_notebook():
    from IPython import get_ipython

    return getattr(get_ipython(), "kernel", None) is not None


def _safe_names(names):
    """Return, by name, distinct names that do not end the text of a script."""
    safe_names = {}
    for name in dict.fromkeys(names):
        safe = str(name).translate(_SAFE)
        while safe in safe_names.values():
            safe += "’"
        safe_names[name] = safe
    return safe_names
