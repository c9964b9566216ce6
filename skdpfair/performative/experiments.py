"""The three questions of the scalar simulation, each answered by a table."""

import numpy as np
import pandas as pd

from skdpfair._validate import generator, integer, listed
from skdpfair.performative.scalar import ScalarProblem
from skdpfair.performative.simulation import expected_path, simulate
from skdpfair.performative.theory import privacy_plan, upper_bound

__all__ = ["bias_by_beta", "bias_by_epsilon", "bias_over_iterations"]


def bias_over_iterations(
    betas=(0.01, 0.05),
    n_steps=100_000,
    *,
    noise_multiplier,
    n_repetitions=100,
    n_checkpoints=60,
    random_state=None,
):
    """Follow the squared distance to the stable point, for several sensitivities.

    Parameters
    ----------
    betas : sequence of float, default=(0.01, 0.05)
        Of `ScalarProblem`, as are all its other defaults.
    n_steps : int, default=100_000
    noise_multiplier : float >= 0
        See `privacy_plan`.
    n_repetitions, n_checkpoints : int
        Runs, and numbers of steps at which to look, evenly spread on a logarithmic axis.
    random_state : int, numpy.random.Generator or None, default=None

    Returns
    -------
    pandas.DataFrame
        Columns beta, iteration; simulated (mean over runs), expected (without any randomness),
        limit (closed form), bound (Theorem 1).

    Examples
    --------
    >>> from skdpfair.performative import bias_over_iterations
    >>> table = bias_over_iterations([0.01], 2000, noise_multiplier=0.5, random_state=0)
    >>> table[["expected", "limit"]].iloc[-1].round(3).tolist()
    [0.975, 0.975]
    """
    rng = generator("random_state", random_state)
    betas = listed("betas", betas, "numbers")
    if not betas:
        raise ValueError("betas must hold one number or more, got none.")
    integer("n_steps", n_steps)
    integer("n_checkpoints", n_checkpoints, high=1_000_000)
    looks = np.unique(np.geomspace(1, n_steps, n_checkpoints).round().astype(int))
    tables = []
    for beta in betas:
        problem = ScalarProblem(beta=beta)
        theta = simulate(
            problem,
            n_steps,
            noise_multiplier=noise_multiplier,
            n_repetitions=n_repetitions,
            checkpoints=looks.tolist(),
            random_state=rng,
        )
        bound = upper_bound(problem, n_steps, noise_multiplier=noise_multiplier)
        columns = {
            "beta": beta,
            "iteration": looks,
            "simulated": ((theta - problem.stable_point) ** 2).mean(axis=1),
            "expected": (expected_path(problem, n_steps)[looks] - problem.stable_point) ** 2,
            "limit": problem.squared_bias,
            "bound": bound[looks - 1],
        }
        tables.append(pd.DataFrame(columns))
    return pd.concat(tables, ignore_index=True)


def bias_by_epsilon(
    epsilons=(0.03, 0.1, 0.3, 1.0, 3.0),
    max_grad_norms=(1.0, 3.0, 10.0),
    *,
    n_samples=1000,
    n_steps=1000,
    delta=1e-4,
    beta=0.01,
    n_repetitions=500,
    random_state=None,
):
    """Set the bias of clipping against the noise that a budget takes.

    Parameters
    ----------
    epsilons : sequence of float > 0
        Budgets; noise is calibrated to each by the accountant.
    max_grad_norms : sequence of float > 0
        Clipping bounds.
    n_samples, n_steps : int, default=1000
        Few people: with the published 100,000 a budget of 0.1 costs next to nothing.
    delta : float, default=1e-4
        Below 1/n_samples.
    beta : float, default=0.01
    n_repetitions : int, default=500
    random_state : int, numpy.random.Generator or None, default=None

    Returns
    -------
    pandas.DataFrame
        Columns max_grad_norm, epsilon, noise_multiplier; simulated (mean squared distance to the
        stable point over runs), squared_bias (closed form, without noise).

    Examples
    --------
    >>> from skdpfair.performative import bias_by_epsilon
    >>> table = bias_by_epsilon([1.0], [1.0, 10.0], n_repetitions=50, random_state=0)
    >>> table["squared_bias"].round(3).tolist()
    [0.975, 0.0]
    """
    rng = generator("random_state", random_state)
    integer("n_steps", n_steps)
    epsilons = listed("epsilons", epsilons, "numbers > 0")
    max_grad_norms = listed("max_grad_norms", max_grad_norms, "numbers > 0")
    rows = []
    for c in max_grad_norms:
        problem = ScalarProblem(beta=beta, max_grad_norm=c, n_samples=n_samples)
        plan = privacy_plan(problem, n_steps)
        for epsilon in epsilons:
            (noise,) = plan.calibrated(epsilon, delta).noise_multipliers
            theta = simulate(
                problem,
                n_steps,
                noise_multiplier=noise,
                n_repetitions=n_repetitions,
                random_state=rng,
            )
            rows.append(
                {
                    "max_grad_norm": c,
                    "epsilon": epsilon,
                    "noise_multiplier": noise,
                    "simulated": ((theta - problem.stable_point) ** 2).mean(),
                    "squared_bias": problem.squared_bias,
                }
            )
    return pd.DataFrame(rows)


def bias_by_beta(
    betas=(0.0, 0.02, 0.04, 0.06, 0.07, 0.08, 0.09),
    n_steps=20_000,
    *,
    noise_multiplier,
    n_repetitions=100,
    random_state=None,
):
    """Follow the bias as the population reacts more strongly.

    Parameters
    ----------
    betas : sequence of float in [0, 0.09]
        Of `ScalarProblem`.
    n_steps : int, default=20_000
    noise_multiplier : float >= 0
    n_repetitions : int, default=100
    random_state : int, numpy.random.Generator or None, default=None

    Returns
    -------
    pandas.DataFrame
        Columns beta, rate (mu - L beta); simulated, expected (after ``n_steps``), squared_bias
        (closed form).

    Examples
    --------
    >>> from skdpfair.performative import bias_by_beta
    >>> table = bias_by_beta([0.01, 0.05], 2000, noise_multiplier=0.5, random_state=0)
    >>> table["squared_bias"].round(4).tolist()
    [0.9755, 3.1605]
    """
    rng = generator("random_state", random_state)
    betas = listed("betas", betas, "numbers")
    rows = []
    for beta in betas:
        problem = ScalarProblem(beta=beta)
        theta = simulate(
            problem,
            n_steps,
            noise_multiplier=noise_multiplier,
            n_repetitions=n_repetitions,
            random_state=rng,
        )
        rows.append(
            {
                "beta": beta,
                "rate": problem.rate,
                "simulated": ((theta - problem.stable_point) ** 2).mean(),
                "expected": (expected_path(problem, n_steps)[-1] - problem.stable_point) ** 2,
                "squared_bias": problem.squared_bias,
            }
        )
    return pd.DataFrame(rows)
