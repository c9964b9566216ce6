"""Report of a sweep: what to take, settings, accuracies, costs, releases, and what ε leaves out."""

import numpy as np
import pandas as pd

import skdpfair
from skdpfair._utils import cards
from skdpfair._utils.group_names import escape_reserved
from skdpfair.metrics._measures import COST, MEASURES, OVERALL, RATIOS, described
from skdpfair.privacy import NoisyRelease, compute_epsilon, privacy_report
from skdpfair.privacy.gdp import delta_for
from skdpfair.privacy.privacy_report import percent, rounded_up
from skdpfair.privacy.tradeoff import trade_off
from skdpfair.report import _charts as charts
from skdpfair.report import _rendering as rendering
from skdpfair.report import _summary as summary
from skdpfair.report._ledger_facts import check_ledger
from skdpfair.report._recommendation import FEW, chance, is_unsure, recommend, small_groups
from skdpfair.report._rendering import budget, in_words, points, render, with_interval

_MODEL, _RUN = ["method", "epsilon"], ["seed", "fold"]
_ENDS = ("mean", "low", "high")
_OWN = ("difference", "ratio", "worst group")  # heads beside the names of groups
_SPLIT = "20 % held out per seed, stratified by class and group (cv=None)"


def results_page(results, *, title=None, pipeline=None, measures=None, ledger=None) -> str:
    """Return the report of a sweep as one HTML page, see `TradeoffResults.to_html`."""
    rendering.check_text("title", title)
    check_ledger(ledger)
    if results.frame["n"].isna().all():
        raise ValueError(
            "results of a search do not tell how many records they tested, which a page needs. Use "
            "print(results) and results.plot(), or a sweep."
        )
    as_given, results = results, rendering.with_readable_names(results)
    table, leading = results.estimates(), results.leading_measures
    main, cost = leading[0], COST[leading[0]]
    chosen = results.chosen_measures(measures)
    chosen += ["dg_gap"] * (measures is None and "dg_gap" in results.frame)
    groups = [g for g in results.frame["group"].unique() if g != OVERALL]
    spec, protects = results.spec, results.spec.protects
    adjacency = "zero_out_person" if protects == "person" else "zero_out"
    counts = results.frame.groupby("group")["n"].agg(["min", "max"]).astype(int)
    sizes, small = [(g, *counts.loc[g].tolist()) for g in groups], small_groups(results)
    budgets, budgets_drawn = _budgets(results)
    drawn = [g for g in groups if g not in small] or groups
    advised, attackers = recommend(results), _attackers(results)
    ledger_sentences = summary.before(results, ledger)
    # a ledger that holds all fits has the one total that counts
    total = None if ledger_sentences and len(ledger_sentences) > 1 else _total(results)
    delta = _delta_of_one_run(results)
    trained = _trained_on(results) if spec.is_known else None
    all_bars = _bars(table, cost, drawn, small, budgets_drawn)
    first_bars = [b for b in all_bars if advised and b["title"].endswith(f" {advised.epsilon:g}")]
    context = {
        "title": title or "What privacy costs each group",
        "n_models": len(table),
        "n_runs": len(results.frame[_RUN].drop_duplicates()),
        "groups": groups,
        "grouping": " and ".join(results.variables[1:]),
        "unfinished": _unfinished(results),
        "n_references": sum(name.startswith("reference") for name, _ in table.index.unique()),
        "headline": _headline(results, table, advised, delta),
        "small": small,
        "few": FEW,
        "sentences": summary.sentences_of(
            results, table, advised, sizes, small, attackers, trained, delta
        ),
        "has_private": bool(budgets),
        "n_examples": spec.n_examples,
        "measure": in_words(main),
        "settings": _settings(results),
        "data": _data(results),
        "total": total,
        "attackers": attackers,
        "alarms": percent(privacy_report.FALSE_ALARMS),
        "members": privacy_report.MEMBERS[protects],
        "adjacency": privacy_report.ADJACENCY_IN_WORDS[adjacency],
        "protects": protects,
        "changed": privacy_report.CHANGED[protects],
        "sizes": sizes,
        "base_rates": _base_rates(results, groups),
        "measures": _tables(results, table, groups, chosen, None),
        "leading": [*map(_id_of, (main, cost))],
        "has_errors": "false_negative_rate" in results.frame,
        "costs": _tables(results, table, groups, chosen, "reference"),
        "generalisation": _tables(results, table, groups, chosen, "training"),
        "bars": [bars for bars in all_bars if bars not in first_bars],
        "undrawn": [] if drawn == groups else small,
        "budgets": [f"{e:g}" for e in budgets if e not in budgets_drawn],
        "first_charts": [*filter(None, [_curve(results, table, main, zero=False)]), *first_bars],
        "charts": [_curve(results, table, f"{cost}_difference")],
        "generalisation_chart": _curve(results, table, "dg_gap"),
        "front": _front(results, table, main, f"{cost}_difference"),
        "releases": _releases(results),
        "before": ledger_sentences,
        "lint": rendering.lint_report(pipeline),
        "features": spec.features,
        "not_accounted": privacy_report.in_words_of(privacy_report.NOT_ACCOUNTED, protects),
        "commands": summary.release_commands(as_given, advised, ledger),
        "is_known": spec.is_known,
        "version": skdpfair.__version__,
    }
    return render("results.html", context)


def results_card(results) -> str | None:
    """Return tiles, a chart and a table for a notebook; None without jinja2."""
    results = rendering.with_readable_names(results)
    table, main = results.estimates(), results.leading_measures[0]
    wanted = [name for name in (main, COST[main]) if name in results.frame]
    context = {
        "headline": _headline(results, table, recommend(results), _delta_of_one_run(results)),
        "n_runs": len(results.frame[_RUN].drop_duplicates()),
        "chart": _curve(results, table, main, zero=False),
        "parts": [p for a in (None, "reference") for p in _tables(results, table, [], wanted, a)],
    }
    try:
        return cards.card("", render("results_card.html", context))
    except ImportError:
        return None


def _headline(results, table, advised, delta):
    """Return the facts of four tiles: model, budget, score and largest cost."""
    measure = results.leading_measures[0]
    return {
        "advised": advised,
        "n_models": len(table),
        "name": in_words(measure),
        "reference": summary.score_of_reference(table, measure),
        "chance": chance(results),
        "protects": results.spec.protects,
        "delta": rounded_up(delta, 3) if delta else None,
    }


def _data(results):
    """Return the known facts on the data as pairs of name and text."""
    spec, split, shares = results.spec, "", ""
    if spec.is_known:
        split = f": {_SPLIT if spec.cv == 'None' else spec.cv}"
        split += "; all records of a person are on one side" * (spec.protects == "person")
    if spec.counts:
        fractions = map(points, np.sum(spec.counts, axis=0) / np.sum(spec.counts))
        by_class = zip(spec.classes, fractions, strict=True)
        shares = ", ".join(f"{name} ({fraction} %)" for name, fraction in by_class)
    rows = {
        "records": spec.is_known and f"{spec.n_samples:,}",
        "persons": spec.protects == "person" and f"{spec.n_examples:,}",
        "features": spec.n_features and f"{spec.n_features:,}",
        "public features": spec.features,
        "positive class": len(spec.classes) == 2 and str(spec.classes[1]),
        "classes, share of the records": shares,
        "classes": not shares and ", ".join(map(str, spec.classes)),
        "groups by": " and ".join(results.variables[1:]),
        "test records of a run": summary.whole_range(_overall(results)["n"].astype(int)) + split,
        "trained on": " to ".join(dict.fromkeys(spec.days)),
        "version": spec.is_known and f"skdpfair {spec.skdpfair}, torch {spec.torch}",
    }
    return [(name, text) for name, text in rows.items() if text]


def _overall(results):
    return results.frame[results.frame["group"] == OVERALL]


def _base_rates(results, groups):
    """Return a class, and each group's records and share of this class; None if not kept.

    The class is the second of two, or the rarest of more.
    """
    if len(results.spec.counts) != len(groups):
        return None
    counts = pd.DataFrame(results.spec.counts, index=groups)
    at = 1 if counts.shape[1] == 2 else counts.sum().argmin()
    sums = counts.sum(axis=1)
    rows = {g: (f"{sums[g]:,}", points(counts.loc[g, at] / (sums[g] or np.nan))) for g in groups}
    return results.spec.classes[at], rows


def _tables(results, table, groups, chosen, against):
    tables, classes = [], results.spec.classes
    for name in (name for name in chosen if MEASURES[name].against == against):
        if not (rows := _rows(table, name)):
            continue
        title, unit, _ = described(name, classes)
        if error := rendering.error_in_words(name, classes):
            title += f" (share of {error})"
        own = [head for head in _OWN if head != "ratio" or name in RATIOS]
        heads = ["all", *escape_reserved(groups, ("all", "method", "ε", *_OWN)), *own]
        part = {"id": _id_of(name), "rows": rows, "heads": heads[: len(rows[0][2])]}
        tables.append(part | {"caption": f"{title} in {'per cent' if unit == '%' else unit}"})
    return tables


def _id_of(measure):
    return f"table-{measure.replace('_', '-')}"


def _rows(table, measure):
    """Return one row per model: name, and cells with intervals for all, groups and difference."""
    if (measure, "mean") not in table or table[measure, "mean"].isna().all():
        return []
    ends = tuple(f"{measure}{end}" for end in ("[", "_difference", "_ratio", "_group_"))
    is_cost = MEASURES[measure].against == "reference"
    columns = [c for c, stat in table if stat == "mean" and (c == measure or c.startswith(ends))]
    return [
        (method, budget(epsilon), [with_interval(row[c], c) for c in columns])
        for (method, epsilon), row in table.iterrows()
        # not of the reference itself
        if not (is_cost and np.isinf(epsilon) and not row[measure, "mean"])
    ]


def _budgets(results):
    """Return the budgets of private models, and those of which bars are drawn."""
    budgets = sorted(e for e in results.frame["epsilon"].unique() if np.isfinite(e))
    n_drawn = min(rendering.MAX_BUDGETS, len(budgets))
    return budgets, [budgets[int(i)] for i in np.linspace(0, len(budgets) - 1, n_drawn).round()]


def _bars(table, cost, groups, small, budgets):
    if (cost, "mean") not in table:
        return []
    rows = {epsilon: {} for epsilon in budgets}
    for (method, epsilon), row in table[table[cost, "mean"].notna()].iterrows():
        if epsilon in rows:
            rows[epsilon][method] = {
                g: tuple(100 * row[f"{cost}[{g}]", stat] for stat in _ENDS) for g in groups
            }
    points_ = [p for part in rows.values() for by in part.values() for p in by.values()]
    limits = charts.range_of(points_, zero=True)
    label = f"percentage points of {in_words(MEASURES[cost].of)}"
    title = f"{described(cost)[0]} of each group at ε "
    return [
        charts.bars(part, title=f"{title}{epsilon:g}", label=label, limits=limits, small=small)
        for epsilon, part in rows.items()
        if part
    ]


def _curve(results, table, measure, *, zero=True):
    if (measure, "mean") not in table:
        return None
    title, unit, factor = described(measure)
    known = table[measure][table[measure, "mean"].notna()]
    curves = {method: [] for method, epsilon in known.index if np.isfinite(epsilon)}
    if not curves:
        return None
    across = {}
    for (method, epsilon), row in known.sort_index(level="epsilon").iterrows():
        values = tuple(factor * row[stat] for stat in _ENDS)
        if np.isfinite(epsilon):
            curves[method].append((epsilon, *values))
        elif not measure.endswith("cost_difference"):  # that of a reference is zero by definition
            across[method] = values
    label = f"{in_words(measure)} ({unit})" if unit == "%" else unit
    unsure = is_unsure(results, measure)
    return charts.lines(curves, across, title=title, label=label, zero=zero, unsure=unsure)


def _front(results, table, *measures):
    try:
        front = results.pareto_front(*measures)
    except ValueError:  # no private model has both
        return None
    rows = [
        (method, budget(e), [with_interval(table.loc[(method, e), m], m) for m in measures])
        for method, e in front.index
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


def _releases(results):
    """Return one row per private model: budget, largest epsilon, releases of one of its fits."""
    frame = _overall(results)
    spent = frame[np.isfinite(frame["epsilon"])].groupby(_MODEL, sort=False)["epsilon_spent"].max()
    released = {
        model: "; ".join(
            f"{r.steps:,} steps with sampling rate {rounded_up(r.sample_rate)} and noise "
            f"{r.noise_multiplier:.4g}"
            for r in rows.itertuples()
        )
        for model, rows in _first_fits(results)
    }
    return [
        (method, budget(epsilon), rounded_up(largest), released.get((method, epsilon), "not kept"))
        for (method, epsilon), largest in spent.items()
    ]


def _first_fits(results):
    """Yield each model, and the releases of its first fit."""
    if results.releases is not None:
        for model, rows in results.releases.groupby(_MODEL, sort=False):
            yield model, rows[(rows[_RUN] == rows[_RUN].iloc[0]).all(axis=1)]


def _settings(results):
    frame, spec = results.frame, results.spec
    budgets, _ = _budgets(results)
    names = [name for name in frame["method"].unique() if not name.startswith("reference")]
    rows = {
        "methods": ", ".join(names) or "none",
        "budgets ε": ", ".join(f"{e:g}" for e in budgets) or "none",
        "seeds": ", ".join(map(str, frame["seed"].unique())),
        "folds per seed": str(frame["fold"].nunique()),
    }
    if spec.is_known:
        rows["δ of all fits together"] = rounded_up(spec.delta, 3)
        if sizes := _trained_on(results):
            rows[f"{spec.protects}s of one fit"] = summary.whole_range(sizes)
            rows["δ of one fit"] = rounded_up(_delta_of_one_run(results), 3)
        rows |= {k: v for k, v in spec.params.items() if k not in ("classes", "groups")}
    return rows.items()


def _trained_on(results):
    """Return the fewest and the most records or persons of a fit, None if it is not known."""
    spec = results.spec
    if spec.protects == "record" and spec.cv != "None" and not spec.cv.isdigit():
        return None  # a splitter decided on records
    trained = spec.n_samples - _overall(results)["n"]
    return spec.n_persons_of_fit or [int(trained.min()), int(trained.max())]


def _delta_of_one_run(results):
    """Return the largest delta of a fit, None if it is not known."""
    spec = results.spec
    if not spec.is_known or spec.params.get("delta", repr("auto")) != repr("auto"):
        return spec.delta if spec.is_known else None
    sizes = _trained_on(results)
    return None if sizes is None else delta_for("auto", sizes[0])


def _unfinished(results):
    spec, frame = results.spec, _overall(results)
    if not (spec.seeds and spec.methods and spec.epsilons):
        return None
    if absent := sorted(set(spec.methods) - set(frame["method"])):
        return f"no run of {', '.join(absent)} is finished"
    per_model = frame.groupby(_MODEL, sort=False).size()
    short = int((per_model < len(spec.seeds) * frame["fold"].nunique()).sum())
    n_models = max(len(spec.methods) * len(spec.epsilons), len(per_model))
    return f"{short} of {n_models} models have fewer runs" if short else None


def _total(results):
    if not results.spec.is_known or results.releases is None or results.releases.empty:
        return None
    delta = results.spec.delta
    return rounded_up(compute_epsilon(_runs(results.releases), delta, "rdp")), rounded_up(delta, 3)


def _runs(releases):
    return [
        NoisyRelease("steps", r.sample_rate, (r.noise_multiplier,), int(r.steps), strata=r.strata)
        for r in releases.itertuples()
    ]


def _attackers(results):
    """Return the worst of the models at each budget: mu, what an attacker finds, and guesses."""
    worst = {}
    for (_, epsilon), releases in _first_fits(results):
        curve = trade_off(_runs(releases))
        power = float(curve.true_positive_rate(privacy_report.FALSE_ALARMS))
        numbers = curve.mu, power, (1 + curve.total_variation) / 2
        worst[epsilon] = np.maximum(worst.get(epsilon, 0.0), numbers)
    return [
        (budget(epsilon), rounded_up(mu), percent(power), percent(guess))
        for epsilon, (mu, power, guess) in sorted(worst.items())
        if np.isfinite(epsilon)
    ]
