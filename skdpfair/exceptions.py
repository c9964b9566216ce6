"""One class per reason to stop or to warn."""


class InfeasibleBudgetError(ValueError):
    """No supported noise level meets the requested (epsilon, delta)."""


class BudgetExceeded(RuntimeError):
    """A fit would spend more than the open privacy ledger allows; nothing was fitted."""


class UnsupportedModuleError(ValueError):
    """The module cannot be trained with per-record gradients."""


class DataIntegrityError(ValueError):
    """A data file is missing, or its digest is not the recorded one."""


class PrivacyAccountingError(RuntimeError):
    """A step broke the bound that its accounting relies on."""


class InsecureSeedWarning(UserWarning):
    """A fixed ``random_state`` makes the noise reproducible, hence guessable."""


class LowSignalWarning(UserWarning):
    """Too few records for the budget: expect accuracy several points below the twin."""


class PrivacyLeakWarning(UserWarning):
    """Private rows are learnt from outside the budget, or what leaves is not private at all."""


class UnaccountedWarning(UserWarning):
    """Something was spent, or may have been, that no ledger counts."""
