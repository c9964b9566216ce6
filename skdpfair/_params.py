"""What the estimator accepts: each refusal names the parameter, the value and the remedy."""

from collections.abc import Callable, Iterable, Mapping
from numbers import Real

import torch
from skorch.callbacks import LRScheduler
from torch import nn

from skdpfair import _validate
from skdpfair.networks import ACTIVATIONS
from skdpfair.privacy import ACCOUNTANTS

MODULES = ("auto", "logistic", "mlp", "cnn")
_POSITIVE = {"low": 0, "low_open": True, "high": float("inf"), "high_open": True}
# what a private user takes in place of a method that is not
_INSTEAD = {
    "sgd": "a private method such as 'dpsgd' or 'global_adapt'",
    "fairlens": "the private method 'fairlens_dp'",
    "is_sgd": "the private method 'dp_is_sgd'",
    "iw_sgd": "the private method 'dp_is_sgd'",
    "gdro": "a private group method such as 'dp_is_sgd' or 'dpsgd_f'",
}


def check(params: Mapping, method) -> None:
    """Raise ValueError or TypeError on the first parameter that cannot be used."""
    _check_budget(params, method)
    _validate.one_of("accountant", params["accountant"], ACCOUNTANTS)
    _validate.one_of("noise", params["noise"], ("standard", "secure"))
    _check_module(params)
    _check_sizes(params)
    _check_class_weight(params["class_weight"])
    if params["attack"] is not None and not callable(params["attack"]):
        raise (ValueError if isinstance(params["attack"], str) else TypeError)(
            "attack must be None, PGD(radius, step_size, n_steps) or a callable "
            f"(module, x, y) -> x, got {params['attack']!r}."
        )
    for name in ("warm_start", "diagnostics"):
        if not isinstance(params[name], bool):
            raise TypeError(f"{name} must be True or False, got {params[name]!r}.")
    method._validate_params()


def _check_budget(params, method):
    epsilon, noise = params["epsilon"], params["noise_multiplier"]
    if params["delta"] != "auto":
        _validate.number("delta", params["delta"], low=0, high=1, low_open=True, high_open=True)
    if epsilon is not None and noise is not None:
        raise ValueError(
            f"epsilon={epsilon!r} and noise_multiplier={noise!r} are both given, and each decides "
            "the other. To choose the noise, set epsilon=None; to choose epsilon, set "
            "noise_multiplier=None."
        )
    if epsilon is not None:
        _validate.number("epsilon", epsilon, **_POSITIVE)
    if noise is not None:
        _validate.number("noise_multiplier", noise, low=0, high=float("inf"), high_open=True)
    if not method.private and epsilon is not None:
        raise ValueError(
            f"method={method.name!r} is not private, so epsilon={epsilon!r} cannot be met. Use "
            f"{_INSTEAD.get(method.name, _INSTEAD['sgd'])}, or set epsilon=None to run it "
            "without privacy."
        )
    if not method.takes_noise and noise is not None:
        raise ValueError(
            f"method={method.name!r} is not private: noise_multiplier={noise!r} would buy no "
            f"guarantee. Leave it None and set the method's gradient_noise, or use "
            f"{_INSTEAD.get(method.name, _INSTEAD['sgd'])}."
        )


def check_delta(delta, n_samples) -> None:
    """Refuse a delta at which releasing one random record in full would pass."""
    if delta >= 1.0 / n_samples:
        raise ValueError(
            f"delta={delta!r} must lie below 1/n_samples = {1.0 / n_samples:.3g}; at or above it, "
            'publishing a random record would count as private. Use delta="auto".'
        )


def _check_module(params):
    module = params["module"]
    if isinstance(module, nn.Module):
        raise TypeError(
            f"module must be a class or a factory, got an instance of {type(module).__name__}. "
            "Pass the class, with its arguments in module_params, so that clones start afresh."
        )
    if isinstance(module, str):
        _validate.one_of("module", module, MODULES)
    elif not isinstance(module, Callable):
        raise TypeError(
            f"module must be one of {MODULES}, a torch.nn.Module class or a factory, "
            f"got {module!r}."
        )
    for name in ("module_params", "optimizer_params"):
        if params[name] is not None and not isinstance(params[name], Mapping):
            raise TypeError(f"{name} must be a dict of keyword arguments, got {params[name]!r}.")
    _validate.one_of("activation", params["activation"], ACTIVATIONS)
    sizes = params["hidden_layer_sizes"]
    if isinstance(sizes, (str, bytes)) or not isinstance(sizes, Iterable):
        raise TypeError(f"hidden_layer_sizes must be a tuple of integers, got {sizes!r}.")
    for size in sizes:
        _validate.integer("hidden_layer_sizes", size)


def _check_sizes(params):
    for name in ("batch_size", "max_epochs", "max_physical_batch_size"):
        if params[name] != "auto":
            _validate.integer(name, params[name])
    if params["max_steps"] is not None:
        _validate.integer("max_steps", params["max_steps"])
    if params["lr"] != "auto":
        _validate.number("lr", params["lr"], **_POSITIVE)
    if params["iterate_average"] != "auto":
        _validate.number("iterate_average", params["iterate_average"], low=0, high=1)
    _check_optimizer(params)
    device = params["device"]
    if device != "auto":
        try:
            torch.device(device)
        except (RuntimeError, TypeError) as error:
            raise ValueError(f"device={device!r} is not a torch device: {error}") from None


def _check_optimizer(params):
    cls = resolve_optimizer(params["optimizer"])
    if cls in (torch.optim.LBFGS, torch.optim.SparseAdam):
        raise ValueError(
            f"optimizer={params['optimizer']!r} needs more than one noisy gradient per step. Use "
            "SGD, Adam or another first-order optimizer."
        )
    if params["lr"] != "auto":
        return
    scheduled = any(
        isinstance(c[-1] if isinstance(c, tuple) else c, LRScheduler)
        for c in params["callbacks"] or ()
    )
    if scheduled or "param_groups" in (params["optimizer_params"] or {}):
        raise ValueError(
            'lr="auto" sets one constant learning rate in the course of the fit, which a '
            "learning-rate scheduler or param_groups would undo. Give lr= a number."
        )


def resolve_optimizer(optimizer):
    """Return the optimizer class: a class or factory as given, or one of torch.optim by name."""
    if isinstance(optimizer, str):
        known = {k.lower(): v for k, v in vars(torch.optim).items() if isinstance(v, type)}
        known.pop("optimizer", None)
        known["auto"] = torch.optim.SGD
        return known[_validate.one_of("optimizer", optimizer.lower(), sorted(known))]
    if isinstance(optimizer, torch.optim.Optimizer) or not callable(optimizer):
        raise TypeError(
            f"optimizer must be a torch.optim class, its name or a factory, got {optimizer!r}."
        )
    return optimizer


def _check_class_weight(class_weight):
    if class_weight is None:
        return
    if isinstance(class_weight, str):
        raise ValueError(
            f"class_weight={class_weight!r} is refused: weights computed from class counts reveal "
            "them outside the privacy budget. Give a dict of fixed public numbers, "
            "for instance class_weight={0: 1.0, 1: 2.0}."
        )
    if not isinstance(class_weight, Mapping) or not all(
        isinstance(w, Real) and 0 <= w < float("inf") for w in class_weight.values()
    ):
        raise ValueError(
            f"class_weight must be a dict from class to a finite number >= 0, got {class_weight!r}."
        )


def class_weights(class_weight, classes) -> list[float] | None:
    """Return the weight of each class in order; classes left out weigh 1."""
    if class_weight is None:
        return None
    unknown = [label for label in class_weight if label not in set(classes)]
    if unknown:
        raise ValueError(
            f"class_weight names {unknown!r}, which are not among the classes {list(classes)!r}."
        )
    return [float(class_weight.get(label, 1.0)) for label in classes]


def check_binary(method, classes, groups) -> None:
    """Refuse more than two classes, or other than two groups, where a method has no formula."""
    if not method.binary:
        return
    if len(classes) != 2:
        raise ValueError(
            "Only binary classification is supported. The type of the target is multiclass: "
            f"method={method.name!r} is defined for two classes, got {len(classes)}."
        )
    if len(groups) != 2:
        raise ValueError(
            f"method={method.name!r} is defined for two groups, got {len(groups)}: "
            f"{list(groups)[:8]!r}. Merge groups, or use a method for any number of them, such as "
            "'dpsgd_f' or 'dp_is_sgd'."
        )
