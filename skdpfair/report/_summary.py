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
from skdpfair.report import _recommendation as recommendation
from skdpfair.report import _rendering as rendering
from skdpfair.report._ledger_facts import ledger_sentences
from skdpfair.report._rendering import in_words, sentences

_WEAK = 0.01  # of accuracy, that a private model may have more than its reference
_OF_SWEEP = (
    *("decides", "trained", "recommended", "why", "good", "of_no_use", "rare_class", "worse"),
    *("cost", "compared", "compared_with", "sure", "guesses"),
)
_OF_SCHEMA = ("classes", "group_col", "persons")  # which the command reads


def sentences_of(results, table, advised, sizes, small, attackers, trained_on, delta) -> dict:
    """Return what the page of a sweep says of it, a text for each subject.

    ``trained_on`` are the fewest and the most records or persons of a fit, None if not known.
    """
    frame, measure, spec = results.frame, results.leading_measures[0], results.spec
    overall, is_rare = frame[frame["group"] == OVERALL], len(results.leading_measures) > 1
    n_seeds, n_runs = overall["seed"].nunique(), len(overall[["seed", "fold"]].drop_duplicates())
    share, seeds, persons = results.test_share, None, None
    if n_runs > 1 and share:  # a search does not tell what it tests
        folds = round(n_runs / n_seeds)
        seeds = [seeds_for(factor, share, n_seeds, folds) for factor in (0.5, 0.75)]
    if spec.protects == "person" and trained_on and spec.n_examples:
        persons = whole_range([spec.n_examples - n for n in trained_on])
    facts = _useless(results) | {
        "advised": advised,
        "has_private": bool(np.isfinite(frame["epsilon"]).any()),
        "classes": spec.classes,
        "n_features": spec.n_features,
        "rarest": spec.rarest_class,
        "rare_share": table["rarest_class_share", "mean"].mean() if is_rare else None,
        "worst": advised and recommendation.worse_group(results, table, advised),
        "costs": advised and advised.costs,
        "unknown": _why_unknown(table),
        "reference": score_of_reference(table, measure),
        "weak": weak_reference(table, measure),
        "n_runs": n_runs,
        "n_seeds": n_seeds,
        "seeds": seeds,  # that would halve the intervals, and shorten them by a quarter
        "trained_share": round(100 * (1 - share)) if share else None,
        "sizes_of_fit": trained_on and whole_range(trained_on),
        "n_examples": f"{spec.n_examples or 0:,}",
        "n_records": f"{spec.n_samples or 0:,}",
        "tested": whole_range(overall["n"].astype(int)),
        "tested_persons": persons,
        "protects": spec.protects,
        "smallest": min(sizes, key=lambda row: row[1]) if sizes else None,
        "small": small,
        "limits": _limits_of_guesses(frame, attackers, delta),
    }
    return sentences(_OF_SWEEP, facts)


def whole_range(numbers) -> str:
    """Return the least and the largest of whole numbers as a text, one if they are equal."""
    return " to ".join(dict.fromkeys(f"{f(numbers):,}" for f in (min, max)))


def score_of_reference(table, measure):
    """Return the largest mean of a reference model, None without one."""
    means = table[measure, "mean"].droplevel("epsilon")
    references = means[means.index.str.startswith("reference")].dropna()
    return None if references.empty else references.max()


def no_use(results) -> str:
    """Return sentences on the models that are not better than always predicting one class."""
    return sentences(["of_no_use"], _useless(results))["of_no_use"]


def _useless(results):
    measure, constant = results.leading_measures[0], rendering.of_one_class(results)
    rows = results.estimates([measure])[measure].iterrows()
    scores = {model: recommendation.Estimate.of(row) for model, row in rows}
    useless = [m for m, score in scores.items() if not recommendation.is_useful(results, score)]
    return {
        "constant": constant,
        "others": [model for model in useless if model not in constant],
        "name": in_words(measure),
        "chance": recommendation.chance(results),
    }


def costs_beside(results, method, epsilon):
    """Return what a sweep of the same data tells of one model: whom its privacy costs how much.

    The model is that of the method at the budget whose logarithm is nearest.
    """
    results = rendering.with_readable_names(results)
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
    table, advised = results.estimates(), recommendation.recommend(results)
    costs = recommendation.costs_of(results, table, runs, (method, nearest))
    is_near = not math.isclose(nearest, epsilon, rel_tol=0.01)
    own = "untried" if is_near else _as_advised(advised, method, nearest)
    facts = {"costs": costs, "unknown": _why_unknown(table), "advised": advised, "own": own}
    facts |= {"own_epsilon": f"{epsilon:.3g}", "own_method": method, "name": in_words(measure)}
    return sentences(["cost", "compared", "advice"], facts) | {
        "model": f"{method} at ε {nearest:g}",
        "is_near": is_near,
        "n_runs": int(table.loc[(method, nearest), (measure, "n")]),
        "measure": facts["name"],
        "own": facts["own_epsilon"],
        "is_recommended": own == "recommended",
        "largest": costs.largest,
        "rows": [
            (group, *rendering.with_interval(vars(cost), COST[measure]))
            for group, cost in costs.groups.items()
        ],
    }


def _as_advised(advised, method, epsilon):
    """Return "recommended" for a model that is, else how it differs from the recommended one."""
    if advised is None or epsilon == advised.epsilon:
        is_it = advised is not None and method in (advised.method, *advised.equals)
        return "recommended" if is_it else "method"
    return "larger" if epsilon > advised.epsilon else "smaller"


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
    for epsilon in budgets if len(budgets) <= rendering.MAX_BUDGETS else [budgets[0], budgets[-1]]:
        guess = (1 + trade_off_from_epsilon(epsilon, delta).total_variation) / 2
        limits.append(f"{known.get(f'{epsilon:g}') or percent(guess)} % at ε {epsilon:g}")
    return limits


def before(results, ledger):
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
    return ledger_sentences(ledger.report(delta), ledger, is_theirs=n_private > 0)


def release_commands(results, advised, ledger=None):
    """Return the commands that fit what is released: with the choice covered, and without.

    They are the shell's if the sweep was run there, with the names of its files, else Python's. The
    first is None if there is one method only.
    """
    spec = results.spec
    # a private search needs declared classes
    params = {"classes": repr(spec.classes)} | spec.params
    methods = [name for name in spec.methods if name in METHODS and METHODS[name].private]
    method, epsilon = methods[0] if len(methods) == 1 else "METHOD", "EPSILON"
    if advised is not None and advised.is_useful:
        method, epsilon = advised.method, f"{advised.epsilon:g}"
    if results.files is None:
        options = "".join(f", {k}={v}" for k, v in params.items() if "__" not in k)
        nested = ", ".join(f"{k}={v}" for k, v in params.items() if "__" in k)
        settings = f"epsilon={epsilon}{options})"
        settings += f".set_params({nested})" if nested else ""
        of_search = f', {{"method": {json.dumps(methods)}}}, epsilon={epsilon}'
        of_search += f", delta={params['delta']}" if "delta" in params else ""
        arguments = "X, y, sensitive_features=groups"
        arguments += ", persons=persons" * (spec.protects == "person")
        begin, end = ("ledger.fit(", ", ") if ledger is not None else ("", ".fit(")
        search = f"DPRandomizedSearch(DPFairClassifier({settings}{of_search})"
        models = search, f'DPFairClassifier("{method}", {settings}'
        texts = [f"{begin}{model}{end}{arguments})" for model in models]
    else:
        params = {k: v for k, v in params.items() if k not in _OF_SCHEMA}
        delta = params.pop("delta", "'auto'")
        options = "" if delta == "'auto'" else f" --delta {delta}"
        typed = (shlex.quote(f"{k}={_as_typed(v)}") for k, v in params.items())
        options += "".join(f" --set {setting}" for setting in typed)
        options += "" if ledger is None else f" --ledger {shlex.quote(ledger.path.name)}"
        data, schema = map(shlex.quote, results.files)
        fit = f"skdpfair fit {data} --schema {schema} --epsilon {epsilon}"
        choice = f"--try method={','.join(methods)}", f"--method {method}"
        texts = [f"{fit} {of_choice}{options}" for of_choice in choice]
    return texts if len(methods) > 1 else [None, texts[1]]


def _as_typed(text):
    """Return a parameter, kept as Python shows it, as the shell takes it."""
    try:
        value = ast.literal_eval(text)
        return value if isinstance(value, str) else json.dumps(value)
    except (ValueError, SyntaxError, TypeError):  # such as an object
        return text
