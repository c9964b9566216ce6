"""What a fit will do, resolved and calibrated before a record is looked at."""

import warnings
from dataclasses import dataclass, replace
from math import ceil

from sklearn.base import clone

from skdpfair import networks
from skdpfair.exceptions import InfeasibleBudgetError, LowSignalWarning
from skdpfair.mechanism import Mechanism, Method, Task
from skdpfair.methods import get_method
from skdpfair.methods._fractions import declared
from skdpfair.privacy import PrivacyPlan
from skdpfair.privacy.gdp import delta_for
from skdpfair.training import defaults
from skdpfair.training import parameters as _params

GROUP_COUNT_NOISE = 5.0  # over 1/mu of the budget: takes 1/25 of mu squared


@dataclass(frozen=True)
class Plan:
    """What a fit will do, known before a record is looked at."""

    mechanism: Mechanism
    settings: defaults.Settings
    delta: float
    epsilon: float | None  # as asked for
    accountant: str
    one_time_noise_multipliers: tuple[
        float, ...
    ] = ()  # noise of the group counts, if these are released

    @property
    def accounted(self) -> bool:
        """Whether the run has a privacy loss to account for."""
        return self.mechanism.method.private


def plan(params, method: Method, n_samples: int, n_groups: int, *, goes_on: bool = False) -> Plan:
    """Resolve every "auto" and calibrate the noise, from public facts alone.

    ``goes_on`` says that a fit before this one has found the scale of the gradients.
    """
    delta = delta_for(params["delta"], n_samples)
    epsilon, noise = params["epsilon"], params["noise_multiplier"]
    if epsilon is None and noise is None and method.private:
        method = get_method("sgd")  # the non-private twin
    waits = any(method.is_auto(field) for field in method.scale_fields)
    settings = defaults.resolve(
        n_samples=n_samples,
        epsilon=epsilon,
        delta=delta,
        noise_multiplier=noise,
        module=params["module"],
        batch_size=params["batch_size"],
        max_epochs=params["max_epochs"],
        max_steps=params["max_steps"],
        searches_scale=waits or (not method.private and params["lr"] == "auto" and not goes_on),
    )
    method = _filled(method, settings)
    shares = declared(getattr(method, "group_probabilities", None), n_groups)
    task = Task(n_samples, n_groups, settings.sample_rate, shares)
    mechanism = Mechanism(method, task, 0.0 if noise is None else float(noise))
    once = _group_count_noise(mechanism, settings)
    if epsilon is not None:
        try:
            mechanism = _calibrated(
                mechanism,
                settings.n_steps,
                epsilon,
                delta,
                params["accountant"],
                once,
            )
        except InfeasibleBudgetError as error:
            raise InfeasibleBudgetError(
                f"{error} (Here steps is max_steps, and sample_rate is batch_size / n, with "
                f"n = {n_samples}.)"
            ) from None
    _warn_low_signal(mechanism, settings)
    return Plan(mechanism, settings, delta, epsilon, params["accountant"], once)


def check(estimator, n_samples: int, n_groups: int) -> None:
    """Raise, before anything is written or spent, if a fit would be refused."""
    params, method = estimator.get_params(deep=False), get_method(estimator.method)
    _params.check(params, method)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LowSignalWarning)  # the fit says it
        plan(params, method, n_samples, n_groups)


def _group_count_noise(mechanism, settings):
    """Return the noise multiplier of the group counts that a private method must release."""
    method = mechanism.method
    counted = method.needs_group_fractions and method.group_probabilities is None
    if not counted or not method.private:
        return ()
    mu = settings.signal / mechanism.task.n_samples
    return (float(method.number("group_count_noise_multiplier", GROUP_COUNT_NOISE / mu)),)


def _filled(method, settings):
    """Set the rate of Global-Adapt's threshold where nobody chose it."""
    gain = 0.15 if "lr_z" in method.get_params() and method.is_auto("lr_z") else 1.0
    method = method.filled(z_gain=gain)
    return method.filled(lr_z=defaults.SHARE * getattr(method, "z_gain", gain))


def _calibrated(mechanism, steps, epsilon, delta, accountant, once):
    unit, double = (replace(mechanism, noise_multiplier=s).noise_multipliers for s in (1.0, 2.0))
    fixed = tuple(i for i, (a, b) in enumerate(zip(unit, double, strict=True)) if a == b)
    whole = PrivacyPlan(
        steps=steps,
        sample_rate=mechanism.max_sample_rate,
        noise_multipliers=unit,
        one_time_noise_multipliers=once,
    )
    noise = whole.calibrated(epsilon, delta, accountant, fixed=fixed).noise_multipliers[0]
    # rounding in the other multipliers must not push epsilon above its target
    return replace(mechanism, noise_multiplier=noise * (1 + 1e-9))


def _warn_low_signal(mechanism, settings):
    noisiest = max(mechanism.noise_multipliers[1:], default=0.0)
    blurred = noisiest > 0.2 * mechanism.expected_batch_size
    weak = settings.signal < defaults.LOW_SIGNAL
    if mechanism.noise_multiplier == 0 or not (weak or blurred):
        return
    expect = "several points below a non-private model, the smaller class first"
    if settings.signal < defaults.NO_SIGNAL:
        expect = "no better than guessing the larger class"
    few = (
        f"n = {mechanism.task.n_samples} records are few for this privacy budget (signal "
        f"n*mu = {settings.signal:.0f}; {defaults.LOW_SIGNAL:.0f} would be comfortable): "
        f"expect to be {expect}. More records or a larger epsilon help."
    )
    coarse = (
        f"What the method releases about groups has a noise multiplier of {noisiest:.0f}, for "
        f"batches of {mechanism.expected_batch_size:.0f} records: too coarse to follow. Fewer "
        "steps, larger batches or a larger epsilon help."
    )
    said = [few] * weak + [coarse] * blurred
    warnings.warn(" ".join(said), LowSignalWarning, stacklevel=5)


def twin(estimator, run, expected_batch_size):
    """Return the unfitted non-private twin: same module, initial weights and steps."""
    settings = run.settings
    same = {"module": settings.module}
    if estimator.module == "auto" and settings.module == "mlp":
        params = {"zero_output": True} | (estimator.module_params or {})
        same |= {"hidden_layer_sizes": (networks.AUTO_HIDDEN,), "module_params": params}
    return clone(estimator).set_params(
        epsilon=None,
        noise_multiplier=None,
        keep_reference=False,
        batch_size=ceil(expected_batch_size),
        max_steps=settings.n_steps,
        **same,
    )
