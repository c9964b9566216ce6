"""Formulas of the step risk to second order, on vectors."""

import torch
from torch import Tensor

TERMS = ("clip", "magnitude", "direction", "magnitude_star", "direction_star")


def step_terms(group_gradient, plain, clipped, plain_product, clipped_product, lr):
    """Return the loss that clipping adds to a group in one step, and its parts, in nats.

    These are Propositions 1, 2 and 2* of Esipova et al., ICLR 2023, see `step_risk_terms`, from
    g_k, the batch's mean gradient without and with clipping, and the products of H_k with these
    two.  The starred parts turn the step first, and then shorten it.  If either gradient is zero,
    it has no direction, and the whole risk is magnitude.

    Examples
    --------
    For a quadratic loss with Hessian 1, the terms are exact:

    >>> g, clipped = torch.tensor([2.0, 0.0]), torch.tensor([0.0, 1.0])
    >>> step_terms(g, g, clipped, g, clipped, lr=0.5)["clip"]
    1.625
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
        return dict(zip(TERMS, (clip, clip, 0.0, clip, 0.0), strict=True))
    s = clipped_length / length
    return {
        "clip": clip,
        "magnitude": lr * (1 - s) * first + half * (s**2 - 1) * second,
        "direction": lr * (s * first - first_clipped) + half * (second_clipped - s**2 * second),
        "magnitude_star": lr * (1 / s - 1) * first_clipped + half * (1 - s**-2) * second_clipped,
        "direction_star": lr * (first - first_clipped / s)
        + half * (s**-2 * second_clipped - second),
    }


def noise_term(trace, lr, sensitivity, noise_multiplier, batch_size):
    """Return the loss that the noise of one step adds to a group, to second order, in nats.

    The sum of the step has noise of standard deviation ``sensitivity * noise_multiplier``, and is
    divided by ``batch_size``: Esipova et al. and their code leave out the division.
    """
    if noise_multiplier == 0:
        return 0.0
    return lr**2 / 2 * trace * (sensitivity * noise_multiplier / batch_size) ** 2


def cosine(a: Tensor, b: Tensor) -> float:
    """Return the cosine of the angle between two vectors, NaN if one is zero."""
    lengths = torch.linalg.vector_norm(a) * torch.linalg.vector_norm(b)
    return float(a @ b / lengths) if lengths > 0 else float("nan")
