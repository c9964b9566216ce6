"""Kinds of errors and warnings, as except clauses and filters name them."""

from skdpfair import exceptions


def test_exceptions_are_of_builtin_kinds():
    kinds = {n: e.__base__ for n, e in vars(exceptions).items() if n.endswith(("Error", "Warning"))}
    warnings = {name for name, kind in kinds.items() if kind is UserWarning}
    assert warnings == {name for name in kinds if name.endswith("Warning")} and len(warnings) >= 5
    of_steps = {name for name, kind in kinds.items() if kind is RuntimeError}
    assert of_steps == {"BudgetExceededError", "PrivacyAccountingError"}
    assert set(kinds.values()) == {ValueError, RuntimeError, UserWarning}
