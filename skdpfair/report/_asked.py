"""What a sweep was asked for, what is missing of it, and what its fits cost together."""

import numpy as np

from skdpfair.privacy import SampledGaussian
from skdpfair.privacy import epsilon as epsilon_of
from skdpfair.privacy.gdp import delta_for
from skdpfair.privacy.statement import rounded_up

_MODEL = ["method", "epsilon"]
_OVERALL = "overall"
_SPLIT = "20 % held out per seed, stratified by class and group (cv=None)"


def asked(results):
    """Return what the sweep was asked for, as pairs of words and text."""
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
        rows.append(("δ of all fits together", rounded_up(results.asked["delta"], 3)))
        rows += _of_one_run(frame, results.asked)
        classes = results.asked.get("classes")
        rows += [("classes", ", ".join(map(str, classes)))] if classes else []
        params = results.asked["params"].items()
        rows += [(name, value) for name, value in params if name not in ("classes", "groups")]
    return rows


def _of_one_run(frame, asked):
    """Return how many records a fit trains on, and its delta, unless a splitter decided."""
    if asked["cv"] != "None" and not asked["cv"].isdigit():
        return []
    trained = asked["n_samples"] - frame.loc[frame["group"] == _OVERALL, "n"]
    low, high = int(trained.min()), int(trained.max())
    auto = asked["params"].get("delta", repr("auto")) == repr("auto")
    delta = delta_for("auto", low) if auto else asked["delta"]
    return [
        ("records of one fit", f"{low:,}" if low == high else f"{low:,} to {high:,}"),
        ("δ of one fit", rounded_up(delta, 3)),
    ]


def unfinished(results):
    """Return what was asked for and is not there, in words, or None."""
    if results.asked is None or not {"seeds", "methods", "epsilons"} <= results.asked.keys():
        return None
    frame = results.frame[results.frame["group"] == _OVERALL]
    seeds = len(results.asked["seeds"]) * frame["fold"].nunique()
    private = len(results.asked["methods"]) * len(results.asked["epsilons"])
    per_model = frame.groupby(_MODEL, sort=False).size()
    absent = sorted(set(results.asked["methods"]) - set(frame["method"]))
    if absent:
        return f"nothing yet of {', '.join(absent)}"
    short = int((per_model < seeds).sum())
    return f"{short} of {max(private, len(per_model))} models have fewer runs" if short else None


def total(results):
    """Return epsilon and delta of all private fits together, or None where it is not known."""
    if results.asked is None or results.releases is None or results.releases.empty:
        return None
    columns = ["sample_rate", "noise_multiplier", "steps"]
    runs = [SampledGaussian(*row) for row in results.releases[columns].itertuples(index=False)]
    runs = [run._replace(steps=int(run.steps)) for run in runs]
    delta = results.asked["delta"]
    return rounded_up(epsilon_of(runs, delta, "rdp")), rounded_up(delta, 3)


def reproduce(results):
    """Return the versions, or None where they were not kept."""
    if results.asked is None:
        return None
    versions = {name: results.asked[name] for name in ("skdpfair", "torch")}
    return versions | {"split": _SPLIT if results.asked["cv"] == "None" else results.asked["cv"]}
