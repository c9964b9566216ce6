"""The loop of a fit: warm-up, private steps, updates of the weights."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from inspect import signature
from math import inf
from typing import TypeVar

import torch
from torch import Tensor, nn

from skdpfair._utils.describe import digest
from skdpfair._utils.torch_internals import tree_map_only
from skdpfair.augmentations import record_by_record, views
from skdpfair.engine import Batch, ScaleSearch, Step, private_step
from skdpfair.engine.flat import rejoin_, set_lr, unflatten_
from skdpfair.engine.mechanism import Mechanism, Method, State
from skdpfair.engine.memory import affordable_batch, is_out_of_memory
from skdpfair.engine.per_sample import Strategy
from skdpfair.engine.step import BOUND_TOLERANCE, Attack
from skdpfair.exceptions import PrivacyAccountingError, UnsupportedModuleError
from skdpfair.methods._clipping import Threshold
from skdpfair.privacy import NoisyRelease
from skdpfair.privacy.privacy_report import AT_LIMIT
from skdpfair.training import defaults
from skdpfair.training.batches import PoissonBatches
from skdpfair.training.run import Run

T = TypeVar("T")


class TrainingLoop:
    """The steps of a fit, and the state between them: weights, released values, counters.

    ``flat`` is one vector that all trainable parameters are views of; ``example`` (1, ...) has the
    shape and type of a record, and no number in it is used; ``n_inputs`` is that of
    `affordable_batch`.
    """

    def __init__(
        self,
        run: Run,
        engine: Strategy,
        optimizer: torch.optim.Optimizer,
        flat: nn.Parameter,
        example: Tensor,
        n_inputs: int | None = None,
    ) -> None:
        spec, plan = run.spec, run.plan
        self.run, self.plan, self.processes = run, plan, run.processes
        self.engine, self.optimizer, self.flat = engine, optimizer, flat
        self.batches: PoissonBatches
        self.noise = run.processes.noise(run.streams.noise(flat.device, spec.noise_sampler))
        chunk = spec.max_physical_batch_size
        if isinstance(chunk, str):
            chunk = affordable_batch(engine.module, example, n_inputs)
        self.chunk = chunk
        self.n_views = 1 if spec.views is None else spec.views.n
        self.attack = _attack(run, engine, example)
        self._releases = dict[str, NoisyRelease]()
        self._search = ScaleSearch.for_mechanism(plan.mechanism, defaults.TARGET_QUANTILE)
        self._clip_gradient = defaults.OBJECTIVES[spec.loss].clip_gradient
        self.n_steps_taken, self.lr, self._parameters = 0, plan.lr, _identities(engine.module)
        self.lr_factor = 1.0  # the method's, see `Method.step_size`
        self._mean: Tensor | None = None  # of the last weights
        self.scale = torch.ones((), device=flat.device)
        self._max_bound_ratio = torch.zeros_like(self.scale)
        self._largest_bound = torch.full_like(self.scale, -inf)
        self._smallest_bound = torch.full_like(self.scale, inf)
        self._n_at_limit = torch.zeros_like(self.scale)
        # the method's between steps, made of released values
        self.state: State
        # that of the steps, with its bounds set
        self.scaled_mechanism: Mechanism
        self._restart_method(plan.mechanism.method)
        self._gradient = engine.flat()
        self._gradients = {flat: self._gradient, **engine.views(self._gradient)}
        self._rejoin_gradients()

    def next_epoch(self) -> int:
        """Return the number of steps of the epoch that begins."""
        return min(self.plan.steps_per_epoch, self.plan.n_steps - self.n_steps_taken)

    @property
    def is_warming_up(self) -> bool:
        """Whether no weight moves yet."""
        return self.n_steps_taken < self.plan.warm_up

    @property
    def rates(self) -> Tensor:
        """Sampling rate of each group in the next step; a warm-up takes the lowest for all."""
        mechanism = self.scaled_mechanism
        if self.is_warming_up and mechanism.task.strata:
            lowest = min(rate for rate, _ in mechanism.task.strata)
            return torch.full_like(mechanism.rates, lowest)
        return mechanism.rates_at(self.state)

    @torch.no_grad()
    def step(self, index: Tensor) -> None:
        """Take the next step on the records at ``index``."""
        self.run.check_process()
        if self.is_warming_up:
            self._warm_up_step(index)
        else:
            self._train_step(index)
        self.n_steps_taken += 1

    def _warm_up_step(self, index: Tensor) -> None:
        batch = self._rows(index)
        batch = replace(batch, y=self.engine.loss.of_warm_up(batch.y))
        mechanism = self.plan.mechanism
        # what is released here has no factor: it is of the stratum that has the largest, 1
        size = mechanism.expected_batch_size * float(self.rates[0] / mechanism.rates[0])
        facts = self.scale, size, self.noise
        self._account("gradient scale (warm-up)")
        self.scale = self._in_memory(
            len(batch),
            lambda: self._search.step(self.engine, batch, *facts, self.chunk, self.attack),
        )
        if self.n_steps_taken + 1 == self.plan.warm_up:
            self._set_scale()

    def _train_step(self, index: Tensor) -> None:
        if self.n_steps_taken == 0:
            self._set_scale()
        self._account(self._step_name)
        self._set_step_size()
        self._update(self._in_memory(len(index) * self.n_views, lambda: self.release(index)))
        self._project()
        self._average()

    def _in_memory(self, size: int, work: Callable[[], T]) -> T:
        """Return the result of ``work``, retried in smaller chunks if memory runs out.

        Unfinished results are dropped, with their noise. So ``work`` must keep nothing: later state
        is set after it, where an error ends the fit and no release is made twice.
        """
        while True:
            try:
                return work()
            except (MemoryError, RuntimeError) as error:
                half = min(self.chunk, size) // 2
                # the others do not retry
                if self.processes.size > 1 or half == 0 or not is_out_of_memory(error):
                    raise
            self.chunk = half

    def release(
        self, index: Tensor, engine: Strategy | None = None, mechanism: Mechanism | None = None
    ) -> Step:
        """Return the noisy gradient of the records at ``index``, and the method's next state.

        An audit asks for what another engine and mechanism than the fit's would release.
        """
        return private_step(
            engine or self.engine,
            self._rows(index),
            mechanism or self.scaled_mechanism,
            self.state,
            self.noise,
            chunk_size=self.chunk,
            attack=self.attack,
            out=self._gradient if engine is None else None,
        )

    def _rows(self, index: Tensor) -> Batch:
        """Return the records at ``index``, each repeated for its views."""
        return self.batches.select(index, reuses=True).repeated(self.n_views)

    def _update(self, step: Step) -> None:
        self.state = step.state
        if step.max_bound_ratio is not None:
            torch.maximum(self._max_bound_ratio, step.max_bound_ratio, out=self._max_bound_ratio)
        torch.maximum(self._largest_bound, step.bound, out=self._largest_bound)
        torch.minimum(self._smallest_bound, step.bound, out=self._smallest_bound)
        if isinstance(self.state, Threshold):
            self._n_at_limit += self.state.z <= self.state.lowest
        fixed, flat = self.engine.fixed, self.flat.data
        before = flat if fixed is None else flat[fixed]
        self.optimizer.step()
        # what no record can move, weight decay would
        if fixed is not None:
            flat.index_copy_(0, fixed, before)

    def _average(self) -> None:
        """Update the mean of the last weights, which is post-processing and costs no privacy."""
        n = self.n_steps_taken + 1 - self.plan.n_before_average
        if n == 1:
            self._mean = self.flat.detach().clone()
        elif self._mean is not None:
            self._mean.lerp_(self.flat, 1.0 / n)

    @contextmanager
    def averaged_weights(self) -> Iterator[None]:
        """Lend the module the weights that a fit hands over if it ends now."""
        if self._mean is None:
            yield
            return
        current = self.flat.detach().clone()
        self.flat.data.copy_(self._mean)
        try:
            yield
        finally:
            self.flat.data.copy_(current)

    def _set_scale(self) -> None:
        """Set the bounds and the learning rate from the gradient scale, a released number."""
        lr_scale, scale = self.plan.lr_scale, float(self.scale) * self._clip_gradient
        hook, growth = self.plan.mechanism.method.at_scale, self.engine.loss.output_growth
        # that of a user's method may know two numbers only
        more = {"output_growth": growth} if "output_growth" in signature(hook).parameters else {}
        method, unit_lr = hook(scale, self.plan.norm_growth, **more)
        self._restart_method(method)
        if lr_scale is not None:
            self.lr = lr_scale * unit_lr
            set_lr(self.optimizer, self.lr)

    def _restart_method(self, method: Method) -> None:
        self.method = method
        self.scaled_mechanism = replace(self.plan.mechanism, method=method)
        planned, current = self.plan.mechanism.release, self.scaled_mechanism.release
        fields = "noise_multipliers", "strata"
        is_other = any(vars(current)[k] != vars(planned)[k] for k in fields)
        if self.plan.is_accounted and (is_other or current.sample_rate > self.plan.max_sample_rate):
            raise PrivacyAccountingError(
                f"{method!r} changes the noise of its queries, or its sampling rates, after these "
                "were planned. Let neither depend on group fractions or bounds that are released."
            )
        names = "gradient sum", *(q.name for q in self.scaled_mechanism.queries)
        self._step_name = " + ".join(names)
        state = method.start(self.scaled_mechanism.task)
        self.state = tree_map_only(Tensor, lambda t: t.to(self.flat.device), state)

    def _set_step_size(self) -> None:
        factor = self.method.step_size(self.n_steps_taken - self.plan.warm_up)
        if factor == self.lr_factor:
            return
        if self.optimizer.param_groups[0]["lr"] != self.lr * self.lr_factor:
            raise ValueError(
                f"callbacks holds one that sets the learning rate, and so does {self.method!r}. "
                "Leave out the schedule of one of them."
            )
        self.lr_factor = factor
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
        if _identities(self.engine.module) != self._parameters:
            raise UnsupportedModuleError(
                "Parameters were frozen, unfrozen or replaced after training began, as by skorch's "
                "Freezer. Freeze them where the module is made: in the class or factory that "
                "module= names."
            )
        rejoin_(self.flat, self.engine.parameters)
        self._rejoin_gradients()

    def _rejoin_gradients(self) -> None:
        """Let the optimizer read what steps release, after zero_grad in a callback, too."""
        for p, gradient in self._gradients.items():
            p.grad = gradient

    def check_bound(self) -> None:
        """Raise if a step since the last check broke its bound; what was measured is forgotten."""
        ratio = float(self._max_bound_ratio)
        self._max_bound_ratio.zero_()
        if self.method.private and not ratio <= 1 + BOUND_TOLERANCE:
            raise PrivacyAccountingError(
                f"{self.plan.mechanism.method!r} weighed a gradient beyond its declared bound, so "
                "its epsilon would be wrong. This is a fault of the method; the fit is void."
            )

    def check_epoch(self) -> None:
        """Raise if a process broke its bound, or if the weights differ between processes."""
        self.processes.all_reduce_(self._max_bound_ratio, "MAX")
        self.check_bound()
        # other processes make the same updates
        if self.processes.size > 1:
            weights = digest(self.flat.detach().numpy(force=True))
            self.processes.check_same({"the weights after an epoch": weights.hex()})

    @property
    def bound(self) -> float | None:
        """Sensitivity of the gradient sum; None if it moved from step to step, or there is none."""
        largest, smallest = float(self._largest_bound), float(self._smallest_bound)
        is_fixed = abs(largest) < inf and largest <= smallest * (1 + BOUND_TOLERANCE)
        return largest if is_fixed else None

    @property
    def choices(self) -> list[tuple[str, float, float]]:
        """What the steps decided by released numbers, see `PrivacyReport`."""
        n = self.n_steps_taken - self.plan.warm_up
        if not isinstance(self.state, Threshold) or n <= 0:
            return []
        what, least = AT_LIMIT
        return [(what, float(self._n_at_limit) / n, least)]

    def finish(self) -> None:
        """Give the weights back to the module, averaged if so planned; drop gradients and data."""
        vars(self).pop("batches", None)
        if self._mean is not None:
            self.flat.data.copy_(self._mean)
        unflatten_(trainable(self.engine.module))
        for p in (self.flat, *self.engine.module.parameters()):
            p.grad = None

    def _account(self, what: str) -> None:
        """Record a step before it is taken, so that an interrupt can only overcount.

        A warm-up step releases less than a full one, and is charged as one.
        """
        if self.plan.is_accounted:
            if what not in self._releases:
                self._releases[what] = self.plan.release_of(what)
            self.run.releases.append(self._releases[what])


def _attack(run: Run, engine: Strategy, example: Tensor) -> Attack | None:
    """Return what makes the inputs to train on, views first; None for the records themselves."""
    attack: Attack | None = run.spec.attack
    if attack is not None:
        attack = record_by_record(attack, engine, example, engine.loss.n_outputs)
    if run.spec.views is None:
        return attack
    return views(run.spec.views.augment, engine, example, attack)


def _identities(module: nn.Module) -> list[tuple[str, int]]:
    """Return the name and identity of each parameter that is not frozen."""
    named = module.named_parameters(remove_duplicate=False)
    return [(name, id(p)) for name, p in named if p.requires_grad]


def trainable(module: nn.Module) -> list[nn.Parameter]:
    """Return the parameters that are not frozen."""
    return [p for p in module.parameters() if p.requires_grad]
