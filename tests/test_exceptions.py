"""Kinds of errors and warnings, as except clauses and filters name them."""

import pytest

from skdpfair import exceptions

KINDS = {
    ValueError: ["InfeasibleBudgetError", "UnsupportedModuleError", "DataIntegrityError"],
    RuntimeError: ["BudgetExceededError", "PrivacyAccountingError"],
    UserWarning: [name for name in vars(exceptions) if name.endswith("Warning")],
}


@pytest.mark.parametrize("kind", KINDS)
def test_exceptions_are_of_builtin_kinds(kind):
    classes = [getattr(exceptions, name) for name in KINDS[kind]]
    assert classes and all(issubclass(c, kind) and c.__doc__ for c in classes)
