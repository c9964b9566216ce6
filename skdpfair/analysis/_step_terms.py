"""Formulas of the step risk to second order, on vectors."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class StepTerms:
    r"""The loss that clipping adds to a group in one step, to second order in the step.

    Parameters
    ----------
    clip : float
        :math:`\eta \langle g_k, g - \bar g \rangle + \frac{\eta^2}{2} (\bar g' H_k \bar g - g' H_k
        g)`: the loss after the clipped step minus the loss after the plain step.
    magnitude, direction : float
        The part from shortening the step to the clipped length, and the part from then turning it.
    magnitude_star, direction_star : float
        The parts in the other order: first the direction, then the length.

    Examples
    --------
    >>> g, clipped = torch.tensor([2.0, 0.0]), torch.tensor([0.0, 1.0])
    >>> terms = step_terms(g, g, clipped, g, clipped, lr=0.5)
    >>> terms.magnitude + terms.direction, terms.magnitude_star + terms.direction_star, terms.clip
    (1.625, 1.625, 1.625)
    """

    clip: float
    magnitude: float
    direction: float
    magnitude_star: float
    direction_star: float


def step_terms(group_gradient, plain, clipped, plain_product, clipped_product, lr) -> StepTerms:
    r"""Decompose the risk of a clipped step for one group.

    Parameters
    ----------
    group_gradient : Tensor of shape (n_parameters,)
        :math:`g_k`, the gradient of the group's mean loss.
    plain, clipped : Tensor of shape (n_parameters,)
        :math:`g` and :math:`\bar g`, the batch's mean gradient without and with clipping.
    plain_product, clipped_product : Tensor of shape (n_parameters,)
        :math:`H_k g` and :math:`H_k \bar g`.
    lr : float
        Learning rate :math:`\eta`.

    Returns
    -------
    StepTerms

    Notes
    -----
    The formulas use :math:`s = \|\bar g\| / \|g\|`.  If either gradient is zero, it has no
    direction, and the whole risk is magnitude.

    References
    ----------
    Esipova et al., ICLR 2023, Propositions 1, 2 and 2*.

    Examples
    --------
    For a quadratic loss with Hessian 1, the terms are exact:

    >>> g, clipped = torch.tensor([2.0, 0.0]), torch.tensor([0.0, 1.0])
    >>> terms = step_terms(g, g, clipped, g, clipped, lr=0.5)
    >>> terms.clip, terms.magnitude, terms.direction
    (1.625, 0.625, 1.0)
    >>> loss = lambda theta: 0.5 * float(theta @ theta)
    >>> loss(g - 0.5 * clipped) - loss(g - 0.5 * g)
    1.625
    """
    first, first_clipped = (float(group_gradient @ v) for v in (plain, clipped))
    second, second_clipped = float(plain @ plain_product), float(clipped @ clipped_product)
    length, clipped_length = (float(torch.linalg.vector_norm(v)) for v in (plain, clipped))
    half = lr**2 / 2
    clip = lr * (first - first_clipped) + half * (second_clipped - second)
    if length == 0 or clipped_length == 0:  # a group that is absent stays NaN
        return StepTerms(clip, clip, 0.0, clip, 0.0)
    s = clipped_length / length
    return StepTerms(
        clip=clip,
        magnitude=lr * (1 - s) * first + half * (s**2 - 1) * second,
        direction=lr * (s * first - first_clipped) + half * (second_clipped - s**2 * second),
        magnitude_star=lr * (1 / s - 1) * first_clipped + half * (1 - s**-2) * second_clipped,
        direction_star=lr * (first - first_clipped / s) + half * (s**-2 * second_clipped - second),
    )


def noise_term(trace, lr, sensitivity, noise_multiplier, batch_size) -> float:
    r"""Compute the loss that the noise of one step adds to a group, to second order.

    :math:`\frac{\eta^2}{2} \operatorname{Tr}(H_k) (\Delta \sigma / B)^2`, for a step whose sum has
    sensitivity :math:`\Delta` and is divided by B.  Esipova et al. and their code leave out the
    division.

    Parameters
    ----------
    trace : float
        Trace of the group's Hessian.
    lr : float
        Learning rate.
    sensitivity : float
        Sensitivity of the gradient sum, a clipping bound.
    noise_multiplier : float
        Standard deviation of the noise divided by the sensitivity.
    batch_size : float
        Divisor of the sum.

    Returns
    -------
    float
        In nats, at least 0 for a convex loss.

    Examples
    --------
    >>> noise_term(8.0, lr=0.5, sensitivity=0.5, noise_multiplier=2.0, batch_size=4)
    0.0625
    """
    if noise_multiplier == 0:
        return 0.0
    return lr**2 / 2 * trace * (sensitivity * noise_multiplier / batch_size) ** 2


def cosine(a: Tensor, b: Tensor) -> float:
    """Return the cosine of the angle between two vectors, NaN if one is zero."""
    lengths = torch.linalg.vector_norm(a) * torch.linalg.vector_norm(b)
    return float(a @ b / lengths) if lengths > 0 else float("nan")
