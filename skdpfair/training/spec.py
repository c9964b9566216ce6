"""What a fit is to do: the parameters of an estimator, checked once and in one form."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from inspect import signature
from numbers import Integral, Real
from typing import Any, Self, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np
import torch
from sklearn.base import BaseEstimator
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

from skdpfair._networks import Factory, network_of
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
from skdpfair.budget.privacy_ledger import PrivacyLedger
from skdpfair.engine.losses import REGRESSION
from skdpfair.engine.mechanism import Method
from skdpfair.engine.memory import used_device
from skdpfair.inputs import target
from skdpfair.inputs.groups import TARGET, Groups, as_columns
from skdpfair.inputs.persons import Persons
from skdpfair.methods._registry import get_method
from skdpfair.methods.sgd import SGD
from skdpfair.privacy.accounting import ACCOUNTANTS
from skdpfair.privacy.gdp import MIN_DELTA
from skdpfair.privacy.releases import LARGEST_STEPS
from skdpfair.training.callbacks import recorders, without_names

# an event of skorch's own steps
_GRADIENTS = "on_grad_computed"
_AUTO = StrOptions({"auto"})
# what numpy and torch count with
_COUNT = Interval(Integral, 1, 2**63 - 1, closed="both")
_STEPS = Interval(Integral, 1, LARGEST_STEPS, closed="both")
_NOISE = Interval(Real, 1e-3, LARGE, closed="both")
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
    "random_state": [
        Interval(Integral, 0, 2**128, closed="both"),
        np.random.RandomState,
        np.random.Generator,
        None,
    ],
    "verbose": [Interval(Integral, 0, None, closed="left"), "boolean"],
    "loss": [StrOptions(set(REGRESSION))],
}


# shares of mu squared that fits of estimators set aside for counts of scores, which come next
SCORE_BUDGET_FRACTIONS: WeakKeyDictionary[Any, float] = WeakKeyDictionary()
Conflict: TypeAlias = "tuple[Callable[[FitSpec], Any], str]"


@dataclass(frozen=True)
class FitSpec:
    """What a fit is to do.

    It holds the estimator's parameters by name, checked: numbers, flags and texts are Python's
    own, so that what comes later never meets a numpy scalar that overflows or rounds.  Parameters
    that an estimator does not have keep the defaults here.
    """

    estimator: type[BaseEstimator]
    method: Method
    epsilon: float | None
    delta: float | str
    noise_multiplier: float | None
    groups: Groups  # of group_col
    persons: Persons
    module: Any  # see `network_of`
    optimizer: Factory  # of a class of torch.optim, or a function that makes one of its optimizers
    has_auto_optimizer: bool  # whether it was left at "auto"
    lr: float | str
    batch_size: int | str
    max_epochs: int | str
    max_steps: int | None
    iterate_average: float | str
    max_physical_batch_size: int | str
    views: Views | None  # of augment
    max_sample_weight: float | None
    warm_start: bool
    accountant: str
    noise_sampler: str
    keep_reference: bool
    callbacks: Sequence[Any] | None
    device: str | torch.device
    random_state: Any
    verbose: int
    classes: Sequence[Any] | None = None
    attack: Callable[..., Any] | None = None
    class_weight: Mapping[Any, float] | None = None
    validation_data: tuple[Any, Any] | None = None
    logit_scale: float | str = 1.0
    distributed: str | None = None
    y_range: tuple[float, float] | None = None
    loss: str | None = None  # of a regression; None for cross-entropy
    has_groups: bool = True  # whether the fit gets them; likewise sample weights and persons
    has_weights: bool = False
    has_persons: bool = False
    score_budget_fraction: float = (
        0.0  # of mu squared, set aside for counts of scores, released next
    )
    own: Mapping[str, Any] = field(default_factory=dict)  # parameters that only a subclass has

    @classmethod
    def of(cls, estimator: BaseEstimator, **facts: Any) -> Self:
        """Return what a fit of an estimator is to do; ``facts`` are what only the fit knows.

        Parameters that cannot be used, or conflict with others, raise ValueError or TypeError.
        """
        if torch.is_inference_mode_enabled():
            raise ValueError(
                "fit was called inside torch.inference_mode(), where tensors have no gradients. "
                "Call fit outside of it; predictions may stay inside."
            )
        spec = cls(type(estimator), **_read(estimator.get_params(deep=False)))
        spec = replace(
            spec, score_budget_fraction=SCORE_BUDGET_FRACTIONS.get(estimator, 0.0), **facts
        )
        has_groups = spec.has_groups or bool(spec.groups.columns)
        has_persons = spec.has_persons or spec.persons.column is not None
        spec = replace(spec, has_groups=has_groups, has_persons=has_persons)
        spec.check(CONFLICTS)
        return spec

    def without_choices(self) -> Self:
        """Return what a fit is to do if nobody sets a parameter.

        A subclass that has another default than the class that has the parameter first sets it.
        """
        kinds = [kind for kind in self.estimator.__mro__ if issubclass(kind, BaseEstimator)]
        parameters = [p for kind in kinds for p in signature(kind).parameters.values()]
        defaults = {p.name: p.default for p in parameters if p.default is not p.empty}
        return type(self)(self.estimator, **_read(defaults))

    def check(self, conflicts: list[Conflict]) -> None:
        """Raise ValueError on the first conflict that is there."""
        for is_met, message in conflicts:
            if is_met(self):
                raise ValueError(message.format_map(_words(self)))

    @property
    def is_private(self) -> bool:
        """Whether noise and clipping are to protect the records."""
        return self.method.private and (self.epsilon, self.noise_multiplier) != (None, None)

    @property
    def is_regression(self) -> bool:
        """Whether targets are numbers."""
        return self.loss is not None

    @property
    def recorders(self) -> list[Callback]:
        """Callbacks that keep what is not private."""
        return recorders(self.callbacks)

    def check_data(self, classes: Collection[Any] | None, n_groups: int) -> None:
        """Raise ValueError for classes that are not there, or that the method has no formula for.

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
    return {f.name: safe_repr(getattr(spec, f.name)) for f in fields(spec)} | {
        "method": safe_repr(spec.method.name),
        "alternative": safe_repr(spec.method.private_alternative),
        "optimizer": safe_repr(spec.optimizer.make),
        "own_lr": safe_repr(spec.optimizer.params.get("lr")),
        "recorder": ", ".join(type(r).__name__ for r in spec.recorders),
        "n_views": spec.views.n if spec.views else 1,
    }


def _sets_rates(spec: FitSpec) -> bool:
    """Tell whether a callback or the optimizer sets learning rates of its own."""
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
        lambda s: s.is_regression and s.method.binary,
        "method={method} is defined for two classes, and a regression has none. Use a method for "
        'groups such as "dpsgd_f", or "global_adapt".',
    ),
    (
        lambda s: s.is_regression and TARGET in as_columns(s.groups),
        "group_col='target' takes the classes as groups, and a regression has none. Name a column "
        "of X, or pass fit(..., sensitive_features=...).",
    ),
    (
        lambda s: s.is_regression and s.y_range is None and s.warm_start,
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
        lambda s: s.is_regression and any(getattr(r, "terms", False) for r in s.recorders),
        "callbacks holds {recorder}, whose terms are those of classes. Set terms=False, which "
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
    """Return the fields of a spec from an estimator's parameters, each checked by itself."""
    out = {k: check_parameter(k, v, CONSTRAINTS[k]) for k, v in params.items() if k in CONSTRAINTS}
    out["method"] = method = get_method(params["method"])
    method._validate_params()
    out["groups"], out["persons"] = Groups.of(params["group_col"]), Persons.of(params["persons"])
    out["module"], out["optimizer"] = network_of(params["module"]), optimizer_of(out["optimizer"])
    out["has_auto_optimizer"] = is_auto(getattr(params["optimizer"], "make", params["optimizer"]))
    if is_auto(out["lr"]) and "lr" in out["optimizer"].params:
        rest = dict(out["optimizer"].params)
        out["lr"] = check_parameter("lr", rest.pop("lr"), CONSTRAINTS["lr"], " of optimizer")
        out["optimizer"] = Factory(out["optimizer"].make, **rest)
    if isinstance(out["module"], Factory):
        _check_takes(out["module"].make, "module must take its arguments", **out["module"].params)
    out["views"] = Views.of(out.pop("augment"))
    if out["views"] is not None:
        _check_function("augment", out["views"].augment, "FlipAndShift() or a callable x -> x", 1)
    used_device(out["device"])
    if params.get("class_weight") is not None:
        out["class_weight"] = _class_weight(params["class_weight"])
    if params.get("classes") is not None:
        out["classes"] = listed("classes", params["classes"], "values or None")
    if params.get("y_range") is not None:
        out["y_range"] = target.range_of(params["y_range"])
    pair = out["validation_data"] = params.get("validation_data")
    if pair is not None and not (isinstance(pair, (tuple, list)) and len(pair) == 2):
        raise TypeError(f"validation_data must be a pair (X, y) or None, got {outline(pair)}.")
    if out.get("attack") is not None:
        wanted = "PGD(radius, step_size, n_steps) or a callable (module, x, y) -> x"
        _check_function("attack", out["attack"], wanted, 3)
    _check_callbacks(out, pair is not None)
    known = {"group_col", "augment", "pos_label", *(f.name for f in fields(FitSpec))}
    out["own"] = {name: value for name, value in params.items() if name not in known}
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


def _refuse_unseen(callback: Any, public: bool, private: bool) -> None:
    """Refuse a callback that asks for what a fit does not compute, before a step is spent."""
    if isinstance(callback, type):
        # skorch makes it, likewise without arguments
        with suppress(TypeError):
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
    # rows that a fit exposes are scored at the end of an epoch, by predictions of their own
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


def _check_callbacks(params: dict[str, Any], public: bool) -> None:
    """Refuse what are no skorch callbacks, nor pairs of a name and one."""
    names = set()
    budget = params["epsilon"], params["noise_multiplier"]
    is_private = params["method"].private and budget != (None, None)
    is_private = is_private and not recorders(params["callbacks"])
    for entry in params["callbacks"] or ():
        named = isinstance(entry, tuple) and len(entry) == 2 and isinstance(entry[0], str)
        callback = entry[1] if named else entry
        kind = callback if isinstance(callback, type) else type(callback)
        if issubclass(kind, PrivacyLedger):
            raise TypeError(
                "callbacks holds a PrivacyLedger, but takes those of skorch. Open the ledger "
                "around the fit, `with ledger: ...`."
            )
        if not issubclass(kind, Callback):
            raise TypeError(
                "callbacks must hold skorch callbacks or pairs (name, callback), got "
                f"{safe_repr(entry)}."
            )
        if named and entry[0] in names:
            raise ValueError(f"callbacks names two {safe_repr(entry[0])}. Name each once.")
        _refuse_unseen(callback, public, is_private)
        names |= {entry[0]} if named else set()


def _check_function(name: str, function: Any, wanted: str, n_arguments: int) -> None:
    """Refuse a class, a module, or a callable that cannot take so many arguments."""
    wanted = f"{name} must be None, {wanted}"
    if isinstance(function, (type, nn.Module)):
        raise TypeError(f"{wanted}, got {safe_repr(function)}.")
    _check_takes(function, wanted, *[None] * n_arguments)


def _check_takes(function: Any, wanted: str, *arguments: Any, **keywords: Any) -> None:
    """Refuse a callable that cannot take some arguments."""
    try:
        takes = signature(function)
    except (TypeError, ValueError):
        # some functions written in C do not tell
        return
    try:
        takes.bind(*arguments, **keywords)
    except TypeError as error:
        raise TypeError(f"{wanted}, got {safe_repr(function)}: {error}.") from None
