"""What the estimator accepts: each refusal names the parameter, the value and the remedy."""

from collections.abc import Mapping

import numpy as np

from skdpfair import _validate
from skdpfair._validate import outline, safe_repr
from skdpfair.networks import ACTIVATIONS
from skdpfair.privacy import ACCOUNTANTS
from skdpfair.privacy.gdp import LEAST_DELTA
from skdpfair.training import building as _building
from skdpfair.training.building import LARGE

_CHOICES = {
    "accountant": ACCOUNTANTS,
    "noise": ("standard", "gaussian_sum"),
    "activation": ACTIVATIONS,
}
_FLAGS = ("group_as_feature", "warm_start", "keep_reference", "diagnostics")
# beyond these no accountant can tell epsilon
_LEAST_NOISE = 1e-3
_MOST_STEPS = 10**9
# what a private user takes in place of a method that is not
_INSTEAD = {
    "sgd": "a private method such as 'dpsgd' or 'global_adapt'",
    "fairlens": "the private method 'fairlens_dp'",
    "is_sgd": "the private method 'dp_is_sgd'",
    "iw_sgd": "the private method 'dp_is_sgd'",
    "gdro": "a private group method such as 'dp_is_sgd' or 'dpsgd_f'",
}
_LEAST_ODDS = 1e-7  # a class of weight 0 starts at these odds


def check(params: dict, method) -> None:
    """Raise ValueError or TypeError on the first parameter that cannot be used.

    Numbers, flags and texts among ``params`` become Python's own, in place: what comes later
    never meets a numpy scalar that overflows or rounds, nor a text with an odd ``==``.
    """
    _check_budget(params, method)
    for name, options in _CHOICES.items():
        params[name] = _validate.one_of(name, params[name], options)
    for name in _FLAGS:
        params[name] = _validate.flag(name, params[name])
    _check_sizes(params)
    params["class_weight"] = _class_weight(params["class_weight"])
    _check_lists(params)
    _check_random_state(params)
    _building.check(params, method)


def _check_budget(params, method):
    epsilon, noise = params["epsilon"], params["noise_multiplier"]
    _resolve(params, "delta", _validate.number, low=LEAST_DELTA, high=1, high_open=True)
    if epsilon is not None and noise is not None:
        raise ValueError(
            f"epsilon={safe_repr(epsilon)} and noise_multiplier={safe_repr(noise)} are both given, "
            "and each decides the other. To choose the noise, set epsilon=None; to choose epsilon, "
            "set noise_multiplier=None."
        )
    if epsilon is not None:
        params["epsilon"] = _validate.number("epsilon", epsilon, low=0, low_open=True, high=LARGE)
    if noise is not None:
        params["noise_multiplier"] = _validate.number("noise_multiplier", noise, low=0, high=LARGE)
        if 0 < params["noise_multiplier"] < _LEAST_NOISE:
            raise ValueError(
                f"noise_multiplier={safe_repr(noise)} is so small that its epsilon exceeds what "
                f"can be computed. Give at least {_LEAST_NOISE:g}, or 0 for clipping without noise."
            )
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


def _resolve(params, name, validator, absent="auto", **limits):
    """Validate a parameter unless it is left at ``absent``, "auto" or None."""
    if absent is None and params[name] is None:
        return
    auto = absent == "auto" and _validate.is_auto(params[name])
    params[name] = "auto" if auto else validator(name, params[name], **limits)


def _check_sizes(params):
    for name in ("batch_size", "max_physical_batch_size"):
        _resolve(params, name, _validate.integer)
    _resolve(params, "max_epochs", _validate.integer, high=_MOST_STEPS)
    _resolve(params, "max_steps", _validate.integer, absent=None, high=_MOST_STEPS)
    _resolve(params, "lr", _validate.number, low=0, low_open=True, high=LARGE)
    _resolve(params, "iterate_average", _validate.number, low=0, high=1)
    if not isinstance(params["verbose"], bool):
        params["verbose"] = _validate.integer("verbose", params["verbose"], low=0)


def _class_weight(class_weight):
    if class_weight is None:
        return None
    if isinstance(class_weight, str):
        raise ValueError(
            f"class_weight={safe_repr(class_weight)} is refused: weights computed from class "
            "counts reveal them outside the privacy budget. Give a dict of fixed public numbers, "
            "for instance class_weight={0: 1.0, 1: 2.0}."
        )
    if not isinstance(class_weight, Mapping):
        raise TypeError(
            "class_weight must be a dict from class to a finite number >= 0, got "
            f"{safe_repr(class_weight)}."
        )
    with _validate.error_context("class_weight"):
        class_weight = dict(class_weight)
    return {
        label: _validate.number("class_weight", weight, low=0, high=LARGE)
        for label, weight in class_weight.items()
    }


def class_weights(class_weight, classes) -> list[float] | None:
    """Return the weight of each class in order; classes left out weigh 1."""
    if class_weight is None:
        return None
    unknown = [label for label in class_weight if label not in set(classes)]
    if unknown:
        raise ValueError(
            f"class_weight names {safe_repr(unknown)}, which are not among the classes of y. Spell "
            "them as in y."
        )
    return [float(class_weight.get(label, 1.0)) for label in classes]


def _check_lists(params):
    for name in ("groups", "classes"):
        if params[name] is not None:
            params[name] = _validate.listed(name, params[name], "values or None")
    pair = params["validation_data"]
    if pair is not None and not (isinstance(pair, (tuple, list)) and len(pair) == 2):
        raise TypeError(f"validation_data must be a pair (X, y) or None, got {outline(pair)}.")


def _check_random_state(params):
    state = params["random_state"]
    if state is None or isinstance(state, (np.random.RandomState, np.random.Generator)):
        return
    params["random_state"] = _validate.integer("random_state", state, low=0, high=2**128)


def check_binary(method, classes, groups) -> None:
    """Refuse more than two classes, or other than two groups, where a method has no formula."""
    if not method.binary:
        return
    if len(classes) != 2:
        raise ValueError(
            "Only binary classification is supported. The type of the target is multiclass: "
            f"method={method.name!r} is defined for two classes."
        )
    if len(groups) != 2:
        raise ValueError(
            f"method={method.name!r} is defined for two groups, and there are more. Merge groups, "
            "or use a method for any number of them, such as 'dpsgd_f' or 'dp_is_sgd'."
        )


def loss_weights(class_weight, classes, *, rescaled):
    """Return the factors of the loss, and the logits at which a zero output layer starts.

    Started at the odds that the weights state, all classes pull alike on the first step; left
    at even odds, the heaviest class would take up the whole clipping bound.  ``rescaled``, they
    have a common factor, which is free where the scale of the gradients is searched for, and
    gives these the size they have without weights.  All from public numbers.
    """
    weights = class_weights(class_weight, classes)
    if weights is None or max(weights) == 0:
        return weights, None
    logits = np.log(np.maximum(np.array(weights) / max(weights), _LEAST_ODDS))
    if rescaled:
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
