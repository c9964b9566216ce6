"""Sentences of the page of a sweep: the summary, and answers to questions of lay readers."""

import ast
import json
import math
import shlex

import numpy as np

from skdpfair.methods import METHODS
from skdpfair.metrics._measures import COST, OVERALL
from skdpfair.privacy.accounting import tv_from_epsilon
from skdpfair.privacy.statement import percent
from skdpfair.report._recommendation import (
    RULE,
    Estimate,
    chance,
    costs_by_group,
    estimated,
    is_useful,
    largest_costs,
    recommend,
)
from skdpfair.report._rendering import (
    budget,
    in_words,
    of_one_class,
    points,
    with_readable_names,
)
from skdpfair.report._spent_before import holds

_WIDE_INTERVAL = 0.02  # half an interval, from which on numbers have no decimals
_WEAK = 0.01  # of accuracy, that a private model may have more than its reference
_OF_SCHEMA = ("classes", "group_col", "persons")  # which the command reads
MOST_BUDGETS = 6  # that a sentence or the bars name


def summary(results, table, advised, sizes, small):
    """Return the sentences of the summary; the first names the model."""
    frame, measure = results.frame, results.leading_measures[0]
    name = in_words(measure)
    if advised is None and np.isfinite(frame["epsilon"]).any():
        found = [
            "No model can be recommended, as every private model has one run only.",
            "A single run does not tell a difference between models from chance: sweep with 3 or "
            "more seeds.",
        ]
    elif advised is None:
        found = ["There is no private model to recommend."]
    else:
        if advised.is_useful:
            found = [f"Take {advised.method} at ε {advised.epsilon:g}.", *_why(advised, name)]
        else:
            found = ["No private model can be recommended."]
        found += [
            _how_good(results, advised, measure),
            *_whom_it_costs(table, advised.cost, advised.highest, name),
        ]
    found += no_use(results)
    if len(results.leading_measures) > 1:
        label = (results.asked or {}).get("rarest class", "")
        share = points(table["rarest_class_share", "mean"].mean())
        found.append(
            f"Models are compared in {name}, as accuracy hides how often a rare class is missed: "
            f"{f'class {label}' if label else 'the rarest class'} has {share} % of the test "
            "records."
        )
    found.append(_how_sure(frame, sizes, small))
    found += _compared_with(results, table, measure)
    if advised is not None:
        found.append(
            "Do not release a model on this basis alone: no ε covers the choice, because it was "
            "made by looking at results on these records. Choose on public data, or let "
            "skdpfair fit --try (DPRandomizedSearch) choose within its ε, and fit what you release "
            "without a seed."
        )
    return found


def _why(advised, name):
    """Return why no other model is recommended."""
    found = []
    if advised.smaller is not None:
        low, high, gain = advised.smaller
        found.append(
            f"The next smaller budget, ε {low:g}, is measurably worse in {name}: ε {high:g} gains "
            f"{_spanned(gain, 'points')} over it."
        )
    if advised.larger is not None:
        method, epsilon, gain = advised.larger
        if gain.mean <= 0:
            found.append(f"No larger budget is better in {name} on average.")
        else:
            found.append(
                f"No larger budget is measurably better in {name}: the largest gain is "
                f"{_spanned(gain, 'points')}, with {method} at ε {epsilon:g}."
            )
    elif advised.smaller is None:
        found.append(f"It has the largest {name} at the only budget that competes.")
    else:
        found.append("Whether the gain is worth the larger budget is your decision.")
    if advised.equals:
        verb = "is" if len(advised.equals) == 1 else "are"
        found.append(
            f"At this budget, {_listed(advised.equals)} {verb} not measurably worse than "
            f"{advised.method}."
        )
    return found


def no_use(results):
    """Return sentences on the models that are not better than always predicting one class."""
    measure, constant = results.leading_measures[0], of_one_class(results)
    scores = results.by_run()[measure].unstack(["seed", "fold"])
    others = [
        model
        for model, runs in scores.iterrows()
        if model not in constant and not is_useful(results, estimated(runs))
    ]
    found = []
    if constant:
        found.append(
            f"Of no use, as the same class is predicted for all test records: {_models(constant)}."
        )
    if others:
        found.append(
            f"The {in_words(measure)} is not measurably above the {points(chance(results))} % of "
            f"always predicting the same class: {_models(others)}."
        )
    return found


def _models(models):
    names = [m if np.isinf(e) else f"{m} at ε {e:g}" for m, e in models]
    more = [f"{len(names) - MOST_BUDGETS} more"] * (len(names) > MOST_BUDGETS)
    return _listed(names[:MOST_BUDGETS] + more)


def _how_good(results, advised, measure):
    """Return the score of the recommended model beside that of always predicting one class."""
    constant = chance(results)
    reached = f"{_spanned(advised.score, '%')} {in_words(measure)}"
    said = f"{advised.method} at ε {advised.epsilon:g} reaches {reached}"
    if constant is None:
        return f"{said}."
    said += f", where always predicting the same class reaches {points(constant)} %"
    worth = "" if advised.is_useful else ", which it does not measurably exceed"
    return f"{said}{worth}."


def _advice(advised):
    """Return the recommended model, and what is not measurably worse, as a phrase."""
    if advised is None or not advised.is_useful:
        return "none"
    equals = f" ({_listed(advised.equals)} not measurably worse)" if advised.equals else ""
    return f"take {advised.method} at ε {advised.epsilon:g}{equals}"


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
    own = runs.xs(method, level="method").xs(nearest, level="epsilon")
    costs = costs_by_group(results, own)
    largest, highest = largest_costs(costs)
    said = _whom_it_costs(results.table(), largest, highest, in_words(measure))
    return {
        "model": f"{method} at ε {nearest:g}",
        "is_near": not math.isclose(nearest, epsilon, rel_tol=0.01),
        "n_runs": len(own),
        "measure": in_words(measure),
        "own": f"{epsilon:.3g}",
        "rows": [(group, points(cost.mean), _limits(cost)) for group, cost in costs.items()],
        "said": " ".join(said),
        "advice": _advice(recommend(results)),
    }


def _limits(cost):
    """Return the interval of a cost as text, "" of a single run."""
    if np.isnan(cost.low):
        return ""
    return "in all runs" if cost.is_constant else f"{points(cost.low)} to {points(cost.high)}"


def _whom_it_costs(table, found_cost, highest, name):
    """Return the largest cost for a group as sentences."""
    if found_cost is not None:
        group, cost = found_cost
        found = [
            f"The largest cost of privacy for a group is that of {group}: "
            f"{_spanned(cost, 'points')} of {name}{_maybe(cost)}."
        ]
        other, most = highest or (group, cost.high)
        if other != group and most > cost.mean:
            found.append(f"For {other}, up to {points(most)} points cannot be excluded.")
        return found
    if ("privacy_cost", "mean") in table and table["privacy_cost", "mean"].notna().any():
        return ["The cost for a single group is unknown, as no group has enough test records."]
    why = "there are no runs of the reference model"
    if table.index.get_level_values("method").str.startswith("reference").any():
        why = "the reference model predicts one class only"
    return [f"The cost for the groups is unknown, as {why}."]


def _how_sure(frame, sizes, small):
    """Return the numbers on which the summary rests."""
    everyone = frame[frame["group"] == OVERALL]
    n_runs = len(everyone[["seed", "fold"]].drop_duplicates())
    seeds, least = everyone["seed"].nunique(), int(everyone["n"].min())
    of = f" ({seeds} seed{'s' * (seeds > 1)})" if seeds != n_runs else ""
    said = f"This rests on {n_runs} run{'s' * (n_runs > 1)}{of} with {least:,} test records"
    said += " each" * (n_runs > 1)
    if sizes:
        group, fewest, _ = min(sizes, key=lambda row: row[1])
        said += f"; the smallest group, {group}, has {fewest:,}"
    if small:
        said += f"; {_listed(small)} {'has' if len(small) == 1 else 'have'} too few to be judged"
    return f"{said}."


def _compared_with(results, table, measure):
    """Return what costs are relative to."""
    means = table[measure, "mean"].droplevel("epsilon")
    references = means[means.index.str.startswith("reference")].dropna()
    if references.empty:
        return []
    said = (
        "Costs are relative to the reference, the same model trained without privacy on the same "
        f"records, which has {points(references.max())} %"
    )
    if results.ceiling is not None:
        kind = results.ceiling.partition("(")[2].rstrip(")")
        kind = {
            "logistic": "logistic regression",
            "mlp": "an MLP",
            "boosting": "gradient boosting",
        }[kind]
        said += (
            "; the ceiling, the best of scikit-learn's logistic regression, MLP and gradient "
            f"boosting without privacy, is {kind} with {points(means[results.ceiling])} %"
        )
    weak = ["The reference is worse than a private model, so costs are unreliable."]
    return [f"{said}.", *weak * (weak_reference(table, measure) is not None)]


def _spanned(found: Estimate, unit):
    """Return an estimate with its interval, in no more digits than the interval allows."""
    digits = 0 if not (found.high - found.low) / 2 < _WIDE_INTERVAL else 1
    least = max(found.low, 0.0) if unit == "%" else found.low  # NaN stays NaN
    mean, low, high = (
        f"{round(100 * v, digits) + 0.0:.{digits}f}" for v in (found.mean, least, found.high)
    )
    interval = "" if np.isnan(found.low) else f" (95 % interval {low} to {high})"
    if low == high:
        interval = f" (the same in {'both' if found.n_runs == 2 else f'all {found.n_runs}'} runs)"
    return f"{mean} {unit.rstrip('s') if mean == '1' else unit}{interval}"


def _maybe(cost: Estimate):
    """Return the doubt about a cost whose interval contains zero."""
    return "" if cost.is_above_zero or cost.is_constant else ", so it may be zero"


def _listed(names):
    """Return names as a list in a sentence."""
    return " and ".join([", ".join(names[:-1])] * (len(names) > 1) + [names[-1]])


def answers(results, advised, sizes, total, unit, attackers, delta):
    """Return questions of readers without training in privacy, with answers from the facts."""
    frame, asked = results.frame, results.asked or {}
    everyone = frame[frame["group"] == OVERALL]
    private = np.isfinite(frame["epsilon"]).any()
    n_units = asked.get("n_units", asked.get("n_samples"))
    of_all = f" of the {n_units:,} {unit}s of these data" if n_units else ""
    whole = "; a person with several records is protected less" if unit == "record" else ""
    people = "records" if unit == "record" else "records, of fewer persons,"
    name = in_words(results.leading_measures[0])
    best = (
        "none, see the summary above"
        if advised is None or not advised.is_useful
        else f"take {advised.method} at ε {advised.epsilon:g}, as the summary above explains"
    )
    paid = "unknown, see the summary above"
    if advised is not None and advised.cost is not None:
        group, cost = advised.cost
        paid = f"most of all {group}, by {_spanned(cost, 'points')} of {name}{_maybe(cost)}"
    least, most = int(everyone["n"].min()), int(everyone["n"].max())
    n_test = f"{least:,}" if least == most else f"{least:,} to {most:,}"
    smallest = min(sizes, key=lambda row: row[1]) if sizes else None
    few = f"; the smallest group, {smallest[0]}, has {smallest[1]:,}" if smallest else ""
    n_runs = len(everyone[["seed", "fold"]].drop_duplicates())
    sure = (
        f"every model was trained {n_runs} times, on other parts of the same records; a difference "
        "whose interval contains zero may be chance, and a value that is the same in all runs has "
        "no interval, which does not make it certain"
        if n_runs > 1
        else "not at all, as every model was trained once: another run may rank them otherwise"
    )
    release = (
        "fix method and ε in a way that looks at no result on these records, train the model again "
        "without a seed (skdpfair fit, or DPFairClassifier(random_state=None)), read its "
        "privacy statement, and verify its file (skdpfair.audit.verify_release)"
    )
    return [
        (
            "What was protected?",
            f"each single {unit}{of_all}, in each private model by itself{whole}. The models of "
            "this page were trained with seeds, which are printed here: for readers of this page, "
            "ε holds only for a model that is trained again without a seed"
            if private
            else "nothing: no model of this page is private",
        ),
        (
            "What was not protected?",
            "this page, the reference models, and all models together"
            + (f", whose private fits spent ε ≤ {total[0]} together" if total else "")
            + "; the number of records, the classes and the names of the groups count as public",
        ),
        ("Which model is recommended?", f"{best}. The rule: {RULE.format(name=name)}"),
        ("Who pays for privacy, and how much?", paid),
        ("How sure is it?", sure),
        ("How many people are in the test?", f"{n_test} {people} in each run{few}"),
        ("What does ε mean?", _epsilon_in_words(results.frame, unit, attackers, delta)),
        ("Is this page private?", "no: its figures were computed on private records without noise"),
        (
            "May this page be published?",
            "no, only shared with people who may see the data; to publish a table by group, spend "
            "budget on it with skdpfair.metrics.release_group_table",
        ),
        ("What must be done before a model is released?", release),
    ]


def _epsilon_in_words(frame, unit, attackers, delta):
    """Return what the budgets mean for an attacker who guesses."""
    budgets = sorted(e for e in frame["epsilon"].unique() if np.isfinite(e))
    whose = "a record" if unit == "record" else "a person's records"
    who = f"someone who knows all other records and guesses whether {whose} took part in training"
    if not budgets:
        return "there is no private model, so there is no ε"
    if delta is None:
        return f"the smaller ε is, the less a model helps {who}; at ε 0, it does not help at all"
    shown = budgets if len(budgets) <= MOST_BUDGETS else [budgets[0], budgets[-1]]
    known = {epsilon: guess for epsilon, _, _, guess in attackers}  # from the releases
    limits = [
        f"{known.get(budget(e)) or percent((1 + tv_from_epsilon(e, delta)) / 2)} % at ε {e:g}"
        for e in shown
    ]
    return (
        f"{who} is right in 50 % of the cases without the model, and with it in at most "
        f"{_listed(limits)}, if either is equally likely"
    )


def before(results, ledger, total):
    """Return what a ledger has recorded on these records as sentences; None without one."""
    if ledger is None:
        return None
    n_private = int(np.isfinite(results.frame.query("group == @OVERALL")["epsilon"]).sum())
    calls = (results.asked or {}).get("calls") or [None] * n_private
    if lacking := ledger.n_unrecorded(calls):
        fits = f"{lacking:,} private fit{'s' * (lacking != 1)} of this sweep"
        are = "is" if lacking == 1 else "are"
        return [f"{fits} {are} not in the ledger, so it does not tell what was spent."]
    delta = ledger.delta or (results.asked or {}).get("delta")
    if delta is None:
        raise ValueError("ledger has no delta, and the sweep kept none. Begin it with delta=.")
    spent = ledger.report(delta)
    said = [
        holds(spent, is_theirs=n_private > 0),
        *spent.sentences("it", budget=ledger.budget, names=("ε", "δ")),
    ]
    if total:
        said.append(
            f"The ε ≤ {total[0]} at δ = {total[1]} of the section on privacy counts the private "
            f"fits of this page only, by the Rényi accountant; the ledger's is {spent.accountant}."
        )
    return said


def release_commands(results, advised, ledger=None):
    """Return the shell's commands that fit what is released: with the choice covered, and without.

    The first is None if there is one method only.
    """
    asked = results.asked or {}
    params = {k: v for k, v in asked.get("params", {}).items() if k not in _OF_SCHEMA}
    delta = params.pop("delta", "'auto'")
    options = "" if delta == "'auto'" else f" --delta {delta}"
    options += "".join(f" --set {shlex.quote(f'{k}={_as_typed(v)}')}" for k, v in params.items())
    options += "" if ledger is None else f" --ledger {shlex.quote(ledger.path.name)}"
    method, epsilon = "METHOD", "EPSILON"
    if advised is not None and advised.is_useful:
        method, epsilon = advised.method, f"{advised.epsilon:g}"
    fit = f"skdpfair fit DATA --schema SCHEMA.toml --epsilon {epsilon}"
    named = [name for name in asked.get("methods", ()) if name in METHODS and METHODS[name].private]
    chosen = f"{fit} --try method={','.join(named)}{options}" if len(named) > 1 else None
    return chosen, f"{fit} --method {method}{options}"


def _as_typed(text):
    """Return a parameter, kept as Python shows it, as the shell takes it."""
    try:
        value = ast.literal_eval(text)
        return value if isinstance(value, str) else json.dumps(value)
    except (ValueError, SyntaxError, TypeError):  # such as an object
        return text


def weak_reference(table, measure):
    """Return in words how far a private model is above its reference, or None."""
    if (COST[measure], "mean") not in table:
        return None
    costs = table[COST[measure], "mean"].dropna()
    costs = costs[np.isfinite(costs.index.get_level_values("epsilon"))]
    if costs.empty or costs.min() > -_WEAK:
        return None
    method, epsilon = costs.idxmin()
    return (
        f"{method} at ε {epsilon:g} is {points(-costs.min())} points higher in {in_words(measure)}"
    )
