"""Adversarial inputs, each made from its own record, so that private training stays private."""


def check_attack(attack, module, example, n_classes) -> None:
    """Raise ValueError if ``attack`` cannot be used on inputs like ``example``."""
