"""What several methods share: the clipping rule and group counts."""

import torch

from skdpfair.mechanism import Clip


def clip_to(bound, norm):
    """Return min(1, bound / norm); a zero gradient keeps weight 1.

    Examples
    --------
    >>> clip_to(torch.tensor(1.0), torch.tensor([0.0, 0.5, 4.0]))
    tensor([1.0000, 1.0000, 0.2500])
    """
    return bound / torch.maximum(norm, bound)


def one_hot(code, n_codes, like):
    """Return one row per record with a single 1, shape (batch, n_codes), dtype of ``like``."""
    rows = like.new_zeros((len(code), n_codes))
    return rows.scatter_(1, code[:, None], 1.0)


def clip_at(bound: float, sample) -> Clip:
    """Return the weights of DP-SGD with clipping bound ``bound``."""
    bound = sample.norm.new_full((), bound)
    return Clip(clip_to(bound, sample.norm), bound)
