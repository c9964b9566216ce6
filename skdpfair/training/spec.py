"""The specification of a fit: the parameters of an estimator, checked once and in one form."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from inspect import signature
from numbers import Integral, Real
from typing import Any, Self, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils._param_validation import Interval, InvalidParameterError, Options, StrOptions
from skorch.callbacks import Callback, LRScheduler
from torch import nn

from skdpfair._networks import Factory, network_of
from skdpfair._utils.describe import describe
from skdpfair._utils.validate import (
    LARGE,
    check_parameter,
    error_context,
    is_auto,
    listed,
    number,
    one_of,
    outline,
    safe_repr,
)
from skdpfair.augmentations import Views
from skdpfair.engine.losses import REGRESSION
from skdpfair.engine.memory import used_device
from skdpfair.inputs import target
from skdpfair.inputs.groups import TARGET, Groups, as_columns
from skdpfair.inputs.persons import Persons
from skdpfair.methods._registry import get_method
from skdpfair.methods.sgd import SGD
from skdpfair.privacy.accounting import ACCOUNTANTS
from skdpfair.privacy.gdp import MIN_DELTA
from skdpfair.privacy.releases import LARGEST_STEPS
from skdpfair.training.callbacks import check_callbacks, recorders, without_names

_AUTO = StrOptions({"auto"})
# what numpy and torch count with
_COUNT = Interval(Integral, 1, 2**63 - 1, closed="both")
_STEPS = Interval(Integral, 1, LARGEST_STEPS, closed="both")
_NOISE = Interval(Real, 1e-3, LARGE, closed="both")
_SEEDS = Interval(Integral, 0, 2**128, closed="both"), np.random.RandomState, np.random.Generator
# of parameters of the estimators; those that are not here are read by `_read`
CONSTRAINTS: dict[str, list[Any]] = {
    "epsilon": [Interval(Real, 0, LARGE, closed="right"), None],
    "delta": [Interval(Real, MIN_DELTA, 1, closed="left"), _AUTO],
    "noise_multiplier": [_NOISE, Options(Real, {0.0}), None],  # 0 clips without noise
    "optimizer": [str, callable, Factory],
    "lr": [Interval(Real, 0, LARGE, closed="right"), _AUTO],
    "batch_size": [_COUNT, _AUTO],
    "max_epochs": [_STEPS, _AUTO],
    "max_steps": [_STEPS, None],
    "iterate_average": [Interval(Real, 0, 1, closed="both"), _AUTO],
    "logit_scale": [Interval(Real, 0, LARGE, closed="right"), _AUTO],
    "max_physical_batch_size": [_COUNT, _AUTO],
    "attack": [callable, None],
    "augment": [callable, Views, None],
    "max_sample_weight": [Interval(Real, 0, LARGE, closed="right"), None],
    "warm_start": ["boolean"],
    "accountant": [StrOptions(set(ACCOUNTANTS))],
    "noise_sampler": [StrOptions({"standard", "gaussian_sum"})],
    "keep_reference": ["boolean"],
    "callbacks": [list, tuple, None],
    "device": [str, torch.device],
    "distributed": [_AUTO, None],
    "random_state": [*_SEEDS, None],
    "verbose": [Interval(Integral, 0, None, closed="left"), "boolean"],
    "loss": [StrOptions(set(REGRESSION))],
}


# fractions of mu squared that fits of estimators set aside for counts of scores, which come next
SCORE_BUDGET_FRACTIONS: WeakKeyDictionary[Any, float] = WeakKeyDictionary()
Conflict: TypeAlias = "tuple[Callable[[FitSpec], Any], str]"
# parameters of some estimators only, read by `_read`
_OF_SOME = "classes", "class_weight", "validation_data", "y_range"
# what cannot change the weights of a fit, has no stable description, or follows from the records
_NOT_IN_DIGEST = {"verbose", "device", "distributed", "random_state", "keep_reference"}
_NOT_IN_DIGEST |= {"groups", "classes", "pos_label"}


@dataclass(frozen=True)
class FitSpec:
    """Specification of a fit: the parameters of an estimator, each checked and in one form.

    Each is an attribute: numbers, flags and texts are Python's own, so that what comes later never
    meets a numpy scalar that overflows or rounds; one that the estimator does not have is None.
    ``groups`` is made of ``group_col``, ``views`` of ``augment``; ``optimizer`` is the `Factory` of
    a class of torch.optim or of a function, ``has_auto_optimizer`` whether it was left at "auto".
    """

    estimator: type[BaseEstimator]
    params: Mapping[str, Any]
    has_groups: bool = True  # whether the fit gets them; likewise sample weights and persons
    has_weights: bool = False
    has_persons: bool = False
    score_budget_fraction: float = 0.0  # of mu squared, for counts of scores, released next
    is_monotone: bool = False  # whether columns have monotone curves, and the network is linear

    @classmethod
    def of(cls, estimator: BaseEstimator, **facts: Any) -> Self:
        """Return the specification of an estimator's fit; ``facts`` are known to the fit only.

        Parameters that cannot be used, or conflict with others, raise ValueError or TypeError.
        """
        if torch.is_inference_mode_enabled():
            raise ValueError(
                "fit was called inside torch.inference_mode(), where tensors have no gradients. "
                "Call fit outside of it; predictions may stay inside."
            )
        spec = cls(type(estimator), _read(estimator.get_params(deep=False)), **facts)
        spec = replace(
            spec,
            score_budget_fraction=SCORE_BUDGET_FRACTIONS.get(estimator, 0.0),
            has_groups=spec.has_groups or bool(spec.groups.columns),
            has_persons=spec.has_persons or spec.persons.column is not None,
        )
        check_callbacks(spec.callbacks, spec.validation_data is not None, spec.is_private)
        spec.check(CONFLICTS)
        return spec

    def __getattr__(self, name: str) -> Any:
        """Return a parameter; called for absent attributes only."""
        if name in (params := vars(self).get("params", {})):
            return params[name]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def with_params(self, **params: Any) -> Self:
        """Return a copy with other values of some parameters."""
        return replace(self, params={**self.params, **params})

    def described(self) -> dict[str, str]:
        """Return descriptions of all that acts on the weights of a fit, other than records."""
        acting = {name: v for name, v in self.params.items() if name not in _NOT_IN_DIGEST}
        acting |= {name: getattr(self, name) for name in ("has_weights", "has_persons")}
        kinds = zip(self.callbacks or (), map(type, without_names(self.callbacks)), strict=True)
        unlike = [c for c, kind in kinds if not vars(kind).get("leaves_fits_unchanged", False)]
        acting |= {"callbacks": unlike or None, "as_feature": self.groups.as_feature}
        acting |= {"columns": self.groups.columns}
        return {name: describe(value) for name, value in acting.items()}

    def described_choices(self) -> dict[str, str]:
        """Return descriptions of the parameters that differ from those of a default fit.

        A parameter that is added changes none of them until it is set.  A subclass that has
        another default than the class that has the parameter first sets it.
        """
        kinds = [kind for kind in self.estimator.__mro__ if issubclass(kind, BaseEstimator)]
        parameters = [p for kind in kinds for p in signature(kind).parameters.values()]
        defaults = {p.name: p.default for p in parameters if p.default is not p.empty}
        plain = type(self)(self.estimator, _read(defaults)).described()
        return {name: v for name, v in self.described().items() if v != plain.get(name)}

    def check(self, conflicts: list[Conflict]) -> None:
        """Raise ValueError for the first conflict."""
        for is_met, message in conflicts:
            if is_met(self):
                raise ValueError(message.format_map(_words(self)))

    @property
    def is_private(self) -> bool:
        """Whether noise and clipping are to protect the records."""
        budget = self.epsilon, self.noise_multiplier
        return bool(self.method.private and budget != (None, None))

    @property
    def recorders(self) -> list[Callback]:
        """Callbacks that keep what is not private."""
        return recorders(self.callbacks)

    def check_data(self, classes: Collection[Any] | None, n_groups: int) -> None:
        """Raise ValueError for unknown classes, or for more than the method has a formula for.

        The same is done for groups; a regression has no classes.
        """
        if classes is None:
            return
        unknown = [label for label in self.class_weight or () if label not in set(classes)]
        if unknown:
            raise ValueError(
                f"class_weight names {safe_repr(unknown)}, which are not among the classes of y. "
                "Spell them as in y."
            )
        if not self.method.binary:
            return
        if len(classes) != 2:
            raise ValueError(
                "Only binary classification is supported. The type of the target is multiclass: "
                f"method={self.method.name!r} is defined for two classes."
            )
        if n_groups != 2:
            raise ValueError(
                f"method={self.method.name!r} is defined for two groups, and there are more. Merge "
                "groups, or use a method for any number of them."
            )


def _words(spec: FitSpec) -> dict[str, Any]:
    """Return the values of a spec in the messages of conflicts."""
    return {name: safe_repr(value) for name, value in spec.params.items()} | {
        "method": safe_repr(spec.method.name),
        "alternative": safe_repr(spec.method.private_alternative),
        "optimizer": safe_repr(spec.optimizer.make),
        "own_lr": safe_repr(spec.optimizer.params.get("lr")),
        "recorder": ", ".join(type(r).__name__ for r in spec.recorders),
        "n_views": spec.views.n if spec.views else 1,
    }


def _sets_rates(spec: FitSpec) -> bool:
    kinds = [c if isinstance(c, type) else type(c) for c in without_names(spec.callbacks)]
    schedules = any(issubclass(kind, LRScheduler) for kind in kinds)
    return schedules or "param_groups" in spec.optimizer.params


# what cannot be, and what is wrong with it, with the remedy
CONFLICTS: list[Conflict] = [
    (
        lambda s: s.epsilon is not None and s.noise_multiplier is not None,
        "epsilon={epsilon} and noise_multiplier={noise_multiplier} are both given, and each "
        "decides the other. To choose the noise, set epsilon=None; to choose epsilon, set "
        "noise_multiplier=None.",
    ),
    (
        lambda s: not s.method.private and s.epsilon is not None,
        "method={method} is not private, so epsilon={epsilon} cannot be met. Use a private method "
        "such as {alternative}, or set epsilon=None to run it without privacy.",
    ),
    (
        lambda s: not s.method.takes_noise and s.noise_multiplier is not None,
        "method={method} is not private: noise_multiplier={noise_multiplier} would buy no "
        "guarantee. Leave it None and set the method's gradient_noise, or use a private method "
        "such as {alternative}.",
    ),
    (
        lambda s: s.method.needs_groups and not s.has_groups,
        "method={method} needs groups. Name their column by group_col=, pass "
        'fit(..., sensitive_features=...), or set group_col="target".',
    ),
    (
        lambda s: s.loss is not None and s.method.binary,
        "method={method} is defined for two classes, and a regression has none. Use a method for "
        'groups such as "dpsgd_f", or "global_adapt".',
    ),
    (
        lambda s: s.loss is not None and TARGET in as_columns(s.groups),
        "group_col='target' takes the classes as groups, and a regression has none. Name a column "
        "of X, or pass fit(..., sensitive_features=...).",
    ),
    (
        lambda s: s.loss is not None and s.y_range is None and s.warm_start,
        "warm_start=True needs y_range: the targets of another fit may have other limits. Declare "
        "public limits, such as y_range=(0, 120) for an age.",
    ),
    (
        lambda s: s.persons.surplus == "raise" and not s.has_persons,
        "surplus='raise' of persons checks how many records a person has, but no persons are "
        "given. Name their column, or pass them as fit(..., persons=...).",
    ),
    (
        lambda s: s.has_persons and not s.method.takes_persons,
        "method={method} has no formula for persons with several records. Leave persons out, or "
        "use a method such as {alternative}.",
    ),
    (
        lambda s: s.views and s.views.n > 1 and not s.method.takes_persons,
        "method={method} has no formula for n={n_views} views of a record. Set n=1 of Views, or "
        "use a method such as {alternative}.",
    ),
    (
        lambda s: s.optimizer.make in (torch.optim.LBFGS, torch.optim.SparseAdam),
        "optimizer={optimizer} needs more than one noisy gradient per step. Use SGD, Adam or "
        "another first-order optimizer.",
    ),
    (
        lambda s: s.lr != "auto" and "lr" in s.optimizer.params,
        "lr={lr} and the lr={own_lr} of the optimizer are both given. Leave one of them out.",
    ),
    (
        lambda s: s.lr == "auto" and _sets_rates(s),
        'lr="auto" sets one constant learning rate in the course of the fit, which a '
        "learning-rate scheduler or param_groups would undo. Give lr= a number.",
    ),
    (
        lambda s: _sets_rates(s) and any(s.method.step_size(t) != 1.0 for t in (0, 1, 10, 100)),
        "method={method} sets the learning rate in each step, which would undo that of a "
        "learning-rate scheduler or param_groups. Leave out the schedule of one of them.",
    ),
    (
        lambda s: s.recorders and s.has_persons,
        "callbacks holds {recorder}, which measures records, not persons. Leave persons out, or "
        "drop the callback.",
    ),
    (
        lambda s: s.recorders and (s.has_weights or s.class_weight is not None),
        "callbacks holds {recorder}, which measures losses without weights. Leave out class_weight "
        "and sample_weight, or drop the callback.",
    ),
    (
        lambda s: s.loss is not None and any(getattr(r, "terms", False) for r in s.recorders),
        "callbacks holds {recorder}, whose terms need classes. Set terms=False, which "
        "keeps losses and norms of gradients.",
    ),
    (
        lambda s: len(s.recorders) > 1,
        "callbacks holds two recorders, {recorder}. Give one: diagnostics_ is its table.",
    ),
]
_APART = 'distributed="auto" does not train with {}. Train in one process, with distributed=None.'
# of fits in several processes
APART: list[Conflict] = [
    (is_met, _APART.format(what))
    for is_met, what in (
        (
            lambda s: not (s.method.private or type(s.method) is SGD),
            "method={method}, which is not private",
        ),
        (lambda s: s.recorders, "{recorder}, whose values are not private"),
        (lambda s: s.has_persons, "persons, whose records may lie in several processes"),
        (lambda s: s.score_budget_fraction, "thresholds, whose counts are those of one process"),
    )
]


def _read(params: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters of a spec from an estimator's, each checked by itself."""
    out: dict[str, Any] = dict.fromkeys([*CONSTRAINTS, *_OF_SOME]) | {
        name: check_parameter(name, value, CONSTRAINTS[name]) if name in CONSTRAINTS else value
        for name, value in params.items()
    }
    out["method"] = method = get_method(params["method"])
    method._validate_params()
    out["groups"], out["persons"] = Groups.of(out.pop("group_col")), Persons.of(params["persons"])
    out["module"], out["optimizer"] = network_of(params["module"]), optimizer_of(out["optimizer"])
    out["has_auto_optimizer"] = is_auto(getattr(params["optimizer"], "make", params["optimizer"]))
    if is_auto(out["lr"]) and "lr" in out["optimizer"].params:
        arguments = dict(out["optimizer"].params)
        out["lr"] = check_parameter("lr", arguments.pop("lr"), CONSTRAINTS["lr"], " of optimizer")
        out["optimizer"] = Factory(out["optimizer"].make, **arguments)
    if isinstance(out["module"], Factory):
        _check_takes(out["module"].make, "module must take its arguments", **out["module"].params)
    out["views"] = Views.of(out.pop("augment"))
    if out["views"] is not None:
        _check_function("augment", out["views"].augment, "FlipAndShift() or a callable x -> x", 1)
    used_device(out["device"])
    if out["class_weight"] is not None:
        out["class_weight"] = _class_weight(out["class_weight"])
    if out["classes"] is not None:
        out["classes"] = listed("classes", out["classes"], "values or None")
    if out["y_range"] is not None:
        out["y_range"] = target.range_of(out["y_range"])
    pair = out["validation_data"]
    if pair is not None and not (isinstance(pair, (tuple, list)) and len(pair) == 2):
        raise TypeError(f"validation_data must be a pair (X, y) or None, got {outline(pair)}.")
    if out["attack"] is not None:
        wanted = "PGD(radius, step_size, n_steps) or a callable (module, x, y) -> x"
        _check_function("attack", out["attack"], wanted, 3)
    arguments = out["optimizer"].params
    if "param_groups" not in arguments and (arguments or not isinstance(params["optimizer"], str)):
        _try_optimizer(out["optimizer"], {} if is_auto(out["lr"]) else {"lr": out["lr"]})
    return out


def optimizer_of(optimizer: Any) -> Factory:
    """Return the ``optimizer`` of an estimator as the factory of a class or function."""
    factory = optimizer if isinstance(optimizer, Factory) else Factory(optimizer)
    if isinstance(factory.make, str):
        known = {k.lower(): v for k, v in vars(torch.optim).items() if isinstance(v, type)}
        known.pop("optimizer", None)
        known["auto"] = torch.optim.SGD
        name = one_of("optimizer", factory.make.lower(), sorted(known))
        return Factory(known[name], **factory.params)
    if isinstance(factory.make, nn.Module) or not callable(factory.make):
        raise TypeError(f"optimizer must be a torch.optim class, got {safe_repr(factory.make)}.")
    return factory


def _try_optimizer(optimizer: Factory, lr: dict[str, float]) -> None:
    """Make an optimizer of one number, to learn before the fit what it cannot take."""
    cls, arguments = optimizer.make, lr | optimizer.params
    with error_context("optimizer", f"{safe_repr(cls)} cannot take its arguments"):
        default = signature(cls).parameters.get("lr") if "lr" not in arguments else None
        instance = cls([nn.Parameter(torch.zeros(1))], **arguments)
    if not isinstance(instance, torch.optim.Optimizer):
        raise TypeError(
            f"optimizer must make a torch.optim.Optimizer, but {safe_repr(cls)} made "
            f"{type(instance).__name__}."
        )
    if "lr" not in arguments and (default is None or not isinstance(default.default, Real)):
        raise ValueError(f"optimizer={safe_repr(cls)} has no learning rate of its own. Give lr=.")


def _class_weight(class_weight: Any) -> dict[Any, float]:
    if not isinstance(class_weight, Mapping):
        raise InvalidParameterError(
            "class_weight must be a dict of fixed public numbers, such as {0: 1.0, 1: 2.0}, got "
            f"{safe_repr(class_weight)}. Weights computed from class counts would reveal them "
            "outside the privacy budget."
        )
    with error_context("class_weight"):
        class_weight = dict(class_weight)
    return {k: number("class_weight", v, low=0, high=LARGE) for k, v in class_weight.items()}


def _check_function(name: str, function: Any, wanted: str, n_arguments: int) -> None:
    """Refuse a class, a module, or a callable that cannot take so many arguments."""
    wanted = f"{name} must be None, {wanted}"
    if isinstance(function, (type, nn.Module)):
        raise TypeError(f"{wanted}, got {safe_repr(function)}.")
    _check_takes(function, wanted, *[None] * n_arguments)


def _check_takes(function: Any, wanted: str, *arguments: Any, **keywords: Any) -> None:
    try:
        takes = signature(function)
    except (TypeError, ValueError):
        # some functions written in C do not tell
        return
    try:
        takes.bind(*arguments, **keywords)
    except TypeError as error:
        raise TypeError(f"{wanted}, got {safe_repr(function)}: {error}.") from None
