"""The three figures of Li et al.: clipped SGD where the data react to the model."""

from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd

from benchmarks.papers.scalar import (
    ScalarProblem,
    corollary_noise_multiplier,
    expected_path,
    minimum_bias_step,
    noise_for,
    simulate,
    steps_of,
    upper_bound,
)
from benchmarks.papers.study import OTHER, Study, cell, claim
from skdpfair import privacy
from skdpfair.report._displays import PALETTE, dress, new_axes

_EPSILON, _STEPS, _BETAS = 0.1, 100_000, (0.01, 0.05)
_DELTA = 1 / ScalarProblem().n_samples  # that of Corollary 1
_STEPS_OF = {"iterations": _STEPS, "beta": 20_000}
_POINTS = {  # the columns of each figure's table that name a point
    "iterations": ["beta", "iteration"],
    "epsilon": ["max_grad_norm", "epsilon"],
    "beta": ["beta"],
}
_DISTANCE = "squared distance to the stable point"


def bias_over_iterations(betas=_BETAS, n_steps=_STEPS, *, n_checkpoints=60, **options):
    """Return the squared distance to the stable point by beta and iteration.

    ``options`` are those of `simulate`.  Columns beta, iteration; simulated (mean over runs),
    expected (without any randomness), limit (closed form), bound (Theorem 1).

    Examples
    --------
    >>> table = bias_over_iterations([0.01], 2000, noise_multiplier=0.5, random_state=0)
    >>> table[["expected", "limit"]].iloc[-1].round(3).tolist()
    [0.975, 0.975]
    """
    looks = np.unique(np.geomspace(1, n_steps, n_checkpoints).round().astype(int))
    tables = []
    for beta in betas:
        problem = ScalarProblem(beta=beta)
        theta = simulate(problem, n_steps, checkpoints=looks.tolist(), **options)
        expected = expected_path(problem, n_steps)[looks]
        bound = upper_bound(problem, n_steps, noise_multiplier=options["noise_multiplier"])
        columns = {
            "beta": beta,
            "iteration": looks,
            "simulated": ((theta - problem.stable_point) ** 2).mean(axis=1),
            "expected": (expected - problem.stable_point) ** 2,
            "limit": problem.squared_bias,
            "bound": bound[looks - 1],
        }
        tables.append(pd.DataFrame(columns))
    return pd.concat(tables, ignore_index=True)


def bias_by_epsilon(
    epsilons=(0.03, 0.1, 0.3, 1.0, 3.0), max_grad_norms=(1.0, 3.0, 10.0), *, delta=1e-4, **options
):
    """Return the squared distance to the stable point by clipping bound and budget.

    1000 people and steps, few: with the published 100,000 a budget of 0.1 costs next to nothing.
    Columns max_grad_norm, epsilon, noise_multiplier (calibrated); simulated (mean over runs),
    squared_bias (closed form, without noise).

    Examples
    --------
    >>> table = bias_by_epsilon([1.0], [1.0, 10.0], n_repetitions=50, random_state=0)
    >>> table["squared_bias"].round(3).tolist()
    [0.975, 0.0]
    """
    rows = []
    for c in max_grad_norms:
        problem = ScalarProblem(max_grad_norm=c, n_samples=1000)
        for epsilon in epsilons:
            noise = noise_for(problem, 1000, epsilon, delta)
            theta = simulate(problem, 1000, noise_multiplier=noise, **options)
            point = {"max_grad_norm": c, "epsilon": epsilon, "noise_multiplier": noise}
            distance = ((theta - problem.stable_point) ** 2).mean()
            rows.append(point | {"simulated": distance, "squared_bias": problem.squared_bias})
    return pd.DataFrame(rows)


def bias_by_beta(betas=(0.0, 0.02, 0.04, 0.06, 0.07, 0.08, 0.09), n_steps=20_000, **options):
    """Return the squared distance to the stable point by beta, after ``n_steps``.

    Columns beta, rate (mu - L beta); simulated (mean over runs), expected (without any
    randomness), squared_bias (closed form).

    Examples
    --------
    >>> table = bias_by_beta([0.01, 0.05], 2000, noise_multiplier=0.5, random_state=0)
    >>> table["squared_bias"].round(4).tolist()
    [0.9755, 3.1605]
    """
    rows = []
    for beta in betas:
        problem = ScalarProblem(beta=beta)
        ends = simulate(problem, n_steps, **options), expected_path(problem, n_steps)[-1]
        simulated, expected = (((end - problem.stable_point) ** 2).mean() for end in ends)
        point = {"beta": beta, "rate": problem.rate, "simulated": simulated, "expected": expected}
        rows.append(point | {"squared_bias": problem.squared_bias})
    return pd.DataFrame(rows)


def plot_bias_over_iterations(table, ax):
    """Draw the distance to the stable point over the iterations, one colour per beta."""
    for colour, (beta, rows) in zip(PALETTE, table.groupby("beta"), strict=False):
        ax.plot(rows["iteration"], rows["simulated"], color=colour, label=f"β = {beta:g}")
        ax.plot(rows["iteration"], rows["expected"], color=colour, linestyle=":", linewidth=2.5)
        limit = rows["limit"].iloc[-1]
        ax.axhline(limit, color=colour, linestyle="--", linewidth=1)
        ax.annotate(f"{limit:.4f}", (1.01, limit), xycoords=("axes fraction", "data"), va="center")
    ax.plot([], [], color="0.4", linestyle=":", label="expected path")
    ax.plot([], [], color="0.4", linestyle="--", label="closed form")
    ax.set(xscale="log", yscale="log", xlabel="iteration", ylabel=_DISTANCE)
    _dress(ax, "Clipping leaves a bias that grows with the reaction β")


def plot_bias_by_epsilon(table, ax):
    """Draw the distance to the stable point against the budget, one colour per clipping bound."""
    for colour, (c, rows) in zip(PALETTE, table.groupby("max_grad_norm"), strict=False):
        ax.plot(rows["epsilon"], rows["simulated"], "o-", color=colour, label=f"c = {c:g}")
        ax.axhline(rows["squared_bias"].iloc[0], color=colour, linestyle="--", linewidth=1)
    ax.plot([], [], color="0.4", linestyle="--", label="bias alone")
    ticks = sorted(set(table["epsilon"]))
    ax.set(xscale="log", xlabel="ε", ylabel=_DISTANCE)
    ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    ax.minorticks_off()
    ax.set_ylim(bottom=min(0.0, ax.get_ylim()[0]))
    _dress(ax, "A tight clipping bound c is biased, a wide one is noisy")


def plot_bias_by_beta(table, ax):
    """Draw the bias against the population's reaction, with the curve of the theory."""
    scale = (table["squared_bias"] * table["rate"] ** 2).mean()  # the same for every beta
    beta = np.linspace(table["beta"].min(), table["beta"].max(), 200)
    rate = np.interp(beta, table["beta"], table["rate"])  # linear in beta
    theory = {"color": "0.5", "linestyle": "--", "label": "theory, proportional to 1/(μ − Lβ)²"}
    ax.plot(beta, scale / rate**2, **theory)
    ax.plot(table["beta"], table["simulated"], "o", color=PALETTE[0], label="simulated")
    ax.set(yscale="log", xlabel="β", ylabel=_DISTANCE)
    _dress(ax, "The bias grows without limit as β nears μ / L")


def _dress(ax, title):
    dress(ax, title, grid="both")
    ax.set_title(title, loc="left", fontweight="bold", pad=29)  # above the legend
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1.0), ncols=5, frameon=False, borderaxespad=0.3)


_PLOTS = {
    "iterations": plot_bias_over_iterations,
    "epsilon": plot_bias_by_epsilon,
    "beta": plot_bias_by_beta,
}


class Figures(Study):
    """Distance to the stable point over the iterations, by epsilon, and by beta."""

    name = "li-figures"
    title = "Clipped SGD with data that react: distance to the stable point"
    source = "Li et al., ICML 2024 workshop, slides"
    rows = tuple(_POINTS)
    compared_with = "in the closed form"
    differs_as_published = True

    def settings(self, row, options):
        """Return the source of the noise: calibration, or the slides' formula."""
        if row == "epsilon":  # the noise of each budget is calibrated; nothing differs as published
            return {"repetitions": 200}
        noise = "calibrated" if options.sound else "Corollary 1"
        return {"noise": noise, "epsilon": _EPSILON, "delta": _DELTA}

    def measure(self, run, device):
        """Simulate a figure at one seed; return its table, one number per point and column."""
        rng, found = np.random.default_rng(run.seed), {}
        if run.row == "epsilon":
            table = bias_by_epsilon(n_repetitions=200, random_state=rng)
        else:
            noise = noise_multiplier(sound=run.settings["noise"] != "Corollary 1")
            steps = _STEPS_OF[run.row]
            found = {"noise_multiplier": noise, "epsilon": epsilon_of(noise, steps)}
            options = {"noise_multiplier": noise, "random_state": rng}
            if run.row == "iterations":
                table = bias_over_iterations(_BETAS, steps, n_repetitions=20, **options)
            else:
                table = bias_by_beta(n_steps=steps, n_repetitions=50, **options)
        keys = _POINTS[run.row]
        for row in table.to_dict("records"):
            place = ",".join(f"{row[key]:g}" for key in keys)
            found |= {f"{column}[{place}]": row[column] for column in row if column not in keys}
        return found

    def cells(self, rows):
        """Yield the ends of the simulated paths, beside the closed form of the fixed point."""
        for beta in _BETAS if "iterations" in rows else ():
            ends = rows["iterations"][f"simulated[{beta:g},{_STEPS:g}]"]
            limit = ScalarProblem(beta=beta).squared_bias
            rule = OTHER | {"within": 0.05 * limit, "near": 0.1 * limit}
            yield cell("iterations", f"squared_bias_beta_{beta:g}", ends, rule, limit)

    def claims(self, rows):
        """Judge the slides' claims on their figures."""
        found, unit = [], {"unit": "squared distance"}
        if "iterations" in rows:
            ends = [rows["iterations"][f"simulated[{b:g},{_STEPS:g}]"] for b in _BETAS]
            said = "the bias is larger where the population reacts more"
            found.append(claim(said, ends[1] - ends[0], **unit))
        if "epsilon" in rows:
            own, most = rows["epsilon"], 0.5 * ScalarProblem(beta=0.01).squared_bias
            said = "a larger budget brings a wide clipping bound nearer to the stable point"
            found.append(claim(said, own["simulated[10,0.03]"] - own["simulated[10,3]"], **unit))
            said = "with a tight bound most of the bias stays at any budget"
            found.append(claim(said, own["simulated[1,3]"], above=most, **unit))
        return found

    def notes(self, options):
        """Return notes on the comparison, and the epsilon of the slides' noise."""
        sound, stated = noise_multiplier(sound=True), noise_multiplier(sound=False)
        return [
            "The slides print curves without numbers: 'paper' is the closed form of the fixed "
            "point, within 5 % (10 %).",
            f"Noise for epsilon {_EPSILON}: calibrated {sound:.3f}; the formula of Corollary 1 "
            f"gives {stated:.3f}, whose epsilon after {_STEPS:,} steps is "
            f"{epsilon_of(stated, _STEPS):.3g} by PLD at delta {_DELTA:g}.  The right figure takes "
            f"{_STEPS_OF['beta']:,} steps.",
            "The middle figure takes 1,000 people and steps: with the slides' 100,000 a budget of "
            "0.1 costs next to nothing.",
        ]

    def draw(self, found):
        """Draw the three figures side by side, the mean over the seeds."""
        axes = new_axes(18.0, 4.6, n_columns=3)
        tables = mean_tables(found.runs)
        for ax, (row, plot) in zip(axes, _PLOTS.items(), strict=True):
            if row in tables:
                plot(tables[row], ax)
            else:
                ax.set_visible(False)
        return axes[0].figure


def mean_tables(frame):
    """Return each figure's table, the mean over the seeds."""
    found = {}
    for row, keys in _POINTS.items():
        own = frame[frame["row"] == row].dropna(axis=1)
        points = {}
        for column in (c for c in own if c.endswith("]") and len(own)):
            name, place = column[:-1].split("[")
            points.setdefault(place, {})[name] = own[column].mean()
        if points:
            places = [map(float, place.split(",")) for place in points]
            named = [dict(zip(keys, place, strict=True)) for place in places]
            found[row] = pd.DataFrame([a | b for a, b in zip(named, points.values(), strict=True)])
    return found


@cache
def noise_multiplier(*, sound):
    """Return the noise multiplier for epsilon .1: calibrated, or by the formula of the slides."""
    problem = ScalarProblem()
    if not sound:
        return corollary_noise_multiplier(problem, _STEPS, epsilon=_EPSILON, delta=_DELTA)
    return noise_for(problem, _STEPS, _EPSILON, _DELTA)


@cache
def epsilon_of(noise, n_steps):
    """Return the epsilon of so many steps with this noise."""
    return privacy.compute_epsilon(
        [steps_of(ScalarProblem(), n_steps, noise_multiplier=noise)], _DELTA
    )


class StepSizes(Study):
    """The slides' middle figure: the distance to the stable point by epsilon and step size."""

    name = "li-figure2"
    title = "Clipped SGD with data that react: constant step sizes by epsilon"
    source = "Li et al., ICML 2024 workshop, slides, middle figure"
    rows = ("gamma*", "gamma by mu", "5 gamma*")
    beta, few, epsilons = 0.05, 1000, (0.003, 0.03, 0.3, 3.0)

    def settings(self, row, options):
        """Return the numbers of people, which are those of steps, and the budgets."""
        return {"few": self.few, "epsilons": self.epsilons, "published": (_STEPS, _EPSILON)}

    def measure(self, run, device):
        """Simulate a step size at one seed; return the mean squared distances."""
        rng, found = np.random.default_rng(run.seed), {}
        points = [(self.few, epsilon, 500) for epsilon in self.epsilons]
        for n, epsilon, repetitions in [*points, (_STEPS, _EPSILON, 20)]:
            problem = ScalarProblem(beta=self.beta, n_samples=n)
            noise = noise_for(problem, n, epsilon, 1 / n)
            rate = 1.0 if run.row == self.rows[1] else None
            size = minimum_bias_step(problem, n, noise_multiplier=noise, rate=rate)
            size *= 5 if run.row == self.rows[2] else 1
            problem = replace(problem, schedule=size)
            options = {"n_repetitions": repetitions, "random_state": rng}
            theta = simulate(problem, n, noise_multiplier=noise, **options)
            found[f"n={n:g}, epsilon={epsilon:g}"] = ((theta - problem.stable_point) ** 2).mean()
        return found

    def cells(self, rows):
        """Yield the distances; the slides print no numbers."""
        for row, own in rows.items():
            for point in own:
                yield cell(row, point, own[point], OTHER)

    def claims(self, rows):
        """Judge the claims on the middle figure."""
        if set(rows) != set(self.rows):
            return []
        best, stiff, long = (rows[row] for row in self.rows)
        unit = {"unit": "squared distance"}
        least, most = (
            f"n={self.few}, epsilon={e:g}" for e in (self.epsilons[0], self.epsilons[-1])
        )
        published = f"n={_STEPS:g}, epsilon={_EPSILON:g}"
        return [
            claim("a larger budget brings less error", best[least] - best[most], **unit),
            claim(
                "gamma* has less error than gamma by mu", stiff[published] - best[published], **unit
            ),
            claim("gamma* has the least error", long[published] - best[published], **unit),
        ]

    def notes(self, options):
        """Return what the slides leave open."""
        bias = ScalarProblem(beta=self.beta).squared_bias
        return [
            f"beta is {self.beta:g}; steps are as many as people (n), and delta is 1/n. Clipping "
            f"alone leaves a squared distance of {bias:.2f}.",
            "gamma* = log(1 / Delta(m)) / (m T) with m = mu - L beta, and gamma by mu has m = mu. "
            "The slides do not define Delta: it follows from Theorem 1.",
        ]

    def draw(self, found):
        """Draw the distance against epsilon, one line per step size, mean over the seeds."""
        ax = new_axes(7.0, 4.6)
        means = found.cells.pivot(index="row", columns="measure", values="ours")
        for colour, row in zip(
            PALETTE, (row for row in self.rows if row in means.index), strict=False
        ):
            columns = [f"n={self.few}, epsilon={e:g}" for e in self.epsilons]
            ax.plot(self.epsilons, means.loc[row, columns], "o-", color=colour, label=row)
        bias = ScalarProblem(beta=self.beta).squared_bias
        ax.axhline(bias, color="0.4", linestyle="--", linewidth=1, label="bias of clipping alone")
        ax.set(xscale="log", xlabel="ε", ylabel=_DISTANCE, ylim=(0, None))
        dress(ax, "Error by step size, 1000 people and steps", grid="both")
        ax.set_title(ax.get_title(loc="left"), loc="left", fontweight="bold", pad=44)
        where = {"loc": "lower left", "bbox_to_anchor": (0, 1.0)}
        ax.legend(ncols=2, frameon=False, borderaxespad=0.3, **where)
        return ax.figure


STUDIES = (Figures(), StepSizes())
