"""Results of a sweep: a tidy frame, tables, the Pareto front, and inputs for fairlearn."""

import tomllib
from dataclasses import fields, replace

import numpy as np
import pandas as pd
from fairlearn.metrics import MetricFrame
from sklearn.metrics import accuracy_score

from skdpfair._utils.files import path_of, replace_file
from skdpfair._utils.group_names import escape_reserved
from skdpfair._utils.validate import number, one_of, safe_repr
from skdpfair.metrics import _measures as measuring
from skdpfair.metrics._intervals import error_of_mean, of_share, overlap, student_of_column
from skdpfair.metrics._measures import COST, MEASURES, OVERALL, RATIOS, direction, worst_column
from skdpfair.model_selection._cells import CELL_ENTRIES, frame_of, predictions_of, releases_of
from skdpfair.model_selection._from_search import classes_of_search, frame_of_search
from skdpfair.model_selection._store import Store
from skdpfair.model_selection._sweep_spec import FORMAT_VERSION, SweepSpec
from skdpfair.preprocessing import TableSchema
from skdpfair.report._fairness_dashboard import launch, numbered, to_fairness_dashboard
from skdpfair.report._recommendation import small_groups
from skdpfair.report._rendering import with_interval, with_readable_names
from skdpfair.report._sweep_page import results_card, results_page

_MODEL = ["method", "epsilon"]
_RUN = ["seed", "fold"]
_MOST_GROUPS = 7  # a terminal has no room for more
_HEADS = ("method", "epsilon", "gap", "ratio", "worst")  # of a text, beside those of the groups
SCHEMA_FILE = "schema.toml"  # the shell leaves it beside the finished cells


class TradeoffResults:
    """Results of `sweep`; NOT private, as they hold scores on private records.

    Parameters
    ----------
    frame : pandas.DataFrame
        One row per cell and group, and one per cell with group ``"overall"`` (a group of this name
        is in quotes, ``"'overall'"``): method, epsilon (inf without privacy), seed, fold, group, n
        (test records), n_train (training records of the run), the measures of
        `skdpfair.metrics.group_table`, where costs and excessive_risk compare with the reference
        model of the same seed and fold (NaN if it was not run), dg_gap (accuracy on the training
        records minus accuracy), epsilon_spent, fit_seconds.
    predictions : dict or None, default=None
        Maps (method, epsilon, seed, fold) to a frame of y_true, y_pred and group.
    spec : SweepSpec or None, default=None
        What the sweep compared, on which records: ``methods``, ``epsilons``, ``seeds``, ``params``,
        ``classes``, ``groups`` and so on; None if it is not known.
    releases : pandas.DataFrame or None, default=None
        One row per cell and kind of release: method, epsilon, seed, fold, sample_rate,
        noise_multiplier, steps, strata.

    Attributes
    ----------
    frame, predictions, spec, releases
        As given.

    Examples
    --------
    >>> from skdpfair.datasets import make_two_groups
    >>> from skdpfair.model_selection import sweep
    >>> data = make_two_groups(3000, random_state=0)
    >>> results = sweep(
    ...     data.data, data.target, sensitive_features=data.sensitive_features,
    ...     methods=["dpsgd"], epsilons=[3.0], seeds=1, module="logistic", max_steps=5,
    ... )
    >>> results, results.table().index.tolist()
    (TradeoffResults(2 models x 1 runs), [('reference', inf), ('dpsgd', 3.0)])
    """

    def __init__(self, frame, predictions=None, spec=None, releases=None):
        if not isinstance(frame, pd.DataFrame):
            raise TypeError(f"frame must be a DataFrame of runs, got {safe_repr(frame)}.")
        self.frame, self.predictions = frame, predictions
        self.spec, self.releases = spec or SweepSpec(), releases
        self.schema = self.files = None  # of a sweep of the shell: its data and its schema

    @classmethod
    def from_cells(cls, cells, levels, classes, spec=None):
        """Return the results of finished cells, as a sweep stores them.

        Parameters
        ----------
        cells : list of dict
            The files of a sweep's folder, but its manifest.
        levels, classes : list
            The names of the groups, and the classes, to which numbers in the cells refer.
        spec : SweepSpec or None, default=None
            What the sweep compared.

        Returns
        -------
        TradeoffResults
        """
        predictions = predictions_of(cells, levels, classes) or None
        if spec is not None:
            days = sorted({cell["day"] for cell in cells if "day" in cell})
            fits = [cell.get("ledger_fit") for cell in cells if cell["epsilon"] is not None]
            spec = replace(spec, days=[days[0], days[-1]] if days else [], ledger_fits=fits)
        return cls(frame_of(cells, levels), predictions, spec, releases_of(cells))

    @classmethod
    def from_store(cls, store):
        """Return the results of the cells in the folder that `sweep` was given, in its order.

        An error is raised if the folder holds no sweep, or no cell is finished.
        """
        folder, manifest = Store.existing(store, needs=CELL_ENTRIES)
        facts = {name: v for name, v in manifest.items() if not name.startswith("data ")}
        version = facts.get("format_version")
        if version != FORMAT_VERSION or facts.keys() != {f.name for f in fields(SweepSpec)}:
            raise ValueError(
                f"store={str(store)!r} does not hold a sweep, or holds one of an older version or "
                f"a newer one: its format version is {version!r}, and this skdpfair reads "
                f"{FORMAT_VERSION}. Name another folder, or run the sweep again."
            )
        spec = SweepSpec(**facts)
        place = {name: i for i, name in enumerate(spec.methods)}  # reference models come first

        def order(cell):
            budget, name = cell["epsilon"], cell["method"]
            at = spec.epsilons.index(budget) if budget in spec.epsilons else -1
            return cell["seed"], cell["fold"], place.get(name, -1), at, name

        cells = sorted(folder.cells(), key=order)
        out = cls.from_cells(cells, spec.groups, np.asarray(spec.classes), spec)
        if (path := folder.folder / SCHEMA_FILE).is_file():
            out.schema = TableSchema.from_toml(path)
            data = tomllib.loads(path.read_text(encoding="utf-8")).get("data", "DATA")
            out.files = str(data), str(path)
        return out

    @classmethod
    def from_search(cls, search):
        """Return the candidates of a search as models, each compared with its reference.

        Parameters
        ----------
        search : fitted search, or its ``cv_results_``
            Scored by `GroupScorer`, such as ``GroupScorer(measures=["accuracy", "neg_log_loss"])``.
            Costs and risks need a candidate without privacy, ``{"epsilon": [None]}``, which agrees
            with the private ones in all else that both name; name ``module`` if "auto" may choose
            another network without privacy. dg_gap needs ``return_train_score=True``.

        Returns
        -------
        TradeoffResults
            A model for each candidate, in the order of ``cv_results_``, and a run for each fold.
            Parameters other than method and epsilon stand in the name of the method. The epsilon is
            NaN if neither the grid nor the search names it. Results are not private.

        Raises
        ------
        TypeError, ValueError
            If it is no search, has no scores by group, or several references match a candidate
            equally well.

        Examples
        --------
        >>> cv_results = {
        ...     "params": [{"epsilon": None}, {"epsilon": 1.0}],
        ...     "split0_test_accuracy": [0.9, 0.8],
        ...     "split0_test_accuracy[F]": [0.9, 0.6], "split0_test_accuracy[M]": [0.9, 0.8],
        ... }
        >>> results = TradeoffResults.from_search(cv_results)
        >>> print(results.as_text(["privacy_cost"]))
        privacy cost (percentage points), one run
           method epsilon overall    F    M  gap worst
        reference       -     0.0  0.0  0.0  0.0   0.0
          private       1    10.0 30.0 10.0 20.0  30.0
        """
        return cls(frame_of_search(search), spec=SweepSpec(classes=classes_of_search(search)))

    def best_index(self, column="privacy_cost_difference", *, at_least=None):
        """Return the position of the best private model in `table`, by one of its means.

        For a search, this is the row of ``cv_results_``: pass ``refit=lambda results:
        TradeoffResults.from_search(results).best_index(...)``.

        Parameters
        ----------
        column : str, default="privacy_cost_difference"
            A column of `table`. The largest wins where larger is better, the smallest otherwise,
            and of dg_gap the nearest to 0.
        at_least : dict of str to float or None, default=None
            Lower bounds on columns, such as ``{"accuracy": 0.8}``. Without a bound, a constant
            model may win a comparison of groups.

        Returns
        -------
        int

        Raises
        ------
        ValueError
            If a column does not exist, or no private model has it and meets the bounds.

        Notes
        -----
        A choice by scores on private records is not private.
        """
        means, private = self._means()
        values = (direction(column) or -1) * means[one_of("column", column, means)].to_numpy()
        values = -abs(values) if column.startswith("dg_gap") else values
        eligible = private & ~np.isnan(values)
        best = {}
        for name, least in (at_least or {}).items():
            scores = means[one_of("at_least", name, means)].to_numpy()
            best[name] = f"{max(scores[private], default=np.nan):.4g}"
            eligible &= scores >= number("at_least", least)
        if not eligible.any():
            raise ValueError(
                f"No private model has a {column!r} and reaches at_least={at_least!r}, best values "
                f"{best}. Lower the bounds, or add candidates. A search keeps its scores with "
                "refit=False."
            )
        return int(np.flatnonzero(eligible)[np.argmax(values[eligible])])

    def __repr__(self):
        n_models, n_runs = (len(self.frame[by].drop_duplicates()) for by in (_MODEL, _RUN))
        return f"TradeoffResults({n_models} models x {n_runs} runs)"

    def _repr_html_(self):
        return results_card(self)

    def __str__(self):
        """Return the means for a terminal."""
        return self.as_text()

    def as_text(self, measures=None):
        """Return `estimates` for a terminal, in per cent, percentage points and nats.

        ``measures`` are names; None is ``accuracy`` and ``privacy_cost``, after
        ``balanced_accuracy``, ``rarest_class_recall`` and their costs if a class is rare
        (`leading_measures`).
        """
        readable = with_readable_names(self)
        frame, groups = readable.frame, readable._groups()
        n_runs, many = len(frame[_RUN].drop_duplicates()), len(groups) > _MOST_GROUPS
        over = f"mean of {n_runs} runs" if n_runs > 1 else "one run"
        heads = dict(zip(groups, escape_reserved(groups, _HEADS), strict=True))
        names = readable.chosen_measures(measures)
        estimates, blocks = readable.estimates(names), []
        for name in names:
            block, has_intervals = _block(estimates, name, {} if many else heads)
            of_class = measuring.of_positive(name, readable.spec.classes)
            head = f"{name.replace('_', ' ')}{of_class} ({measuring.described(name)[1]}), {over}"
            head += " and 95 % interval" * has_intervals
            blocks.append(f"{head}\n{block.to_string(index=False)}")
        if frame["n"].isna().all():  # of a search, whose scores do not tell
            return "\n\n".join(blocks)
        least, empty = frame.groupby("group")["n"].min()[groups], empty_runs(frame)
        if many:
            each = f"{len(groups)} groups, shown individually by .table() and the report; "
            sizes = f"{int(least.min())} (of {heads[least.idxmin()]!r})"
        else:
            each = ""
            sizes = ", ".join(f"{heads[g]} {n}{_where(empty.get(g))}" for g, n in least.items())
        few = ", ".join(heads[g] for g in small_groups(readable))
        sizes += f"; too few to judge: {few}" * bool(few)
        return "\n\n".join([*blocks, f"{each}fewest test records of a run: {sizes}"])

    @property
    def leading_measures(self):
        """Measures that tables and pages begin with: accuracy, unless a class is rare.

        If the rarest class has less than 30 % of the test records (of K > 2 classes, 0.6 / K),
        accuracy hides how often it is missed. Then these are ``balanced_accuracy`` and
        ``rarest_class_recall``. The share is that of the test records, and not private.
        """
        if not {"rarest_class_share", "balanced_accuracy", "rarest_class_recall"} <= {*self.frame}:
            return ["accuracy"]
        overall = self.frame[self.frame["group"] == OVERALL]
        return measuring.leading_measures(overall["rarest_class_share"].mean(), self.n_classes)

    @property
    def n_classes(self):
        """Number of classes, two if it is not known."""
        return len(self.spec.classes) or 2

    @property
    def variables(self):
        """Names of the target and of the columns of the groups, "" if they are not known."""
        return self.spec.variables

    def chosen_measures(self, measures=None):
        """Return the names of measures, the default of `as_text` for None, or raise ValueError."""
        simple = list(dict.fromkeys([*self.leading_measures, "accuracy"]))
        return measuring.chosen_measures(measures, self._known(), [*simple, *map(COST.get, simple)])

    def by_run(self):
        """Return the measures of each cell, by group, with differences and worst groups.

        The frame is indexed by method, epsilon, seed and fold, in the order of the sweep. For each
        measure there are ``MEASURE``, ``MEASURE[GROUP]``, ``MEASURE_difference`` and, of the worst
        group, ``MEASURE_group_min`` or, if less is better, ``MEASURE_group_max``. A group without
        test records in a run has NaN, and the difference leaves it out; it is NaN if only one of
        several groups has a value. ``dg_gap_worst_group`` is the worst accuracy of a group on the
        training records minus the worst one on the test records.
        """
        rows = {
            key: {column: float(high[0] - low[0]) for column, (high, low) in columns.items()}
            for key, columns in self._blocks([*_MODEL, *_RUN], self._known())
        }
        index = pd.MultiIndex.from_tuples(rows, names=[*_MODEL, *_RUN])
        return pd.DataFrame([*rows.values()], index=index)

    def table(self, measures=None):
        """Return mean and standard error over runs, in the form of the papers.

        There is one row per method and epsilon, and columns (quantity, "mean", "se" or "n"), as
        shares, and nats for ``log_loss`` and ``excessive_risk``; ``measures`` are names, or None
        for all. Means are over the n runs in which a group has test records. Differences and worst
        groups are those of the groups with the largest and the smallest mean. Standard errors allow
        for the test records that runs of several seeds share, see `overlap`; those of differences
        and worst groups do not cover the choice of these groups.
        """
        names = self._known() if measures is None else self.chosen_measures(measures)
        rows, quantities, common = {}, [], self.overlap
        for key, columns in self._blocks(_MODEL, names):
            moments = (_moments(high, low, common) for high, low in columns.values())
            rows[key] = [value for three in moments for value in three]
            quantities = list(columns)
        index = pd.MultiIndex.from_tuples(rows, names=_MODEL)
        columns = pd.MultiIndex.from_product([quantities, ["mean", "se", "n"]])
        return pd.DataFrame([*rows.values()], index=index, columns=columns)

    @property
    def overlap(self):
        """Part of its test records that a run shares with another, on average.

        Seeds split one table, so their test records overlap; the folds of one seed do not. It is 0
        where the number of training records is not known, as for a search.
        """
        return overlap(self.test_share, self.frame[_RUN].drop_duplicates().groupby("seed").size())

    @property
    def test_share(self):
        """Mean part of the table that a run tests, 0 if it is not known."""
        overall = self.frame[self.frame["group"] == OVERALL]
        n, n_train = overall.reindex(columns=["n", "n_train"]).mean()
        return 0.0 if np.isnan(n + n_train) else n / (n + n_train)

    def estimates(self, measures=None):
        """Return means over runs with 95 % intervals, which pages, figures and ``print`` show.

        It is as `table`, with columns (quantity, "mean", "low", "high", "n" or "kind"). ``kind`` is
        "Student", of several runs, corrected for the test records that they share (Nadeau and
        Bengio); "Wilson", of a share of test records in a single run, which does not cover another
        fit; or "". Intervals of differences, worst groups and costs allow for the choice of groups.
        """
        table, groups = self.table(measures), self._groups()
        overall = self.frame[self.frame["group"] == OVERALL]
        n_runs = overall.groupby(_MODEL, sort=False, dropna=False).size().reindex(table.index)
        parts = {}
        for column in dict.fromkeys(column for column, _ in table):
            mean, error, n = (table[column, statistic] for statistic in ("mean", "se", "n"))
            low, high = student_of_column(column, mean, error, n, len(groups))
            kind = np.where(np.isnan(low), "", "Student")
            part = {"mean": mean, "low": low, "high": high, "n": n.astype(int), "kind": kind}
            parts[column] = pd.DataFrame(part)
        labels = list(map(str, self.spec.classes))
        rarest = labels.index(r) if (r := self.spec.rarest_class) in labels else None
        single = self.frame.set_index(_MODEL).loc[n_runs.index[n_runs == 1]]
        shares = [name for name, m in MEASURES.items() if m.trials is not None and name in parts]
        for name in shares:
            for group, rows in single.groupby("group", sort=False):
                part = parts[name if group == OVERALL else f"{name}[{group}]"]
                ends = [of_share(r, name, rarest) for _, r in rows.fillna({"n": 0}).iterrows()]
                part.loc[rows.index, ["low", "high"]] = ends
                part.loc[rows.index, "kind"] = np.where(np.isnan(ends)[:, 0], "", "Wilson")
        return pd.concat(parts, axis=1)

    def _known(self):
        return [name for name in MEASURES if name in self.frame]

    def _groups(self):
        return [g for g in self.frame["group"].unique() if g != OVERALL]

    def _blocks(self, levels, names):
        """Yield some levels, and `columns_of_runs` of the runs that agree in them."""
        known, groups = self._known(), self._groups()
        order = self.frame[[*_MODEL, *_RUN]].drop_duplicates()
        wide = self.frame.pivot(index=[*_MODEL, *_RUN], columns="group", values=known)
        wide = wide.loc[pd.MultiIndex.from_frame(order)]
        parts = {name: wide[name][[OVERALL, *groups]].to_numpy() for name in known}
        positions = wide.groupby(level=levels, sort=False, dropna=False).indices
        for key, rows in sorted(positions.items(), key=lambda kv: kv[1][0]):  # pandas 2 sorts them
            of_runs = {name: values[rows] for name, values in parts.items()}
            columns = [measuring.columns_of_runs(name, of_runs, groups) for name in names]
            yield key, {column: runs for part in columns for column, runs in part.items()}

    def _means(self):
        """Return the means of all models, with their epsilon, and which models are private."""
        means = self.table().xs("mean", axis=1, level=1)
        epsilon = means.index.get_level_values("epsilon")
        return means.assign(epsilon=epsilon), ~np.isinf(epsilon)

    def pareto_front(self, x="accuracy", y="privacy_cost_difference"):
        """Return the private models that no other beats in both quantities.

        ``x`` and ``y`` are columns of `table`, or ``"epsilon"``: larger scores, such as accuracy,
        are better, and smaller losses, costs, differences and epsilon. The frame holds the means of
        both, indexed by method and epsilon, sorted from the best ``x``.
        """
        means, private = self._means()
        for name, column in {"x": x, "y": y}.items():
            one_of(name, column, means.columns)
        table = means.loc[private, [x, y]].dropna()
        if table.empty:
            raise ValueError(
                f"No private model has both x={safe_repr(x)} and y={safe_repr(y)}: costs need runs "
                "of the reference model, and groups need test records."
            )
        loss = table * [-1 if direction(column) > 0 else 1 for column in (x, y)]
        on_front = [
            not ((loss <= r).all(axis=1) & (loss < r).any(axis=1)).any() for _, r in loss.iterrows()
        ]
        return table[on_front].sort_values(x, ascending=direction(x) <= 0)

    def plot(self, measure=None, ax=None):
        """Return a TradeoffDisplay of a column of `by_run` against epsilon, drawn into ``ax``.

        None is the first of `leading_measures`.
        """
        from skdpfair.report._displays import TradeoffDisplay

        measure = self.leading_measures[0] if measure is None else measure
        return TradeoffDisplay.from_results(self, measure=measure).plot(ax=ax)

    def launch_fairness_dashboard(self, port=None, *, seed=None, fold=0):
        """Serve the dashboard on this machine, and show it if this is a notebook.

        Parameters
        ----------
        port : int or None, default=None
            Port of localhost; None uses the first free port from 8704.
        seed, fold
            As in `to_fairness_dashboard`.

        Returns
        -------
        raiwidgets.fairness_dashboard.FairnessDashboard
            Its attribute ``url`` is the address. The server stops with the process: in a script,
            wait, for example with ``input()``.

        Raises
        ------
        ImportError
            If raiwidgets or a package that it needs is missing; the error says how to install it.
        ValueError
            If the port is taken, the predictions were not kept, or there are more than two classes.

        Notes
        -----
        It computes its measures from labels, and shows what is not defined for a group as 0.
        Accuracy is not among them if a class is rare (`leading_measures`).

        The server gives labels, groups and predictions of private records to everyone who can reach
        localhost of this machine. Outside notebooks, it refuses pages of other origins.

        Examples
        --------
        >>> results.launch_fairness_dashboard().url  # doctest: +SKIP
        'http://localhost:8704'
        """
        return launch(self, port, seed=seed, fold=fold)

    def to_html(self, path=None, *, title=None, pipeline=None, measures=None, ledger=None):
        """Return or write a report as one self-contained HTML page; NOT private.

        Parameters
        ----------
        path : path-like or None, default=None
            File to write; None returns the page.
        title : str or None, default=None
            Title of the page.
        pipeline : estimator, PipelineReport or None, default=None
            The pipeline that prepared the features; the page lists its `lint_pipeline` findings.
        measures : list of str or None, default=None
            Measures to tabulate by group; None is ``accuracy``, ``privacy_cost`` and
            ``dg_gap``, after ``balanced_accuracy``, ``rarest_class_recall`` and their costs if a
            class is rare. The charts follow `leading_measures`.
        ledger : PrivacyLedger or None, default=None
            The ledger of the data set; the page tells what it has recorded, if it holds all private
            fits of the sweep.

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
        page = results_page(self, title=title, pipeline=pipeline, measures=measures, ledger=ledger)
        if path is None:
            return page
        replace_file(path, page.encode())

    def to_fairlearn(self, metrics=None):
        """Return a fairlearn MetricFrame of each model and run, by name.

        ``metrics`` are as in fairlearn; None is ``{"accuracy": accuracy_score}``. They get the
        numbers of the classes from 0, in the order of ``classes_``; with two classes, 1 is the
        positive one.
        """
        metrics = {"accuracy": accuracy_score} if metrics is None else metrics
        return {
            _name(key, with_run=True): MetricFrame(
                metrics=metrics,
                y_true=part["y_true"],
                y_pred=part["y_pred"],
                sensitive_features=part["group"],
            )
            for key, part in numbered(self, self._kept()).items()
        }

    def to_fairness_dashboard(self, seed=None, fold=0):
        """Return the arguments of raiwidgets' FairnessDashboard, of one seed and fold; NOT private.

        They are ``sensitive_features`` (dict of lists), ``y_true`` (list) and ``y_pred`` (dict from
        the model's name to a list). Classes are numbered from 0 in the order of ``classes_``; with
        two classes, 1 is the positive one. Characters that would end a string in a script are
        replaced by similar ones.
        """
        return to_fairness_dashboard(self, seed=seed, fold=fold)

    def predictions_of(self, *, seed=None, fold=0) -> dict:
        """Return the predictions of all models on one test set, by model name; NOT private.

        The frames have columns ``y_true``, ``y_pred`` and ``group``. The split is that of a seed,
        by None of the first, and a fold.
        """
        predictions = self._kept()
        seed = next(iter(predictions))[2] if seed is None else seed
        parts = {_name(key): part for key, part in predictions.items() if key[2:] == (seed, fold)}
        if not parts:
            raise ValueError(
                f"seed={safe_repr(seed)}, fold={safe_repr(fold)} was not run. Choose among (seed, "
                f"fold) = {sorted({key[2:] for key in predictions})}."
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


def _moments(values, other, common):
    """Return the difference of two means, its standard error, and how many runs have both."""
    if np.isnan(values).all() or np.isnan(other).all():
        return np.nan, np.nan, 0
    difference = values - other
    difference = difference[~np.isnan(difference)]
    mean = np.nanmean(values) - np.nanmean(other)
    return mean, error_of_mean(difference, common), len(difference)


def _block(estimates, name, heads):
    """Return the rows of a measure for a terminal, and whether some are intervals.

    ``heads`` are the columns of the groups.
    """
    columns = {OVERALL: name} | {head: f"{name}[{group}]" for group, head in heads.items()}
    columns["gap"] = f"{name}_difference"
    if name in RATIOS:
        columns["ratio"] = f"{name}_ratio"
    if (worst := worst_column(name)) is not None:
        columns["worst"] = f"{name}{worst}"
    rows = []
    for (method, epsilon), row in estimates.iterrows():
        # costs without a reference are unknown, and no groups that could not be compared
        is_known = not np.isnan(row[name, "mean"])
        cells = [with_interval(row[c], c) if is_known else ("–", "") for c in columns.values()]
        values, intervals = zip(*cells, strict=True)
        rows.append((method, f"{epsilon:g}" if np.isfinite(epsilon) else "-", *values))
        if any(intervals):
            rows.append(("", "", *intervals))
    block = pd.DataFrame(rows, columns=["method", "epsilon", *columns])
    return block, len(rows) > len(estimates)


def empty_runs(frame):
    """Return, by group, the seeds in which it had no test record."""
    rows = frame[frame["n"] == 0]
    return {group: sorted(part["seed"].unique()) for group, part in rows.groupby("group")}


def _where(seeds):
    return f" (seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))})" if seeds else ""
