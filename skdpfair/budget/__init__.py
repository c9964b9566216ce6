"""Privacy budgets over many fits: the ledger file and who is charged."""

from skdpfair.budget.privacy_ledger import PrivacyLedger

__all__ = ["PrivacyLedger"]
