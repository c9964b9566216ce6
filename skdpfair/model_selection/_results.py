"""Results of a sweep: a tidy frame, tables, the Pareto front, and inputs for fairlearn."""

import numpy as np
import pandas as pd
from fairlearn.metrics import MetricFrame, plot_model_comparison
from sklearn.metrics import accuracy_score

from skdpfair._validate import one_of, safe_repr
from skdpfair.budget.files import path_of, replace_file
from skdpfair.metrics._compare_groups import difference
from skdpfair.model_selection._cells import (
    CELL_ENTRIES,
    OVERALL,
    frame_of,
    predictions_of,
    releases_of,
)
from skdpfair.model_selection._store import Store
from skdpfair.report import results_page, to_fairness_dashboard

_MODEL = ["method", "epsilon"]
_RUN = ["seed", "fold"]
_ASKED = {"methods", "classes", "group names", "epsilons", "seeds", "cv", "params", "n_samples"}
_ASKED |= {"delta", "skdpfair", "torch"}
_MEASURES = ("accuracy", "privacy_cost", "dg_gap")
_HEADS = {"accuracy": "accuracy (%)", "privacy_cost": "privacy cost (percentage points)"}
_MOST_GROUPS = 7  # that a terminal has room for
_FEWEST = "fewest test records"


class TradeoffResults:
    """Results of `sweep`; NOT private, as they hold scores on private records.

    Parameters
    ----------
    frame : pandas.DataFrame
        One row per cell and group, and one per cell with group ``"overall"``: method, epsilon (inf
        without privacy), seed, fold, group, n (test records), accuracy, privacy_cost (accuracy of
        the reference model of the same seed and fold minus this one; NaN if it was not run), dg_gap
        (accuracy on the training records minus accuracy), epsilon_spent, fit_seconds.
    predictions : dict or None, default=None
        Maps (method, epsilon, seed, fold) to a frame of y_true, y_pred and group.
    asked : dict or None, default=None
        Settings of the sweep: methods, budgets, seeds, parameters, versions.
    releases : pandas.DataFrame or None, default=None
        One row per cell and kind of release: method, epsilon, seed, fold, sample_rate,
        noise_multiplier, steps.

    Attributes
    ----------
    frame, predictions, asked, releases
        As given.

    Examples
    --------
    >>> from skdpfair.datasets import make_two_groups
    >>> from skdpfair.model_selection import sweep
    >>> data = make_two_groups(3000, random_state=0)
    >>> given = data.data, data.target, data.sensitive_features
    >>> results = sweep(["dpsgd"], [3.0], 1, *given, module="logistic", max_steps=5)
    >>> results, results.table().index.tolist()
    (TradeoffResults(2 models x 1 runs), [('reference', inf), ('dpsgd', 3.0)])
    """

    def __init__(self, frame, predictions=None, asked=None, releases=None):
        if not isinstance(frame, pd.DataFrame):
            raise TypeError(f"frame must be a DataFrame of runs, got {safe_repr(frame)}.")
        self.frame, self.predictions = frame, predictions
        self.asked, self.releases = asked, releases

    @classmethod
    def from_cells(cls, cells, levels, classes, asked=None):
        """Return the results of finished cells.

        Parameters
        ----------
        cells : iterable of dict
            As a sweep stores them.
        levels : list of str
            Names of the groups.
        classes : ndarray of shape (n_classes,)
            Class labels.
        asked : dict or None, default=None
            Parameters of the sweep.

        Returns
        -------
        TradeoffResults
        """
        kept = predictions_of(cells, levels, classes) or None
        return cls(frame_of(cells, levels), kept, asked, releases_of(cells))

    @classmethod
    def from_store(cls, store):
        """Return the results of the cells that a sweep has finished.

        Parameters
        ----------
        store : path-like
            The folder that `sweep` was given.

        Returns
        -------
        TradeoffResults
            In the order of the sweep.

        Raises
        ------
        TypeError, ValueError
            If the folder holds no sweep, or no cell is finished.
        """
        found, asked = Store.existing(store, needs=CELL_ENTRIES)
        if not asked.keys() >= _ASKED:
            raise ValueError(
                f"store={str(store)!r} does not hold a sweep, or holds one of an older version "
                "without training scores. Name another folder, or run the sweep again."
            )
        cells, methods = found.cells(), list(asked["methods"])
        place = {name: i for i, name in enumerate(methods)}  # reference models come first

        def order(cell):
            budget = cell["epsilon"]
            budgets = asked["epsilons"]
            at = budgets.index(budget) if budget in budgets else -1
            return cell["seed"], cell["fold"], place.get(cell["method"], -1), at, cell["method"]

        asked = {name: value for name, value in asked.items() if not name.startswith("data ")}
        classes = np.asarray(asked["classes"])
        return cls.from_cells(sorted(cells, key=order), asked["group names"], classes, asked)

    def __repr__(self):
        models = self.frame[_MODEL].drop_duplicates()
        runs = self.frame[_RUN].drop_duplicates()
        return f"TradeoffResults({len(models)} models x {len(runs)} runs)"

    def __str__(self):
        """Return the means for a terminal, in per cent and percentage points."""
        return as_blocks(self.table("text"), self.frame)

    def by_run(self):
        """Return shares: accuracy, cost and DG gap of each cell, by group, and differences.

        A group without test records in a run has NaN, and the difference leaves it out.

        Returns
        -------
        pandas.DataFrame
            Indexed by method, epsilon, seed and fold, in the order of the sweep.
        """
        wide = {
            name: self.frame.pivot(index=[*_MODEL, *_RUN], columns="group", values=name)
            for name in _MEASURES
            if name in self.frame
        }
        groups = [g for g in self.frame["group"].unique() if g != OVERALL]
        parts = {}
        for name, values in wide.items():
            parts[name] = values[OVERALL]
            parts |= {f"{name}[{group}]": values[group] for group in groups}
            parts[f"{name}_difference"] = difference(values[groups])
        table = pd.DataFrame(parts)
        order = self.frame[[*_MODEL, *_RUN]].drop_duplicates()
        return table.loc[pd.MultiIndex.from_frame(order)]

    def table(self, form="numbers"):
        """Return mean and standard error over runs, in the form of the papers.

        Parameters
        ----------
        form : {"numbers", "text"}, default="numbers"
            "numbers" gives shares, with columns (quantity, "mean" or "se"). "text" gives per cent
            and percentage points, such as "83.1 ± 0.2", with columns (quantity and unit, group),
            and the fewest test records of each group in a run, for ``to_latex()`` or
            ``to_string()``. In a terminal, use ``print(results)``.

        Returns
        -------
        pandas.DataFrame
            One row per method and epsilon. Means are over the runs in which a group has test
            records. Differences are between the groups with the largest and the smallest mean.
            Runs on one data set are not independent, so the standard errors are rough.
        """
        one_of("form", form, ("numbers", "text"))
        runs = self.by_run()
        models = runs.groupby(level=_MODEL, sort=False)
        columns = [c for c in runs if c in _MEASURES or "[" in c]
        means, errors = models[columns].mean(), models[columns].sem()
        out = {(c, stat): of[c] for c in columns for stat, of in (("mean", means), ("se", errors))}
        parts = models.indices
        for name in (name for name in _MEASURES if name in runs):
            by_group = runs[[c for c in columns if c.startswith(f"{name}[")]].to_numpy()
            gaps = [_gap_of_means(by_group[parts[model]]) for model in means.index]
            for stat, values in zip(("mean", "se"), zip(*gaps, strict=True), strict=True):
                out[f"{name}_difference", stat] = pd.Series(values, means.index)
        table = pd.DataFrame(out)
        return table if form == "numbers" else text_table(table, self.frame)

    def pareto_front(self, x="accuracy", y="privacy_cost_difference"):
        """Return the private models that no other beats in both quantities.

        Parameters
        ----------
        x, y : str
            Columns of `table`, or ``"epsilon"``. A larger accuracy is better; smaller costs, gaps
            and epsilon are better.

        Returns
        -------
        pandas.DataFrame
            The means of both, indexed by method and epsilon, sorted from the best ``x``.

        Raises
        ------
        ValueError
            If a column is unknown, or no private model has both quantities.
        """
        table = self.table().xs("mean", axis=1, level=1)
        table = table[np.isfinite(table.index.get_level_values("epsilon"))]
        table = table.assign(epsilon=table.index.get_level_values("epsilon"))
        for name, column in {"x": x, "y": y}.items():
            one_of(name, column, table.columns)
        table = table[table[[x, y]].notna().all(axis=1)]
        if table.empty:
            raise ValueError(
                f"No private model has both x={safe_repr(x)} and y={safe_repr(y)}: costs need runs "
                "of the reference model, and groups need test records."
            )
        loss = table[[x, y]] * [_sign(x), _sign(y)]
        kept = [
            not ((loss <= r).all(axis=1) & (loss < r).any(axis=1)).any() for _, r in loss.iterrows()
        ]
        return table.loc[kept, [x, y]].sort_values(x, ascending=_sign(x) > 0)

    def plot(self, measure="accuracy", ax=None):
        """Draw one quantity against epsilon.

        Parameters
        ----------
        measure : str, default="accuracy"
            A column of `by_run`.
        ax : matplotlib.axes.Axes or None, default=None
            Axes to draw into.

        Returns
        -------
        skdpfair.plotting.TradeoffDisplay
        """
        from skdpfair.plotting import TradeoffDisplay

        return TradeoffDisplay.from_results(self, measure=measure).plot(ax=ax)

    def to_html(self, path=None, *, title=None, pipeline=None):
        """Return or write a report as one self-contained HTML page; NOT private.

        Parameters
        ----------
        path : path-like or None, default=None
            File to write; None returns the page.
        title : str or None, default=None
            Title of the page.
        pipeline : estimator, PipelineReport or None, default=None
            The pipeline that prepared the features; the page lists its `check_pipeline` findings.

        Returns
        -------
        str or None
            The page, or None if it was written.

        Raises
        ------
        ImportError
            If jinja2 is missing: ``pip install "skdpfair[report]"``.
        """
        path = None if path is None else path_of(path)
        page = results_page(self, title=title, pipeline=pipeline)
        if path is None:
            return page
        replace_file(path, page.encode())

    def to_fairlearn(self, metrics=None):
        """Return a fairlearn MetricFrame of each model and run.

        Parameters
        ----------
        metrics : callable, dict of str to callable, or None, default=None
            As in fairlearn; None is ``{"accuracy": accuracy_score}``.

        Returns
        -------
        dict of str to fairlearn.metrics.MetricFrame
            The keys are names such as ``"dpsgd, epsilon 1, seed 0, fold 0"``.
        """
        metrics = {"accuracy": accuracy_score} if metrics is None else metrics
        return {
            _name(key, with_run=True): MetricFrame(
                metrics=metrics,
                y_true=part["y_true"],
                y_pred=part["y_pred"],
                sensitive_features=part["group"],
            )
            for key, part in self._kept().items()
        }

    def to_fairness_dashboard(self, seed=None, fold=0):
        """Return the arguments of raiwidgets' FairnessDashboard.

        Parameters
        ----------
        seed, fold
            As in `predictions_of`.

        Returns
        -------
        dict
            See `skdpfair.report.to_fairness_dashboard`.
        """
        return to_fairness_dashboard(self, seed=seed, fold=fold)

    def plot_model_comparison(self, x_axis_metric, y_axis_metric, *, seed=None, fold=0, **options):
        """Draw all models by two metrics, with fairlearn's ``plot_model_comparison``.

        Parameters
        ----------
        x_axis_metric, y_axis_metric : callable
            For example ``accuracy_score`` and ``fairlearn.metrics.demographic_parity_difference``.
        seed, fold
            As in `predictions_of`.
        **options
            Passed to fairlearn, such as ``ax``; points have labels unless ``point_labels=False``.

        Returns
        -------
        matplotlib.axes.Axes
        """
        parts = self.predictions_of(seed=seed, fold=fold)
        first = next(iter(parts.values()))
        return plot_model_comparison(
            y_preds={name: part["y_pred"].to_numpy() for name, part in parts.items()},
            y_true=first["y_true"].to_numpy(),
            sensitive_features=first["group"].to_numpy(),
            x_axis_metric=x_axis_metric,
            y_axis_metric=y_axis_metric,
            **{"point_labels": True} | options,
        )

    def predictions_of(self, *, seed=None, fold=0) -> dict:
        """Return the predictions of all models on one test set, by model name; NOT private.

        Parameters
        ----------
        seed : int or None, default=None
            Seed of the split; None is the first.
        fold : int, default=0
            Fold of the split.

        Returns
        -------
        dict of str to pandas.DataFrame
            The frames have columns ``y_true``, ``y_pred`` and ``group``.

        Raises
        ------
        ValueError
            If no predictions were kept for this seed and fold.
        """
        kept = self._kept()
        seed = next(iter(kept))[2] if seed is None else seed
        parts = {_name(key): part for key, part in kept.items() if key[2:] == (seed, fold)}
        if not parts:
            raise ValueError(
                f"seed={safe_repr(seed)}, fold={safe_repr(fold)} was not run. Choose among (seed, "
                f"fold) = {sorted({key[2:] for key in kept})}."
            )
        return parts

    def _kept(self):
        if self.predictions is None:
            raise ValueError("The sweep kept no predictions. Run it with keep_predictions=True.")
        return self.predictions


def _name(key, with_run=False):
    method, epsilon, seed, fold = key
    budget = f", epsilon {epsilon:g}" if np.isfinite(epsilon) else ""
    return f"{method}{budget}" + (f", seed {seed}, fold {fold}" if with_run else "")


def _gap_of_means(by_group):
    """Return the difference of the groups that differ most on average, with its standard error."""
    there = ~np.isnan(by_group)
    if not there.any():
        return np.nan, np.nan
    known = there.any(axis=0)
    means = np.full(len(known), np.nan)
    means[known] = np.nanmean(by_group[:, known], axis=0)
    apart = by_group[:, np.nanargmax(means)] - by_group[:, np.nanargmin(means)]
    apart = apart[~np.isnan(apart)]
    error = apart.std(ddof=1) / len(apart) ** 0.5 if len(apart) > 1 else np.nan
    return difference(means), error


def _sign(column):
    """Return -1 if larger is better."""
    return -1 if column.startswith("accuracy") and not column.endswith("_difference") else 1


def text_table(table, frame):
    """Return the numbers of `TradeoffResults.table` as text, and the least n of each group."""
    groups = [g for g in frame["group"].unique() if g != OVERALL]
    cells = {}
    for measure, head in _HEADS.items():
        columns = {OVERALL: measure, **{g: f"{measure}[{g}]" for g in groups}}
        for name, column in (columns | {"gap": f"{measure}_difference"}).items():
            pairs = zip(table[column, "mean"], table[column, "se"], strict=True)
            cells[head, name] = [_written(mean, se) for mean, se in pairs]
    fewest = frame.groupby(["method", "epsilon", "group"])["n"].min().unstack("group")
    for group in groups:
        cells[_FEWEST, group] = fewest[group].reindex(table.index).tolist()
    return pd.DataFrame(cells, index=table.index)


def as_blocks(text, frame):
    """Return the text table as one block a measure, and a line on the groups' sizes."""
    n_runs = len(frame[["seed", "fold"]].drop_duplicates())
    over = f"mean ± standard error of {n_runs} runs" if n_runs > 1 else "one run"
    groups = list(text[_FEWEST].columns)
    blocks, many = [], len(groups) > _MOST_GROUPS
    for head in _HEADS.values():
        block = (text[head].drop(columns=groups) if many else text[head]).reset_index()
        block["epsilon"] = [f"{e:g}" if np.isfinite(e) else "-" for e in block["epsilon"]]
        blocks.append(f"{head}, {over}\n{block.to_string(index=False)}")
    least, empty = text[_FEWEST].min(), empty_runs(frame)
    if many:
        each = f"{len(groups)} groups, shown individually by .table() and the report"
        size = f"{int(least.min())} (of {least.idxmin()!r})"
        return "\n\n".join([*blocks, f"{each}; {_FEWEST} of a run: {size}"])
    sizes = [f"{group} {n}{_where(empty.get(group))}" for group, n in least.items()]
    return "\n\n".join([*blocks, f"{_FEWEST} of a run: {', '.join(sizes)}"])


def empty_runs(frame):
    """Return, by group, the seeds in which it had no test record."""
    rows = frame[frame["n"] == 0]
    return {group: sorted(part["seed"].unique()) for group, part in rows.groupby("group")}


def _where(seeds):
    if not seeds:
        return ""
    return f" (seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))})"


def _written(mean, se):
    if np.isnan(mean):
        return "-"
    return f"{round(100 * mean, 1) + 0.0:.1f}" + ("" if np.isnan(se) else f" ± {100 * se:.1f}")
