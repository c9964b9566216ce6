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

from skdpfair import _validate
from skdpfair.metrics._group_tables import accuracy_interval
from skdpfair.metrics._measures import chosen_measures, rarest_class

_MISSING = (
    'The dashboard needs two things, see docs/dashboard.md: pip install "skdpfair[dashboard]" and '
    "pip install --no-deps -r requirements/dashboard.txt"
)
# what would end the text of a script in which raiwidgets puts the names as they are
_SAFE = str.maketrans(
    {"<": "‹", ">": "›", '"': "”", "`": "’", "\\": "⧵", "$": "＄", "&": "＆"}
    | {chr(i): " " for i in (*range(32), 127)}
)


def to_fairness_dashboard(results, *, seed=None, fold=0):
    """Return the arguments of raiwidgets' FairnessDashboard: all models on one test set.

    Parameters
    ----------
    results : TradeoffResults
        Results of a `sweep` with ``keep_predictions=True``.
    seed : int or None, default=None
        Seed of the split; None is the first.
    fold : int, default=0
        Fold of the split.

    Returns
    -------
    dict
        ``sensitive_features`` (dict of lists), ``y_true`` (list) and ``y_pred`` (dict from the
        model's name to a list); NOT private. Classes are numbered from 0 in the order of the
        classifier's ``classes_``; with two classes, 1 is selected. Characters that would end a
        string in a script are replaced by similar characters.

    Raises
    ------
    ValueError
        If no predictions were kept for this seed and fold.

    Examples
    --------
    >>> from skdpfair.datasets import make_two_groups
    >>> from skdpfair.model_selection import sweep
    >>> data = make_two_groups(3000, random_state=0)
    >>> results = sweep(
    ...     ["dpsgd"], [4.0], 1, data.data, data.target, data.sensitive_features,
    ...     keep_predictions=True, module="logistic", batch_size=500, max_steps=5,
    ... )
    >>> given = to_fairness_dashboard(results)
    >>> list(given["y_pred"]), len(given["y_true"])
    (['reference', 'dpsgd, epsilon 4'], 600)
    """
    parts = results.predictions_of(seed=seed, fold=fold)
    first = next(iter(parts.values()))
    classes = _classes(results, parts.values())
    return {
        "sensitive_features": {"group": [_safe(group) for group in first["group"]]},
        "y_true": np.searchsorted(classes, first["y_true"]).tolist(),
        "y_pred": {
            _safe(name): np.searchsorted(classes, part["y_pred"]).tolist()
            for name, part in parts.items()
        },
    }


def _classes(results, parts):
    """Return all classes in order, those that nobody has or predicts here among them."""
    if results.asked is not None:
        return np.asarray(results.asked["classes"])
    return np.unique(np.concatenate([p[c] for p in parts for c in ("y_true", "y_pred")]))


def launch_fairness_dashboard(results, port=None, *, seed=None, fold=0, measures=None):
    """Serve the dashboard on this machine, and show it if this is a notebook.

    Parameters
    ----------
    results, seed, fold
        As in `to_fairness_dashboard`.
    port : int or None, default=None
        Port of localhost; None uses the first free port from 8704.
    measures : list of str or None, default=None
        Measures of performance to choose from, the first of which is shown unless ``accuracy`` is
        among them: ``accuracy``, ``balanced_accuracy``, ``rarest_class_recall``,
        ``true_positive_rate``, ``false_positive_rate``, ``selection_rate``. None is all that
        raiwidgets offers, but without ``accuracy`` if a class is rare
        (`TradeoffResults.leading_measures`).

    Returns
    -------
    raiwidgets.fairness_dashboard.FairnessDashboard
        Its attribute ``url`` is the address. The server stops with the process: in a script, wait,
        for example with ``input()``.

    Raises
    ------
    ImportError
        If raiwidgets or a package that it needs is missing; the error says how to install it.
    ValueError
        If the port is taken, the predictions were not kept, there are more than two classes, or a
        measure is unknown.

    Notes
    -----
    The server gives labels, groups and predictions of private records to everyone who can reach
    localhost of this machine. Outside notebooks, it refuses pages of other origins.

    Examples
    --------
    >>> from skdpfair.datasets import make_two_groups
    >>> from skdpfair.model_selection import sweep
    >>> data = make_two_groups(3000, random_state=0)
    >>> given = data.data, data.target, data.sensitive_features
    >>> options = {"keep_predictions": True, "module": "logistic", "max_steps": 5}
    >>> results = sweep(["dpsgd"], [3.0], 1, *given, **options)
    >>> launch_fairness_dashboard(results).url  # doctest: +SKIP
    'http://localhost:8704'
    """
    given = to_fairness_dashboard(results, seed=seed, fold=fold)
    if port is not None:
        port = _validate.integer("port", port, low=1, high=65_535)
    if max(map(max, (given["y_true"], *given["y_pred"].values()))) > 1:
        raise ValueError(
            "results has more than two classes, for which raiwidgets' dashboard has no metric. "
            "Use results.to_html(), or results.to_fairlearn()."
        )
    metrics = _metrics(_performance(results, given["y_true"], measures))
    made = _fairness_dashboard()
    quiet = nullcontext() if _in_notebook() else redirect_stdout(StringIO())
    try:
        with quiet:
            return made(**given, port=port, fairness_metric_mapping=metrics)
    except RuntimeError as error:  # raiwidgets looks at the port
        raise ValueError(f"port={port!r} cannot be used: {error}") from None


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
        sys.modules.pop("raiwidgets", None)  # or a later import would find it empty
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


def _performance(results, y_true, measures):
    """Return raiwidgets' names of the measures of performance; it opens with accuracy, if there."""
    names = {
        "accuracy": "accuracy_score",
        "balanced_accuracy": "balanced_accuracy_score",
        "rarest_class_recall": ("specificity_score", "recall_score")[rarest_class(y_true, 2)],
        "true_positive_rate": "recall_score",
        "false_positive_rate": "fallout_rate",
        "selection_rate": "selection_rate",
    }
    chosen = [names[m] for m in chosen_measures(measures, names, results.leading_measures)]
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
