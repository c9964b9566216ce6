"""One fit, from its plan to what it leaves: build the net, train, account."""

import threading
import warnings
from dataclasses import replace
from inspect import signature
from math import ceil

import numpy as np
import torch
from skorch.dataset import Dataset
from skorch.helper import predefined_split

from skdpfair import networks
from skdpfair.attacks import check_inputs
from skdpfair.budget.charging import charged, planned_entries
from skdpfair.budget.spending import DIAGNOSTICS, REFERENCE
from skdpfair.engine import ScaleSearch
from skdpfair.exceptions import InsecureSeedWarning, InterruptedWarning
from skdpfair.privacy import Ledger
from skdpfair.privacy.noise import noisy_counts
from skdpfair.training import building as _building
from skdpfair.training import parameters as _params
from skdpfair.training.callbacks import Epochs, Progress, recorders
from skdpfair.training.defaults import SHARE
from skdpfair.training.net import PrivateNet
from skdpfair.training.plan import Plan
from skdpfair.training.randomness import streams_of
from skdpfair.training.report import Before, composed, report_of
from skdpfair.training.schedule import Schedule
from skdpfair.training.sklearn_callbacks import FitTask

_INIT_LOCK = threading.Lock()  # initial weights pass through torch's global generator
_PLAIN_STEP = 8.0  # largest stable unit of a step without momentum


def train(params, run: Plan, table, task: FitTask, before: Before | None = None, start=None):
    """Return the trained net, what the fit spent with all ``before``, and its ``start``.

    That is the entropy of the initial weights, which a twin is given by the private fit.
    """
    check_inputs(params["attack"], table.x)
    streams, seeded = streams_of(params, table, before, start)
    if seeded and run.mechanism.noise_multiplier > 0:
        warnings.warn(
            f"random_state={params['random_state']!r} makes the noise reproducible: whoever "
            "knows the seed can remove it. Use random_state=None for a model that leaves your "
            "hands.",
            InsecureSeedWarning,
            stacklevel=4,
        )
    ledger = Ledger(() if before is None else before.privacy.ledger.entries)
    shown = {"diagnostics": DIAGNOSTICS, "keep_reference": REFERENCE}
    charge = {"ledger": task.ledger, "place": task.place}
    charge["reasons"] = [why for name, why in shown.items() if params[name]]
    with charged(_planned(run), ledger, private=run.accounted, **charge):
        # values that were released before the end may be why it ends: callbacks see the weights
        by_values = _may_stop_by_values(params, run, table, task)
        try:
            net, run = _trained(params, run, table, streams, ledger, task, before)
        finally:
            if by_values:
                _account_for_the_plan(ledger, run.settings.n_steps, before)
    taken, planned = net.steps_, run.settings.n_steps
    stop = f"after all {planned} planned steps"
    if taken < planned:
        what = f"The fit was interrupted after {taken} of {planned} steps"
        if taken == 0 or task.is_called:  # nothing to keep, or other code that has to stop, too
            raise KeyboardInterrupt(what)
        counted = "all planned steps, as a stop may depend on released values"
        if not by_values:
            counted = "the steps taken, as nobody had seen a released value"
        stop = f"after {taken} of {planned} steps, and the accounting counts {counted}"
        warnings.warn(f"{what}; privacy_ counts {counted}.", InterruptedWarning, stacklevel=4)
    net.on_step = net.streams = None  # whoever gets the net must not get the seeds
    if before is not None:  # a smaller data set must not buy a larger delta for a larger one
        run = replace(run, delta=min(run.delta, before.privacy.delta))
    report = report_of(params, run, net, ledger, seeded, table.groups, stop)
    report = report if before is None else composed(report, before)
    return net, report, streams.init_entropy


def _may_stop_by_values(params, run, table, task):
    """Tell whether code that is not this package's sees what is released before the end."""
    given = (type(run.mechanism.method), _building.resolve_optimizer(params["optimizer"]))
    foreign = [cls for cls in given if not cls.__module__.startswith(("skdpfair.", "torch.optim."))]
    shown = params["callbacks"] or table.validation is not None or task.epoch is not None
    return bool(foreign or shown)


def _account_for_the_plan(ledger, n_steps, before):
    """Enter the steps that a fit planned and did not take, if it took any.

    A rule that stops by released values is a privacy filter: the sum may stay below what was
    planned beforehand, which is what the guarantee is stated for.
    """
    taken = ledger.steps - (0 if before is None else before.privacy.ledger.steps)
    if 0 < taken < n_steps:
        last = ledger.entries[-1]
        ledger.record(
            "steps planned, not taken",
            sample_rate=last.sample_rate,
            noise_multipliers=last.noise_multipliers,
            group_rates=last.group_rates,
            steps=n_steps - taken,
        )


def _planned(run):
    """Return what the fit will have released when it ends, for an open ledger."""
    if not run.accounted:
        return ()
    rate, noise = run.mechanism.max_sample_rate, run.mechanism.noise_multipliers
    return planned_entries(rate, noise, run.settings.n_steps, run.one_time_noise_multipliers)


def _trained(params, run, table, streams, ledger, task, before):
    planned_rate = run.mechanism.max_sample_rate
    run = _with_group_fractions(run, table.groups, streams, ledger, params["noise"])
    listener = _listener(run, ledger, planned_rate)
    callbacks = _callbacks(params, run, ledger, task)
    net = _net(params, run, table, streams, listener, callbacks, before)
    if before is not None:
        _go_on(net, before)
    X = {"x": table.x, "group": table.groups.code}
    net.partial_fit(X, table.y)
    return net, run


def _go_on(net, before):
    try:
        net.module_.load_state_dict(before.module.state_dict())
    except RuntimeError as error:
        raise ValueError(
            "warm_start=True goes on with the weights of the fit before, which do not fit this "
            f"module: {error}"
        ) from None


def _with_group_fractions(run, groups, streams, ledger, kind):
    """Count the groups where the method needs their shares and nobody declared them."""
    method, task = run.mechanism.method, run.mechanism.task
    if not method.needs_group_fractions or task.group_fractions is not None:
        return run
    once = run.one_time_noise_multipliers
    noise = once[0] if once else 0.0
    if once:
        ledger.record("group counts", sample_rate=1.0, noise_multipliers=once, is_one_time=True)
    counts = noisy_counts(groups.code, task.n_groups, noise, streams.releases(), kind)
    counts = np.maximum(counts, 1.0)  # what noise took below one record still has a share
    task = replace(task, group_fractions=torch.from_numpy(counts / counts.sum()))
    return replace(run, mechanism=replace(run.mechanism, task=task))


def _listener(run, ledger, rate):
    if not run.accounted:
        return None
    rates, noise = run.mechanism.rates, run.mechanism.noise_multipliers
    by_group = None if bool((rates == rates[0]).all()) else tuple(rates.tolist())
    # a warm-up step releases less than this, and is charged as a full step
    return lambda what: ledger.record(
        what, sample_rate=rate, noise_multipliers=noise, group_rates=by_group
    )


def n_epochs(settings) -> int:
    """Return how many epochs hold the steps of a fit."""
    return ceil(settings.n_steps / settings.steps_per_epoch)


def _callbacks(params, run, ledger, task):
    """Return the user's callbacks, the progress bar's and scikit-learn's, or None."""
    callbacks = list(params["callbacks"] or [])
    if params["verbose"]:

        def spent():
            return ledger.epsilon(run.delta, run.accountant) if run.accounted else None

        progress = Progress(run.settings.n_steps, run.mechanism.method.name, spent)
        callbacks.append(("progress", progress))
    if task.epoch is not None:
        callbacks.append(("tasks", Epochs(task.epoch)))
    return callbacks or None


def _net(params, run, table, streams, on_step, callbacks, before):
    settings = run.settings
    optimizer, optimizer_params, unit = _optimizer(params, settings)
    lr = params["lr"] if params["lr"] != "auto" else optimizer_params.pop("lr", 1.0)
    if before is not None and before.lr is not None and params["lr"] == "auto":
        lr, unit = before.lr, None
    search = None
    if settings.warm_up:
        search = ScaleSearch.beside(run.mechanism, SHARE)
    average = params["iterate_average"]
    if average == "auto":
        average = 0.5 if params["lr"] == "auto" else 0.0
    class_weight, initial_logits = _params.loss_weights(
        params["class_weight"], table.classes, rescaled=bool(settings.warm_up)
    )
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
        attack=params["attack"],
        diagnostics=params["diagnostics"] and not recorders(params["callbacks"]),
        discloses=params["diagnostics"] or not run.accounted,
        on_step=on_step,
        lr=lr,
        optimizer=optimizer,
        max_epochs=n_epochs(settings),
        train_split=_validation(table),
        callbacks=callbacks,
        device=device,
        verbose=0,
        **{f"optimizer__{k}": v for k, v in optimizer_params.items()},
    )
    with _INIT_LOCK, torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(streams.init_seed())
        net.initialize()
    net.group_levels_ = table.groups.levels
    net.steps_before_ = 0 if before is None else before.n_steps
    return net


def _optimizer(params, settings):
    """Return the optimizer's class, its arguments, and the unit of its steps if lr is "auto"."""
    given = dict(params["optimizer_params"] or {})
    cls = _building.resolve_optimizer(params["optimizer"])
    if params["lr"] != "auto":
        return cls, given, None
    if params["optimizer"] == "auto":
        return cls, {"momentum": 0.9, "dampening": 0.9} | given, settings.unit
    if cls is torch.optim.SGD:
        return cls, given, min(settings.unit, _PLAIN_STEP)
    return cls, {"lr": signature(cls).parameters["lr"].default} | given, None


def _validation(table):
    if table.validation is None:
        return None
    x, codes = table.validation
    group = np.zeros(len(x), dtype=np.int64)
    return predefined_split(Dataset({"x": x, "group": group}, codes))
