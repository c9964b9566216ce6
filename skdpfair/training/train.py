"""Training of one fit: building the net, charging the ledger, and the steps."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from skorch.dataset import Dataset
from skorch.helper import predefined_split

from skdpfair._networks import INIT_LOCK, Curves, Factory, fine_columns_of, module_factory
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
from skdpfair.privacy.privacy_report import PROTECTS
from skdpfair.privacy.releases import count_steps, merge_consecutive
from skdpfair.training.callbacks import Progress, noticed_interrupts
from skdpfair.training.column_counts import choose_columns
from skdpfair.training.inference import private_prediction, tensors_of, with_fine_columns
from skdpfair.training.net import PrivateNet
from skdpfair.training.plan import GROUP_COUNTS, SCORE_COUNTS
from skdpfair.training.run import Run
from skdpfair.training.spec import FitSpec
from skdpfair.training.warm_start import PreviousFit

_COUNTED = {  # by whether the stop may depend on released values
    True: "all planned steps, as a stop may depend on released values",
    False: "the steps taken, as nobody had seen a released value",
}
# a class of weight 0 starts at these odds
_MIN_ODDS = 1e-7


def train(run: Run, table: Table) -> PrivateNet:
    """Train a net as planned, and charge the ledger for it, in the first of the processes.

    An open `PrivacyLedger` without room for the fit raises BudgetExceededError before any step.
    """
    spec, plan = run.spec, run.plan
    if spec.attack is not None:
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
    by_values = any(run.processes.all_gather(_may_stop_by_values(run)))
    with _charged(run, PROTECTS[table.adjacency], table.persons) as run.ledger_fit:
        try:
            with noticed_interrupts() as interrupts:
                net = _trained(run, table)
            # a callback may fork after the last step
            run.check_process()
        finally:
            if by_values:
                _account_for_the_plan(run)
        is_ended = net.ended_by_callback_ and not interrupts
        is_called = run.processes.size > 1 or (not is_ended and run.sklearn_task.is_called)
        run.stop = _stop(net.n_steps_taken, plan.n_steps, by_values, is_called, is_ended)
        # whoever reserved them makes them next
        if SCORE_COUNTS in plan.one_time_releases:
            run.releases.append(plan.one_time_releases[SCORE_COUNTS])
    # whoever gets the net must not get the seeds
    net.run = None
    run.is_interrupted = net.n_steps_taken < plan.n_steps and not is_ended
    return net


@contextmanager
def _charged(run: Run, protects: str, persons: str | None) -> Iterator[str | None]:
    """Charge the ledger in the first process, and let all processes begin once it is charged."""
    if run.processes.rank:
        run.processes.barrier()
        yield None
        return
    reasons = {
        DIAGNOSTICS: run.spec.recorders,
        REFERENCE: run.spec.keep_reference,
        SCORES: run.sklearn_task.is_in_search,
    }
    with charged(
        run.plan.releases if run.plan.is_accounted else (),
        run.releases,
        private=run.plan.is_accounted,
        reasons=[reason for reason, is_true in reasons.items() if is_true],
        protects=protects,
        persons=persons,
    ) as ledger_fit:
        run.processes.barrier()
        yield ledger_fit


def _stop(
    n_steps_taken: int, n_steps: int, by_values: bool, is_called: bool, is_ended: bool
) -> str:
    """Return a sentence on when a fit stopped; raise if there is nothing to keep.

    A callback that ends a fit, such as EarlyStopping, does so on purpose: no warning is given.
    """
    if n_steps_taken < n_steps:
        by = "ended by a callback" if is_ended else "interrupted"
        what = f"The fit was {by} after {n_steps_taken} of {n_steps} steps"
        # nothing to keep, or other code that has to stop, too
        if n_steps_taken == 0 or is_called:
            raise KeyboardInterrupt(what)
        if not is_ended:
            counted = f"privacy_ counts {_COUNTED[by_values]}"
            warnings.warn(f"{what}; {counted}.", InterruptedWarning, stacklevel=5)
    return stop_in_words(n_steps_taken, n_steps, by_values, is_ended)


def stop_in_words(n_steps_taken: int, n_steps: int, by_values: bool, is_ended: bool) -> str:
    """Return when a fit stopped, and which steps the accounting counts."""
    if n_steps_taken == n_steps:
        return f"after all {n_steps} planned steps"
    by = ", as a callback ended the fit" * is_ended
    counted = f"the accounting counts {_COUNTED[by_values]}"
    return f"after {n_steps_taken} of {n_steps} steps{by}, and {counted}"


def _may_stop_by_values(run: Run) -> bool:
    """Return whether a user's code sees released values before the fit ends."""
    spec, classes = run.spec, (type(run.plan.mechanism.method), run.spec.optimizer.make)
    foreign = [c for c in classes if not c.__module__.startswith(("skdpfair.", "torch.optim."))]
    sees = spec.callbacks or spec.validation_data is not None or run.sklearn_task.epoch is not None
    # whose module has code of its own for train() and the like
    return bool(foreign or sees) or isinstance(run.plan.module, Factory)


def _account_for_the_plan(run: Run) -> None:
    """Record the steps that a fit planned and did not take, if it took any.

    A rule that stops by released values is a privacy filter: the sum may stay below what was
    planned beforehand, which is what the guarantee is stated for.
    """
    before = 0 if run.previous is None else count_steps(run.previous.privacy.releases)
    n_steps_taken = count_steps(run.releases) - before
    if 0 < n_steps_taken < run.plan.n_steps:
        last, what = run.releases[-1], "steps planned, not taken"
        run.releases.append(replace(last, what=what, steps=run.plan.n_steps - n_steps_taken))


def _trained(run: Run, table: Table) -> PrivateNet:
    _count_groups(run, group_of_persons(table.groups.code, table.person))
    if isinstance(run.plan.module, Curves) and run.plan.module.fine is None:
        choose_columns(run, table)
    class_weight = _class_weights(run.spec, table.classes)
    net = _net(run, table, class_weight)
    with INIT_LOCK, torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(run.streams.init_seed())
        net.initialize()
    x, more = table.x, fine_columns_of(net.module_)
    # what changes rows changes these, too
    if more is not None and (run.spec.attack, run.spec.views) == (None, None):
        x = with_fine_columns(more, x)
    # refused here, no step has been taken
    if SCORE_COUNTS in run.plan.one_time_releases:
        private_prediction(net.module_, x.shape[1:], net.loss.n_outputs, net.device)
    net.group_levels_ = table.groups.levels
    if run.previous is not None:
        net.steps_before_ = run.previous.n_steps
        _load_weights(net, run.previous)
    for tensor in tensors_of(net.module_).values():
        run.processes.broadcast_(tensor.detach())
    weight = None if table.weight is None else _over_largest(table.weight, table.max_sample_weight)
    if class_weight is not None:
        weight = class_weight[table.y] if weight is None else weight * class_weight[table.y]
    columns = {"x": x, "group": table.groups.code, "weight": weight, "person": table.person}
    net.partial_fit({name: c for name, c in columns.items() if c is not None}, table.y)
    return net


def _class_weights(spec: FitSpec, classes: np.ndarray | None) -> np.ndarray | None:
    if classes is None or spec.class_weight is None:
        return None
    weight = np.array([spec.class_weight.get(label, 1.0) for label in classes])
    return _over_largest(weight, weight.max())


def _over_largest(weight: np.ndarray, largest: float | None) -> np.ndarray:
    """Return weights over the largest that is possible by public numbers.

    They multiply clipped gradients: at most 1, they leave the sensitivity of the sum as it is, and
    clipping does not change their ratios.
    """
    # in float64, where numbers as small as 1e-300 have ratios
    return np.asarray(weight / (largest or 1.0), dtype=np.float32)


def _load_weights(net: PrivateNet, previous: PreviousFit) -> None:
    try:
        net.module_.load_state_dict(previous.module.state_dict())
    except RuntimeError as error:
        raise ValueError(
            "warm_start=True continues with the weights of the fit before, which do not fit this "
            f"module: {error}"
        ) from None


def _count_groups(run: Run, groups: np.ndarray) -> None:
    """Set noisy group fractions in the plan, where the method needs undeclared ones."""
    plan, task = run.plan, run.plan.mechanism.task
    if not plan.mechanism.method.needs_group_fractions or task.group_fractions is not None:
        return
    counts = np.bincount(groups, minlength=task.n_groups)
    # what noise took below one record still has a share
    counts = np.maximum(run.noisy_counts(counts, plan.one_time_releases.get(GROUP_COUNTS)), 1.0)
    fractions = torch.from_numpy(counts / counts.sum())
    run.plan = plan.with_mechanism(task=replace(task, group_fractions=fractions))


def _callbacks(run: Run) -> list[Any] | None:
    callbacks = list(run.spec.callbacks or [])
    if run.spec.verbose and run.processes.rank == 0:
        # the net keeps its callbacks, and must not keep the seeds of the run
        releases, plan, accountant = run.releases, run.plan, run.spec.accountant

        def epsilon() -> float | None:
            if not plan.is_accounted:
                return None
            return compute_epsilon(merge_consecutive(releases), plan.delta, accountant)

        progress = Progress(plan.n_steps, plan.mechanism.method.name, epsilon)
        callbacks.append(("progress", progress))
    return callbacks or None


def _net(run: Run, table: Table, class_weight: np.ndarray | None) -> PrivateNet:
    """Return the net of a plan, not yet initialized."""
    spec, plan, split, odds = run.spec, run.plan, None, None
    if class_weight is not None and class_weight.any():
        # a zero output layer starts at the odds that class weights state
        odds = tuple(np.log(np.maximum(class_weight, _MIN_ODDS)).tolist())
    if table.validation is not None:
        x, codes = table.validation
        split = predefined_split(Dataset({"x": x, "group": np.zeros(len(x), np.int64)}, codes))
    return PrivateNet(
        module_factory(plan.module, table.x.shape[1:], table.n_outputs, odds),
        loss=CrossEntropy(table.n_outputs) if spec.loss is None else REGRESSION[spec.loss](),
        run=run,
        callbacks=_callbacks(run),
        lr=plan.lr,
        optimizer=spec.optimizer.make,
        max_epochs=plan.n_epochs,
        train_split=split,
        device=used_device(spec.device),
        verbose=0,
        **{f"optimizer__{key}": value for key, value in plan.optimizer_params.items()},
    )
