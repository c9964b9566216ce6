"""Facts of a sweep that its page, its shell command and the page of a model put into sentences."""

import ast
import json
import math
import shlex

import numpy as np

from skdpfair.methods import METHODS
from skdpfair.metrics._intervals import seeds_for
from skdpfair.metrics._measures import COST, OVERALL
from skdpfair.privacy.privacy_report import percent
from skdpfair.privacy.tradeoff import trade_off_from_epsilon
from skdpfair.report._ledger_facts import ledger_sentences
from skdpfair.report._recommendation import Estimate, chance, costs_of, is_useful, recommend
from skdpfair.report._rendering import (
    MAX_BUDGETS,
    budget,
    in_words,
    of_one_class,
    sentences,
    with_interval,
    with_readable_names,
)

_WEAK = 0.01  # of accuracy, that a private model may have more than its reference
_OF_SWEEP = ("recommended", "why", "of_no_use", "rare_class", "cost", "compared_with", "sure")
_OF_SCHEMA = ("classes", "group_col", "persons")  # which the command reads


def sentences_of(results, table, advised, sizes, small, attackers, delta) -> dict:
    """Return what the page of a sweep says of it, a text for each subject."""
    frame, measure = results.frame, results.leading_measures[0]
    overall, is_rare = frame[frame["group"] == OVERALL], len(results.leading_measures) > 1
    n_seeds, n_runs = overall["seed"].nunique(), len(overall[["seed", "fold"]].drop_duplicates())
    means = table[measure, "mean"].droplevel("epsilon")
    references, share = means[means.index.str.startswith("reference")].dropna(), results.test_share
    seeds = None
    if n_runs > 1 and share:  # a search does not tell what it tests
        folds = round(n_runs / n_seeds)
        seeds = [seeds_for(factor, share, n_seeds, folds) for factor in (0.5, 0.75)]
    facts = _useless(results) | {
        "advised": advised,
        "has_private": bool(np.isfinite(frame["epsilon"]).any()),
        "rarest": results.spec.rarest_class,
        "rare_share": table["rarest_class_share", "mean"].mean() if is_rare else None,
        "costs": advised and advised.costs,
        "unknown": _why_unknown(table),
        "reference": None if references.empty else references.max(),
        "weak": weak_reference(table, measure),
        "n_runs": n_runs,
        "n_seeds": n_seeds,
        "seeds": seeds,  # that would halve the intervals, and shorten them by a quarter
        "tested_range": (int(overall["n"].min()), int(overall["n"].max())),
        "protects": results.spec.protects,
        "smallest": min(sizes, key=lambda row: row[1]) if sizes else None,
        "small": small,
        "limits": _limits_of_guesses(frame, attackers, delta),
    }
    return sentences((*_OF_SWEEP, "tested", "guesses"), facts)


def no_use(results) -> str:
    """Return sentences on the models that are not better than always predicting one class."""
    return sentences(["of_no_use"], _useless(results))["of_no_use"]


def _useless(results):
    measure, constant = results.leading_measures[0], of_one_class(results)
    others = [
        model
        for model, row in results.estimates([measure])[measure].iterrows()
        if model not in constant and not is_useful(results, Estimate.of(row))
    ]
    facts = {"constant": constant, "others": others}
    return facts | {"name": in_words(measure), "chance": chance(results)}


def costs_beside(results, method, epsilon):
    """Return what a sweep of the same data tells of one model: whom its privacy costs how much.

    The model is that of the method at the budget whose logarithm is nearest.
    """
    results = with_readable_names(results)
    measure = results.leading_measures[0]
    runs = results.by_run()
    runs = runs[np.isfinite(runs.index.get_level_values("epsilon"))]
    budgets = runs.index[runs.index.get_level_values("method") == method]
    if not len(budgets):
        raise ValueError(
            f"results has no private runs of method {method!r}, that of the classifier. Sweep "
            "this method, or leave results out."
        )
    nearest = min(budgets.get_level_values("epsilon"), key=lambda e: abs(math.log(e / epsilon)))
    table = results.estimates()
    costs = costs_of(results, table, runs, (method, nearest))
    facts = {"costs": costs, "unknown": _why_unknown(table), "advised": recommend(results)}
    facts["name"] = in_words(measure)
    return sentences(["cost", "advice"], facts) | {
        "model": f"{method} at ε {nearest:g}",
        "is_near": not math.isclose(nearest, epsilon, rel_tol=0.01),
        "n_runs": int(table.loc[(method, nearest), (measure, "n")]),
        "measure": facts["name"],
        "own": f"{epsilon:.3g}",
        "rows": [(g, *with_interval(vars(c), COST[measure])) for g, c in costs.groups.items()],
    }


def _why_unknown(table):
    """Return the end of a sentence on costs that are not known: of whom, and why."""
    if ("privacy_cost", "mean") in table and table["privacy_cost", "mean"].notna().any():
        return "a single group is unknown, as no group has enough test records"
    if table.index.get_level_values("method").str.startswith("reference").any():
        return "the groups is unknown, as the reference model predicts one class only"
    return "the groups is unknown, as there are no runs of the reference model"


def weak_reference(table, measure):
    """Return the private model that is furthest above its reference, and how far, or None."""
    if (COST[measure], "mean") not in table:
        return None
    costs = table[COST[measure], "mean"].dropna()
    costs = costs[np.isfinite(costs.index.get_level_values("epsilon"))]
    if costs.empty or costs.min() > -_WEAK:
        return None
    return (*costs.idxmin(), -costs.min())


def _limits_of_guesses(frame, attackers, delta):
    """Return how often an attacker who guesses is right at each budget, None if not known."""
    budgets = sorted(e for e in frame["epsilon"].unique() if np.isfinite(e))
    if not budgets or delta is None:
        return None
    known = {epsilon: guess for epsilon, _, _, guess in attackers}  # from the releases
    limits = []
    for epsilon in budgets if len(budgets) <= MAX_BUDGETS else [budgets[0], budgets[-1]]:
        guess = (1 + trade_off_from_epsilon(epsilon, delta).total_variation) / 2
        limits.append(f"{known.get(budget(epsilon)) or percent(guess)} % at ε {epsilon:g}")
    return limits


def before(results, ledger, total):
    """Return what a ledger has recorded on these records as sentences; None without one."""
    if ledger is None:
        return None
    n_private = int(np.isfinite(results.frame.query("group == @OVERALL")["epsilon"]).sum())
    if lacking := ledger.n_unrecorded(results.spec.ledger_fits or [None] * n_private):
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
    private_methods = [name for name in spec.methods if name in METHODS and METHODS[name].private]
    chosen = (
        f"{fit} --try method={','.join(private_methods)}{options}"
        if len(private_methods) > 1
        else None
    )
    return chosen, f"{fit} --method {method}{options}"


def _as_typed(text):
    """Return a parameter, kept as Python shows it, as the shell takes it."""
    try:
        value = ast.literal_eval(text)
        return value if isinstance(value, str) else json.dumps(value)
    except (ValueError, SyntaxError, TypeError):  # such as an object
        return text
