"""The three figures of Li et al.: clipped SGD where the data react to the model."""

import numpy as np
import pandas as pd

from skdpfair.performative import (
    bias_by_beta,
    bias_by_epsilon,
    bias_over_iterations,
    plot_bias_by_beta,
    plot_bias_by_epsilon,
    plot_bias_over_iterations,
)
from skdpfair.performative.scalar import ScalarProblem
from skdpfair.performative.theory import privacy_plan
from skdpfair.privacy import PrivacyPlan
from skdpfair.reproduce._study import OTHER, Run, Study, cell, cells_of, claim, rows_of

_EPSILON, _STEPS, _BETAS = 0.1, 100_000, (0.01, 0.05)
_DELTA = 1 / ScalarProblem().n_samples  # that of Corollary 1
_STEPS_OF = {"iterations": _STEPS, "beta": 20_000}
_ROWS = ("iterations", "epsilon", "beta")
_PANELS = {  # table of a figure, columns that name a point
    "iterations": ("beta", "iteration"),
    "epsilon": ("max_grad_norm", "epsilon"),
    "beta": ("beta",),
}


def runs(options):
    """Return a run for each figure and seed."""
    rows = options.rows or _ROWS
    return [Run(row, seed, _settings(row, options.sound)) for row in rows for seed in options.seeds]


def _settings(row, sound):
    if row == "epsilon":  # the noise of each budget is calibrated; nothing differs as published
        return {"repetitions": 200}
    return {"noise": "calibrated" if sound else "Corollary 1", "epsilon": _EPSILON, "delta": _DELTA}


def measure(run, device):
    """Simulate a figure at one seed; return its table, one number per point and column."""
    noise = _noise(run.settings.get("noise") != "Corollary 1")
    steps = _STEPS_OF.get(run.row)
    if run.row == "iterations":
        table = bias_over_iterations(
            _BETAS, steps, noise_multiplier=noise, n_repetitions=20, random_state=run.seed
        )
    elif run.row == "epsilon":
        table = bias_by_epsilon(n_repetitions=200, random_state=run.seed)
    else:
        table = bias_by_beta(
            n_steps=steps, noise_multiplier=noise, n_repetitions=50, random_state=run.seed
        )
    keys = list(_PANELS[run.row])
    found = {"noise_multiplier": noise, "epsilon": _epsilon(noise, steps)} if steps else {}
    for row in table.to_dict("records"):
        place = ",".join(f"{row[key]:g}" for key in keys)
        found |= {f"{column}[{place}]": row[column] for column in row if column not in keys}
    return found


def _noise(sound):
    """Return the noise multiplier: calibrated, or by the formula of the slides."""
    problem = ScalarProblem()
    if not sound:  # sigma = c sqrt(T log(1/delta)) / (m epsilon), in units of c
        m = problem.n_samples
        return float(np.sqrt(_STEPS * np.log(m)) / (m * _EPSILON))
    plan = privacy_plan(problem, _STEPS)
    return float(plan.calibrated(_EPSILON, _DELTA).noise_multipliers[0])


def _epsilon(noise, steps):
    problem = ScalarProblem()
    rate = privacy_plan(problem, steps).sample_rate
    plan = PrivacyPlan(steps=steps, sample_rate=rate, noise_multipliers=(noise,))
    return float(plan.epsilon(delta=_DELTA))


def tables(frame):
    """Return each figure's table, the mean over the seeds."""
    found = {}
    for row, keys in _PANELS.items():
        own = frame[frame["row"] == row].dropna(axis=1)
        if own.empty:
            continue
        points = {}
        for column in (c for c in own if c.endswith("]")):
            name, place = column[:-1].split("[")
            points.setdefault(place, {})[name] = own[column].mean()
        rows = [
            dict(zip(keys, map(float, place.split(",")), strict=True)) | values
            for place, values in points.items()
        ]
        found[row] = pd.DataFrame(rows)
    return found


def cells(frame, options):
    """Compare the ends of the simulated paths with the closed form of the fixed point."""
    own, found = frame[frame["row"] == "iterations"], []
    for beta in _BETAS if len(own) else ():
        ends = own[f"simulated[{beta:g},{_STEPS:g}]"]
        limit = ScalarProblem(beta=beta).squared_bias
        rule = OTHER | {"within": 0.05 * limit, "near": 0.1 * limit}
        found.append(cell("iterations", f"squared_bias_beta_{beta:g}", ends, limit, np.nan, rule))
    return cells_of(found)


def claims(frame, options):
    """Judge what the slides say of their figures."""
    found = []
    rows = rows_of(frame)
    if "iterations" in rows:
        ends = [rows["iterations"][f"simulated[{b:g},{_STEPS:g}]"] for b in _BETAS]
        said = "the bias is larger where the population reacts more"
        found.append(claim(said, ends[1] - ends[0], unit="squared distance"))
    if "epsilon" in rows:
        less = rows["epsilon"]["simulated[10,0.03]"] - rows["epsilon"]["simulated[10,3]"]
        said = "a larger budget brings a wide clipping bound nearer to the stable point"
        found.append(claim(said, less, unit="squared distance"))
        kept, most = rows["epsilon"]["simulated[1,3]"], 0.5 * ScalarProblem(beta=0.01).squared_bias
        said = "with a tight bound most of the bias stays at any budget"
        found.append(claim(said, kept, unit="squared distance", above=most))
    return found


def notes(options):
    """Return what a reader must know."""
    sound, printed = _noise(True), _noise(False)
    return [
        "The slides print curves without numbers: 'paper' is the closed form of the fixed point, "
        "within 5 % (10 %).",
        f"Noise for epsilon {_EPSILON}: calibrated {sound:.3f}; the formula of Corollary 1 gives "
        f"{printed:.3f}, whose epsilon after {_STEPS:,} steps is {_epsilon(printed, _STEPS):.3g} "
        f"by PLD at delta {_DELTA:g}.  The right figure takes {_STEPS_OF['beta']:,} steps.",
        "The middle figure takes 1,000 people and steps: with the slides' 100,000 a budget of 0.1 "
        "costs next to nothing.",
    ]


def draw(frame, cells):
    """Draw the three figures side by side."""
    import matplotlib.pyplot as plt

    drawn, axes = plt.subplots(1, 3, figsize=(18, 4.6), layout="constrained")
    plots = {
        "iterations": plot_bias_over_iterations,
        "epsilon": plot_bias_by_epsilon,
        "beta": plot_bias_by_beta,
    }
    found = tables(frame)
    for ax, (row, plot) in zip(axes, plots.items(), strict=True):
        if row in found:
            plot(found[row], ax=ax)
        else:
            ax.set_visible(False)
    return drawn


STUDIES = (
    Study(
        name="li-figures",
        title="Clipped SGD with data that react: distance to the stable point",
        source="Li et al., ICML 2024 workshop, slides",
        runs=runs,
        measure=measure,
        cells=cells,
        rows=_ROWS,
        reference="the closed form has them",
        notes=notes,
        claims=claims,
        draw=draw,
    ),
)
