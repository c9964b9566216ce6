"""Exceptions and warnings of the package.

Warnings become errors where models are released:

>>> import warnings
>>> from sklearn.preprocessing import StandardScaler
>>> from skdpfair.preprocessing import lint_pipeline
>>> with warnings.catch_warnings():
...     warnings.simplefilter("error", PrivacyLeakWarning)
...     lint_pipeline(StandardScaler()).warn()
Traceback (most recent call last):
...
skdpfair.exceptions.PrivacyLeakWarning: These steps learn from private rows ...
"""


class InfeasibleBudgetError(ValueError):
    """No supported noise meets (epsilon, delta); the message says what is feasible."""


class BudgetExceededError(RuntimeError):
    """A fit would spend more than the open privacy ledger allows; nothing was fitted."""


class UnsupportedModuleError(ValueError):
    """The module cannot be trained with per-record gradients."""


class DataIntegrityError(ValueError):
    """A data file is missing, or its digest differs from the recorded digest."""


class PrivacyAccountingError(RuntimeError):
    """A step broke the bound that its accounting relies on; the fit is void."""


class InsecureSeedWarning(UserWarning):
    """A fixed ``random_state`` makes the noise reproducible and therefore predictable."""


class InterruptedWarning(UserWarning):
    """Ctrl-C ended a fit or a sweep early; the finished part is kept.

    There is no such warning if a callback, such as EarlyStopping, ends a fit.
    """


class LowSignalWarning(UserWarning):
    """There are too few records, or persons, for the budget: the model is much less accurate."""


class PrivacyLeakWarning(UserWarning):
    """A step learned from private rows outside the budget, or a release is not private."""


class UnaccountedWarning(UserWarning):
    """A fit was not, or may not have been, charged to a ledger."""
