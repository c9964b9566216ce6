"""Training of one fit: building the net, charging the ledger, and the steps."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from skorch.dataset import Dataset
from skorch.helper import predefined_split

from skdpfair._validate import safe_repr
from skdpfair.attacks import check_inputs
from skdpfair.budget.charging import charged
from skdpfair.budget.spending import DIAGNOSTICS, REFERENCE
from skdpfair.engine import ScaleSearch, Streams
from skdpfair.engine.losses import REGRESSION
from skdpfair.engine.memory import used_device
from skdpfair.exceptions import InsecureSeedWarning, InterruptedWarning
from skdpfair.inputs.persons import unit_groups
from skdpfair.inputs.table import Table
from skdpfair.networks import module_factory
from skdpfair.privacy import Ledger, Release
from skdpfair.privacy.one_time_noise import noisy_counts
from skdpfair.privacy.statement import UNITS
from skdpfair.training import defaults
from skdpfair.training.callbacks import Epochs, Progress, noticed_interrupts
from skdpfair.training.inference import record_by_record, tensors_of
from skdpfair.training.net import PrivateNet
from skdpfair.training.plan import GROUP_COUNTS, SCORE_COUNTS, Plan
from skdpfair.training.processes import SINGLE, Processes, check_ledgers
from skdpfair.training.schedule import Schedule
from skdpfair.training.seeds import streams_of
from skdpfair.training.sklearn_callbacks import FitContext
from skdpfair.training.spec import FitSpec
from skdpfair.training.warm_start import PreviousFit

_INIT_LOCK = threading.Lock()  # initial weights pass through torch's global generator


@dataclass(frozen=True)
class Trained:
    """A trained net, and what the accounting needs to know of its training.

    Parameters
    ----------
    net : PrivateNet
        With its trained module.
    plan : Plan
        As carried out: the group fractions are set.
    ledger : Ledger
        All that was released, by the fits before this one, too.
    stop : str
        When the fit stopped, and which steps the ledger counts.
    is_interrupted : bool
        Whether it stopped early, and no callback ended it.
    is_seeded : bool
        Whether the noise follows from a seed.
    init_entropy : tuple of int
        Of the initial weights; the reference model gets the same.
    is_shared : bool
        Whether several processes trained it.
    ledger_fit : str or None
        Name of the fit in the `PrivacyLedger` that was charged.
    """

    net: PrivateNet
    plan: Plan
    ledger: Ledger
    stop: str
    is_interrupted: bool
    is_seeded: bool
    init_entropy: tuple[int, ...]
    is_shared: bool
    ledger_fit: str | None


def train(
    spec: FitSpec,
    plan: Plan,
    table: Table,
    context: FitContext,
    previous: PreviousFit | None = None,
    init_entropy: tuple[int, ...] | None = None,
    processes: Processes = SINGLE,
) -> Trained:
    """Train a net as planned, and charge the ledger for it, in the first of the processes.

    ``init_entropy`` is given where the initial weights are to be those of another fit.

    Raises
    ------
    BudgetExceeded
        Before the first step, if an open `PrivacyLedger` has no room for the fit.
    KeyboardInterrupt
        If the fit was interrupted before its first step, or inside a search.
    """
    check_inputs(spec.attack, table.x)
    streams, is_seeded = streams_of(spec, table, previous, init_entropy)
    # what is drawn for one part of the records must change with all of them
    entropy = processes.sum(streams.entropy) if is_seeded else streams.entropy
    init_entropy = processes.broadcast(streams.init_entropy)
    streams = replace(streams, entropy=entropy, init_entropy=init_entropy)
    streams = streams.of_process(processes.rank)
    if is_seeded and plan.mechanism.noise_multiplier > 0:
        warnings.warn(
            f"random_state={safe_repr(spec.random_state)} makes the noise reproducible: "
            "whoever knows the seed can remove it. Leave it out for a model that leaves your "
            "hands.",
            InsecureSeedWarning,
            stacklevel=4,
        )
    table = table.thinned(spec.persons.max_records, streams.thinning())
    ledger = Ledger(() if previous is None else previous.privacy.ledger.entries)
    # values that were released before the end may be why it ends: callbacks see the weights
    by_values = any(processes.all_gather(_may_stop_by_values(spec, plan, table, context)))
    charge: dict[str, Any] = {"ledger": context.ledger, "place": context.place}
    charge |= {"unit": UNITS[table.adjacency], "persons": table.persons}
    charge["reasons"] = [DIAGNOSTICS] * bool(spec.recorders) + [REFERENCE] * spec.keep_reference
    check_ledgers(processes, context.ledger)
    charging: AbstractContextManager[Any] = nullcontext()
    if processes.rank == 0:
        planned = plan.releases if plan.is_accounted else ()
        charging = charged(planned, ledger, private=plan.is_accounted, **charge)
    with ExitStack() as stack:
        charge_made = stack.enter_context(charging)
        processes.barrier()
        try:
            with noticed_interrupts() as interrupts:
                parts = streams, ledger, context, previous, processes
                net, plan = _trained(spec, plan, table, *parts)
        finally:
            if by_values:
                _account_for_the_plan(ledger, plan.settings.n_steps, previous)
        is_ended = net.ended_by_callback_ and not interrupts
        is_called = processes.size > 1 or (not is_ended and context.is_called)
        stop = _stop(net.steps_, plan.settings.n_steps, by_values, is_called, is_ended)
        _record_once(ledger, plan, SCORE_COUNTS)  # whoever reserved them makes them next
    net.on_step = net.streams = None  # whoever gets the net must not get the seeds
    net.processes = SINGLE
    return Trained(
        net,
        plan,
        ledger,
        stop,
        net.steps_ < plan.settings.n_steps and not is_ended,
        is_seeded,
        streams.init_entropy,
        is_shared=processes.size > 1,
        ledger_fit=charge_made,
    )


def _stop(taken: int, planned: int, by_values: bool, is_called: bool, is_ended: bool) -> str:
    """Return a sentence on when a fit stopped; raise if there is nothing to keep.

    A callback that ends a fit, such as EarlyStopping, does so on purpose: nobody is warned.
    """
    if taken == planned:
        return f"after all {planned} planned steps"
    by = "ended by a callback" if is_ended else "interrupted"
    what = f"The fit was {by} after {taken} of {planned} steps"
    if taken == 0 or is_called:  # nothing to keep, or other code that has to stop, too
        raise KeyboardInterrupt(what)
    counted = "all planned steps, as a stop may depend on released values"
    if not by_values:
        counted = "the steps taken, as nobody had seen a released value"
    if not is_ended:
        warnings.warn(f"{what}; privacy_ counts {counted}.", InterruptedWarning, stacklevel=5)
    by = ", as a callback ended the fit" * is_ended
    return f"after {taken} of {planned} steps{by}, and the accounting counts {counted}"


def _may_stop_by_values(spec: FitSpec, plan: Plan, table: Table, context: FitContext) -> bool:
    """Tell whether a user's code sees released values before the fit ends."""
    given = (type(plan.mechanism.method), plan.optimizer)
    foreign = [cls for cls in given if not cls.__module__.startswith(("skdpfair.", "torch.optim."))]
    shown = spec.callbacks or table.validation is not None or context.epoch is not None
    return bool(foreign or shown)


def _account_for_the_plan(ledger: Ledger, n_steps: int, previous: PreviousFit | None) -> None:
    """Record the steps that a fit planned and did not take, if it took any.

    A rule that stops by released values is a privacy filter: the sum may stay below what was
    planned beforehand, which is what the guarantee is stated for.
    """
    taken = ledger.steps - (0 if previous is None else previous.privacy.ledger.steps)
    if 0 < taken < n_steps:
        last, what = ledger.entries[-1], "steps planned, not taken"
        ledger.record(replace(last, what=what, steps=n_steps - taken))


def _trained(
    spec: FitSpec,
    plan: Plan,
    table: Table,
    streams: Streams,
    ledger: Ledger,
    context: FitContext,
    previous: PreviousFit | None,
    processes: Processes,
) -> tuple[PrivateNet, Plan]:
    planned_rate = plan.mechanism.max_sample_rate
    groups = unit_groups(table.groups.code, table.unit)
    plan = _with_group_fractions(plan, groups, streams, ledger, spec.noise, processes)
    net = _net(spec, plan, table, streams, processes)
    net.on_step = _listener(plan, ledger, planned_rate)
    net.callbacks = _callbacks(spec, plan, ledger, context, processes.rank == 0)
    _initialize(net, streams)
    if SCORE_COUNTS in plan.one_time:  # refused here, nothing has been spent
        record_by_record(net.module_, net.module.in_shape, net.n_classes, net.device)
    net.group_levels_ = table.groups.levels
    net.steps_before_ = 0
    if previous is not None:
        net.steps_before_ = previous.n_steps
        _load_weights(net, previous)
    for tensor in tensors_of(net.module_).values():
        processes.broadcast_(tensor.detach())
    records = {"x": table.x, "group": table.groups.code}
    more = {"weight": table.weight, "unit": table.unit}
    net.partial_fit(records | {k: v for k, v in more.items() if v is not None}, table.y)
    return net, plan


def _load_weights(net: PrivateNet, previous: PreviousFit) -> None:
    try:
        net.module_.load_state_dict(previous.module.state_dict())
    except RuntimeError as error:
        raise ValueError(
            "warm_start=True continues with the weights of the fit before, which do not fit this "
            f"module: {error}"
        ) from None


def _with_group_fractions(
    plan: Plan,
    groups: np.ndarray,
    streams: Streams,
    ledger: Ledger,
    kind: str,
    processes: Processes,
) -> Plan:
    """Return the plan with noisy group shares, where the method needs undeclared ones.

    They are of the records of all processes, the first of which draws the noise.
    """
    method, task = plan.mechanism.method, plan.mechanism.task
    if not method.needs_group_fractions or task.group_fractions is not None:
        return plan
    release = plan.one_time.get(GROUP_COUNTS)
    noise = 0.0 if release is None or processes.rank else release.joint_noise_multiplier
    _record_once(ledger, plan, GROUP_COUNTS)
    counts = noisy_counts(groups, task.n_groups, noise, streams.releases(), kind)
    # what noise took below one record still has a share
    counts = np.maximum(processes.sum(counts), 1.0)
    task = replace(task, group_fractions=torch.from_numpy(counts / counts.sum()))
    return replace(plan, mechanism=replace(plan.mechanism, task=task))


def _record_once(ledger: Ledger, plan: Plan, what: str) -> None:
    """Record a planned release on all records."""
    if what in plan.one_time:
        ledger.record(plan.one_time[what])


def _listener(plan: Plan, ledger: Ledger, rate: float) -> Callable[[str], None] | None:
    if not plan.is_accounted:
        return None
    rates = plan.mechanism.rates
    by_group = None if bool((rates == rates[0]).all()) else tuple(rates.tolist())
    step = replace(plan.mechanism.release, sample_rate=rate, group_rates=by_group)
    # a warm-up step releases less than this, and is charged as a full step
    named: dict[str, Release] = {}

    def record(what: str) -> None:
        if what not in named:
            named[what] = replace(step, what=what)
        ledger.record(named[what])

    return record


def _callbacks(
    spec: FitSpec, plan: Plan, ledger: Ledger, context: FitContext, is_first: bool
) -> list[Any] | None:
    """Return the user's callbacks, the progress bar's and scikit-learn's, or None."""
    callbacks = list(spec.callbacks or [])
    if spec.verbose and is_first:

        def spent() -> float | None:
            return ledger.epsilon(plan.delta, plan.accountant) if plan.is_accounted else None

        progress = Progress(plan.settings.n_steps, plan.mechanism.method.name, spent)
        callbacks.append(("progress", progress))
    if context.epoch is not None:
        callbacks.append(("tasks", Epochs(context.epoch)))
    return callbacks or None


def _net(
    spec: FitSpec, plan: Plan, table: Table, streams: Streams, processes: Processes
) -> PrivateNet:
    """Return the net of a plan, not yet initialized."""
    settings, n_classes = plan.settings, table.n_outputs
    class_weight, initial_logits = defaults.loss_weights(
        spec.class_weight, table.classes, rescaled=bool(settings.warm_up)
    )
    in_shape = table.x.shape[1:]
    module = module_factory(settings.module, in_shape, n_classes, initial_logits)
    search = None
    if settings.warm_up:
        search = ScaleSearch.beside(plan.mechanism, defaults.TARGET_QUANTILE)
    schedule = Schedule(
        n_steps=settings.n_steps,
        steps_per_epoch=settings.steps_per_epoch,
        search=search,
        warm_up=settings.warm_up,
        lr_scale=plan.lr_scale,
        norm_growth=settings.norm_growth,
        averaged=settings.averaged,
        clip_slope=defaults.objective(spec.loss).clip_slope,
    )
    return PrivateNet(
        module,
        mechanism=plan.mechanism,
        schedule=schedule,
        streams=streams,
        processes=processes,
        n_classes=n_classes,
        class_weight=class_weight,
        loss=None if spec.loss is None else REGRESSION[spec.loss](),
        chunk_size=spec.max_physical_batch_size,
        noise=spec.noise,
        attack=spec.attack,
        views=spec.views,
        discloses=bool(spec.recorders) or not plan.is_accounted,
        lr=plan.lr,
        optimizer=plan.optimizer,
        max_epochs=plan.n_epochs,
        train_split=_validation(table),
        device=used_device(spec.device),
        verbose=0,
        **{f"optimizer__{key}": value for key, value in plan.optimizer_params.items()},
    )


def _initialize(net: PrivateNet, streams: Streams) -> None:
    with _INIT_LOCK, torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(streams.init_seed())
        net.initialize()


def _validation(table: Table) -> Any:
    if table.validation is None:
        return None
    x, codes = table.validation
    group = np.zeros(len(x), dtype=np.int64)
    return predefined_split(Dataset({"x": x, "group": group}, codes))
