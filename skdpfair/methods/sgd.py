"""SGD: no clipping, no noise; the non-private reference for the cost of privacy."""

from dataclasses import dataclass

from skdpfair.methods._clipping import UnclippedMethod


@dataclass(kw_only=True, repr=False, eq=False)
class SGD(UnclippedMethod, name="sgd", reference="robbins1951stochastic"):
    r"""Sum the gradients of the batch as they are, :math:`w_i = 1`.

    Not private: one record moves the sum without bound, so epsilon is infinite.

    References
    ----------
    Robbins and Monro, "A Stochastic Approximation Method", 1951.

    Examples
    --------
    >>> from skdpfair.testing import example_records
    >>> SGD().clip(example_records(norm=[4.0, 0.5]), None, {})
    Clip(weight=tensor([1., 1.]), bound=tensor(inf))
    """
