"""One fit, from resolved parameters to what it leaves: plan, calibrate, train, account."""

import threading
import warnings
from contextlib import nullcontext
from dataclasses import dataclass, replace
from inspect import signature
from math import ceil, inf

import numpy as np
import torch
from sklearn.base import clone
from skorch.callbacks import Callback
from skorch.dataset import Dataset
from skorch.helper import predefined_split
from tqdm.auto import tqdm

from skdpfair import _params, defaults, networks
from skdpfair.engine import ScaleSearch, Streams
from skdpfair.engine.noise import digest
from skdpfair.exceptions import InsecureSeedWarning, LowSignalWarning
from skdpfair.mechanism import Mechanism, Method, Task
from skdpfair.methods import get_method
from skdpfair.net import PrivateNet, Schedule
from skdpfair.privacy import Ledger, PrivacyPlan, PrivacyReport

_INIT_LOCK = threading.Lock()  # initial weights pass through torch's global generator
# what cannot change the weights of a fit, or has no stable description
_NOT_IN_DIGEST = {"callbacks", "verbose", "device", "random_state", "keep_reference"}
_LEAST_ODDS = 1e-7  # a class of weight 0 starts at these odds
_PLAIN_STEP = 8.0  # largest stable unit of a step without momentum


@dataclass(frozen=True)
class Plan:
    """What a fit will do, known before a record is looked at."""

    mechanism: Mechanism
    settings: defaults.Settings
    delta: float
    epsilon: float | None  # as asked for
    accountant: str

    @property
    def accounted(self) -> bool:
        """Whether the run has a privacy loss to account for."""
        return self.mechanism.method.private


def plan(params, method: Method, n_samples: int, n_groups: int) -> Plan:
    """Resolve every "auto" and calibrate the noise, from public facts alone."""
    delta = defaults.auto_delta(n_samples) if params["delta"] == "auto" else params["delta"]
    _params.check_delta(delta, n_samples)
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
        searches_scale=waits or (not method.private and params["lr"] == "auto"),
    )
    method = _filled(method, settings)
    task = Task(n_samples, n_groups, settings.sample_rate)
    mechanism = Mechanism(method, task, 0.0 if noise is None else float(noise))
    if epsilon is not None:
        mechanism = _calibrated(mechanism, settings.n_steps, epsilon, delta, params["accountant"])
    _warn_low_signal(mechanism, settings)
    return Plan(mechanism, settings, delta, epsilon, params["accountant"])


def _filled(method, settings):
    """Set the rate of Global-Adapt's threshold where nobody chose it."""
    gain = 0.15 if "lr_z" in method.get_params() and method.is_auto("lr_z") else 1.0
    method = method.filled(z_gain=gain)
    return method.filled(lr_z=settings.share * getattr(method, "z_gain", gain))


def _calibrated(mechanism, steps, epsilon, delta, accountant):
    unit, double = (replace(mechanism, noise_multiplier=s).noise_multipliers for s in (1.0, 2.0))
    fixed = tuple(i for i, (a, b) in enumerate(zip(unit, double, strict=True)) if a == b)
    whole = PrivacyPlan(steps=steps, sample_rate=mechanism.sample_rate, noise_multipliers=unit)
    noise = whole.calibrated(epsilon, delta, accountant, fixed=fixed).noise_multipliers[0]
    # rounding in the other multipliers must not push epsilon above its target
    return replace(mechanism, noise_multiplier=noise * (1 + 1e-9))


def _warn_low_signal(mechanism, settings):
    noisiest = max(mechanism.noise_multipliers[1:], default=0.0)
    blurred = noisiest > 0.2 * mechanism.expected_batch_size
    if mechanism.noise_multiplier > 0 and (settings.signal < defaults.LOW_SIGNAL or blurred):
        counts = " Its noisy counts are coarse for this batch size, too." if blurred else ""
        warnings.warn(
            f"n = {mechanism.task.n_samples} records are few for this privacy budget (signal "
            f"n*mu = {settings.signal:.0f}, below {defaults.LOW_SIGNAL:.0f} expect to be several "
            f"points below a non-private model, the smaller class first).{counts} More records or "
            "a larger epsilon help.",
            LowSignalWarning,
            stacklevel=5,
        )


def train(params, run: Plan, table):
    """Return the trained net and what the fit spent."""
    streams, seeded = _streams(params, table)
    if seeded and run.mechanism.noise_multiplier > 0:
        warnings.warn(
            f"random_state={params['random_state']!r} makes the noise reproducible: whoever "
            "knows the seed can remove it. Use random_state=None for a model that leaves your "
            "hands.",
            InsecureSeedWarning,
            stacklevel=4,
        )
    ledger = Ledger()
    net = _net(params, run, table, streams, _listener(run, ledger))
    X = {"x": table.x, "group": table.groups.code}
    with _forked(net.module_, streams.init_seed() + 1):
        net.partial_fit(X, table.y)
    if net.steps_ < run.settings.n_steps:
        warnings.warn(
            f"The fit was interrupted after {net.steps_} of {run.settings.n_steps} steps; "
            "privacy_ counts the steps taken.",
            UserWarning,
            stacklevel=4,
        )
    net.on_step = None
    return net, _report(params, run, net, ledger, seeded)


def twin(estimator, run):
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
        batch_size=ceil(run.mechanism.expected_batch_size),
        max_steps=settings.n_steps,
        **same,
    )


def _listener(run, ledger):
    if not run.accounted:
        return None
    rate, noise = run.mechanism.sample_rate, run.mechanism.noise_multipliers
    # a warm-up step releases less than this, and is charged as a full step
    return lambda what: ledger.record(what, sample_rate=rate, noise_multipliers=noise)


def _net(params, run, table, streams, on_step):
    settings = run.settings
    optimizer, optimizer_params, unit = _optimizer(params, settings)
    lr = params["lr"] if params["lr"] != "auto" else optimizer_params.pop("lr", 1.0)
    search = None
    if settings.warm_up:
        search = ScaleSearch.beside(run.mechanism, settings.share)
    average = params["iterate_average"]
    if average == "auto":
        average = 0.5 if params["lr"] == "auto" else 0.0
    class_weight, initial_logits = _class_weight(params, settings, table.classes)
    module = networks.factory(
        settings.module,
        table.x.shape[1:],
        len(table.classes),
        hidden_layer_sizes=params["hidden_layer_sizes"],
        activation=params["activation"],
        auto=params["module"] == "auto",
        initial_logits=initial_logits,
        params=params["module_params"] or {},
    )
    callbacks = list(params["callbacks"] or [])
    if params["verbose"]:
        callbacks.append(("progress", Progress(settings.n_steps, run.mechanism.method.name)))
    device = params["device"]
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    net = PrivateNet(
        module,
        mechanism=run.mechanism,
        schedule=Schedule(
            n_steps=settings.n_steps,
            steps_per_epoch=settings.steps_per_epoch,
            search=search,
            warm_up=settings.warm_up,
            unit=unit,
            headroom=settings.headroom,
            averaged=average,
        ),
        streams=streams,
        n_classes=len(table.classes),
        class_weight=class_weight,
        chunk_size=params["max_physical_batch_size"],
        noise=params["noise"],
        on_step=on_step,
        lr=lr,
        optimizer=optimizer,
        max_epochs=ceil(settings.n_steps / settings.steps_per_epoch),
        train_split=_validation(params["validation_data"], table),
        callbacks=callbacks or None,
        device=device,
        verbose=0,
        **{f"optimizer__{k}": v for k, v in optimizer_params.items()},
    )
    with _INIT_LOCK, torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(streams.init_seed())
        return net.initialize()


def _class_weight(params, settings, classes):
    """Return the factors of the loss, and the logits at which a zero output layer starts.

    Started at the odds that the weights state, all classes pull alike on the first step; left
    at even odds, the heaviest class would take up the whole clipping bound.  Where the scale of
    the gradients is searched for, a common factor is free, and gives them the size they have
    without weights.  All from public numbers.
    """
    weights = _params.class_weights(params["class_weight"], classes)
    if weights is None or max(weights) == 0:
        return weights, None
    logits = np.log(np.maximum(np.array(weights) / max(weights), _LEAST_ODDS))
    if settings.warm_up:
        weights = list(
            np.array(weights)
            * _pull(0 * logits, np.ones(len(classes)))
            / _pull(logits, np.array(weights))
        )
    return weights, tuple(logits.tolist())


def _pull(logits, weights):
    """Return the mean length, over the classes, of the loss's gradient in the logits."""
    odds = np.exp(logits - logits.max())
    slopes = odds / odds.sum() - np.eye(len(logits))
    return float(np.mean(weights * np.linalg.norm(slopes, axis=1)))


def _optimizer(params, settings):
    """Return the optimizer's class, its arguments, and the unit of its steps if lr is "auto"."""
    given = dict(params["optimizer_params"] or {})
    cls = _params.resolve_optimizer(params["optimizer"])
    if params["lr"] != "auto":
        return cls, given, None
    if params["optimizer"] == "auto":
        return cls, {"momentum": 0.9, "dampening": 0.9} | given, settings.unit
    if cls is torch.optim.SGD:
        return cls, given, min(settings.unit, _PLAIN_STEP)
    return cls, {"lr": signature(cls).parameters["lr"].default} | given, None


def _validation(data, table):
    if data is None:
        return None
    X, y = data
    x = np.ascontiguousarray(X, dtype=table.x.dtype)
    codes = np.searchsorted(table.classes, np.asarray(y)).clip(max=len(table.classes) - 1)
    if len(x) != len(codes) or x.shape[1:] != table.x.shape[1:]:
        raise ValueError(
            f"validation_data must be (X, y) with {table.x.shape[1:]} features per row and one "
            f"label per row, got shapes {x.shape} and {codes.shape}."
        )
    if (table.classes[codes] != np.asarray(y)).any():
        raise ValueError("validation_data has labels outside the classes of y.")
    group = np.zeros(len(x), dtype=np.int64)
    return predefined_split(Dataset({"x": x, "group": group}, codes.astype(np.int64)))


def _streams(params, table):
    state = params["random_state"]
    if state is None:
        return Streams.fresh(), False
    if isinstance(state, np.random.RandomState):
        state = state.randint(2**31 - 1)
    elif isinstance(state, np.random.Generator):
        state = state.integers(2**63 - 1)
    described = sorted((k, describe(v)) for k, v in params.items() if k not in _NOT_IN_DIGEST)
    mixed = digest(table.x, table.y, table.groups.code, described)
    return Streams.seeded(int(state), digest=mixed), True


def describe(value) -> str:
    """Return a description of a parameter that is the same in every process.

    Examples
    --------
    >>> describe({"a": (1, 2.5)}), describe(torch.nn.Tanh)
    ("{'a': (1, 2.5)}", 'torch.nn.modules.activation.Tanh')
    """
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k!r}: {describe(v)}" for k, v in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "(" + ", ".join(map(describe, value)) + ")"
    if isinstance(value, (np.ndarray, torch.Tensor)) or hasattr(value, "to_numpy"):
        return digest(np.asarray(value)).hex()
    if isinstance(value, (str, bytes, int, float, bool, type(None), np.generic, Method)):
        return repr(value)
    named = value if hasattr(value, "__qualname__") else type(value)
    return f"{named.__module__}.{named.__qualname__}"


def _forked(module, seed):
    """Keep torch's global generator as found where a module may draw from it (dropout)."""
    builtin = (torch.nn.Sequential, torch.nn.Linear, torch.nn.Flatten, torch.nn.Unflatten)
    builtin += (torch.nn.Conv2d, *networks.ACTIVATIONS.values())
    if all(isinstance(m, builtin) for m in module.modules()):
        return nullcontext()
    return _seeded_fork(seed)


class _seeded_fork:
    def __init__(self, seed):
        self.fork, self.seed = torch.random.fork_rng(), seed

    def __enter__(self):
        self.fork.__enter__()
        torch.manual_seed(self.seed % 2**63)

    def __exit__(self, *exc):
        return self.fork.__exit__(*exc)


def _report(params, run, net, ledger, seeded):
    mechanism, method = run.mechanism, net.method_
    epsilon = ledger.epsilon(run.delta, run.accountant) if run.accounted else inf
    bound = getattr(method, "max_grad_norm", None)
    return PrivacyReport(
        method=method.name,
        epsilon=epsilon,
        delta=run.delta,
        accountant=run.accountant,
        noise_multiplier=mechanism.noise_multiplier,
        sample_rate=mechanism.sample_rate,
        steps=net.steps_,
        expected_batch_size=mechanism.expected_batch_size,
        max_grad_norm=None if isinstance(bound, str) else bound,
        is_private=epsilon < inf,
        seeded=seeded,
        assumptions=_assumptions(params),
        ledger=ledger,
    )


def _assumptions(params):
    assumptions = ["the number of records n is public"]
    if params["classes"] is None:
        assumptions.append("the set of classes is public (it was read off y; declare classes=)")
    if params["groups"] is None:
        assumptions.append("the set of groups, if any, is public (declare groups=)")
    if params["validation_data"] is not None:
        assumptions.append("validation_data holds public records only")
    return tuple(assumptions)


class Progress(Callback):
    """A bar over the steps, moved at epoch ends."""

    def __init__(self, n_steps, description):
        self.n_steps, self.description = n_steps, description

    def on_train_begin(self, net, **kwargs):
        """Open the bar."""
        self.bar_ = tqdm(total=self.n_steps, desc=self.description, unit="step", leave=False)

    def on_epoch_end(self, net, **kwargs):
        """Move the bar."""
        self.bar_.update(net.steps_ - self.bar_.n)

    def on_train_end(self, net, **kwargs):
        """Close the bar."""
        self.bar_.close()
