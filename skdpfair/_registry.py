"""How methods are registered, and hyper-parameters that may wait at "auto"."""

from __future__ import annotations

import abc
from numbers import Real
from typing import ClassVar, Self

from sklearn.base import BaseEstimator, clone
from sklearn.utils._param_validation import Interval, StrOptions


class Fields(BaseEstimator):
    """An estimator-like object whose parameters may be ``"auto"``.

    ``ranges`` holds the constraints, as scikit-learn writes them, of the parameters that may be
    other than a positive number or ``"auto"``.
    """

    ranges: ClassVar[dict[str, list]] = {}

    @property
    def _parameter_constraints(self):
        positive = [Interval(Real, 0, None, closed="neither"), StrOptions({"auto"})]
        return {field: self.ranges.get(field, positive) for field in self.get_params()}

    def filled(self, **values) -> Self:
        """Return a copy in which the fields among ``values`` that are "auto" are set."""
        unset = {k: v for k, v in values.items() if k in self.get_params() and self.is_auto(k)}
        return clone(self).set_params(**unset)

    def is_auto(self, field: str) -> bool:
        """Tell whether ``field`` is still ``"auto"``."""
        return isinstance(getattr(self, field), str) and getattr(self, field) == "auto"

    def number(self, field: str, alone: float) -> float:
        """Return ``field``, or ``alone`` while it is ``"auto"``."""
        return alone if self.is_auto(field) else getattr(self, field)


METHODS: dict[str, type] = {}


class Registered(Fields):
    """A class that enters ``METHODS`` with its facts, given as keywords of the class statement.

    Parameters
    ----------
    name, reference : str
        Key in ``METHODS``, and of the bibliography.  A class without a name is in no registry,
        and is called by its own.
    releases, sensitivity : str
        What is released each step and the sensitivity of each release, in words.
    private : bool
        Whether a run has a finite epsilon.
    takes_noise : bool
        Whether ``noise_multiplier`` is a parameter of a run; by default if it is private.
    needs_groups, needs_group_fractions : bool
        Whether there must be groups, and ``Task.group_fractions``.
    binary : bool
        Whether it is for two classes and two groups only.
    """

    # fields that, while "auto", wait for the gradient scale found by the warm-up
    scale_fields: ClassVar[tuple[str, ...]] = ("max_grad_norm",)
    # standard deviation of ad-hoc noise on the mean gradient, of methods that are not private
    gradient_noise = 0.0

    def __init_subclass__(cls, *, name: str | None = None, reference: str = "", **facts):
        super().__init_subclass__()
        if name is None and not facts and (hasattr(cls, "name") or abc.ABC in cls.__bases__):
            return  # the base class of all methods, or a variant of a method
        if name in METHODS and METHODS[name].__qualname__ != cls.__qualname__:
            raise ValueError(f"Method name {name!r} is already taken by {METHODS[name]}.")
        unknown = set(facts) - set(_USUAL)
        if unknown:
            raise TypeError(f"{cls.__name__}: unknown facts {sorted(unknown)}.")
        cls.name, cls.reference = name or cls.__name__, reference
        facts = _USUAL | {"takes_noise": facts.get("private", True)} | facts
        for fact, value in facts.items():
            setattr(cls, fact, value)
        if name is not None:
            METHODS[name] = cls


_USUAL = {
    "releases": "gradient sum",
    "sensitivity": "C",
    "private": True,
    "takes_noise": True,
    "needs_groups": False,
    "needs_group_fractions": False,
    "binary": False,
}
