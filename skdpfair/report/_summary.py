"""Facts of a sweep that its page, its shell command and the page of a model put into sentences."""

import ast
import json
import math
import shlex

import numpy as np

from skdpfair.methods import METHODS
from skdpfair.metrics._intervals import seeds_for
from skdpfair.metrics._measures import COST, OVERALL
from skdpfair.privacy.statement import percent
from skdpfair.privacy.tradeoff import trade_off_from_epsilon
from skdpfair.report._ledger_facts import ledger_sentences
from skdpfair.report._recommendation import Estimate, chance, costs_of, is_useful, recommend
from skdpfair.report._rendering import (
    MOST_BUDGETS,
    budget,
    in_words,
    of_one_class,
    sentence,
    with_interval,
    with_readable_names,
)

_WEAK = 0.01  # of accuracy, that a private model may have more than its reference
_OF_SCHEMA = ("classes", "group_col", "persons")  # which the command reads


def sentences_of(results, table, advised, sizes, small) -> dict:
    """Return what the page of a sweep says of it, a text for each subject."""
    frame, measure = results.frame, results.leading_measures[0]
    name, everyone = in_words(measure), frame[frame["group"] == OVERALL]
    has_private = bool(np.isfinite(frame["epsilon"]).any())
    rare = ""
    if len(results.leading_measures) > 1:
        label = results.spec.rarest_class
        share = table["rarest_class_share", "mean"].mean()
        rare = sentence("rare_class", name=name, label=label, share=share)
    cost = "" if advised is None else _cost(table, advised.costs, name)
    n_seeds = everyone["seed"].nunique()
    n_runs = len(everyone[["seed", "fold"]].drop_duplicates())
    return {
        "recommended": sentence(
            "recommended",
            advised=advised,
            has_private=has_private,
            name=name,
            chance=chance(results),
        ),
        "why": sentence("why", advised=advised, name=name),
        "no_use": no_use(results),
        "rare_class": rare,
        "cost": cost or "Unknown, as no model is recommended.",
        "compared_with": _compared_with(results, table, measure),
        "sure": sentence(
            "sure",
            n_runs=n_runs,
            n_seeds=n_seeds,
            seeds=_seeds_for(results.test_share, n_seeds, n_runs),
        ),
        "tested": sentence(
            "tested",
            n_runs=n_runs,
            n_seeds=n_seeds,
            least=int(everyone["n"].min()),
            most=int(everyone["n"].max()),
            unit=results.spec.unit,
            smallest=min(sizes, key=lambda row: row[1]) if sizes else None,
            small=small,
        ),
    }


def _seeds_for(share, n_seeds, n_runs):
    """Return how many seeds would halve the intervals, and shorten them by a quarter."""
    if n_runs < 2 or not share:  # a search does not tell what it tests
        return None
    return [seeds_for(factor, share, n_seeds, round(n_runs / n_seeds)) for factor in (0.5, 0.75)]


def no_use(results) -> str:
    """Return sentences on the models that are not better than always predicting one class."""
    measure, constant = results.leading_measures[0], of_one_class(results)
    others = [
        model
        for model, row in results.estimates([measure])[measure].iterrows()
        if model not in constant and not is_useful(results, Estimate.of(row))
    ]
    limit = chance(results)
    names = {"constant": constant, "others": others}
    return sentence("of_no_use", **names, name=in_words(measure), chance=limit)


def costs_beside(results, method, epsilon):
    """Return what a sweep of the same data tells of one model: whom its privacy costs how much.

    The model is that of the method at the budget whose logarithm is nearest.
    """
    results = with_readable_names(results)
    measure = results.leading_measures[0]
    runs = results.by_run()
    runs = runs[np.isfinite(runs.index.get_level_values("epsilon"))]
    budgets = runs.index.get_level_values("epsilon")[
        runs.index.get_level_values("method") == method
    ]
    if not len(budgets):
        raise ValueError(
            f"results has no private runs of method {method!r}, that of the classifier. Sweep "
            "this method, or leave results out."
        )
    nearest = min(budgets, key=lambda e: abs(math.log(e / epsilon)))
    table = results.estimates()
    costs = costs_of(results, table, runs, (method, nearest))
    return {
        "model": f"{method} at ε {nearest:g}",
        "is_near": not math.isclose(nearest, epsilon, rel_tol=0.01),
        "n_runs": int(table.loc[(method, nearest), (measure, "n")]),
        "measure": in_words(measure),
        "own": f"{epsilon:.3g}",
        "rows": [(g, *with_interval(vars(c), COST[measure])) for g, c in costs.groups.items()],
        "sentence": _cost(table, costs, in_words(measure)),
        "advice": sentence("advice", advised=recommend(results), name=in_words(measure)),
    }


def _cost(table, costs, name):
    """Return who pays as sentences: all, the groups, and whether one pays more; or why not."""
    unknown = "the groups is unknown, as there are no runs of the reference model"
    if ("privacy_cost", "mean") in table and table["privacy_cost", "mean"].notna().any():
        unknown = "a single group is unknown, as no group has enough test records"
    elif table.index.get_level_values("method").str.startswith("reference").any():
        unknown = "the groups is unknown, as the reference model predicts one class only"
    return sentence("cost", costs=costs, name=name, unknown=unknown)


def _compared_with(results, table, measure):
    """Return what costs are relative to."""
    means = table[measure, "mean"].droplevel("epsilon")
    references = means[means.index.str.startswith("reference")].dropna()
    return sentence(
        "compared_with",
        reference=None if references.empty else references.max(),
        weak=weak_reference(table, measure),
        name=in_words(measure),
    )


def weak_reference(table, measure):
    """Return the private model that is furthest above its reference, and how far, or None."""
    if (COST[measure], "mean") not in table:
        return None
    costs = table[COST[measure], "mean"].dropna()
    costs = costs[np.isfinite(costs.index.get_level_values("epsilon"))]
    if costs.empty or costs.min() > -_WEAK:
        return None
    return (*costs.idxmin(), -costs.min())


def guesses_at(frame, unit, attackers, delta):
    """Return what the budgets mean for an attacker who guesses, "" if that is not known."""
    budgets = sorted(e for e in frame["epsilon"].unique() if np.isfinite(e))
    if not budgets or delta is None:
        return ""
    named = budgets if len(budgets) <= MOST_BUDGETS else [budgets[0], budgets[-1]]
    known = {epsilon: guess for epsilon, _, _, guess in attackers}  # from the releases
    limits = []
    for epsilon in named:
        guess = (1 + trade_off_from_epsilon(epsilon, delta).total_variation) / 2
        limits.append(f"{known.get(budget(epsilon)) or percent(guess)} % at ε {epsilon:g}")
    return sentence("guesses", limits=limits, unit=unit)


def before(results, ledger, total):
    """Return what a ledger has recorded on these records as sentences; None without one."""
    if ledger is None:
        return None
    n_private = int(np.isfinite(results.frame.query("group == @OVERALL")["epsilon"]).sum())
    calls = results.spec.calls or [None] * n_private
    if lacking := ledger.n_unrecorded(calls):
        fits = f"{lacking:,} private fit{'s' * (lacking != 1)} of this sweep"
        are = "is" if lacking == 1 else "are"
        return [f"{fits} {are} not in the ledger, so it does not tell what was spent."]
    delta = ledger.delta or results.spec.delta
    if delta is None:
        raise ValueError("ledger has no delta, and the sweep kept none. Begin it with delta=.")
    spent = ledger.report(delta)
    out = ledger_sentences(spent, ledger, is_theirs=n_private > 0)
    if total:
        out.append(
            f"The ε ≤ {total[0]} at δ = {total[1]} above counts the private fits of this page "
            f"only, by the Rényi accountant; the ledger's is {spent.accountant}."
        )
    return out


def release_commands(results, advised, ledger=None):
    """Return the shell's commands that fit what is released: with the choice covered, and without.

    The first is None if there is one method only.
    """
    spec = results.spec
    params = {k: v for k, v in spec.params.items() if k not in _OF_SCHEMA}
    delta = params.pop("delta", "'auto'")
    options = "" if delta == "'auto'" else f" --delta {delta}"
    options += "".join(f" --set {shlex.quote(f'{k}={_as_typed(v)}')}" for k, v in params.items())
    options += "" if ledger is None else f" --ledger {shlex.quote(ledger.path.name)}"
    method, epsilon = "METHOD", "EPSILON"
    if advised is not None and advised.is_useful:
        method, epsilon = advised.method, f"{advised.epsilon:g}"
    fit = f"skdpfair fit DATA --schema SCHEMA.toml --epsilon {epsilon}"
    named = [name for name in spec.methods if name in METHODS and METHODS[name].private]
    chosen = f"{fit} --try method={','.join(named)}{options}" if len(named) > 1 else None
    return chosen, f"{fit} --method {method}{options}"


def _as_typed(text):
    """Return a parameter, kept as Python shows it, as the shell takes it."""
    try:
        value = ast.literal_eval(text)
        return value if isinstance(value, str) else json.dumps(value)
    except (ValueError, SyntaxError, TypeError):  # such as an object
        return text
