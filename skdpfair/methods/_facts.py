"""What several methods declare alike: facts of a class, and ranges of parameters."""

from numbers import Real

from sklearn.utils._param_validation import Interval

UNBOUNDED = {"private": False, "sensitivity": "unbounded"}
BY_SHARE = {"needs_groups": True, "needs_group_fractions": True}

NOT_NEGATIVE = [Interval(Real, 0, None, closed="left")]
SHARES = ["array-like", tuple, None]
