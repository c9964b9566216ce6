"""The account of a fit: epsilon of its releases, and the assumptions."""

from math import inf

from skdpfair._networks import Factory
from skdpfair._utils.group_names import read_from_rows
from skdpfair.engine.memory import used_device
from skdpfair.engine.noise import is_cryptographic
from skdpfair.exceptions import PrivacyAccountingError
from skdpfair.inputs.table import Table
from skdpfair.privacy import compute_epsilon
from skdpfair.privacy import privacy_report as words
from skdpfair.privacy.accounting import group_epsilons
from skdpfair.privacy.privacy_report import PROTECTS, PrivacyReport, are_names, in_words_of
from skdpfair.privacy.releases import count_steps, merge_consecutive
from skdpfair.training.inference import frozen_numbers
from skdpfair.training.net import PrivateNet
from skdpfair.training.plan import GROUP_COUNTS
from skdpfair.training.run import Run


def account(run: Run, net: PrivateNet, table: Table) -> PrivacyReport:
    """Return the privacy report of a fit and those before it."""
    spec, plan, mechanism = run.spec, run.plan, run.plan.mechanism
    previous, releases = run.previous, merge_consecutive(run.releases)
    # a smaller data set must not buy a larger delta for a larger one
    delta = plan.delta if previous is None else min(plan.delta, previous.privacy.delta)
    epsilon = compute_epsilon(releases, delta, spec.accountant) if plan.is_accounted else inf
    levels, by_level = table.groups.levels, None
    if plan.is_accounted and levels is not None:
        by_group = group_epsilons(releases, len(levels), delta, spec.accountant)
        by_level = None if by_group is None else dict(zip(levels, by_group, strict=True))
    seeded, max_weight = run.is_seeded, table.max_sample_weight
    max_records = spec.persons.max_records
    assumptions = _assumptions(run, net, table)
    if run.processes.size > 1:
        assumptions += words.ASSUMPTIONS["processes"], words.ASSUMPTIONS["parts"]
    if plan.is_accounted:
        assumptions += _frozen(net)
    classes = table.classes if spec.classes is None else None
    read = read_from_rows(table.variables, classes, table.groups.undeclared)
    # what no ledger holds: fits without privacy, seeds
    if previous is not None:
        before = previous.privacy
        seeded = seeded or before.seeded
        if table.person is not None and not are_names((previous.persons, table.persons)):
            assumptions += (words.ASSUMPTIONS["persons"],)
        assumptions = tuple(dict.fromkeys((*before.assumptions, *assumptions)))
        read = tuple(dict.fromkeys((*before.read_from_rows, *read)))
        weights = max_weight, before.max_sample_weight  # 0 if all are
        max_weight = max((bound for bound in weights if bound is not None), default=None)
        bounds = max_records, before.max_records, before.records_per_person
        max_records = max(filter(None, bounds), default=None)
        if not before.is_private:
            epsilon = inf
            by_level = by_level and dict.fromkeys(by_level, inf)
    rates = [release.sample_rate for release in releases if not release.is_one_time]
    holds = [words.DIAGNOSTICS_PART] * bool(spec.recorders)
    holds += [words.REFERENCE_PART] * spec.keep_reference
    notes: tuple[str, ...] = (words.WEIGHTS_FROM_OTHERS,) if max_weight is not None else ()
    before_too = previous is not None and words.DEVICE_NOISE in previous.privacy.not_accounted
    if before_too or (plan.is_accounted and not is_cryptographic(used_device(spec.device))):
        notes += (words.DEVICE_NOISE,)
    return PrivacyReport(
        method=net.method_.name,
        epsilon=epsilon,
        delta=delta,
        accountant=spec.accountant,
        noise_multiplier=mechanism.noise_multiplier,
        sample_rate=max(rates, default=mechanism.max_sample_rate),
        steps=count_steps(releases) if plan.is_accounted else net.n_steps_taken,
        expected_batch_size=mechanism.expected_batch_size,
        max_grad_norm=net.bound_,
        max_sample_weight=max_weight,
        max_records=None if table.person is None else max_records,
        records_per_person=max_records if table.person is None else None,
        adjacency=table.adjacency,
        is_private=epsilon < inf,
        seeded=seeded,
        group_epsilons=by_level,
        n_samples=mechanism.task.n_samples,
        holds=tuple(holds),
        stop=run.stop,
        proof=net.engine_.proof if plan.is_accounted else None,
        features=table.origin.features,
        assumptions=assumptions,
        not_accounted=in_words_of((*notes, *words.NOT_ACCOUNTED), PROTECTS[table.adjacency]),
        read_from_rows=read,
        releases=releases,
        choices=(*_of_columns(run), *net.choices_),
    )


def _of_columns(run: Run) -> list[tuple[str, float, float]]:
    """Return the choices of the fit, or of that which it continues, made before the steps."""
    earlier = () if run.previous is None else run.previous.privacy.choices
    return run.choices or [choice for choice in earlier if choice[0] != words.AT_LIMIT[0]]


def _frozen(net: PrivateNet) -> tuple[str, ...]:
    """Return the report's text on numbers that do not train; raise if one of them moved."""
    n, sha256 = frozen_numbers(net)
    if (n, sha256) != net.frozen_:
        raise PrivacyAccountingError(
            "Numbers of the module that do not train, its frozen parameters or its buffers, "
            "changed during the fit, so that they may hold traces of records; the fit is void. Do "
            "not change them in callbacks."
        )
    return (words.FROZEN.format(n, sha256),) if n else ()


def _assumptions(run: Run, net: PrivateNet, table: Table) -> tuple[str, ...]:
    spec, is_regression = run.spec, table.classes is None
    # where groups move among strata, all have the same epsilon
    plan = run.plan
    has_own_rates = GROUP_COUNTS in plan.one_time_releases and not plan.mechanism.task.strata
    is_assumed = {
        "n": True,
        "group probabilities": getattr(net.method_, "group_probabilities", None) is not None,
        "classes": not is_regression and spec.classes is None,
        "y_range": is_regression,
        "limits": is_regression and spec.y_range is None,
        "groups": spec.groups.levels is None,
        "counts": has_own_rates,
        "validation": spec.validation_data is not None,
        "module": isinstance(spec.module, Factory),
        "method": not net.is_method_traced_,
        "weights": table.max_sample_weight is not None,
        "largest weight": table.max_sample_weight is not None and spec.max_sample_weight is None,
    }
    assumed = (words.ASSUMPTIONS[name] for name, applies in is_assumed.items() if applies)
    return in_words_of(assumed, PROTECTS[table.adjacency])
