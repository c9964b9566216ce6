"""Methods by their names."""

from typing import Any

from sklearn.base import clone

from skdpfair._utils.validate import one_of, safe_repr
from skdpfair.engine.mechanism import METHODS, Method


def get_method(method: str | Method, **params: Any) -> Method:
    """Return a method by its name, with hyper-parameters set.

    Parameters
    ----------
    method : str or Method
        A key of ``METHODS``, or a method, which is copied.
    **params
        Hyper-parameters to set.

    Returns
    -------
    Method
        A fresh, unshared object.

    Raises
    ------
    ValueError
        If the name is unknown; the message suggests the nearest one.
    TypeError
        If ``method`` is neither a name nor a Method.

    Examples
    --------
    >>> get_method("dpsgd", max_grad_norm=0.5)
    DPSGD(max_grad_norm=0.5)
    >>> get_method("dpsdg")
    Traceback (most recent call last):
    ...
    ValueError: method must be one of ..., got 'dpsdg'. Did you mean 'dpsgd'?
    """
    if isinstance(method, str):
        return METHODS[one_of("method", method, sorted(METHODS))](**params)
    if isinstance(method, type) and issubclass(method, Method):
        return method(**params)
    if isinstance(method, Method):
        copy: Method = clone(method).set_params(**params)
        return copy
    raise TypeError(
        f"method must be a name among {sorted(METHODS)} or a Method object, got "
        f"{safe_repr(method)}."
    )
