"""The delta of a guarantee: what "auto" means, and where it must lie."""

import math

from skdpfair._validate import is_auto, number

LEAST_DELTA = 1e-100


def auto_delta(n_samples: int) -> float:
    """Return the largest power of ten that is at most 1 / (10 n).

    Examples
    --------
    >>> auto_delta(1000), auto_delta(32561)
    (0.0001, 1e-06)
    """
    return 10.0 ** -math.ceil(math.log10(10 * n_samples) - 1e-12)


def delta_for(delta, n_samples, *, low=LEAST_DELTA) -> float:
    """Return the delta meant for ``n_samples`` records, a number or "auto", else raise.

    Raises
    ------
    TypeError, ValueError
        If delta is no number of at least ``low``, or lies at 1/n or above, where releasing one
        random record in full would pass.

    Examples
    --------
    >>> delta_for("auto", 1000), delta_for(1e-7, 1000)
    (0.0001, 1e-07)
    """
    if is_auto(delta):
        return auto_delta(n_samples)
    if isinstance(delta, str):
        raise ValueError(
            f"delta must be a number or 'auto', got the text {delta!r}. Give a number, such as "
            "delta=1e-5 without quotes, or 'auto'."
        )
    delta = number("delta", delta, low=low)
    if delta >= 1 / n_samples:
        raise ValueError(
            f"delta must lie below 1/n_samples = {1 / n_samples:.3g}, got {delta!r}; at or above "
            "it, publishing a random record would count as private. Use delta='auto'."
        )
    return delta
