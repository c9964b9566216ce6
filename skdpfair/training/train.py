"""Training of one fit: building the net, charging the ledger, and the steps."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from skorch.dataset import Dataset
from skorch.helper import predefined_split

from skdpfair._networks import INIT_LOCK, Factory, module_factory
from skdpfair._utils.validate import safe_repr
from skdpfair.augmentations import check_inputs
from skdpfair.budget.charging import charged
from skdpfair.budget.spending import DIAGNOSTICS, REFERENCE, SCORES
from skdpfair.engine.contracts import refuse_broken
from skdpfair.engine.losses import REGRESSION, CrossEntropy
from skdpfair.engine.memory import used_device
from skdpfair.exceptions import InsecureSeedWarning, InterruptedWarning
from skdpfair.inputs.persons import group_of_persons
from skdpfair.inputs.table import Table
from skdpfair.privacy import compute_epsilon
from skdpfair.privacy.releases import count_steps, merge_consecutive
from skdpfair.privacy.statement import PROTECTS
from skdpfair.training import weights
from skdpfair.training.amounts import with_fine_curves
from skdpfair.training.callbacks import Epochs, Progress, noticed_interrupts
from skdpfair.training.inference import record_by_record, tensors_of, with_knots
from skdpfair.training.net import PrivateNet
from skdpfair.training.plan import GROUP_COUNTS, SCORE_COUNTS, Plan
from skdpfair.training.processes import check_ledgers
from skdpfair.training.run import Run
from skdpfair.training.warm_start import PreviousFit

_COUNTED = {  # by whether the stop may depend on released values
    True: "all planned steps, as a stop may depend on released values",
    False: "the steps taken, as nobody had seen a released value",
}


@dataclass(frozen=True)
class Trained:
    """A trained net, and what the accounting needs to know of its training."""

    net: PrivateNet
    plan: Plan  # as carried out: the group fractions are set
    stop: str  # when the fit stopped, and which steps the ledger counts
    is_interrupted: bool  # whether it stopped early, and no callback ended it
    ledger_fit: str | None  # name of the fit in the `PrivacyLedger` that was charged


def train(run: Run, plan: Plan, table: Table) -> Trained:
    """Train a net as planned, and charge the ledger for it, in the first of the processes.

    An open `PrivacyLedger` without room for the fit raises BudgetExceededError before any step.
    """
    spec, n_steps = run.spec, plan.settings.n_steps
    check_inputs(spec.attack, table.x)
    if plan.is_accounted:
        refuse_broken(plan.mechanism.method, plan.mechanism.task, table.n_outputs)
    if run.is_seeded and plan.mechanism.noise_multiplier > 0:
        warnings.warn(
            f"random_state={safe_repr(spec.random_state)} makes the noise reproducible: "
            "whoever knows the seed can remove it. Leave it out for a model that leaves your "
            "hands.",
            InsecureSeedWarning,
            stacklevel=4,
        )
    table = table.thinned(spec.persons.max_records, run.streams.thinning())
    # values that were released before the end may be why it ends: callbacks see the weights
    by_values = any(run.processes.all_gather(_may_stop_by_values(run, plan, table)))
    with _charged(run, plan, table) as ledger_fit:
        try:
            with noticed_interrupts() as interrupts:
                net, plan = _trained(run, plan, table)
            # a callback may fork after the last step
            run.check_process()
        finally:
            if by_values:
                _account_for_the_plan(run, n_steps)
        is_ended = net.ended_by_callback_ and not interrupts
        is_called = run.processes.size > 1 or (not is_ended and run.context.is_called)
        stop = _stop(net.steps_, n_steps, by_values, is_called, is_ended)
        # whoever reserved them makes them next
        if SCORE_COUNTS in plan.one_time:
            run.releases.append(plan.one_time[SCORE_COUNTS])
    # whoever gets the net must not get the seeds
    net.run = None
    return Trained(net, plan, stop, net.steps_ < n_steps and not is_ended, ledger_fit)


@contextmanager
def _charged(run: Run, plan: Plan, table: Table) -> Iterator[str | None]:
    """Charge the ledger in the first process, and let all processes begin once it is charged."""
    check_ledgers(run.processes)
    if run.processes.rank:
        run.processes.barrier()
        yield None
        return
    reasons = {
        DIAGNOSTICS: run.spec.recorders,
        REFERENCE: run.spec.keep_reference,
        SCORES: run.context.is_in_search,
    }
    with charged(
        plan.releases if plan.is_accounted else (),
        run.releases,
        private=plan.is_accounted,
        reasons=[reason for reason, is_true in reasons.items() if is_true],
        protects=PROTECTS[table.adjacency],
        persons=table.persons,
    ) as ledger_fit:
        run.processes.barrier()
        yield ledger_fit


def _stop(taken: int, planned: int, by_values: bool, is_called: bool, is_ended: bool) -> str:
    """Return a sentence on when a fit stopped; raise if there is nothing to keep.

    A callback that ends a fit, such as EarlyStopping, does so on purpose: nobody is warned.
    """
    stop = stop_in_words(taken, planned, by_values, is_ended)
    if taken == planned:
        return stop
    by = "ended by a callback" if is_ended else "interrupted"
    what = f"The fit was {by} after {taken} of {planned} steps"
    # nothing to keep, or other code that has to stop, too
    if taken == 0 or is_called:
        raise KeyboardInterrupt(what)
    if not is_ended:
        counted = _COUNTED[by_values]
        warnings.warn(f"{what}; privacy_ counts {counted}.", InterruptedWarning, stacklevel=5)
    return stop


def stop_in_words(taken: int, planned: int, by_values: bool, is_ended: bool) -> str:
    """Return when a fit stopped, and which steps the accounting counts."""
    if taken == planned:
        return f"after all {planned} planned steps"
    by = ", as a callback ended the fit" * is_ended
    return f"after {taken} of {planned} steps{by}, and the accounting counts {_COUNTED[by_values]}"


def _may_stop_by_values(run: Run, plan: Plan, table: Table) -> bool:
    """Return whether a user's code sees released values before the fit ends."""
    classes = (type(plan.mechanism.method), plan.optimizer)
    foreign = [c for c in classes if not c.__module__.startswith(("skdpfair.", "torch.optim."))]
    sees = run.spec.callbacks or table.validation is not None or run.context.epoch is not None
    # whose module has code of its own for train() and the like
    return bool(foreign or sees) or isinstance(plan.settings.module, Factory)


def _account_for_the_plan(run: Run, n_steps: int) -> None:
    """Record the steps that a fit planned and did not take, if it took any.

    A rule that stops by released values is a privacy filter: the sum may stay below what was
    planned beforehand, which is what the guarantee is stated for.
    """
    taken = count_steps(run.releases) - (
        0 if run.previous is None else count_steps(run.previous.privacy.releases)
    )
    if 0 < taken < n_steps:
        last, what = run.releases[-1], "steps planned, not taken"
        run.releases.append(replace(last, what=what, steps=n_steps - taken))


def _trained(run: Run, plan: Plan, table: Table) -> tuple[PrivateNet, Plan]:
    plan = _with_group_fractions(run, plan, group_of_persons(table.groups.code, table.person))
    plan = with_fine_curves(run, plan, table)
    net = _net(run, plan, table)
    with INIT_LOCK, torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(run.streams.init_seed())
        net.initialize()
    # what changes rows changes their knots, too
    is_changed = (run.spec.attack, run.spec.views) != (None, None)
    x = table.x if is_changed else with_knots(net.module_, table.x)
    # refused here, no step has been taken
    if SCORE_COUNTS in plan.one_time:
        record_by_record(net.module_, x.shape[1:], net.loss.n_outputs, net.device)
    net.group_levels_ = table.groups.levels
    if run.previous is not None:
        net.steps_before_ = run.previous.n_steps
        _load_weights(net, run.previous)
    for tensor in tensors_of(net.module_).values():
        run.processes.broadcast_(tensor.detach())
    records = {"x": x, "group": table.groups.code}
    more = {"weight": weights.of_records(run.spec, table), "person": table.person}
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


def _with_group_fractions(run: Run, plan: Plan, groups: np.ndarray) -> Plan:
    """Return the plan with noisy group shares, where the method needs undeclared ones."""
    method, task = plan.mechanism.method, plan.mechanism.task
    if not method.needs_group_fractions or task.group_fractions is not None:
        return plan
    counts = np.bincount(groups, minlength=task.n_groups)
    # what noise took below one record still has a share
    counts = np.maximum(run.noisy_counts(counts, plan.one_time.get(GROUP_COUNTS)), 1.0)
    task = replace(task, group_fractions=torch.from_numpy(counts / counts.sum()))
    return replace(plan, mechanism=replace(plan.mechanism, task=task))


def _callbacks(run: Run, plan: Plan) -> list[Any] | None:
    """Return the user's callbacks, the progress bar's and scikit-learn's, or None."""
    callbacks = list(run.spec.callbacks or [])
    if run.spec.verbose and run.processes.rank == 0:
        # the net keeps its callbacks, and must not keep the seeds of the run
        releases = run.releases

        def epsilon() -> float | None:
            if not plan.is_accounted:
                return None
            return compute_epsilon(merge_consecutive(releases), plan.delta, plan.accountant)

        progress = Progress(plan.settings.n_steps, plan.mechanism.method.name, epsilon)
        callbacks.append(("progress", progress))
    if run.context.epoch is not None:
        callbacks.append(("tasks", Epochs(run.context.epoch)))
    return callbacks or None


def _net(run: Run, plan: Plan, table: Table) -> PrivateNet:
    """Return the net of a plan, not yet initialized."""
    spec, settings, device = run.spec, plan.settings, used_device(run.spec.device)
    initial_logits = weights.initial_logits(weights.of_classes(spec, table))
    classes, split = CrossEntropy(table.n_outputs), None
    if table.validation is not None:
        x, codes = table.validation
        split = predefined_split(Dataset({"x": x, "group": np.zeros(len(x), np.int64)}, codes))
    return PrivateNet(
        module_factory(settings.module, table.x.shape[1:], table.n_outputs, initial_logits),
        loss=classes if spec.loss is None else REGRESSION[spec.loss](),
        plan=plan,
        run=run,
        callbacks=_callbacks(run, plan),
        lr=plan.lr,
        optimizer=plan.optimizer,
        max_epochs=plan.n_epochs,
        train_split=split,
        device=device,
        verbose=0,
        **{f"optimizer__{key}": value for key, value in plan.optimizer_params.items()},
    )
