"""The plan of a fit: every "auto" resolved and the noise calibrated, from public facts alone."""

import warnings
from dataclasses import dataclass, field, replace
from math import ceil, sqrt
from typing import Any

from sklearn.base import BaseEstimator

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
COLUMN_COUNTS = "column counts"


@dataclass(frozen=True)
class Plan:
    """The plan of a fit, which follows from public facts alone."""

    signal_to_noise: float  # number of records times mu, the privacy parameter of Gaussian DP
    module: Any  # "logistic", Curves, MLP, CNN or Factory
    steps_per_epoch: int  # ceil(n / batch size); the sampling rate is its inverse
    n_steps: int  # on the data, warm-up included
    warm_up: int  # first steps that release the gradient scale only
    averaged_fraction: float  # of the last steps, whose weights are averaged
    norm_growth: float  # of gradients to expect, from the initial weights on
    optimizer_params: dict[str, Any]  # but for the learning rate
    lr: float  # before it is scaled
    # lr in units of the method's own scale, where a stable plain step is about 8; None where lr
    # holds, see `Method.at_scale`
    lr_scale: float | None
    mechanism: Mechanism  # what each step releases
    delta: float
    # of a record, as it is paid for; rates of groups, once counted, are at most this
    max_sample_rate: float
    # on all records, by name
    one_time_releases: dict[str, NoisyRelease] = field(default_factory=dict)

    @property
    def is_accounted(self) -> bool:
        """Whether the fit has a privacy loss to account for."""
        return bool(self.mechanism.method.private)

    @property
    def releases(self) -> tuple[NoisyRelease, ...]:
        """The planned releases of the fit."""
        return *self.one_time_releases.values(), self.steps

    @property
    def steps(self) -> NoisyRelease:
        """All steps, as one release."""
        return replace(self.mechanism.release, what="steps", steps=self.n_steps)

    def release_of(self, what: str) -> NoisyRelease:
        """Return one step as the report of the fit lists it."""
        rates = self.mechanism.rates
        by_group = None if bool((rates == rates[0]).all()) else tuple(rates.tolist())
        rate = self.max_sample_rate
        return replace(self.mechanism.release, what=what, sample_rate=rate, group_rates=by_group)

    def with_mechanism(self, **changes: Any) -> "Plan":
        """Return a copy with other values of some fields of the mechanism."""
        return replace(self, mechanism=replace(self.mechanism, **changes))

    @property
    def n_epochs(self) -> int:
        """Number of epochs that hold the steps."""
        return ceil(self.n_steps / self.steps_per_epoch)

    @property
    def n_training_epochs(self) -> int:
        """Number of these epochs in which weights move."""
        return self.n_epochs - self.warm_up // self.steps_per_epoch

    @property
    def n_before_average(self) -> int:
        """Number of steps whose parameters do not enter the average."""
        return self.n_steps - round(self.averaged_fraction * (self.n_steps - self.warm_up))


def plan(
    spec: FitSpec,
    n_samples: int,
    n_groups: int,
    previous: PreviousFit | None = None,
    protects: str = "record",
    n_numbers: int = 1,
    max_sample_weight: float | None = None,
) -> Plan:
    """Resolve every "auto" and calibrate the noise, from public facts alone.

    ``protects`` is what is counted, a "record" or a "person"; ``n_numbers`` are those that the
    network takes of each, 1 if they are sparse; ``max_sample_weight`` bounds the weights.
    """
    method, noise = spec.method, spec.noise_multiplier
    last_lr = None if previous is None else previous.lr
    if previous is not None and last_lr is not None:
        method = method.filled(**previous.method.get_params())
    if previous is not None and isinstance(spec.module, Curves):
        spec = spec.with_params(module=spec.module.chosen(previous.fine, previous.pairs))
    if spec.epsilon is None and noise is None and method.private:
        # the non-private reference model
        method = get_method("sgd")
    delta = delta_for(spec.delta, n_samples)
    needs_scale = any(method.is_auto(name) for name in method.scale_fields)
    is_scaled = method.needs_gradient_scale or not method.private
    needs_scale |= spec.lr == "auto" and last_lr is None and is_scaled
    settings = defaults.resolve(
        spec, n_samples, delta, searches_scale=needs_scale, n_numbers=n_numbers, previous_lr=last_lr
    )
    method = method.planned(defaults.TARGET_QUANTILE)
    fractions = declared(getattr(method, "group_probabilities", None), n_groups)
    task = Task(n_samples, n_groups, 1.0 / settings["steps_per_epoch"], fractions)
    task = replace(task, strata=_strata(method, task, settings, noise))
    mechanism = Mechanism(method, task, 0.0 if noise is None else float(noise))
    rate = mechanism.max_sample_rate
    plan = Plan(**settings, mechanism=mechanism, delta=delta, max_sample_rate=rate)
    plan = replace(plan, one_time_releases=_one_time_releases(plan, spec.score_budget_fraction))
    if spec.epsilon is not None:
        plan = _calibrated(plan, spec.epsilon, spec.accountant)
    _warn_of_low_signal(plan, defaults.OBJECTIVES[spec.loss], protects, max_sample_weight)
    return plan


def check(estimator: BaseEstimator, n_samples: int, n_groups: int) -> None:
    """Check that a fit would be accepted, before anything is written or spent."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LowSignalWarning)  # the fit says it
        plan(FitSpec.of(estimator), n_samples, n_groups)


def _one_time_releases(plan: Plan, score_budget_fraction: float) -> dict[str, NoisyRelease]:
    """Return what a private method releases besides its steps."""
    mechanism, noise = plan.mechanism, dict[str, float]()
    method, task, network = mechanism.method, mechanism.task, plan.module
    if not method.private:
        return {}
    mu = plan.signal_to_noise / task.n_samples
    if method.needs_group_fractions and task.group_fractions is None:
        name = "group_count_noise_multiplier"
        noise[GROUP_COUNTS] = float(method.number(name, defaults.COUNT_NOISE / mu))
    if isinstance(network, Curves) and network.fine is None:
        share = sum(share for share, _ in defaults.count_shares(network))
        noise[COLUMN_COUNTS] = 1 / (mu * sqrt(share))
    if score_budget_fraction:
        # the noise is given, and the steps may be given, too
        if mechanism.noise_multiplier:
            joint = mechanism.release.joint_noise_multiplier
            rates = [rate for rate, _ in task.strata] or [mechanism.max_sample_rate]
            mu = clt_parameter(min(rates), joint, plan.n_steps)
        noise[SCORE_COUNTS] = 1 / (mu * sqrt(score_budget_fraction))
    return {what: NoisyRelease(what, 1.0, (s,), is_one_time=True) for what, s in noise.items()}


def _strata(
    method: Method, task: Task, settings: dict[str, Any], noise: float | None
) -> tuple[tuple[float, float], ...]:
    """Return the rates that a method moves among, with factors at which all cost about the same.

    They follow from the central limit theorem; what a step costs is for the accountant to say.
    """
    rates = sorted(set(method.rate_choices(task)))
    if not rates or noise == 0:
        return tuple((rate, 1.0) for rate in rates)
    mu, n_steps = settings["signal_to_noise"] / task.n_samples, settings["n_steps"]
    if noise is not None:
        mu = clt_parameter(rates[0], noise, n_steps)
    least, *more = (clt_noise_multiplier(rate, mu, n_steps) for rate in rates)
    return tuple(zip(rates, (1.0, *(least / s for s in more)), strict=True))


def _calibrated(plan: Plan, epsilon: float, accountant: str) -> Plan:
    unit, double = (plan.with_mechanism(noise_multiplier=s).steps for s in (1.0, 2.0))
    pairs = zip(unit.noise_multipliers, double.noise_multipliers, strict=True)
    fixed = tuple(i for i, (a, b) in enumerate(pairs) if a == b)
    one_time = plan.one_time_releases.values()
    try:
        *_, steps = calibrate_noise([*one_time, unit], epsilon, plan.delta, accountant, fixed)
    except InfeasibleBudgetError as error:
        raise InfeasibleBudgetError(
            f"{error} (Here steps is max_steps, and sample_rate is batch_size / n, with "
            f"n = {plan.mechanism.task.n_samples}.)"
        ) from None
    # rounding in the other multipliers must not push epsilon above its target
    plan = plan.with_mechanism(noise_multiplier=steps.noise_multipliers[0] * (1 + 1e-9))
    pairs = zip(plan.steps.noise_multipliers, steps.noise_multipliers, strict=True)
    if any(drawn < accounted for drawn, accounted in pairs):
        raise ValueError(
            f"{plan.mechanism.method!r} has queries whose noise is neither constant nor a multiple "
            f"of noise_multiplier, so that epsilon={epsilon:g} cannot be met. Make it one of these."
        )
    return plan


def _warn_of_low_signal(
    plan: Plan, objective: defaults.Objective, protects: str, max_sample_weight: float | None
) -> None:
    mechanism = plan.mechanism
    noisiest = max(mechanism.release.noise_multipliers[1:], default=0.0)
    is_coarse = noisiest > 0.2 * mechanism.expected_batch_size
    # what is left of it for a record of weight 1
    weight = max(max_sample_weight or 0.0, 1.0)
    signal, enough = plan.signal_to_noise / weight, defaults.LOW_SIGNAL_TO_NOISE
    if mechanism.noise_multiplier == 0 or not (signal < enough or is_coarse):
        return
    is_lost = signal < defaults.NO_SIGNAL_TO_NOISE
    expect = objective.no_signal if is_lost else objective.low_signal
    among, ratio, remedy = "", "n*mu", ""
    if weight > 1:
        among = f" and sample weights up to {weight:g}, if most are about 1"
        ratio, remedy = f"n*mu / {weight:g}", ", or smaller weights,"
    few = (
        f"n = {mechanism.task.n_samples} {protects}s are few for this privacy budget{among} "
        f"(signal to noise {ratio} = {signal:.0f}; {enough:.0f} would be comfortable): expect "
        f"to be {expect}. More {protects}s or a larger epsilon{remedy} help."
    )
    coarse = (
        f"The method's releases other than gradients have a noise multiplier of {noisiest:.0f}, "
        f"too much for batches of {mechanism.expected_batch_size:.0f} {protects}s. "
        f"Fewer steps{', larger batches' * (plan.steps_per_epoch > 1)} or a larger epsilon help."
    )
    messages = [few] * (signal < enough) + [coarse] * is_coarse
    warnings.warn(" ".join(messages), LowSignalWarning, stacklevel=5)
