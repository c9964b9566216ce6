"""The training loop: warm-up, private steps, updates of the weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import inf
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from skdpfair._describe import digest
from skdpfair.engine import Batch, Noise, Step, private_step
from skdpfair.engine.flat import rejoin_, set_lr, unflatten_
from skdpfair.engine.memory import is_out_of_memory
from skdpfair.engine.per_sample import Strategy
from skdpfair.engine.step import BOUND_TOLERANCE, Attack
from skdpfair.exceptions import PrivacyAccountingError, UnsupportedModuleError
from skdpfair.mechanism import Mechanism, Method, State
from skdpfair.training.processes import Processes
from skdpfair.training.schedule import Average, PoissonBatches, Schedule

T = TypeVar("T")


class TrainingLoop:
    """The steps of a fit, and the state between them: weights, released values, counters.

    Parameters
    ----------
    engine : Strategy
        Per-record gradients of the module.
    optimizer : torch.optim.Optimizer
        Of ``flat`` or of the module's parameters.
    flat : Parameter
        One vector that all trainable parameters are views of.
    mechanism : Mechanism
        What each step releases.
    schedule : Schedule
        How long, and in which steps.
    noise : Noise
        The stream of the noise.
    processes : Processes
        Those that take the steps together, each on its own records.
    chunk : int
        Records held in memory at once.
    lr : float
        Learning rate, unless the schedule sets it.
    on_step : callable or None
        Called with the name of each release before it is made.
    attack : callable or None
        Changes the inputs of each record, see :func:`skdpfair.engine.private_step`.
    copies : int
        Number of copies of each record whose inputs ``attack`` changes, each by itself; the
        gradient of a record is the mean of theirs.
    """

    def __init__(
        self,
        *,
        engine: Strategy,
        optimizer: torch.optim.Optimizer,
        flat: nn.Parameter,
        mechanism: Mechanism,
        schedule: Schedule,
        noise: Noise,
        processes: Processes,
        chunk: int,
        lr: float,
        on_step: Callable[[str], None] | None,
        attack: Attack | None,
        copies: int,
    ) -> None:
        self.engine, self.optimizer, self.flat = engine, optimizer, flat
        self.mechanism: Mechanism = mechanism
        self.schedule: Schedule = schedule
        self.noise, self.processes, self.chunk, self.lr = noise, processes, chunk, lr
        self.on_step, self.attack, self.copies = on_step, attack, copies
        self.taken, self.method, self._held = 0, mechanism.method, _places(engine.module)
        self.device = flat.device
        self.scale = torch.ones((), device=self.device)
        self._longest = torch.zeros((), device=self.device)
        self._largest_bound = torch.full_like(self._longest, -inf)
        self._smallest_bound = torch.full_like(self._longest, inf)
        self._averaged = Average(schedule.first_averaged)
        self.state: State  # the method's between steps, made of released values
        self.settled: Mechanism  # that of the steps, with its bounds set
        self._restart_method(mechanism.method)
        self._gradient = engine.flat()
        flat.grad = self._gradient
        for p, view in engine.views(self._gradient).items():
            p.grad = view

    def next_epoch(self) -> int:
        """Return the number of steps of the epoch that begins."""
        return min(self.schedule.steps_per_epoch, self.schedule.n_steps - self.taken)

    @property
    def is_warming_up(self) -> bool:
        """Whether no weight moves yet."""
        return self.taken < self.schedule.warm_up

    def begin_epoch(self, batches: PoissonBatches) -> None:
        """Start an epoch: take over changes of the weights by callbacks."""
        self._batches = batches
        self.rejoin()

    def batch(self, index: Tensor) -> Batch:
        """Return the records at ``index``, as the epoch's batches yield them."""
        return self._batches.select(index)

    @torch.no_grad()
    def step(self, index: Tensor) -> None:
        """Take the next step on the records at ``index``."""
        if self.is_warming_up:
            self._warm_up_step(index)
        else:
            self._train_step(index)
        self.taken += 1

    def _warm_up_step(self, index: Tensor) -> None:
        batch = self._copied(index)
        batch = replace(batch, y=self.engine.loss.of_warm_up(batch.y))
        search, size = self.schedule.search, self.mechanism.expected_batch_size
        assert search is not None  # a warm-up has one
        # booked first, so that an interrupt can only overcount
        self._account("gradient scale (warm-up)")
        self.scale = self._in_memory(
            len(batch),
            lambda: search.step(
                self.engine, batch, self.scale, size, self.noise, self.chunk, self.attack
            ),
        )
        if self.taken + 1 == self.schedule.warm_up:
            self._settle()

    def _train_step(self, index: Tensor) -> None:
        if self.taken == 0:
            self._settle()
        self._account(self._what)
        self._set_step_size()
        self._go(self._in_memory(len(index) * self.copies, lambda: self.release(index)))
        self._project()
        self._averaged.add(self.flat, self.taken + 1)

    def _in_memory(self, size: int, work: Callable[[], T]) -> T:
        """Return the result of ``work``, retried in smaller chunks if memory runs out.

        What was begun is dropped, its noise too. So ``work`` must keep nothing: whatever outlives
        it belongs after it, where an error ends the fit and no release is made twice.
        """
        while True:
            try:
                return work()
            except (MemoryError, RuntimeError) as error:
                half = min(self.chunk, size) // 2
                if self.processes.size > 1:  # the others do not retry
                    raise
                if half == 0 or not is_out_of_memory(error):
                    raise
            self.chunk = half

    def in_order(self, index: Tensor) -> Tensor:
        """Return the positions of records or persons in the order of their batch."""
        return self._batches.in_order(index)

    def release(self, index: Tensor) -> Step:
        """Return the noisy gradient of the records at ``index``, and the method's next state."""
        return self.release_by(self.engine, self.settled, index, self._gradient)

    def release_by(
        self, engine: Strategy, mechanism: Mechanism, index: Tensor, out: Tensor | None = None
    ) -> Step:
        """Return what a step releases with another engine or mechanism than the fit's."""
        return private_step(
            engine,
            self._copied(index),
            mechanism,
            self.state,
            self.noise,
            chunk_size=self.chunk,
            attack=self.attack,
            out=out,
        )

    def _copied(self, index: Tensor) -> Batch:
        """Return the records at ``index``, with the copies that a step is taken on."""
        return self._batches.select_anew(index).repeated(self.copies)

    def _go(self, step: Step) -> None:
        """Update state and weights from the results of a step."""
        self.state = step.state
        if step.longest is not None:
            torch.maximum(self._longest, step.longest, out=self._longest)
        torch.maximum(self._largest_bound, step.bound, out=self._largest_bound)
        torch.minimum(self._smallest_bound, step.bound, out=self._smallest_bound)
        fixed, flat = self.engine.fixed, self.flat.data
        before = flat if fixed is None else flat[fixed]
        self.optimizer.step()
        if fixed is not None:  # what no record can move, weight decay would
            flat.index_copy_(0, fixed, before)

    def _settle(self) -> None:
        """Set the bounds and the learning rate from the gradient scale, a released number."""
        if not self.schedule.warm_up and self.schedule.lr_scale is None:
            return
        scale = float(self.scale) * self.schedule.clip_slope
        method, unit_lr = self.mechanism.method.at_scale(scale, self.schedule.norm_growth)
        self._restart_method(method)
        if self.schedule.lr_scale is not None:
            self.lr = self.schedule.lr_scale * unit_lr
            set_lr(self.optimizer, self.lr)

    def _restart_method(self, method: Method) -> None:
        self.method = method
        self.settled = replace(self.mechanism, method=method)
        self._what = "gradient sum" + "".join(f" + {q.name}" for q in self.settled.queries)
        state = method.start(self.mechanism.task)
        self.state = tree_map_only(torch.Tensor, lambda t: t.to(self.device), state)

    def _set_step_size(self) -> None:
        if type(self.method).step_size is not Method.step_size:
            factor = self.method.step_size(self.taken - self.schedule.warm_up)
            set_lr(self.optimizer, self.lr * factor)

    def _project(self) -> None:
        if type(self.method).project is Method.project:
            return
        named = self.engine.module.named_parameters()
        params = {name: p.detach() for name, p in named if p.requires_grad}
        for name, value in self.method.project(params, self.state).items():
            params[name].copy_(value)

    def rejoin(self) -> None:
        """Take over callbacks' changes of the weights; refuse changes of the module."""
        if _places(self.engine.module) == self._held:
            rejoin_(self.flat, self.engine.parameters)
        else:
            raise UnsupportedModuleError(
                "Parameters were frozen, unfrozen or replaced after training began, as by skorch's "
                "Freezer. Freeze them where the module is made: in the class or factory that "
                "module= names."
            )

    def check_bound(self) -> None:
        """Raise if a step since the last check broke its bound; what was measured is forgotten."""
        longest = float(self._longest)
        self._longest.zero_()
        if self.mechanism.method.private and not longest <= 1 + BOUND_TOLERANCE:
            raise PrivacyAccountingError(
                f"{self.mechanism.method!r} weighed a gradient beyond its declared bound, so its "
                "epsilon would be wrong. This is a fault of the method; the fit is void."
            )

    def check_epoch(self) -> None:
        """Raise if a process broke its bound, or if the weights differ between processes."""
        self.processes.all_reduce_(self._longest, "MAX")
        self.check_bound()
        if self.processes.size > 1:  # which make the same updates
            weights = digest(self.flat.detach().numpy(force=True))
            self.processes.check_same({"the weights after an epoch": weights.hex()})

    @property
    def bound(self) -> float | None:
        """Sensitivity of the gradient sum; None if it moved from step to step, or there is none."""
        largest, smallest = float(self._largest_bound), float(self._smallest_bound)
        is_fixed = abs(largest) < inf and largest <= smallest * (1 + BOUND_TOLERANCE)
        return largest if is_fixed else None

    def finish(self) -> None:
        """Give the weights back to the module, averaged if so planned; drop gradients and data."""
        vars(self).pop("_batches", None)
        if self._averaged.mean is not None:
            self.flat.data.copy_(self._averaged.mean)
        unflatten_(trainable(self.engine.module))
        for p in (self.flat, *self.engine.module.parameters()):
            p.grad = None

    def _account(self, what: str) -> None:
        if self.on_step is not None:
            self.on_step(what)


def _places(module: nn.Module) -> list[tuple[str, int]]:
    """Return the name and identity of each parameter that is not frozen."""
    named = module.named_parameters(remove_duplicate=False)
    return [(name, id(p)) for name, p in named if p.requires_grad]


def trainable(module: torch.nn.Module) -> list[torch.nn.Parameter]:
    """Return the parameters that are not frozen."""
    return [p for p in module.parameters() if p.requires_grad]
