"""The plan of a fit: every "auto" resolved and the noise calibrated, from public facts alone."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import ceil, sqrt
from typing import Any

import torch
from sklearn.base import BaseEstimator, clone

from skdpfair._networks import Curves
from skdpfair.engine.mechanism import Mechanism, Method, Task
from skdpfair.exceptions import InfeasibleBudgetError, LowSignalWarning
from skdpfair.methods._fractions import declared
from skdpfair.methods._registry import get_method
from skdpfair.privacy import NoisyRelease, calibrate_noise
from skdpfair.privacy.gdp import clt_noise_multiplier, clt_parameter, delta_for
from skdpfair.training import defaults
from skdpfair.training.spec import FitSpec
from skdpfair.training.warm_start import PreviousFit

GROUP_COUNTS = "group counts"
SCORE_COUNTS = "score counts"
AMOUNT_COUNTS = "amount counts"


@dataclass(frozen=True)
class Plan:
    """The plan of a fit, which follows from public facts alone."""

    mechanism: Mechanism  # what each step releases
    settings: defaults.Settings
    delta: float
    accountant: str
    # of a record, as it is paid for; rates of groups, once counted, are at most this
    max_sample_rate: float
    one_time: dict[str, NoisyRelease] = field(default_factory=dict)  # on all records, by name
    optimizer: Callable[..., torch.optim.Optimizer] = torch.optim.SGD
    optimizer_params: dict[str, Any] = field(default_factory=dict)  # but for the learning rate
    lr: float = 1.0  # before it is scaled
    lr_scale: float | None = None  # lr in units of the method's own scale; None where lr holds

    @property
    def is_accounted(self) -> bool:
        """Whether the fit has a privacy loss to account for."""
        return bool(self.mechanism.method.private)

    @property
    def releases(self) -> tuple[NoisyRelease, ...]:
        """What the fit will release."""
        return *self.one_time.values(), _steps_of(self.mechanism, self.settings)

    def release_of(self, what: str) -> NoisyRelease:
        """Return one step as the ledger of the fit records it."""
        rates = self.mechanism.rates
        by_group = None if bool((rates == rates[0]).all()) else tuple(rates.tolist())
        rate = self.max_sample_rate
        return replace(self.mechanism.release, what=what, sample_rate=rate, group_rates=by_group)

    @property
    def n_epochs(self) -> int:
        """Number of epochs that hold the steps."""
        return ceil(self.settings.n_steps / self.settings.steps_per_epoch)

    @property
    def n_training_epochs(self) -> int:
        """Number of these epochs in which weights move."""
        return self.n_epochs - self.settings.warm_up // self.settings.steps_per_epoch


def plan(
    spec: FitSpec,
    n_samples: int,
    n_groups: int,
    previous: PreviousFit | None = None,
    protects: str = "record",
    is_wide: bool = False,
    most_weight: float | None = None,
) -> Plan:
    """Resolve every "auto" and calibrate the noise, from public facts alone.

    ``protects`` is what is counted, a "record" or a "person"; ``is_wide`` says that the network
    takes many numbers of each; ``most_weight`` is the largest sample weight.
    """
    method, noise = spec.method, spec.noise_multiplier
    settled_lr = None if previous is None else previous.lr
    if previous is not None and settled_lr is not None:
        method = method.filled(**previous.method.get_params())
    if previous is not None and isinstance(spec.module, Curves):
        spec = replace(spec, module=spec.module.with_fine(previous.fine))
    if spec.epsilon is None and noise is None and method.private:
        # the non-private reference model
        method = get_method("sgd")
    delta, objective = delta_for(spec.delta, n_samples), defaults.objective(spec.loss)
    waits = any(method.is_auto(name) for name in method.scale_fields)
    is_scaled = method.needs_gradient_scale or not method.private
    searches_scale = waits or (spec.lr == "auto" and settled_lr is None and is_scaled)
    settings = defaults.resolve(
        spec, n_samples, delta, searches_scale=searches_scale, is_wide=is_wide
    )
    method = method.planned(defaults.TARGET_QUANTILE)
    shares = declared(getattr(method, "group_probabilities", None), n_groups)
    task = Task(n_samples, n_groups, settings.sample_rate, shares)
    task = replace(task, strata=_strata(method, task, settings, noise))
    mechanism = Mechanism(method, task, 0.0 if noise is None else float(noise))
    once = _one_time_noise(mechanism, settings, spec.score_budget_fraction)
    if spec.epsilon is not None:
        mechanism = _calibrated(mechanism, settings, spec.epsilon, delta, spec.accountant, once)
    _warn_of_low_signal(mechanism, settings, protects, objective, most_weight)
    optimizer_params, lr, lr_scale = defaults.optimizer(spec, settings)
    lr_scale = None if lr_scale is None else lr_scale * objective.lr
    if settled_lr is not None and spec.lr == "auto":
        lr, lr_scale = settled_lr, None
    return Plan(
        mechanism=mechanism,
        settings=settings,
        delta=delta,
        accountant=spec.accountant,
        max_sample_rate=mechanism.max_sample_rate,
        one_time=once,
        optimizer=spec.optimizer.make,
        optimizer_params=optimizer_params,
        lr=lr,
        lr_scale=lr_scale,
    )


def check(estimator: BaseEstimator, n_samples: int, n_groups: int) -> None:
    """Check that a fit would be accepted, before anything is written or spent."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LowSignalWarning)  # the fit says it
        plan(FitSpec.of(estimator), n_samples, n_groups)


def _one_time_noise(
    mechanism: Mechanism, settings: defaults.Settings, score_budget_fraction: float
) -> dict[str, NoisyRelease]:
    """Return what a private method releases besides its steps.

    ``score_budget_fraction`` is the share of mu squared that counts of scores take after the fit.
    """
    method, once = mechanism.method, {}
    mu = settings.signal_to_noise / mechanism.task.n_samples
    if method.private and method.needs_group_fractions and method.group_probabilities is None:
        noise = method.number("group_count_noise_multiplier", defaults.COUNT_NOISE / mu)
        once[GROUP_COUNTS] = float(noise)
    network = settings.module
    if method.private and isinstance(network, Curves) and network.fine is None:
        once[AMOUNT_COUNTS] = defaults.COUNT_NOISE / mu
    if method.private and score_budget_fraction:
        # the noise is given, and the steps may be given, too
        if mechanism.noise_multiplier:
            joint = mechanism.release.joint_noise_multiplier
            rates = [rate for rate, _ in mechanism.task.strata] or [mechanism.max_sample_rate]
            mu = clt_parameter(min(rates), joint, settings.n_steps)
        once[SCORE_COUNTS] = 1 / (mu * sqrt(score_budget_fraction))
    return {what: NoisyRelease(what, 1.0, (s,), is_one_time=True) for what, s in once.items()}


def _strata(
    method: Method, task: Task, settings: defaults.Settings, noise: float | None
) -> tuple[tuple[float, float], ...]:
    """Return the rates that a method moves among, with factors at which all cost about the same.

    They follow from the central limit theorem; what a step costs is for the accountant to say.
    """
    rates = sorted(set(method.rate_choices(task)))
    if not rates or noise == 0:
        return tuple((rate, 1.0) for rate in rates)
    mu, n_steps = settings.signal_to_noise / task.n_samples, settings.n_steps
    if noise is not None:
        mu = clt_parameter(rates[0], noise, n_steps)
    least, *more = (clt_noise_multiplier(rate, mu, n_steps) for rate in rates)
    return tuple(zip(rates, (1.0, *(least / s for s in more)), strict=True))


def _steps_of(mechanism: Mechanism, settings: defaults.Settings) -> NoisyRelease:
    return replace(mechanism.release, what="steps", steps=settings.n_steps)


def _calibrated(
    mechanism: Mechanism,
    settings: defaults.Settings,
    epsilon: float,
    delta: float,
    accountant: str,
    once: dict[str, NoisyRelease],
) -> Mechanism:
    unit, double = (_steps_of(replace(mechanism, noise_multiplier=s), settings) for s in (1.0, 2.0))
    pairs = zip(unit.noise_multipliers, double.noise_multipliers, strict=True)
    fixed = tuple(i for i, (a, b) in enumerate(pairs) if a == b)
    try:
        *_, steps = calibrate_noise([*once.values(), unit], epsilon, delta, accountant, fixed)
    except InfeasibleBudgetError as error:
        raise InfeasibleBudgetError(
            f"{error} (Here steps is max_steps, and sample_rate is batch_size / n, with "
            f"n = {mechanism.task.n_samples}.)"
        ) from None
    # rounding in the other multipliers must not push epsilon above its target
    result = replace(mechanism, noise_multiplier=steps.noise_multipliers[0] * (1 + 1e-9))
    pairs = zip(result.release.noise_multipliers, steps.noise_multipliers, strict=True)
    if any(drawn < accounted for drawn, accounted in pairs):
        raise ValueError(
            f"{mechanism.method!r} has queries whose noise is neither constant nor a multiple of "
            f"noise_multiplier, so that epsilon={epsilon:g} cannot be met. Make it one of both."
        )
    return result


def _warn_of_low_signal(
    mechanism: Mechanism,
    settings: defaults.Settings,
    protects: str,
    objective: defaults.Objective,
    most_weight: float | None,
) -> None:
    noisiest = max(mechanism.release.noise_multipliers[1:], default=0.0)
    is_coarse = noisiest > 0.2 * mechanism.expected_batch_size
    # what is left of it for a record of weight 1
    weight = max(most_weight or 0.0, 1.0)
    signal, enough = settings.signal_to_noise / weight, defaults.LOW_SIGNAL_TO_NOISE
    if mechanism.noise_multiplier == 0 or not (signal < enough or is_coarse):
        return
    is_lost = signal < defaults.NO_SIGNAL_TO_NOISE
    expect = objective.no_signal if is_lost else objective.low_signal
    among, share, remedy = "", "n*mu", ""
    if weight > 1:
        among = f" and sample weights up to {weight:g}, if most are about 1"
        share, remedy = f"n*mu / {weight:g}", ", or smaller weights,"
    few = (
        f"n = {mechanism.task.n_samples} {protects}s are few for this privacy budget{among} "
        f"(signal to noise {share} = {signal:.0f}; {enough:.0f} would be comfortable): expect "
        f"to be {expect}. More {protects}s or a larger epsilon{remedy} help."
    )
    coarse = (
        f"What the method releases beside gradients has a noise multiplier of {noisiest:.0f}, for "
        f"batches of {mechanism.expected_batch_size:.0f} {protects}s: too coarse to follow. "
        f"Fewer steps{', larger batches' * (settings.sample_rate < 1)} or a larger epsilon help."
    )
    messages = [few] * (signal < enough) + [coarse] * is_coarse
    warnings.warn(" ".join(messages), LowSignalWarning, stacklevel=5)


def reference_estimator(estimator: BaseEstimator, module: Any) -> BaseEstimator:
    """Return the unfitted non-private reference model of a network; "auto" is its own affair."""
    reference: BaseEstimator = clone(estimator)
    scale = {"logit_scale": "auto"} if hasattr(estimator, "logit_scale") else {}
    return reference.set_params(
        epsilon=None, noise_multiplier=None, keep_reference=False, module=module, **scale
    )
