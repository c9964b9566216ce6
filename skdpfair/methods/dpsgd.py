"""DP-SGD: clip each record's gradient to one bound."""

from dataclasses import dataclass

from skdpfair.methods._clipping import ClippedMethod


@dataclass(kw_only=True, repr=False, eq=False)
class DPSGD(ClippedMethod, name="dpsgd", reference="abadi2016deep"):
    r"""Weigh record i by :math:`w_i = \min(1, C / \lVert g_i \rVert)`.

    Released each step: the gradient sum, of sensitivity C, with noise
    ``noise_multiplier`` C.

    References
    ----------
    Abadi et al., "Deep Learning with Differential Privacy", CCS 2016, Algorithm 1.

    Examples
    --------
    >>> from skdpfair.testing import example_records
    >>> DPSGD(max_grad_norm=1.0).clip(example_records(norm=[4.0, 0.5]), None, {})
    Clip(weight=tensor([0.2500, 1.0000]), bound=tensor(1.))
    """
