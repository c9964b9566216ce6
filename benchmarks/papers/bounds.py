"""Bounds on generalisation gaps (Kulynych et al.), and on the risk of a step (Esipova et al.).

A gap is that between training records and the population, of a test function with values in [0, 1].
"""

import math
from itertools import permutations

import numpy as np
import pandas as pd

from skdpfair._utils.validate import one_of
from skdpfair.privacy.tradeoff import trade_off, trade_off_from_epsilon


def dg_bound_from_epsilon(epsilon, delta=0.0, *, bound="tight"):
    """Bound the expected gap by epsilon and delta alone, for replace-one neighbours.

    ``bound`` is "tight", (e^epsilon - 1 + 2 delta) / (e^epsilon + 1) (Proposition 2.6); "additive",
    e^epsilon - 1 + delta (equation 2); or "mutual_information", epsilon, for ``delta=0`` only
    (Steinke and Zakynthinou, 2020). The older two may exceed 1, where they say nothing.
    """
    one_of("bound", bound, ("tight", "additive", "mutual_information"))
    tight = trade_off_from_epsilon(epsilon, delta).total_variation
    if bound == "tight":
        return tight
    if bound == "additive":
        return math.expm1(epsilon) + delta if epsilon < 700 else math.inf
    if delta != 0:
        raise ValueError(f"delta must be 0 with bound='mutual_information', got {delta}.")
    return float(epsilon)


def strong_dg_bound(releases, *, n_samples, failure_probability=None):
    """Bound the expected ABSOLUTE gap of every test function, after training on n_samples records.

    With a number p, return what the absolute gap of one training set and run exceeds with a
    probability below p. The bound does not cover the records of one group.

    By Lemma C.3, an algorithm whose output varies by at most delta in total variation has a mean of
    at most 4 delta, if n is at least 2 / delta^2. As it also varies by at most any larger delta,
    the bound is 4 max(delta, sqrt(2 / n)) for every n. Divided by p, it is that of Proposition C.2
    (Markov's inequality).
    """
    stable = max(trade_off(releases).dg_bound, math.sqrt(2 / n_samples))
    return min(1.0, 4 * stable / (failure_probability or 1.0))


def calibration_bound(releases, *, n_samples, n_bins=10):
    """Bound the difference of the expected calibration gap between training set and population.

    The bound is delta (n_bins + 1) with delta = `strong_dg_bound`. Theorem C.8 states delta n_bins,
    for bins that are open, so that a probability of exactly 1 lies in none.
    """
    strong = strong_dg_bound(releases, n_samples=n_samples)
    return min(1.0, (n_bins + 1) * strong)


def calibration_gap(y_true, y_prob, *, n_bins=10):
    """Measure the distance of labels (0 or 1) from probabilities of class 1 (Definition C.7).

    The value is the sum over p in {0, 1 / n_bins, ..., 1} of abs(mean(1{p <= y_prob < p + 1 /
    n_bins} (y_true - p))). The bins of the paper are open; here each includes its lower end. As p
    is the LOWER end, perfectly calibrated probabilities have a gap of up to 1 / n_bins. For the gap
    between train and test, use `dg_gap` with it as the metric, whose mean `calibration_bound`
    bounds.
    """
    lower = np.arange(n_bins + 1) / n_bins
    bins = np.searchsorted(lower, y_prob, side="right") - 1
    residual = (np.asarray(y_true, float) - lower[bins]) / len(bins)
    return float(np.abs(np.bincount(bins, weights=residual)).sum())


def pair_bounds(risk):
    r"""Return differences of the step risks of each ordered pair of groups, and lower bounds.

    By Proposition 3 of Esipova et al., for a convex loss and ``condition``, the learning rate
    :math:`\eta \le 1 / \max_k \lambda_{max}(H_k)`,

    .. math::
        R^{dir}_a - R^{dir}_b \ge \eta \left( \|g_a\| E[\|\bar g_B\| (\cos\theta_a -
            \cos\bar\theta_a)] - \|g_b\| E[\|\bar g_B\| (\cos\theta_b - \cos\bar\theta_b)] -
            E\|\bar g_B\|^2 \right).

    Proposition 3* (equation 18) bounds the difference of the starred terms in the same way, with
    :math:`\|g_B\|` in place of :math:`\|\bar g_B\|`.  Its printed last term is :math:`E\|g_B\|`,
    without the square: that bound exceeds the difference for some convex losses.

    ``tran_bound`` follows Theorem 3 of Tran, Dinh and Fioretto (NeurIPS 2021), which replaces
    angles by lengths, with :math:`G = \sum_k p_k \|g_k\|`, the groups' shares :math:`p_k` and the
    bound C.  It bounds the difference of ``clip`` likewise:

    .. math::
        \eta [\|g_a\| (2 p_a \|g_a\| - G) - \|g_b\| G - (\|g_a\| + \|g_b\|) C]
            - \frac\eta2 (E\|g_B\|^2 + C^2).
    """
    groups, batches, rows = risk.groups, risk.batches, risk.by_batch
    lengths = groups["group_gradient_norm"].to_numpy()
    plain, clipped = (batches[f"{name}gradient_norm"].to_numpy() for name in ("", "clipped_"))
    turned = rows["cosine"] - rows["clipped_cosine"]
    # without a gradient there is no direction, and so no error of it; NaN if a group is absent
    aligned, aligned_star = (
        lengths * np.nan_to_num(of * turned).mean(axis=1) for of in (clipped, plain)
    )
    known = np.fmax.reduce(groups["lambda_max"].to_numpy())
    shares = groups["n_samples"].to_numpy() / groups["n_samples"].sum()
    everyone = float(np.nansum(shares * lengths))
    # the mean over the expected size can have been longer than the bound
    bound = batches["sensitivity"].max() * max(
        1.0, batches["size"].max() / risk.expected_batch_size
    )
    table = []
    for a, b in permutations(range(len(lengths)), 2):
        of_terms = {name: (row[a] - row[b]).mean() for name, row in rows.items()}
        linear = risk.lr * (aligned[a] - aligned[b])
        tran = lengths[a] * (2 * shares[a] * lengths[a] - everyone) - lengths[b] * everyone
        tran -= (lengths[a] + lengths[b]) * bound
        table.append(
            {
                "group_a": groups.index[a],
                "group_b": groups.index[b],
                "clip_difference": of_terms["clip"],
                "direction_difference": of_terms["direction"],
                "linear_direction_difference": linear,
                "prop3_bound": linear - risk.lr * (clipped**2).mean(),
                "tran_bound": risk.lr * tran - risk.lr / 2 * ((plain**2).mean() + bound**2),
                "condition": bool(risk.lr * known <= 1 and shares[a] > 0 and shares[b] > 0),
                "direction_star_difference": of_terms["direction_star"],
                "prop3_star_bound": risk.lr
                * (aligned_star[a] - aligned_star[b] - (plain**2).mean()),
            }
        )
    return pd.DataFrame(table)


def pairs_of(recorder):
    """Return the bounds of each pair of groups at each step that a recorder has measured."""
    parts = {step: pair_bounds(risk) for step, risk in recorder.risks_.items()}
    return pd.concat(parts, names=["step"]).reset_index("step").reset_index(drop=True)
