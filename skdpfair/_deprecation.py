"""Old names of parameters, functions and classes, which work until a stated version and warn.

What has no new name, and properties, are marked by `sklearn.utils.deprecated`.
"""

from collections.abc import Callable
from functools import wraps
from pkgutil import resolve_name
from typing import Any, TypeVar
from warnings import warn

T = TypeVar("T", bound=Callable[..., Any])


def _warn(old: str, new: str, removed_in: str) -> None:
    text = f"{old!r} was renamed {new!r}. The old name will be removed in version {removed_in}."
    warn(text, FutureWarning, stacklevel=3)


def renamed_parameters(removed_in: str, **names: str) -> Callable[[T], T]:
    """Accept keyword arguments by their old names.

    Parameters
    ----------
    removed_in : str
        The version without the old names.
    **names : str
        The new name by the old one: ``old="new"``.

    Returns
    -------
    callable
        A decorator of a function, or of a class of estimators or methods, where it also holds for
        ``set_params``, and thus for the parameters of a search.

    Examples
    --------
    >>> import warnings
    >>> @renamed_parameters("0.3", axes="ax")
    ... def plot(ax=None):
    ...     return ax
    >>> with warnings.catch_warnings(record=True) as warned:
    ...     warnings.simplefilter("always")
    ...     plot(axes=1)
    1
    >>> print(warned[0].message)
    'axes' was renamed 'ax'. The old name will be removed in version 0.3.
    """

    def decorate(target: Any) -> Any:
        if isinstance(target, type):
            for name in ("__init__", "set_params"):
                setattr(target, name, decorate(getattr(target, name)))
            return target

        @wraps(target)
        def with_old_names(*args: Any, **kwargs: Any) -> Any:
            for old in names.keys() & kwargs.keys():
                new = names[old]
                if new in kwargs:
                    raise TypeError(f"{new!r} was given twice, as {old!r} too. Remove {old!r}.")
                _warn(old, new, removed_in)
                kwargs[new] = kwargs.pop(old)
            return target(*args, **kwargs)

        return with_old_names

    return decorate


def renamed_attributes(module: str, removed_in: str, **names: str) -> Callable[[str], Any]:
    """Return a ``__getattr__`` for a module in which names were changed, or from which they moved.

    Parameters
    ----------
    module : str
        The ``__name__`` of the module.
    removed_in : str
        The version without the old names.
    **names : str
        The path of the new name by the old one: ``old="package.module.new"``.

    Returns
    -------
    callable
        To be assigned to ``__getattr__`` in the module.

    Examples
    --------
    >>> import warnings
    >>> find = renamed_attributes("mine", "0.3", cost="skdpfair.metrics.privacy_cost")
    >>> with warnings.catch_warnings(record=True) as warned:
    ...     warnings.simplefilter("always")
    ...     find("cost").__name__
    'privacy_cost'
    >>> print(warned[0].message)
    'mine.cost' was renamed 'skdpfair.metrics.privacy_cost'. The old name will be removed in ...
    """

    def __getattr__(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        _warn(f"{module}.{name}", names[name], removed_in)
        return resolve_name(names[name])

    return __getattr__
