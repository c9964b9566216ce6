"""A sweep that a SIGKILL ends."""

import os
import signal
import warnings

from skdpfair.datasets import make_two_groups
from skdpfair.model_selection import sweep


def run(folder, **settings):
    data = make_two_groups(300, random_state=0)
    return sweep(
        data.data,
        data.target,
        sensitive_features=data.sensitive_features,
        methods=["dpsgd", "dpsgd_f"],
        epsilons=[2.0],
        seeds=2,
        store=folder,
        **{"module": "logistic", "lr": 0.5, "batch_size": 100, "max_steps": 4} | settings,
        accountant="rdp",
        delta=1e-4,
    )


def main(folder, when, count):
    """Die when `count` cells are kept: before the rename that makes the last visible, or after."""
    rename, kept = os.replace, []

    def replace(part, path):
        if "manifest" not in str(path):
            kept.append(path)
        dies = len(kept) == count
        if dies and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        rename(part, path)
        if dies:
            os.kill(os.getpid(), signal.SIGKILL)

    os.replace = replace
    warnings.simplefilter("ignore")
    run(folder)
