"""The candidates of a scikit-learn search as models of a comparison, each with its reference."""

import re
from collections.abc import Mapping

import numpy as np
import pandas as pd

from skdpfair.inputs import target
from skdpfair.metrics._measures import MEASURES, OVERALL, compared, costs
from skdpfair.model_selection._cells import REFERENCE
from skdpfair.model_selection._scorers import at_final_step

_BUDGETS = ("epsilon", "noise_multiplier")
_SCORE = re.compile(r"split(\d+)_(train|test)_(neg_)?(\w+?)(?:\[(.*)\])?", re.DOTALL)


def frame_of_search(search):
    """Return one row per candidate, fold and group, as a sweep has them, in the order of the rows.

    Costs and risks compare with the reference candidate of the same fold, gaps with the training
    scores of the candidate.
    """
    results = getattr(search, "cv_results_", search)
    if not isinstance(results, Mapping) or "params" not in results:
        raise TypeError(
            "search must be a fitted search, or its cv_results_, got "
            f"{type(search).__name__}. Pass a search fitted with scoring=GroupScorer(...)."
        )
    defaults = {}
    if (final := getattr(search, "estimator", None)) is not None:
        params = at_final_step(final)[0].get_params(deep=False)
        defaults = {name: params[name] for name in ("method", *_BUDGETS) if name in params}
    names = _labels(results["params"], defaults)
    test, train = _scores(results)
    if "accuracy" in train:
        test["dg_gap"] = compared(test, train, "dg_gap")
    references = _references(results, names)
    index = test.index.to_frame()
    index["row"] = index["row"].map(references)
    other = test.reindex(pd.MultiIndex.from_frame(index)).set_axis(test.index)
    if references:
        test = test.assign(**costs(test, other))
    facts = test.index.to_frame(index=False)
    methods, epsilons = zip(*(names[row] for row in facts.pop("row")), strict=True)
    facts = facts.assign(method=methods, epsilon=epsilons, seed=0, n=np.nan)
    return pd.concat([facts, test.reset_index(drop=True)], axis=1)


def classes_of_search(search) -> list:
    """Return the classes, the positive one of two last, [] if neither fit nor classifier knows."""
    if hasattr(search, "classes_"):
        return search.classes_[target.order_of(search)].tolist()
    final = at_final_step(getattr(search, "estimator", None))[0]
    # that of thresholds is within
    final = at_final_step(getattr(final, "estimator", final))[0]
    params = {} if final is None else final.get_params()
    declared = params.get("classes")
    if declared is None:
        return []
    classes = target.sorted_classes(declared)
    return classes[target.declared_order(classes, declared, params.get("pos_label"))].tolist()


def _scores(results):
    """Return the test and the training scores by row, fold and group, in columns by measure."""
    parts = {"test": {}, "train": {}}
    for key, values in results.items():
        match = _SCORE.fullmatch(key)
        if match is None or MEASURES.get(match[4], MEASURES["dg_gap"]).of is not None:
            continue
        fold, part, negated, name, group = match.groups()
        if not negated and MEASURES[name].greater_is_better is False:
            raise ValueError(
                f"The search has scores named {name!r}, where less is better, but scikit-learn "
                f"takes the largest. Negate them, and name them 'neg_{name}'."
            )
        at = int(fold), OVERALL if group is None else group
        values = np.asarray(values, dtype=float)
        for row, value in enumerate(-values if negated else values):
            parts[part].setdefault((row, *at), {})[name] = value
    if not any(group != OVERALL for *_, group in parts["test"]):
        raise ValueError(
            f"The search has no scores by group of the measures {', '.join(MEASURES)}. Fit it with "
            'scoring=GroupScorer(...), such as GroupScorer(measures=["accuracy", "neg_log_loss"]).'
        )
    index = pd.MultiIndex.from_tuples(sorted(parts["test"], key=lambda at: at[0]))
    index = index.set_names(["row", "fold", "group"])
    return [
        pd.DataFrame.from_dict(part, orient="index").reindex(index) if part else pd.DataFrame()
        for part in parts.values()
    ]


def _labels(params, defaults):
    """Return method and epsilon of each candidate; other parameters that differ join the method.

    The epsilon is inf without privacy, and NaN where neither the grid nor the search names it.
    """
    last = [{key.rpartition("__")[2]: value for key, value in p.items()} for p in params]
    labels = []
    for p in last:
        known = {"epsilon": np.nan} | defaults | p
        is_reference = known["epsilon"] is None and known.get("noise_multiplier") is None
        name = REFERENCE if is_reference else str(known.get("method", "private"))
        more = ", ".join(f"{k}={v}" for k, v in p.items() if k not in ("method", "epsilon"))
        name += f" ({more})" * bool(more)
        epsilon = np.nan if known["epsilon"] is None else known["epsilon"]
        labels.append((name, np.inf if is_reference else epsilon))
    return [
        (f"{name}, row {i}", epsilon) if labels.count((name, epsilon)) > 1 else (name, epsilon)
        for i, (name, epsilon) in enumerate(labels)
    ]


def _references(results, labels):
    """Return the row of the reference of each row, which agrees in all other named parameters."""
    references = [i for i, (_, epsilon) in enumerate(labels) if np.isinf(epsilon)]
    private = (i for i in range(len(labels)) if i not in references)
    of_private = {i: _reference_of(results, i, references) for i in private}
    return {i: i for i in references} | {i: r for i, r in of_private.items() if r is not None}


def _reference_of(results, row, references):
    """Return the reference that agrees with a row, or None: a halving search drops some."""
    params, halving = results["params"], results.get("iter")
    agreeing = [
        r
        for r in references
        if (halving is None or halving[r] == halving[row])
        and _agree(params[row], params[r], but=("method", *_BUDGETS))
    ]
    # the reference of every private method is plain SGD: prefer that which names the same method
    best = [r for r in agreeing if _agree(params[row], params[r], _BUDGETS)] or agreeing
    # and then that which leaves the same parameters at their defaults
    n_other_params = [len((params[r].keys() ^ params[row].keys()) - {*_BUDGETS}) for r in best]
    best = [r for r, n in zip(best, n_other_params, strict=True) if n == min(n_other_params)]
    if len(best) > 1:
        raise ValueError(
            f"Rows {best} of the search are all references of row {row}, {params[row]}. "
            "Keep one of them, or set all searched parameters in each reference."
        )
    return best[0] if best else None


def _agree(one, other, but):
    """Tell whether two candidates agree in all that both name, except ``but``."""
    shared = [k for k in one if k in other and k.rpartition("__")[2] not in but]
    return all(one[k] is other[k] or repr(one[k]) == repr(other[k]) for k in shared)
