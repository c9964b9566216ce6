"""Hyper-parameters that may wait at "auto"."""

from __future__ import annotations

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
