"""What a fit spent, put into its report."""

from dataclasses import dataclass, replace
from math import inf

import numpy as np
import pandas as pd
import torch

from skdpfair.mechanism import Method
from skdpfair.methods import get_method
from skdpfair.privacy import PrivacyReport
from skdpfair.privacy import epsilon as epsilon_of
from skdpfair.privacy.statement import ASSUMPTIONS, DIAGNOSTICS_HELD, TWIN_HELD
from skdpfair.training.callbacks import recorders

_MOST_PRICED = 8  # rates that are accounted for one by one
_HELD = {"diagnostics": DIAGNOSTICS_HELD, "keep_reference": TWIN_HELD}


@dataclass(frozen=True)
class Before:
    """What a fit before this one left: module, method and learning rate as found, report."""

    module: torch.nn.Module
    method: Method
    lr: float | None  # None if it was never settled
    privacy: PrivacyReport
    n_fits: int
    n_steps: int


def _group_epsilons(run, ledger, levels):
    """Return what each group pays, at its own rate; None where all have the same.

    Where rates are many, groups of similar ones pay for the largest rate among them.
    """
    entries = ledger.entries
    if not run.accounted or all(e.group_rates is None for e in entries):
        return None
    runs = [[e.run_of(k) for e in entries] for k in range(len(levels))]
    rates = np.array([[r.sample_rate for r in own] for own in runs])
    found, which = np.unique(rates, axis=0, return_inverse=True)
    alike = np.array_split(np.argsort(found.max(axis=1)), min(len(found), _MOST_PRICED))
    paid = np.empty(len(found))
    for rows in alike:
        worst = zip(runs[0], found[rows].max(axis=0).tolist(), strict=True)
        own = [r._replace(sample_rate=rate) for r, rate in worst]
        paid[rows] = epsilon_of(own, run.delta, run.accountant)
    return dict(zip(levels, paid[which.ravel()].tolist(), strict=True))


def report_of(params, run, net, ledger, seeded, groups, stop):
    """Return the report of a fit that stopped as ``stop`` says."""
    mechanism, method = run.mechanism, net.method_
    epsilon = ledger.epsilon(run.delta, run.accountant) if run.accounted else inf
    bound = getattr(method, "max_grad_norm", None)
    steps = [e for e in ledger.entries if not e.is_one_time]
    return PrivacyReport(
        method=method.name,
        epsilon=epsilon,
        delta=run.delta,
        accountant=run.accountant,
        noise_multiplier=mechanism.noise_multiplier,
        sample_rate=max((e.sample_rate for e in steps), default=mechanism.max_sample_rate),
        steps=ledger.steps if run.accounted else net.steps_,
        expected_batch_size=mechanism.expected_batch_size,
        max_grad_norm=None if isinstance(bound, str) else bound,
        is_private=epsilon < inf,
        seeded=seeded,
        group_epsilons=_group_epsilons(run, ledger, groups.levels),
        n_samples=mechanism.task.n_samples,
        holds=tuple(word for name, word in _HELD.items() if params[name]),
        stop=stop,
        proof=net.engine_.proof if run.accounted else None,
        assumptions=_assumptions(params, method, bool(run.one_time_noise_multipliers)),
        ledger=ledger,
    )


def _assumptions(params, method, counted):
    taken = {
        "n": True,
        "shares": getattr(method, "group_probabilities", None) is not None,
        "classes": params["classes"] is None,
        "groups": params["groups"] is None,
        "counts": counted,
        "validation": params["validation_data"] is not None,
    }
    return tuple(ASSUMPTIONS[name] for name, is_taken in taken.items() if is_taken)


def composed(report, before):
    """Return the report with what no ledger holds: fits without privacy, seeds."""
    if not before.privacy.is_private:
        groups = report.group_epsilons and dict.fromkeys(report.group_epsilons, inf)
        report = replace(report, epsilon=inf, is_private=False, group_epsilons=groups)
    assumptions = dict.fromkeys((*before.privacy.assumptions, *report.assumptions))
    seeded = report.seeded or before.privacy.seeded
    return replace(report, seeded=seeded, assumptions=tuple(assumptions))


def diagnostics_frame(net, levels, callbacks):
    """Return what a recorder among the callbacks kept, or one row per epoch and group."""
    for recorder in recorders(callbacks):
        return recorder.frame_
    names = ["all"] if levels is None else list(levels)
    rows = [
        (step, group, int(n), loss / n, norm / n)
        for step, sums in net.measured_
        for group, (n, loss, norm) in zip(names, sums.T, strict=True)
        if n > 0
    ]
    columns = ["step", "group", "n_samples", "loss", "gradient_norm"]
    return pd.DataFrame(rows, columns=columns)


def _steps_so_far(estimator):
    if estimator.privacy_.ledger.entries:
        return estimator.privacy_.steps
    return getattr(estimator.net_, "steps_before_", 0) + estimator.n_steps_


def before(estimator, fitted, table) -> Before | None:
    """Return what a fit before this one left, if there was one."""
    if not hasattr(estimator, "net_"):
        return None
    if estimator.privacy_.is_private and not estimator.privacy_.ledger.entries:
        raise ValueError(
            "warm_start=True composes with the releases before, but this model comes from a "
            f"{estimator.privacy_.method}, which keeps none to compose with. Fit a clone of it."
        )
    same = {
        "classes": (estimator.classes_, table.classes),
        "groups": (estimator.groups_, table.groups.levels),
        "number of features": (estimator.n_features_in_, fitted.n_features_in_),
    }
    if hasattr(estimator, "feature_names_in_") and hasattr(fitted, "feature_names_in_"):
        same["names of the features"] = estimator.feature_names_in_, fitted.feature_names_in_
    for what, (old, new) in same.items():
        if not np.array_equal(np.asarray(old), np.asarray(new)):
            raise ValueError(
                f"warm_start=True goes on with a fitted model, but the {what} changed. Use "
                "warm_start=False, or data of the same form."
            )
    same_method = type(get_method(estimator.method)) is type(estimator.method_)
    lr = estimator.lr_ if same_method and estimator._settled else None
    return Before(
        estimator.net_.module_,
        estimator.method_,
        lr,
        estimator.privacy_,
        estimator._n_fits,
        _steps_so_far(estimator),
    )
