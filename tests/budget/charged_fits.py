"""Fits that are charged to the ledgers of tests, and what they cost."""

from skdpfair import DPFairClassifier
from skdpfair.budget.charging import charged
from skdpfair.privacy import NoisyRelease, compute_epsilon

RUN = NoisyRelease("gradient sum", 0.01, (1.0,), 100)
COST = compute_epsilon([RUN], 1e-5)


def spend(times=1, **about):
    """Charge fits that release RUN to the open ledger."""
    for _ in range(times):
        with charged([RUN], spent := [], **about):
            spent.append(RUN)


def classifier(method="dpsgd", **params):
    params = {"noise_multiplier": 3.0, "max_steps": 4, "batch_size": 50} | params
    return DPFairClassifier(method, epsilon=None, accountant="rdp", **params)
