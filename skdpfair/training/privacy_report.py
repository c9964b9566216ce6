"""The privacy report of a fit: epsilon of its releases, and the assumptions."""

from __future__ import annotations

import re
from dataclasses import replace
from math import inf

from skdpfair._networks import Factory
from skdpfair._utils.group_names import read_from_rows
from skdpfair.engine.memory import used_device
from skdpfair.engine.noise import is_cryptographic
from skdpfair.exceptions import PrivacyAccountingError
from skdpfair.inputs.table import Table
from skdpfair.privacy import compute_epsilon
from skdpfair.privacy.accounting import group_epsilons
from skdpfair.privacy.releases import count_steps, merge_consecutive
from skdpfair.privacy.statement import (
    ASSUMPTIONS,
    DEVICE_NOISE,
    DIAGNOSTICS_PART,
    FROZEN,
    PROTECTS,
    REFERENCE_PART,
    WEIGHTS_FROM_OTHERS,
    PrivacyReport,
    are_names,
    in_words_of,
)
from skdpfair.training.inference import frozen_numbers
from skdpfair.training.net import PrivateNet
from skdpfair.training.plan import GROUP_COUNTS
from skdpfair.training.run import Run
from skdpfair.training.spec import FitSpec
from skdpfair.training.train import Trained

STEPS_BEFORE = "what the steps before it learned, if anything ({}): see lint_pipeline"


def account(run: Run, trained: Trained, table: Table, is_known: bool = False) -> PrivacyReport:
    """Return the privacy report of a fit and those before it.

    ``is_known`` says that the last step before the classifier computed public features.
    """
    spec, previous, releases = run.spec, run.previous, merge_consecutive(run.releases)
    plan, net = trained.plan, trained.net
    # a smaller data set must not buy a larger delta for a larger one
    delta = plan.delta if previous is None else min(plan.delta, previous.privacy.delta)
    epsilon = compute_epsilon(releases, delta, plan.accountant) if plan.is_accounted else inf
    levels, by_level = table.groups.levels, None
    if plan.is_accounted and levels is not None:
        by_group = group_epsilons(releases, len(levels), delta, plan.accountant)
        by_level = None if by_group is None else dict(zip(levels, by_group, strict=True))
    seeded = run.is_seeded
    most, max_records = table.max_sample_weight, spec.persons.max_records
    # where groups move among strata, all have the same epsilon
    has_own_rates = GROUP_COUNTS in plan.one_time and not plan.mechanism.task.strata
    assumptions = _assumptions(spec, net, has_own_rates, table)
    if run.processes.size > 1:
        assumptions += ASSUMPTIONS["processes"], ASSUMPTIONS["parts"]
    if plan.is_accounted:
        assumptions += _frozen(net)
    classes = table.classes if spec.classes is None else None
    read = read_from_rows(table.variables, classes, table.groups.undeclared)
    # what no ledger holds: fits without privacy, seeds
    if previous is not None:
        before = previous.privacy
        seeded = seeded or before.seeded
        if table.person is not None and not are_names((previous.persons, table.persons)):
            assumptions += (ASSUMPTIONS["persons"],)
        assumptions = tuple(dict.fromkeys((*before.assumptions, *assumptions)))
        read = tuple(dict.fromkeys((*before.read_from_rows, *read)))
        weights = most, before.max_sample_weight  # 0 if all are
        most = max((bound for bound in weights if bound is not None), default=None)
        bounds = max_records, before.max_records, before.records_per_person
        max_records = max(filter(None, bounds), default=None)
        if not before.is_private:
            epsilon = inf
            by_level = by_level and dict.fromkeys(by_level, inf)
    mechanism = plan.mechanism
    steps = [e for e in releases if not e.is_one_time]
    report = PrivacyReport(
        method=net.method_.name,
        epsilon=epsilon,
        delta=delta,
        accountant=plan.accountant,
        noise_multiplier=mechanism.noise_multiplier,
        sample_rate=max((e.sample_rate for e in steps), default=mechanism.max_sample_rate),
        steps=count_steps(releases) if plan.is_accounted else net.steps_,
        expected_batch_size=mechanism.expected_batch_size,
        max_grad_norm=net.bound_,
        max_sample_weight=most,
        max_records=None if table.person is None else max_records,
        records_per_person=max_records if table.person is None else None,
        adjacency=table.adjacency,
        is_private=epsilon < inf,
        seeded=seeded,
        group_epsilons=by_level,
        n_samples=mechanism.task.n_samples,
        holds=(*[DIAGNOSTICS_PART] * bool(spec.recorders), *[REFERENCE_PART] * spec.keep_reference),
        stop=trained.stop,
        proof=net.engine_.proof if plan.is_accounted else None,
        features=table.origin.features,
        assumptions=assumptions,
        read_from_rows=read,
        releases=releases,
    )
    notes: tuple[str, ...] = (WEIGHTS_FROM_OTHERS,) if most is not None else ()
    before_too = previous is not None and DEVICE_NOISE in previous.privacy.not_accounted
    if before_too or (plan.is_accounted and not is_cryptographic(used_device(spec.device))):
        notes += (DEVICE_NOISE,)
    if unknown := run.context.steps[: -1 if is_known else None]:
        # as short and as few as a release may name
        names = [re.sub(r"[^\w-]|^(?=[\d-])|^$", "_", name)[:40] for name in unknown]
        names = names if len(names) <= 8 else [*names[:7], "others"]
        notes = (STEPS_BEFORE.format(", ".join(map(repr, names))), *notes)
    return replace(
        report, not_accounted=in_words_of((*notes, *report.not_accounted), report.protects)
    )


def _frozen(net: PrivateNet) -> tuple[str, ...]:
    """Return what the report says of the numbers that do not train, once none has moved."""
    n, sha256 = frozen_numbers(net)
    if (n, sha256) != net.frozen_:
        raise PrivacyAccountingError(
            "Numbers of the module that do not train, its frozen parameters or its buffers, "
            "changed during the fit, so that they may hold traces of records; the fit is void. Do "
            "not change them in callbacks."
        )
    return (FROZEN.format(n, sha256),) if n else ()


def _assumptions(
    spec: FitSpec, net: PrivateNet, has_own_rates: bool, table: Table
) -> tuple[str, ...]:
    taken = {
        "n": True,
        "group probabilities": getattr(net.method_, "group_probabilities", None) is not None,
        "classes": table.classes is not None and spec.classes is None,
        "y_range": table.classes is None,
        "limits": table.classes is None and spec.y_range is None,
        "groups": spec.groups.levels is None,
        "counts": has_own_rates,
        "validation": spec.validation_data is not None,
        "module": isinstance(spec.module, Factory),
        "method": not net.is_method_traced_,
        "weights": table.max_sample_weight is not None,
        "largest weight": table.max_sample_weight is not None and spec.max_sample_weight is None,
    }
    assumed = (ASSUMPTIONS[name] for name, is_taken in taken.items() if is_taken)
    return in_words_of(assumed, PROTECTS[table.adjacency])
