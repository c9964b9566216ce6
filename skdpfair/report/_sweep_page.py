"""Report of a sweep: what to take, settings, accuracies, costs, ledger, and what ε leaves out."""

import numpy as np

import skdpfair
from skdpfair._utils.validate import safe_repr
from skdpfair.inputs.groups import apart
from skdpfair.metrics._measures import COST, MEASURES, OVERALL, RATIOS, described
from skdpfair.privacy import Release
from skdpfair.privacy import epsilon as epsilon_of
from skdpfair.privacy.gdp import delta_for
from skdpfair.privacy.statement import (
    ADJACENCY_IN_WORDS,
    CHANGED,
    FALSE_ALARMS,
    MEMBERS,
    NOT_ACCOUNTED,
    in_unit,
    percent,
    rounded_up,
)
from skdpfair.privacy.tradeoff import trade_off
from skdpfair.report import _charts as charts
from skdpfair.report._ledger_facts import check_ledger
from skdpfair.report._recommendation import FEW, is_unsure, recommend, small_groups
from skdpfair.report._rendering import (
    MOST_BUDGETS,
    budget,
    error_in_words,
    findings,
    in_words,
    points,
    render,
    with_interval,
    with_readable_names,
)
from skdpfair.report._summary import before, release_commands, sentences_of

_MODEL = ["method", "epsilon"]
_ENDS = ("mean", "low", "high")
# heads beside the names of groups
_OWN = ("difference", "ratio", "worst group")
_UNITS = {"%": "per cent"}
_SPLIT = "20 % held out per seed, stratified by class and group (cv=None)"


def results_page(results, *, title=None, pipeline=None, measures=None, ledger=None) -> str:
    """Return the report of a sweep as one HTML page, see `TradeoffResults.to_html`."""
    if title is not None and not isinstance(title, str):
        raise TypeError(f"title must be a text or None, got {safe_repr(title)}.")
    check_ledger(ledger)
    if results.frame["n"].isna().all():
        raise ValueError(
            "results of a search do not tell how many records they tested, which a page needs. Use "
            "print(results) and results.plot(), or a sweep."
        )
    results = with_readable_names(results)
    table, leading = results.estimates(), results.leading_measures
    main, cost = leading[0], COST[leading[0]]
    chosen = results.chosen_measures(measures)
    chosen += ["dg_gap"] * (measures is None and "dg_gap" in results.frame)
    groups = [g for g in results.frame["group"].unique() if g != OVERALL]
    runs = results.frame[["seed", "fold"]].drop_duplicates()
    spec, unit = results.spec, results.spec.unit
    adjacency = "zero_out_unit" if unit == "person" else "zero_out"
    sizes, small = _sizes(results.frame, groups), small_groups(results)
    drawn = [g for g in groups if g not in small] or groups
    total, advised, attackers = _total(results), recommend(results), _attackers(results)
    context = {
        "title": title or "What privacy costs each group",
        "n_models": len(table),
        "n_runs": len(runs),
        "groups": groups,
        "grouping": " and ".join(results.variables[1:]),
        "unfinished": _unfinished(results),
        "n_references": sum(name.startswith("reference") for name, _ in table.index.unique()),
        "small": small,
        "few": FEW,
        "sentences": sentences_of(
            results, table, advised, sizes, small, attackers, _delta_of_one_run(results)
        ),
        "is_choice": advised is not None,
        "has_private": bool(np.isfinite(results.frame["epsilon"]).any()),
        "n_units": spec.n_units,
        "measure": in_words(main),
        "settings": _settings(results),
        "data": _data(results),
        "total": total,
        "attackers": attackers,
        "alarms": percent(FALSE_ALARMS),
        "members": MEMBERS[unit],
        "adjacency": ADJACENCY_IN_WORDS[adjacency],
        "unit": unit,
        "changed": CHANGED[unit],
        "sizes": sizes,
        "base_rates": _base_rates(results, groups),
        "measures": _tables(results, table, groups, chosen, None),
        "leading": [f"table-{name.replace('_', '-')}" for name in (main, cost)],
        "has_errors": "false_negative_rate" in results.frame,
        "costs": _tables(results, table, groups, chosen, "reference"),
        "generalisation": _tables(results, table, groups, chosen, "training"),
        "bars": _bars(table, cost, drawn, small),
        "undrawn": [] if drawn == groups else small,
        "budgets": _budgets_without_bars(results.frame),
        "charts": [
            _curve(results, table, main, zero=False),
            _curve(results, table, f"{cost}_difference"),
        ],
        "generalisation_chart": _curve(results, table, "dg_gap"),
        "front": _front(results, table, main, f"{cost}_difference"),
        "ledger": _ledger(results),
        "before": before(results, ledger, total),
        "findings": findings(pipeline),
        "features": spec.features,
        "not_accounted": in_unit(NOT_ACCOUNTED, unit),
        "commands": release_commands(results, advised, ledger),
        "is_known": spec.is_known,
        "version": skdpfair.__version__,
    }
    return render("results.html", context)


def _data(results):
    """Return facts about the records as pairs of name and text."""
    frame, spec = results.frame, results.spec
    rows = [("records", f"{spec.n_samples:,}")] if spec.is_known else []
    if spec.unit == "person":
        rows.append(("persons", f"{spec.n_units:,}"))
    if spec.n_features:
        rows.append(("features", f"{spec.n_features:,}"))
    rows += [("public features", spec.features)] if spec.features else []
    if len(spec.classes) == 2:
        rows.append(("positive class", str(spec.classes[1])))
    if spec.counts:
        counts = np.sum(spec.counts, axis=0)
        shares = counts / counts.sum()
        names = [
            f"{label} ({points(share)} %)"
            for label, share in zip(spec.classes, shares, strict=True)
        ]
        rows.append(("classes, share of the records", ", ".join(names)))
    elif spec.classes:
        rows.append(("classes", ", ".join(map(str, spec.classes))))
    if grouping := " and ".join(results.variables[1:]):
        rows.append(("groups by", grouping))
    n = frame.loc[frame["group"] == OVERALL, "n"]
    tested = f"{n.min():,}" if n.min() == n.max() else f"{n.min():,} to {n.max():,}"
    split = ""
    if spec.is_known:
        split = f": {_SPLIT if spec.cv == 'None' else spec.cv}"
        split += "; all records of a person are on one side" * (spec.unit == "person")
    rows.append(("test records of a run", tested + split))
    if spec.days:
        rows.append(("trained on", " to ".join(dict.fromkeys(spec.days))))
    if spec.is_known:
        rows.append(("version", f"skdpfair {spec.skdpfair}, torch {spec.torch}"))
    return rows


def _sizes(frame, groups):
    """Return each group's test records in a run, least and most."""
    counts = frame.groupby("group")["n"].agg(["min", "max"])
    return [(g, int(counts.loc[g, "min"]), int(counts.loc[g, "max"])) for g in groups]


def _base_rates(results, groups):
    """Return a class, and each group's records and share of this class; None if not kept.

    The class is the second of two, or the rarest of more.
    """
    if len(results.spec.counts) != len(groups):
        return None
    counts = np.array(results.spec.counts, float)
    at = 1 if counts.shape[1] == 2 else counts.sum(axis=0).argmin()
    sums = counts.sum(axis=1)
    shares = np.divide(counts[:, at], sums, out=np.full(len(sums), np.nan), where=sums > 0)
    rows = {
        g: (f"{n:,.0f}", points(share)) for g, n, share in zip(groups, sums, shares, strict=True)
    }
    return results.spec.classes[at], rows


def _tables(results, table, groups, chosen, against):
    """Return the tables of the chosen measures of one kind."""
    tables = []
    for name in chosen:
        rows = _rows(table, name) if MEASURES[name].against == against else []
        classes = results.spec.classes
        title, unit, _ = described(name, classes)
        if error := error_in_words(name, classes):
            title += f" (share of {error})"
        own = [head for head in _OWN if head != "ratio" or name in RATIOS]
        heads = ["all", *apart(groups, ("all", "method", "ε", *_OWN)), *own]
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


def _rows(table, measure):
    """Return one row per model: name, and cells with intervals for all, groups and difference."""
    if (measure, "mean") not in table or table[measure, "mean"].isna().all():
        return []
    columns = [c for c, stat in table if stat == "mean" and _is_of(c, measure)]
    is_cost, rows = MEASURES[measure].against == "reference", []
    for (method, epsilon), row in table.iterrows():
        if is_cost and np.isinf(epsilon) and not row[measure, "mean"]:  # the reference itself
            continue
        rows.append((method, budget(epsilon), [with_interval(row[c], c) for c in columns]))
    return rows


def _is_of(column, measure):
    return column == measure or column.startswith(
        (f"{measure}[", f"{measure}_difference", f"{measure}_ratio", f"{measure}_group_")
    )


def _budgets_without_bars(frame):
    """Return the budgets that the bars leave out."""
    every = sorted(e for e in frame["epsilon"].unique() if np.isfinite(e))
    return [f"{e:g}" for e in every if e not in _budgets_with_bars(every)]


def _budgets_with_bars(budgets):
    places = np.linspace(0, len(budgets) - 1, min(MOST_BUDGETS, len(budgets))).round().astype(int)
    return [budgets[i] for i in places]


def _bars(table, cost, groups, small):
    """Return charts of the costs of each budget, over one range of values."""
    if (cost, "mean") not in table:
        return []
    rows = {}
    for (method, epsilon), row in table.iterrows():
        if np.isfinite(epsilon) and not np.isnan(row[cost, "mean"]):
            rows.setdefault(epsilon, {})[method] = {
                g: tuple(100 * row[f"{cost}[{g}]", stat] for stat in _ENDS) for g in groups
            }
    values = [v for part in rows.values() for by in part.values() for p in by.values() for v in p]
    limits = charts.range_of(values, zero=True)
    return [
        charts.bars(
            rows[epsilon],
            title=f"{described(cost)[0]} of each group at ε {epsilon:g}",
            label=f"percentage points of {in_words(MEASURES[cost].of)}",
            limits=limits,
            small=small,
        )
        for epsilon in _budgets_with_bars(sorted(rows))
    ]


def _curve(results, table, measure, *, zero=True):
    """Return a chart of a measure against the budget, or None if there is nothing to draw."""
    if (measure, "mean") not in table:
        return None
    title, unit, factor = described(measure)
    curves, across = {}, {}
    for (method, epsilon), row in table[measure].sort_index(level="epsilon").iterrows():
        values = tuple(factor * row[stat] for stat in _ENDS)
        if np.isnan(row["mean"]):
            continue
        if np.isinf(epsilon):
            across[method] = values
        else:
            curves.setdefault(method, []).append((epsilon, *values))
    if not curves:
        return None
    order = {m: curves[m] for m in table.index.get_level_values("method").unique() if m in curves}
    if measure.endswith("cost_difference"):
        # the cost of a reference is zero by definition
        across = {}
    label = f"{in_words(measure)} ({unit})" if unit == "%" else unit
    unsure = is_unsure(results, measure)
    return charts.lines(order, across, title=title, label=label, zero=zero, unsure=unsure)


def _front(results, table, *measures):
    """Return the Pareto front as rows, and as a chart among all private models."""
    try:
        front = results.pareto_front(*measures)
    except ValueError:
        # no private model has both
        return None
    rows = [
        (
            method,
            budget(epsilon),
            [with_interval(table.loc[(method, epsilon), m], m) for m in measures],
        )
        for method, epsilon in front.index
    ]
    score, spots = in_words(measures[0]), {}
    for (method, epsilon), row in table.iterrows():
        x, y = (tuple(100 * row[m, stat] for stat in _ENDS) for m in measures)
        if np.isfinite(epsilon) and not np.isnan(x[0] + y[0]):
            spots.setdefault(method, []).append((x, y, f"ε {epsilon:g}"))
    chart = charts.scatter(
        spots,
        (100 * front.sort_values(measures[0])).to_numpy().tolist(),
        title=f"{described(measures[0])[0]} and evenness: lower right is better; the line is the "
        "Pareto front",
        label="difference in privacy cost (points)",
        x_label=f"{score} (%)",
        unsure=is_unsure(results, measures[1]),
    )
    return {"rows": rows, "chart": chart, "score": score}


def _ledger(results):
    """Return one row per private model: budget, largest epsilon, releases of one of its fits."""
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
            what = (
                f"{r.steps:,} steps with sampling rate {r.sample_rate:.4g} and noise "
                f"{r.noise_multiplier:.4g}"
            )
            parts.append(what)
    return {model: "; ".join(parts) for model, (_, parts) in found.items()}


def _settings(results):
    """Return the settings of the sweep as pairs of name and text."""
    frame = results.frame
    private = frame[np.isfinite(frame["epsilon"])]
    rows = [
        ("methods", ", ".join(_compared(frame)) or "none"),
        ("budgets ε", ", ".join(f"{e:g}" for e in sorted(private["epsilon"].unique())) or "none"),
        ("seeds", ", ".join(str(s) for s in frame["seed"].unique())),
        ("folds per seed", str(frame["fold"].nunique())),
    ]
    if results.spec.is_known:
        rows.append(("δ of all fits together", rounded_up(results.spec.delta, 3)))
        rows += _of_one_run(results)
        params = results.spec.params.items()
        rows += [(name, value) for name, value in params if name not in ("classes", "groups")]
    return rows


def _compared(frame):
    """Return the methods, without the models that they are compared with."""
    names = frame["method"].unique()
    return [name for name in names if not name.startswith("reference")]


def _of_one_run(results):
    """Return how many a fit trains on, and its delta, unless a splitter decided on records."""
    sizes = _trained_on(results.frame, results.spec)
    if sizes is None:
        return []
    low, high = sizes
    return [
        (
            f"{results.spec.unit}s of one fit",
            f"{low:,}" if low == high else f"{low:,} to {high:,}",
        ),
        ("δ of one fit", rounded_up(_delta_of_one_run(results), 3)),
    ]


def _trained_on(frame, spec):
    """Return the fewest and the most records or persons of a fit, None if it is not known."""
    if spec.unit == "record" and spec.cv != "None" and not spec.cv.isdigit():
        return None
    trained = spec.n_samples - frame.loc[frame["group"] == OVERALL, "n"]
    return spec.n_units_of_fit or [int(trained.min()), int(trained.max())]


def _delta_of_one_run(results):
    """Return the largest delta of a fit, None if it is not known."""
    spec = results.spec
    if not spec.is_known:
        return None
    if spec.params.get("delta", repr("auto")) != repr("auto"):
        return spec.delta
    sizes = _trained_on(results.frame, spec)
    return None if sizes is None else delta_for("auto", sizes[0])


def _unfinished(results):
    """Return in words which fits the sweep has not finished, or None."""
    spec = results.spec
    if not (spec.seeds and spec.methods and spec.epsilons):
        return None
    frame = results.frame[results.frame["group"] == OVERALL]
    seeds = len(spec.seeds) * frame["fold"].nunique()
    private = len(spec.methods) * len(spec.epsilons)
    per_model = frame.groupby(_MODEL, sort=False).size()
    absent = sorted(set(spec.methods) - set(frame["method"]))
    if absent:
        return f"no run of {', '.join(absent)} is finished"
    short = int((per_model < seeds).sum())
    return f"{short} of {max(private, len(per_model))} models have fewer runs" if short else None


def _total(results):
    """Return epsilon and delta of all private fits together, or None where it is not known."""
    if not results.spec.is_known or results.releases is None or results.releases.empty:
        return None
    runs = _runs(results.releases)
    delta = results.spec.delta
    return rounded_up(epsilon_of(runs, delta, "rdp")), rounded_up(delta, 3)


def _runs(releases):
    columns = ["sample_rate", "noise_multiplier", "steps", "strata"]
    rows = releases[columns].itertuples(index=False)
    return [Release("steps", q, (s,), int(steps), strata=strata) for q, s, steps, strata in rows]


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
