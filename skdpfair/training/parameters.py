"""Constraints of the estimator's parameters; errors name parameter, value and remedy."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from inspect import signature
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from sklearn.utils._param_validation import Interval, InvalidParameterError, Options, StrOptions
from skorch.callbacks import (
    Callback,
    Checkpoint,
    EarlyStopping,
    EpochScoring,
    Freezer,
    InputShapeSetter,
    LRScheduler,
    PassthroughScoring,
    ProgressBar,
    Unfreezer,
)
from skorch.callbacks.scoring import ScoringBase
from torch import nn

from skdpfair._validate import (
    LARGE,
    check_parameter,
    error_context,
    integer,
    is_auto,
    listed,
    number,
    one_of,
    outline,
    safe_repr,
)
from skdpfair.engine.memory import used_device
from skdpfair.mechanism import Method
from skdpfair.networks import ACTIVATIONS
from skdpfair.privacy import ACCOUNTANTS
from skdpfair.privacy.gdp import MIN_DELTA
from skdpfair.training.callbacks import recorders

_GRADIENTS = "on_grad_computed"  # an event of skorch's own steps
MODULES = ("auto", "logistic", "mlp", "cnn", "scattering")
_AUTO = StrOptions({"auto"})
_COUNT = Interval(Integral, 1, 2**63 - 1, closed="both")  # what numpy and torch count with
# beyond these no accountant can tell epsilon
_STEPS = Interval(Integral, 1, 10**9, closed="both")
_NOISE = Interval(Real, 1e-3, LARGE, closed="both")
# parameters that are not here are checked by `check`, or where they are read
CONSTRAINTS: dict[str, list[Any]] = {
    "epsilon": [Interval(Real, 0, LARGE, closed="right"), None],
    "delta": [Interval(Real, MIN_DELTA, 1, closed="left"), _AUTO],
    "noise_multiplier": [_NOISE, Options(Real, {0.0}), None],  # 0 clips without noise
    "group_as_feature": ["boolean"],
    "module": [StrOptions(set(MODULES)), callable],
    "module_params": [Mapping, None],
    "activation": [StrOptions(set(ACTIVATIONS))],
    "optimizer": [str, callable],
    "optimizer_params": [Mapping, None],
    "lr": [Interval(Real, 0, LARGE, closed="right"), _AUTO],
    "batch_size": [_COUNT, _AUTO],
    "max_epochs": [_STEPS, _AUTO],
    "max_steps": [_STEPS, None],
    "iterate_average": [Interval(Real, 0, 1, closed="both"), _AUTO],
    "max_physical_batch_size": [_COUNT, _AUTO],
    "attack": [callable, None],
    "augment": [callable, None],
    "n_augmentations": [_COUNT],
    "max_sample_weight": [Interval(Real, 0, LARGE, closed="right"), None],
    "max_records_per_unit": [_COUNT, None],
    "surplus_records": [StrOptions({"thin", "raise"})],
    "warm_start": ["boolean"],
    "accountant": [StrOptions(set(ACCOUNTANTS))],
    "noise": [StrOptions({"standard", "gaussian_sum"})],
    "keep_reference": ["boolean"],
    "diagnostics": ["boolean"],
    "callbacks": [list, tuple, None],
    "device": [str, torch.device],
    "distributed": [_AUTO, None],
    "random_state": [
        Interval(Integral, 0, 2**128, closed="both"),
        np.random.RandomState,
        np.random.Generator,
        None,
    ],
    "verbose": [Interval(Integral, 0, None, closed="left"), "boolean"],
}


def check(
    params: dict[str, Any],
    method: Method,
    has_sensitive_features: bool = True,
    has_sample_weight: bool = False,
) -> None:
    """Raise ValueError or TypeError on the first parameter that cannot be used.

    Numbers, flags and texts among ``params`` become Python's own, in place: what comes later
    never meets a numpy scalar that overflows or rounds, nor a text with an odd ``==``.
    """
    if torch.is_inference_mode_enabled():
        raise ValueError(
            "fit was called inside torch.inference_mode(), where tensors have no gradients. Call "
            "fit outside of it; predictions may stay inside."
        )
    for name, constraints in CONSTRAINTS.items():
        params[name] = check_parameter(name, params[name], constraints)
    _check_budget(params, method)
    params["class_weight"] = _class_weight(params["class_weight"])
    for name in ("module_params", "optimizer_params"):
        params[name] = _keywords(name, params[name])
    _check_lists(params)
    if isinstance(params["module"], nn.Module):
        raise TypeError(
            "module must be a class or a factory, got an instance of "
            f"{type(params['module']).__name__}. Pass the class, with its arguments in "
            "module_params, so that clones start afresh."
        )
    if callable(params["module"]):
        wanted = "module must be a class or a factory that takes module_params"
        _check_takes(params["module"], wanted, **(params["module_params"] or {}))
    _check_callbacks(params, method)
    _check_recorders(params, has_sample_weight)
    _check_attack(params["attack"])
    _check_augment(params["augment"], params["n_augmentations"], method)
    used_device(params["device"])
    method._validate_params()
    _check_optimizer(params)
    if method.needs_groups and params["group_col"] is None and not has_sensitive_features:
        raise ValueError(
            f"method={method.name!r} needs groups. Name their column by group_col=, pass "
            'fit(..., sensitive_features=...), or set group_col="target".'
        )


def _check_budget(params: dict[str, Any], method: Method) -> None:
    epsilon, noise = params["epsilon"], params["noise_multiplier"]
    if epsilon is not None and noise is not None:
        raise ValueError(
            f"epsilon={safe_repr(epsilon)} and noise_multiplier={safe_repr(noise)} are both "
            "given, and each decides the other. To choose the noise, set epsilon=None; to choose "
            "epsilon, set "
            "noise_multiplier=None."
        )
    if not method.private and epsilon is not None:
        raise ValueError(
            f"method={method.name!r} is not private, so epsilon={safe_repr(epsilon)} cannot be "
            f"met. Use a private method such as {method.private_alternative!r}, or set "
            "epsilon=None to run "
            "it without privacy."
        )
    if not method.takes_noise and noise is not None:
        raise ValueError(
            f"method={method.name!r} is not private: noise_multiplier={safe_repr(noise)} would "
            "buy no guarantee. Leave it None and set the method's gradient_noise, or use a "
            "private method "
            f"such as {method.private_alternative!r}."
        )


def _class_weight(class_weight: Any) -> dict[Any, float] | None:
    if class_weight is None:
        return None
    if not isinstance(class_weight, Mapping):
        raise InvalidParameterError(
            "class_weight must be a dict of fixed public numbers, such as {0: 1.0, 1: 2.0}, got "
            f"{safe_repr(class_weight)}. Weights computed from class counts would reveal them "
            "outside the privacy budget."
        )
    with error_context("class_weight"):
        class_weight = dict(class_weight)
    return {
        label: number("class_weight", weight, low=0, high=LARGE)
        for label, weight in class_weight.items()
    }


def _keywords(name: str, value: Mapping[Any, Any] | None) -> dict[str, Any] | None:
    """Return a mapping of keyword arguments as a dict; None stays None."""
    if value is None:
        return None
    with error_context(name):
        given: dict[str, Any] = dict(value)
    if all(isinstance(key, str) for key in given):
        return given
    raise TypeError(f"{name} must be a dict of keyword arguments, got {safe_repr(value)}.")


def _check_lists(params: dict[str, Any]) -> None:
    for name in ("groups", "classes"):
        if params[name] is not None:
            params[name] = listed(name, params[name], "values or None")
    if not is_auto(params["hidden_layer_sizes"]):
        params["hidden_layer_sizes"] = _layer_sizes(params)
    pair = params["validation_data"]
    if pair is not None and not (isinstance(pair, (tuple, list)) and len(pair) == 2):
        raise TypeError(f"validation_data must be a pair (X, y) or None, got {outline(pair)}.")


def _layer_sizes(params: dict[str, Any]) -> tuple[int, ...]:
    """Return given sizes of hidden layers, which only an MLP has."""
    name, module = "hidden_layer_sizes", params["module"]
    sizes = listed(name, params[name], 'integers or "auto"')
    given = tuple(integer(name, size) for size in sizes)
    if module not in ("auto", "mlp"):
        raise ValueError(
            f'hidden_layer_sizes={given} are those of module="mlp" or "auto", but '
            f"module={safe_repr(module)}. Leave one of them out; the arguments of a module of your "
            "own go into module_params."
        )
    return given


def check_binary(method: Method, classes: np.ndarray, groups: np.ndarray | None) -> None:
    """Raise ValueError for other than two classes and groups, where a method has no formula."""
    if not method.binary:
        return
    if len(classes) != 2:
        raise ValueError(
            "Only binary classification is supported. The type of the target is multiclass: "
            f"method={method.name!r} is defined for two classes."
        )
    if groups is None or len(groups) != 2:
        raise ValueError(
            f"method={method.name!r} is defined for two groups, and there are more. Merge groups, "
            "or use a method for any number of them."
        )


def check_units(method: Method, params: dict[str, Any], has_units: bool) -> None:
    """Raise ValueError where persons cannot be trained on, or are missing and are relied on."""
    if not has_units:
        if params["surplus_records"] == "raise":
            raise ValueError(
                'surplus_records="raise" checks how many records a person has, but no persons are '
                "given. Name their column by unit_col=, or pass them as fit(..., units=...)."
            )
        return
    if not method.takes_units:
        raise ValueError(
            f"method={method.name!r} has no formula for persons with several records. Leave "
            f"persons out, or use a method such as {method.private_alternative!r}."
        )
    found = recorders(params["callbacks"])
    if found:
        raise ValueError(
            f"callbacks holds {type(found[0]).__name__}, which measures records, not persons. "
            "Leave persons out, or drop the callback."
        )


def _check_optimizer(params: dict[str, Any]) -> None:
    cls = resolve_optimizer(params["optimizer"])
    if cls in (torch.optim.LBFGS, torch.optim.SparseAdam):
        raise ValueError(
            f"optimizer={safe_repr(params['optimizer'])} needs more than one noisy gradient per "
            "step. Use SGD, Adam or another first-order optimizer."
        )
    given, lr = params["optimizer_params"] or {}, params["lr"]
    if lr != "auto" and "lr" in given:
        raise ValueError(
            f"lr={lr!r} and optimizer_params['lr']={safe_repr(given['lr'])} are both given. Leave "
            "one of them out."
        )
    scheduled = any(
        isinstance(c[-1] if isinstance(c, tuple) else c, LRScheduler)
        for c in params["callbacks"] or ()
    )
    if lr == "auto" and (scheduled or "param_groups" in given):
        raise ValueError(
            'lr="auto" sets one constant learning rate in the course of the fit, which a '
            "learning-rate scheduler or param_groups would undo. Give lr= a number."
        )
    if "param_groups" not in given and (given or not isinstance(params["optimizer"], str)):
        _try_optimizer(cls, given if lr == "auto" else {"lr": lr} | given)


def _try_optimizer(cls: Callable[..., Any], given: dict[str, Any]) -> None:
    """Make an optimizer of one number, to learn before the fit what it cannot take."""
    with error_context("optimizer", f"{safe_repr(cls)} cannot take optimizer_params"):
        lr = signature(cls).parameters.get("lr") if "lr" not in given else None
        made = cls([nn.Parameter(torch.zeros(1))], **given)
    if not isinstance(made, torch.optim.Optimizer):
        raise TypeError(
            f"optimizer must make a torch.optim.Optimizer, but {safe_repr(cls)} made "
            f"{type(made).__name__}."
        )
    if "lr" not in given and (lr is None or not isinstance(lr.default, Real)):
        raise ValueError(f"optimizer={safe_repr(cls)} has no learning rate of its own. Give lr=.")


def resolve_optimizer(optimizer: Any) -> Callable[..., torch.optim.Optimizer]:
    """Return the optimizer class: a class or factory as given, or one of torch.optim by name."""
    if isinstance(optimizer, str):
        known = {k.lower(): v for k, v in vars(torch.optim).items() if isinstance(v, type)}
        known.pop("optimizer", None)
        known["auto"] = torch.optim.SGD
        return known[one_of("optimizer", optimizer.lower(), sorted(known))]
    if isinstance(optimizer, nn.Module):
        raise TypeError(f"optimizer must be a torch.optim class, got {safe_repr(optimizer)}.")
    factory: Callable[..., torch.optim.Optimizer] = optimizer
    return factory


def _refuse_unseen(callback: Any, public: bool, private: bool) -> None:
    """Refuse a callback that asks for what a fit does not compute, before a step is spent."""
    if isinstance(callback, type):
        with suppress(TypeError):  # skorch makes it, likewise without arguments
            callback = callback()
    if isinstance(callback, (Freezer, Unfreezer)):
        raise ValueError(
            f"callbacks holds {type(callback).__name__}, but parameters cannot be frozen or "
            "unfrozen after training began. Freeze them where the module is made: in the class or "
            "factory that module= names."
        )
    waits = isinstance(callback, (EarlyStopping, Checkpoint)) or (
        isinstance(callback, LRScheduler) and "Plateau" in str(callback.policy)
    )
    watched = getattr(callback, "monitor", None)
    in_vain = isinstance(watched, str) and (not public or watched.startswith("train_"))
    scores = isinstance(callback, (ScoringBase, PassthroughScoring)) and callback.on_train
    # rows that a fit discloses are scored at the end of an epoch, by predictions of their own
    anew = isinstance(callback, EpochScoring) and not callback.use_caching
    counts = isinstance(callback, ProgressBar) and callback.batches_per_epoch == "auto"
    reasons = {
        f"watches {watched!r}": waits and in_vain,
        "scores training rows": scores and (private or not anew),
        "counts training rows (verbose=1 shows a progress bar)": counts and private,
        "reads the shape of training rows": isinstance(callback, InputShapeSetter),
        "changes gradients": getattr(type(callback), _GRADIENTS)
        is not getattr(Callback, _GRADIENTS),
    }
    for what in (what for what, holds in reasons.items() if holds):
        raise ValueError(
            f"callbacks holds {type(callback).__name__}, which {what}, but that is not there: "
            "scores of private records are not computed, and callbacks get neither them nor their "
            'gradients. Pass public validation_data= and watch "valid_loss", or fix the number of '
            "steps."
        )


def _check_callbacks(params: dict[str, Any], method: Method) -> None:
    """Refuse what are no skorch callbacks, nor pairs of a name and one."""
    names, public = set(), params["validation_data"] is not None
    budget = params["epsilon"], params["noise_multiplier"]
    private = method.private and budget != (None, None) and not params["diagnostics"]
    for entry in params["callbacks"] or ():
        named = isinstance(entry, tuple) and len(entry) == 2 and isinstance(entry[0], str)
        callback = entry[1] if named else entry
        kind = callback if isinstance(callback, type) else type(callback)
        if not issubclass(kind, Callback):
            raise TypeError(
                "callbacks must hold skorch callbacks or pairs (name, callback), got "
                f"{safe_repr(entry)}."
            )
        if named and entry[0] in names:
            raise ValueError(f"callbacks names two {safe_repr(entry[0])}. Name each once.")
        _refuse_unseen(callback, public, private)
        names |= {entry[0]} if named else set()


def _check_recorders(params: dict[str, Any], has_sample_weight: bool) -> None:
    found = recorders(params["callbacks"])
    if found and not params["diagnostics"]:
        raise ValueError(
            f"callbacks holds {type(found[0]).__name__}, which keeps what is not private. Set "
            "diagnostics=True, which marks the fitted object as one that must not be released."
        )
    if found and has_sample_weight:
        raise ValueError(
            f"callbacks holds {type(found[0]).__name__}, which measures losses without sample "
            "weights. Fit without sample_weight, or drop the callback."
        )
    if len(found) > 1:
        raise ValueError("callbacks holds two recorders. Give one: diagnostics_ is its table.")


def _check_attack(attack: Any) -> None:
    if attack is None:
        return
    wanted = "attack must be None, PGD(radius, step_size, n_steps) or a callable"
    if isinstance(attack, (type, nn.Module)):
        raise TypeError(f"{wanted} (module, x, y) -> x, got {safe_repr(attack)}.")
    _check_takes(attack, f"{wanted} (module, x, y) -> x", *[None] * 3)


def _check_augment(augment: Any, n_augmentations: int, method: Method) -> None:
    if augment is None:
        if n_augmentations > 1:
            raise ValueError(
                f"n_augmentations={n_augmentations} asks for views of each record, but "
                "augment=None makes none. Set augment=, as FlipAndShift() of "
                "skdpfair.augmentations, or n_augmentations=1."
            )
        return
    if n_augmentations > 1 and not method.takes_units:
        raise ValueError(
            f"method={method.name!r} has no formula for several views of a record. Set "
            f"n_augmentations=1, or use a method such as {method.private_alternative!r}."
        )
    wanted = "augment must be None, FlipAndShift() or a callable x -> x"
    if isinstance(augment, (type, nn.Module)):
        raise TypeError(f"{wanted}, got {safe_repr(augment)}.")
    _check_takes(augment, wanted, None)


def _check_takes(function: Any, wanted: str, *arguments: Any, **keywords: Any) -> None:
    """Refuse a callable that cannot take some arguments."""
    try:
        takes = signature(function)
    except (TypeError, ValueError):  # some functions written in C do not tell
        return
    try:
        takes.bind(*arguments, **keywords)
    except TypeError as error:
        raise TypeError(f"{wanted}, got {safe_repr(function)}: {error}.") from None
