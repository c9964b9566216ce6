"""What a fit is built of, checked before it begins: module, optimizer, attack, method."""

import warnings
from collections.abc import Mapping
from inspect import signature
from numbers import Real

import torch
from skorch.callbacks import Callback, Checkpoint, EarlyStopping, LRScheduler
from torch import nn

from skdpfair import _validate
from skdpfair._validate import safe_repr
from skdpfair.training.callbacks import recorders

MODULES = ("auto", "logistic", "mlp", "cnn")


def check(params: dict, method) -> None:
    """Raise ValueError or TypeError on the first part that cannot be used; as ``_params.check``."""
    _check_module(params)
    params["callbacks"] = _callbacks(params["callbacks"], params["validation_data"] is not None)
    _check_recorders(params)
    _check_attack(params["attack"])
    _check_device(params)
    method._validate_params()
    _check_optimizer(params)


def _check_module(params):
    module = params["module"]
    if isinstance(module, nn.Module):
        raise TypeError(
            f"module must be a class or a factory, got an instance of {type(module).__name__}. "
            "Pass the class, with its arguments in module_params, so that clones start afresh."
        )
    if isinstance(module, str):
        params["module"] = _validate.one_of("module", module, MODULES)
    elif not callable(module):
        raise TypeError(
            f"module must be one of {MODULES}, a torch.nn.Module class or a factory, "
            f"got {safe_repr(module)}."
        )
    for name in ("module_params", "optimizer_params"):
        params[name] = _keywords(name, params[name])
    sizes = _validate.listed("hidden_layer_sizes", params["hidden_layer_sizes"], "integers")
    params["hidden_layer_sizes"] = tuple(
        _validate.integer("hidden_layer_sizes", size) for size in sizes
    )


def _keywords(name, value):
    """Return a dict of keyword arguments as a plain one; None stays None."""
    if value is None:
        return None
    if isinstance(value, Mapping):
        with _validate.error_context(name):
            value = dict(value)
        if all(isinstance(key, str) for key in value):
            return value
    raise TypeError(f"{name} must be a dict of keyword arguments, got {safe_repr(value)}.")


def _check_optimizer(params):
    if isinstance(params["optimizer"], str):
        params["optimizer"] = str.__str__(params["optimizer"])
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


def _try_optimizer(cls, given):
    """Make an optimizer of one number, to learn before the fit what it cannot take."""
    with _validate.error_context("optimizer", f"{safe_repr(cls)} cannot take optimizer_params"):
        lr = signature(cls).parameters.get("lr") if "lr" not in given else None
        made = cls([nn.Parameter(torch.zeros(1))], **given)
    if not isinstance(made, torch.optim.Optimizer):
        raise TypeError(
            f"optimizer must make a torch.optim.Optimizer, but {safe_repr(cls)} made "
            f"{type(made).__name__}."
        )
    if "lr" not in given and (lr is None or not isinstance(lr.default, Real)):
        raise ValueError(f"optimizer={safe_repr(cls)} has no learning rate of its own. Give lr=.")


def resolve_optimizer(optimizer):
    """Return the optimizer class: a class or factory as given, or one of torch.optim by name."""
    if isinstance(optimizer, str):
        known = {k.lower(): v for k, v in vars(torch.optim).items() if isinstance(v, type)}
        known.pop("optimizer", None)
        known["auto"] = torch.optim.SGD
        return known[_validate.one_of("optimizer", optimizer.lower(), sorted(known))]
    if isinstance(optimizer, (torch.optim.Optimizer, nn.Module)) or not callable(optimizer):
        raise TypeError(
            "optimizer must be a torch.optim class, its name or a factory, got "
            f"{safe_repr(optimizer)}."
        )
    return optimizer


def _refuse_unseen(callback, public):
    """Refuse a callback that waits for a score which no private fit has, before a step is spent."""
    waits = isinstance(callback, (EarlyStopping, Checkpoint)) or (
        isinstance(callback, LRScheduler) and "Plateau" in str(callback.policy)
    )
    watched = getattr(callback, "monitor", None)
    if not waits or not isinstance(watched, str) or (public and not watched.startswith("train_")):
        return
    raise ValueError(
        f"callbacks holds {type(callback).__name__}, which watches {watched!r}, but that is not "
        "there: scores of private records are not computed. Pass public validation_data= and watch "
        '"valid_loss", or fix the number of steps.'
    )


def _callbacks(callbacks, public):
    """Return skorch callbacks, or pairs of a name and one, as a list."""
    if callbacks is None:
        return None
    if not isinstance(callbacks, (list, tuple)):
        raise TypeError(
            f"callbacks must be a list of skorch callbacks or None, got {safe_repr(callbacks)}."
        )
    names = set()
    for entry in callbacks:
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
        _refuse_unseen(entry[1] if isinstance(entry, tuple) else entry, public)
        names |= {entry[0]} if named else set()
    return list(callbacks)


def _check_recorders(params):
    found = recorders(params["callbacks"])
    if found and not params["diagnostics"]:
        raise ValueError(
            f"callbacks holds {type(found[0]).__name__}, which keeps what is not private. Set "
            "diagnostics=True, which marks the fitted object as one that must not be released."
        )
    if len(found) > 1:
        raise ValueError("callbacks holds two recorders. Give one: diagnostics_ is its table.")


def _check_attack(attack):
    wanted = "attack must be None, PGD(radius, step_size, n_steps) or a callable"
    if attack is None:
        return
    if isinstance(attack, (type, nn.Module)) or not callable(attack):
        kind = ValueError if isinstance(attack, str) else TypeError
        raise kind(f"{wanted} (module, x, y) -> x, got {safe_repr(attack)}.")
    try:
        takes = signature(attack)
    except (TypeError, ValueError):  # some functions written in C do not tell
        return
    try:
        takes.bind(None, None, None)
    except TypeError as error:
        raise TypeError(
            f"{wanted} (module, x, y) -> x, got {safe_repr(attack)}: {error}."
        ) from None


def _check_device(params):
    device = params["device"]
    if _validate.is_auto(device):
        params["device"] = "auto"
        return
    if not isinstance(device, (str, torch.device)):
        raise TypeError(f'device must be "auto" or a torch device, got {safe_repr(device)}.')
    with _validate.error_context(
        "device", f"{safe_repr(device)} is not a torch device that can be used here"
    ):
        if torch.device(device).type == "meta":
            raise ValueError("it holds no numbers")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.zeros(1, device=device).add_(1)
