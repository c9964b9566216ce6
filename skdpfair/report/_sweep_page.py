"""Report of a sweep: its settings, accuracies, costs, ledger, and what is not accounted."""

from copy import copy
from importlib.metadata import version

import numpy as np
from scipy.stats import t

from skdpfair._validate import safe_repr
from skdpfair.metrics._measures import COST, MEASURES, OVERALL, described
from skdpfair.privacy import SampledGaussian, trade_off
from skdpfair.privacy import epsilon as epsilon_of
from skdpfair.privacy.gdp import delta_for
from skdpfair.privacy.statement import (
    ADJACENCY_IN_WORDS,
    CHANGED,
    FALSE_ALARMS,
    MEMBERS,
    NOT_ACCOUNTED,
    UNITS,
    in_unit,
    percent,
    rounded_up,
)
from skdpfair.report import _charts as charts
from skdpfair.report._rendering import (
    budget,
    findings,
    in_words,
    points,
    readable,
    render,
    share_interval,
    written,
)

_MODEL = ["method", "epsilon"]
_MOST_BARS = 3  # budgets for which costs are drawn as bars
_LEVEL = 0.95
_FEW = 30  # test records
_WEAK = 0.01  # of accuracy, that a private model may have more than its reference
_UNITS = {"%": "per cent"}
_SPLIT = "20 % held out per seed, stratified by class and group (cv=None)"


def results_page(results, *, title=None, pipeline=None, measures=None) -> str:
    """Return the report of a sweep as one HTML page; NOT private.

    Parameters
    ----------
    results : TradeoffResults
        Results of `skdpfair.model_selection.sweep`.
    title : str or None, default=None
        Title of the page.
    pipeline : estimator, PipelineReport or None, default=None
        The pipeline that prepared the features; the page lists its `check_pipeline` findings.
    measures : list of str or None, default=None
        Measures to tabulate by group, as in `TradeoffResults.table`; None is ``accuracy``,
        ``privacy_cost`` and ``dg_gap``, after ``balanced_accuracy``, ``rarest_class_recall`` and
        their costs if a class is rare. The first sentences and the charts follow
        `TradeoffResults.leading_measures`.

    Returns
    -------
    str
        The page as HTML.

    Raises
    ------
    ImportError
        If jinja2 is missing: ``pip install "skdpfair[report]"``.
    TypeError
        If ``title`` is not a text.
    ValueError
        If a measure is unknown, or the sweep does not have it.

    Examples
    --------
    >>> from skdpfair.datasets import make_two_groups
    >>> from skdpfair.model_selection import sweep
    >>> data = make_two_groups(3000, random_state=0)
    >>> given = data.data, data.target, data.sensitive_features
    >>> results = sweep(["dpsgd"], [3.0], 1, *given, module="logistic", max_steps=5)
    >>> "What it costs" in results_page(results, title="What it costs")
    True
    """
    if title is not None and not isinstance(title, str):
        raise TypeError(f"title must be a text or None, got {safe_repr(title)}.")
    results = _readable(results.with_one_ceiling())
    table, leading = results.table(), results.leading_measures
    main, cost = leading[0], COST[leading[0]]
    chosen = results.chosen_measures(measures)
    chosen += ["dg_gap"] * (measures is None and "dg_gap" in results.frame)
    groups = [g for g in results.frame["group"].unique() if g != OVERALL]
    runs = results.frame[["seed", "fold"]].drop_duplicates()
    adjacency = "zero_out_unit" if "unit" in (results.asked or {}) else "zero_out"
    context = {
        "title": title or "What privacy costs each group",
        "n_models": len(table),
        "n_runs": len(runs),
        "groups": groups,
        "unfinished": _unfinished(results),
        "n_references": sum(name.startswith("reference") for name, _ in table.index.unique()),
        "ceiling": _ceiling(results, table, main),
        "weak_reference": _weak_reference(table),
        "small": [g for g, least, _ in _sizes(results.frame, groups) if least < _FEW],
        "asked": _asked(results),
        "total": _total(results),
        "attackers": _attackers(results),
        "alarms": percent(FALSE_ALARMS),
        "members": MEMBERS[UNITS[adjacency]],
        "adjacency": ADJACENCY_IN_WORDS[adjacency],
        "unit": UNITS[adjacency],
        "changed": CHANGED[UNITS[adjacency]],
        "sizes": _sizes(results.frame, groups),
        "rare": _rare(results, table) if len(leading) > 1 else None,
        "largest_costs": [_largest_cost(table, groups, name) for name in leading],
        "measures": _tables(results, table, groups, chosen, None),
        "costs": _tables(results, table, groups, chosen, "reference"),
        "generalisation": _tables(results, table, groups, chosen, "training"),
        "bars": [chart for name in leading for chart in _bars(results.frame, COST[name])],
        "charts": [
            _curve(table, main, zero=False),
            _curve(table, f"{cost}_difference"),
        ],
        "generalisation_chart": _curve(table, "dg_gap"),
        "front": _front(results, table, main, f"{cost}_difference"),
        "ledger": _ledger(results),
        "findings": findings(pipeline),
        "features": (results.asked or {}).get("features"),
        "not_accounted": in_unit(NOT_ACCOUNTED, UNITS[adjacency]),
        "reproduce": _versions(results),
        "version": version("skdpfair"),
    }
    return render("results.html", context)


def _readable(results):
    """Return the same results with names for groups that are, in part, missing cells."""
    group = results.frame["group"]
    named = {g: readable(g) for g in group.unique() if g != OVERALL}
    taken = len({*named.values(), OVERALL}) <= len(named)
    if taken or all(g == name for g, name in named.items()):
        return results
    again = copy(results)
    again.frame = results.frame.assign(group=group.replace(named))
    return again


def _ceiling(results, table, measure):
    """Return the name of the ceiling, the measure, its mean, and those of the references."""
    if results.ceiling is None:
        return None
    means = table[measure, "mean"].droplevel("epsilon")
    others = means[means.index.str.startswith("reference")]
    name = results.ceiling.partition("(")[2].rstrip(")")
    name = {"logistic": "logistic regression", "mlp": "an MLP", "boosting": "gradient boosting"}[
        name
    ]
    return name, in_words(measure), points(means[results.ceiling]), points(others.max())


def _weak_reference(table):
    """Return in words how far a private model is above its reference, or None."""
    if ("privacy_cost", "mean") not in table:
        return None
    costs = table["privacy_cost", "mean"].dropna()
    costs = costs[np.isfinite(costs.index.get_level_values("epsilon"))]
    if costs.empty or costs.min() > -_WEAK:
        return None
    method, epsilon = costs.idxmin()
    return f"{method} at ε {epsilon:g} is {points(-costs.min())} points more accurate"


def _sizes(frame, groups):
    """Return each group's test records in a run, least and most."""
    counts = frame.groupby("group")["n"].agg(["min", "max"])
    return [(g, int(counts.loc[g, "min"]), int(counts.loc[g, "max"])) for g in groups]


def _rare(results, table):
    """Return the rarest class, if its name was kept, and its share of the test records."""
    share = table["rarest_class_share", "mean"].mean()
    return (results.asked or {}).get("rarest class", ""), points(share)


def _largest_cost(table, groups, name):
    """Return the largest cost of a group, and where: None without costs."""
    columns = [(f"{COST[name]}[{group}]", "mean") for group in groups]
    if not set(columns) <= set(table):
        return None
    private = table[np.isfinite(table.index.get_level_values("epsilon"))]
    costs = private[columns].droplevel(1, axis=1).set_axis(groups, axis=1).stack().dropna()
    if costs.empty:
        return None
    method, epsilon, group = costs.idxmax()
    cost, left = costs.max(), private.loc[(method, epsilon), (f"{name}[{group}]", "mean")]
    return {
        "measure": in_words(name),
        "points": points(cost),
        "group": group,
        "method": method,
        "budget": budget(epsilon),
        "before": points(left + cost),
        "left": points(left),
    }


def _tables(results, table, groups, chosen, against):
    """Return the tables of the chosen measures of one kind."""
    tables = []
    for name in chosen:
        rows = _rows(results, table, groups, name) if MEASURES[name].against == against else []
        title, unit, _ = described(name)
        heads = ["all", *groups, "difference", "worst group"]
        if rows:
            tables.append(
                {
                    "id": f"table-{name.replace('_', '-')}",
                    "rows": rows,
                    "heads": heads[: len(rows[0][2])],
                    "caption": f"{title} in {_UNITS.get(unit, unit)}",
                }
            )
    return tables


def _rows(results, table, groups, measure):
    """Return one row per model: name, and cells with intervals for all, groups and difference."""
    if (measure, "mean") not in table or table[measure, "mean"].isna().all():
        return []
    columns = [c for c, stat in table if stat == "mean" and _is_of(c, measure)]
    factor, is_cost = _factors(results.frame), MEASURES[measure].against == "reference"
    rows = []
    for (method, epsilon), row in table.iterrows():
        if is_cost and np.isinf(epsilon) and row[measure, "mean"] == 0:
            continue
        reach = factor[method, epsilon]
        cells = [_cell(row[c, "mean"], row[c, "se"], reach, c) for c in columns]
        if MEASURES[measure].trials and reach is None:
            part = results.frame.query("method == @method and epsilon == @epsilon")
            part = part.set_index("group")
            singles = [_single(part.loc[g], measure) for g in (OVERALL, *groups)]
            cells[: len(singles)] = singles
        rows.append((method, budget(epsilon), cells))
    return rows


def _is_of(column, measure):
    return column == measure or column.startswith(
        (f"{measure}[", f"{measure}_difference", f"{measure}_group_", f"{measure}_worst_group")
    )


def _factors(frame):
    """Return by how many standard errors each model's intervals reach; None for one run."""
    counts = frame[frame["group"] == OVERALL].groupby(_MODEL, sort=False).size()
    return {key: t.ppf((1 + _LEVEL) / 2, n - 1) if n > 1 else None for key, n in counts.items()}


def _cell(mean, error, factor, column):
    text = written(mean, column)
    if factor is None or np.isnan(mean) or np.isnan(error):
        return text, ""
    limits = {"%": (0.0, 1.0), "nats": (-np.inf, np.inf)}.get(described(column)[1], (-1.0, 1.0))
    low, high = np.clip([mean - factor * error, mean + factor * error], *limits)
    return text, f"{written(low, column)} to {written(high, column)}"


def _single(row, measure):
    """Return a share of one run with Wilson's interval."""
    value, n = row[measure], int(row["n"])
    if MEASURES[measure].trials == "rarest" and n:
        n = round(n * row["rarest_class_share"])
    return written(value, measure), share_interval(value, n)


def _bars(frame, cost):
    """Return charts of the costs at the least, the middle and the largest budget."""
    costs = frame[np.isfinite(frame["epsilon"]) & (frame["group"] != OVERALL)]
    means = 100 * costs.groupby(["epsilon", "method", "group"], sort=False)[cost].mean()
    budgets = np.sort(means.dropna().index.get_level_values("epsilon").unique())
    places = np.linspace(0, len(budgets) - 1, min(_MOST_BARS, len(budgets))).round().astype(int)
    return [
        charts.bars(
            {
                name: part.droplevel(0).to_dict()
                for name, part in means[budget].groupby("method", sort=False)
            },
            title=f"{described(cost)[0]} of each group at ε {budget:g}",
            label=f"percentage points of {in_words(MEASURES[cost].of)}",
        )
        for budget in budgets[places]
    ]


def _curve(table, measure, *, zero=True):
    """Return a chart of a measure against the budget, or None if there is nothing to draw."""
    if (measure, "mean") not in table:
        return None
    title, unit, factor = described(measure)
    curves, across = {}, {}
    for (method, epsilon), row in (factor * table[measure]).sort_index(level="epsilon").iterrows():
        if np.isnan(row["mean"]):
            continue
        if np.isinf(epsilon):
            across[method] = row["mean"]
        else:
            curves.setdefault(method, []).append((epsilon, row["mean"], row["se"]))
    if not curves:
        return None
    order = {m: curves[m] for m in table.index.get_level_values("method").unique() if m in curves}
    if measure.endswith("cost_difference"):
        across = {}  # that of a reference is zero by definition
    label = f"{in_words(measure)} ({unit})" if unit == "%" else unit
    return charts.lines(order, across, title=title, label=label, zero=zero)


def _front(results, table, *measures):
    """Return the Pareto front as rows, and as a chart among all private models."""
    try:
        front = results.pareto_front(*measures)
    except ValueError:  # no private model has both
        return None
    rows = [
        (method, budget(epsilon), *(points(row[m]) for m in measures))
        for (method, epsilon), row in front.iterrows()
    ]
    means = 100 * table.xs("mean", axis=1, level=1)[[*measures]].dropna()
    score, spots = in_words(measures[0]), {}
    for (method, epsilon), (x, y) in means.iterrows():
        if np.isfinite(epsilon):
            says = f"{method}, ε {epsilon:g}: {score} {x:.2f} %, difference {y:.2f} points"
            spots.setdefault(method, []).append((x, y, says))
    chart = charts.scatter(
        spots,
        (100 * front.sort_values(measures[0])).to_numpy().tolist(),
        title=f"{described(measures[0])[0]} and evenness: lower right is better; the line is the "
        "Pareto front",
        label="difference in privacy cost (points)",
        x_label=f"{score} (%)",
    )
    return {"rows": rows, "chart": chart, "score": score}


def _ledger(results):
    """Return one row per private model: asked, spent at most, and what one of its fits released."""
    frame = results.frame[results.frame["group"] == OVERALL]
    spent = frame[np.isfinite(frame["epsilon"])].groupby(_MODEL, sort=False)["epsilon_spent"].max()
    released = _released(results.releases)
    return [
        (method, budget(epsilon), rounded_up(most), released.get((method, epsilon), "not kept"))
        for (method, epsilon), most in spent.items()
    ]


def _released(releases):
    """Return the releases of the first fit of each model, in words."""
    found = {}
    for r in () if releases is None else releases.itertuples():
        first, parts = found.setdefault((r.method, r.epsilon), ((r.seed, r.fold), []))
        if (r.seed, r.fold) == first:
            what = f"{r.steps:,} × rate {r.sample_rate:.4g}, noise {r.noise_multiplier:.4g}"
            parts.append(what)
    return {model: "; ".join(parts) for model, (_, parts) in found.items()}


def _asked(results):
    """Return the settings of the sweep as pairs of name and text."""
    frame = results.frame
    private = frame[np.isfinite(frame["epsilon"])]
    rows = [
        ("methods", ", ".join(frame["method"].unique())),
        ("budgets ε", ", ".join(f"{e:g}" for e in sorted(private["epsilon"].unique())) or "none"),
        ("seeds", ", ".join(str(s) for s in frame["seed"].unique())),
        ("folds per seed", str(frame["fold"].nunique())),
    ]
    if results.asked is not None:
        rows.append(("records", f"{results.asked['n_samples']:,}"))
        if "unit" in results.asked:
            rows.append(("persons", f"{results.asked['n_units']:,}"))
        rows.append(("δ of all fits together", rounded_up(results.asked["delta"], 3)))
        rows += _of_one_run(frame, results.asked)
        classes = results.asked.get("classes")
        rows += [("classes", ", ".join(map(str, classes)))] if classes else []
        rows += [("public features", f)] if (f := results.asked.get("features")) else []
        params = results.asked["params"].items()
        rows += [(name, value) for name, value in params if name not in ("classes", "groups")]
    return rows


def _of_one_run(frame, asked):
    """Return how many a fit trains on, and its delta, unless a splitter decided on records."""
    unit = asked.get("unit", "record")
    if unit == "record" and asked["cv"] != "None" and not asked["cv"].isdigit():
        return []
    trained = asked["n_samples"] - frame.loc[frame["group"] == OVERALL, "n"]
    low, high = asked.get("n_units of one fit", [int(trained.min()), int(trained.max())])
    auto = asked["params"].get("delta", repr("auto")) == repr("auto")
    delta = delta_for("auto", low) if auto else asked["delta"]
    return [
        (f"{unit}s of one fit", f"{low:,}" if low == high else f"{low:,} to {high:,}"),
        ("δ of one fit", rounded_up(delta, 3)),
    ]


def _unfinished(results):
    """Return in words which fits the sweep has not finished, or None."""
    if results.asked is None or not {"seeds", "methods", "epsilons"} <= results.asked.keys():
        return None
    frame = results.frame[results.frame["group"] == OVERALL]
    seeds = len(results.asked["seeds"]) * frame["fold"].nunique()
    private = len(results.asked["methods"]) * len(results.asked["epsilons"])
    per_model = frame.groupby(_MODEL, sort=False).size()
    absent = sorted(set(results.asked["methods"]) - set(frame["method"]))
    if absent:
        return f"no run of {', '.join(absent)} is finished"
    short = int((per_model < seeds).sum())
    return f"{short} of {max(private, len(per_model))} models have fewer runs" if short else None


def _total(results):
    """Return epsilon and delta of all private fits together, or None where it is not known."""
    if results.asked is None or results.releases is None or results.releases.empty:
        return None
    runs = _runs(results.releases)
    delta = results.asked["delta"]
    return rounded_up(epsilon_of(runs, delta, "rdp")), rounded_up(delta, 3)


def _runs(releases):
    columns = ["sample_rate", "noise_multiplier", "steps"]
    runs = [SampledGaussian(*row) for row in releases[columns].itertuples(index=False)]
    return [run._replace(steps=int(run.steps)) for run in runs]


def _attackers(results):
    """Return the worst of the models at each budget: mu, what an attacker finds, and guesses.

    Of each model, the first fit is taken, as in the ledger.
    """
    if results.releases is None or results.releases.empty:
        return []
    worst = {}
    for (_, epsilon), releases in results.releases.groupby(_MODEL, sort=False):
        first = (releases[["seed", "fold"]] == releases[["seed", "fold"]].iloc[0]).all(axis=1)
        curve = trade_off(_runs(releases[first]))
        found = float(curve.true_positive_rate(FALSE_ALARMS))
        numbers = curve.mu, found, (1 + curve.total_variation) / 2
        worst[epsilon] = np.maximum(worst.get(epsilon, 0.0), numbers)
    return [
        (budget(epsilon), rounded_up(mu), percent(found), percent(guess))
        for epsilon, (mu, found, guess) in sorted(worst.items())
        if np.isfinite(epsilon)
    ]


def _versions(results):
    """Return the versions and the split, or None where they were not kept."""
    if results.asked is None:
        return None
    versions = {name: results.asked[name] for name in ("skdpfair", "torch")}
    split = _SPLIT if results.asked["cv"] == "None" else results.asked["cv"]
    apart = "; all records of a person are on one side" if "unit" in results.asked else ""
    return versions | {"split": split + apart}
