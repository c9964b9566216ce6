"""The vocabulary of a private step.  Read this page first.

Every method in this package is one sentence::

    sample a batch -> one gradient per record -> one weight per record
    -> weighted sum + Gaussian noise -> optimizer step

and a :class:`Method` defines only its own part of that sentence.  Two rules make it
private by construction:

* hooks that read raw records (``queries``, ``clip``) keep no state;
* the hook that keeps state (``update``) reads only released, noisy values.

A step runs: norms -> noisy queries (``release``) -> ``clip`` -> noisy gradient -> ``update``.
A method may change the gradients first: early queries -> ``gradient_term`` -> norms, and so on.
"""

from __future__ import annotations

import abc
import inspect
import re
from collections import ChainMap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from numbers import Real
from typing import Any, ClassVar, Self, TypeAlias

import torch
from sklearn.base import clone
from sklearn.utils._param_validation import Interval, InvalidParameterError, StrOptions
from torch import Tensor

from skdpfair._utils.validate import (
    LARGE,
    SMALL,
    Parametrised,
    check_parameter,
    is_auto,
    safe_repr,
)
from skdpfair.engine.record_hooks import RecordHooks
from skdpfair.privacy.releases import NoisyRelease

State: TypeAlias = Any
NoisySums: TypeAlias = Mapping[str, Tensor]
Params: TypeAlias = Mapping[str, Tensor]
# a PerSample; a PerSampleGradients where the method sees gradients
EarlySample: TypeAlias = Any

METHODS: dict[str, type[Method]] = {}
# noise multiplier of a count over that of the gradient sum, by default
COUNT_NOISE = 5.0
_POSITIVE_OR_AUTO = [Interval(Real, 0, None, closed="neither"), StrOptions({"auto"})]


@dataclass(frozen=True)
class Task:
    """Public facts about a fit before its first step.

    Parameters
    ----------
    n_samples : int
        Number of records.
    n_groups : int
        Number of groups, 1 if the fit has none.
    sample_rate : float
        Probability, in (0, 1], that a record is in a batch.
    group_fractions : Tensor of shape (n_groups,) or None
        Share of each group, declared by the user or released with noise, never an exact count.
    strata : tuple of (float, float), default=()
        For each of :meth:`Method.rate_choices`, the rate and a factor of all sensitivities, with
        which all rates have the same cost; the largest factor is 1.
    """

    n_samples: int
    n_groups: int
    sample_rate: float
    group_fractions: Tensor | None = None
    strata: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True)
class PerSample:
    """The facts that a method may use about each record of the batch; private and never kept.

    Parameters
    ----------
    norm : Tensor of shape (batch,)
        L2 norm of the record's gradient over all trainable parameters.
    loss : Tensor of shape (batch,)
        Loss of the record: cross-entropy, or that of a regression.
    group : Tensor of shape (batch,), int64
        Code of the record's group, in 0..n_groups-1.
    probability : Tensor of shape (batch, n_classes)
        Predicted class probabilities; of a regression, the prediction, (batch, 1).

    Examples
    --------
    >>> from skdpfair.testing import example_records
    >>> sample = example_records(norm=[4.0, 0.5, 3.0], group=[0, 1, 1])
    >>> sample.norm[sample.group == 1]
    tensor([0.5000, 3.0000])
    """

    norm: Tensor
    loss: Tensor
    group: Tensor
    probability: Tensor


@dataclass(frozen=True)
class PerSampleGradients(PerSample):
    """A `PerSample` with the gradients, for methods that need them.

    Parameters
    ----------
    norm, loss, group, probability : Tensor
        As in :class:`PerSample`.
    gradient : Tensor of shape (batch, n_parameters)
        Gradient of each record over all trainable parameters.
    """

    gradient: Tensor


@dataclass(frozen=True)
class GroupRows:
    """Rows of a query that are zero outside the columns of the record's code, such as its group.

    They are summed by code, for any number of codes.

    Parameters
    ----------
    code : Tensor of shape (batch,), int64
        From 0 to ``n_codes`` - 1.
    n_codes : int
        Number of codes.
    values : Tensor of shape (batch,) or None
        Numbers of the records.  The sum has the count of each code and then, with ``values``, the
        sum of each code's numbers.
    counts : bool, default=True
        Whether the sum has the counts.

    Examples
    --------
    >>> rows = GroupRows(torch.tensor([1, 0, 1]), 3, torch.tensor([5.0, 6.0, 7.0]))
    >>> rows.sum(torch.ones(3)).tolist()
    [1.0, 2.0, 0.0, 6.0, 12.0, 0.0]
    >>> rows.dense(torch.ones(3))[0].tolist()
    [0.0, 1.0, 0.0, 0.0, 5.0, 0.0]
    """

    code: Tensor
    n_codes: int
    values: Tensor | None = None
    counts: bool = True

    def sum(self, weight: Tensor) -> Tensor:
        """Return the weighted sum of the rows; rows of weight 0 may hold any values."""
        total = weight.new_zeros(self.n_codes).index_add_(0, self.code, weight)
        if self.values is None:
            return total
        values = torch.where(weight != 0, weight * self.values, 0.0)
        sums = torch.zeros_like(total).index_add_(0, self.code, values)
        return torch.cat([total, sums]) if self.counts else sums

    def dense(self, weight: Tensor) -> Tensor:
        """Return the weighted rows, shape (batch, length of the sum)."""
        rows = weight.new_zeros((len(weight), self.n_codes))
        rows.scatter_(1, self.code[:, None], weight[:, None])
        if self.values is None:
            return rows
        numbers = rows * self.values[:, None]
        return torch.cat([rows, numbers], 1) if self.counts else numbers


@dataclass(frozen=True)
class Query:
    """A statistic that is released in every step: a noisy sum of norm-bounded rows.

    The engine and the accountant read the same ``noise_multiplier``, so the noise and the ledger
    always agree.

    Parameters
    ----------
    name : str
        Key of the noisy sum in ``release``.
    rows : callable ``(PerSample, State) -> Tensor of shape (batch, d) or GroupRows``
        One row per record, of numbers or of bools; a row may depend only on its own record.
    sensitivity : float
        Largest L2 norm of a row.
    noise_multiplier : float
        Standard deviation of the noise, divided by ``sensitivity``.
    early : bool
        Whether the query runs before :meth:`Method.gradient_term`; norms are then those of the
        plain gradients if the method sees gradients, else unknown (NaN).

    Examples
    --------
    >>> from skdpfair.testing import example_records
    >>> long = Query("long", lambda s, state: (s.norm > 1.0).float()[:, None], 1.0, 5.0)
    >>> long.rows(example_records(norm=[4.0, 0.5]), None).tolist()  # of which a count is the sum
    [[1.0], [0.0]]
    """

    name: str
    rows: Callable[[EarlySample, State], Tensor | GroupRows]
    sensitivity: float
    noise_multiplier: float
    early: bool = False

    def matrix(self, sample: EarlySample, state: State) -> Tensor:
        """Return the rows as a tensor, (batch, d)."""
        rows, ones = self.rows(sample, state), torch.ones_like(sample.norm)
        return (rows.dense(ones) if isinstance(rows, GroupRows) else rows).to(ones.dtype)


@dataclass(frozen=True)
class GradientTerm:
    """The addition to each record's gradient before it is measured and clipped.

    Parameters
    ----------
    logit_gradient : Tensor of shape (batch, n_classes)
        Gradient, with respect to the logits, of a loss that is added to the record's loss.
    hvp_vectors : Tensor of shape (batch, n_parameters) or None
        Vectors to multiply with the Hessian of the record's own loss.
    averaged : bool
        Whether each record gets the mean over the batch; methods that do this are not private.

    Examples
    --------
    >>> probability = torch.tensor([[0.75, 0.25]])
    >>> GradientTerm(logit_gradient=probability - 0.5).logit_gradient
    tensor([[ 0.2500, -0.2500]])
    """

    logit_gradient: Tensor
    hvp_vectors: Tensor | None = None
    averaged: bool = False


@dataclass(frozen=True)
class Clip:
    """One weight per record, and an upper bound on the L2 norm of all weighted gradients.

    Parameters
    ----------
    weight : Tensor of shape (batch,)
        Weight of each record's gradient in the sum.
    bound : Tensor, 0-d, or float
        Sensitivity of the sum; its noise is ``noise_multiplier * bound``.

    Examples
    --------
    >>> norm = torch.tensor([4.0, 0.5])
    >>> Clip(weight=(1.0 / norm).clamp(max=1.0), bound=1.0)
    Clip(weight=tensor([0.2500, 1.0000]), bound=tensor(1.))
    """

    weight: Tensor
    bound: Tensor

    def __post_init__(self) -> None:
        if not isinstance(self.bound, Tensor):
            object.__setattr__(self, "bound", self.weight.new_full((), self.bound))


class Method(Parametrised, abc.ABC):
    """One algorithm, defined by its differences from DP-SGD.  Only :meth:`clip` is required.

    A concrete method is a keyword-only dataclass whose fields are its hyper-parameters, and
    therefore scikit-learn parameters.  It is final: write a variant in a new file, not as a
    subclass.  The class body sets facts about all objects, such as ``private = False``, and
    ``_parameter_constraints`` of parameters that are not a number > 0 or "auto".  It need not
    repeat parameters that a base class describes and constrains.

    A parameter may be ``"auto"``: the estimator sets it from public facts or from released
    values, and a method without an estimator uses the number that its docstring states.

    ``class Mine(Method, name="mine", reference="key")`` is registered in ``METHODS`` under its
    name.  A class without ``name`` is not registered, and has the name of the class.
    ``reference`` is a key of the bibliography; without it, the paper is the first entry of the
    docstring's References.

    Attributes
    ----------
    private, takes_noise : bool
        Whether a fit has a finite epsilon, and whether it takes a ``noise_multiplier``; default
        True.  A class that sets only ``private`` sets both.
    needs_groups, needs_group_fractions, binary : bool
        Whether records must have groups, whether ``Task.group_fractions`` must be known, and
        whether the method is only for two classes and two groups; default False.
    takes_persons : bool
        Whether records may be persons with several records; default True.
    sees_gradients : bool
        Whether the samples of early queries and of :meth:`gradient_term` are
        :class:`PerSampleGradients`, which take memory; default False.
    changes_gradients : bool
        Whether :meth:`gradient_term` is called, which takes a pass for early samples; default True
        for a class that defines it.
    scale_fields : tuple of str
        Parameters that :meth:`at_scale` sets, default ``("max_grad_norm",)``; if one is "auto", a
        fit begins with a warm-up that releases the gradient scale.
    needs_gradient_scale : bool
        Whether ``lr="auto"`` needs that warm-up for all parameters; default False.
    logit_scales : tuple of two floats
        Factors of the logits in predictions of a default fit, for two classes and for more; default
        (0.85, 1), because clipping makes the logits of two classes too large.
    gradient_noise : float
        Standard deviation of the noise on the mean gradient, for methods without other noise;
        default 0.
    private_alternative : str
        Name of the private method that errors recommend instead of a method that is not private;
        default "dpsgd".

    Notes
    -----
    The hooks are listed in the order in which a step calls them.  They share these arguments:

    task : Task
        Public facts about the fit.
    sample : PerSample
        The records of the batch; private, and possibly empty.
    state : Tensor, tuple of Tensor or None
        What :meth:`start` or the last :meth:`update` returned, on the device of the fit.
    release : dict of str to Tensor
        The noisy sum of each query; in :meth:`gradient_term`, of early queries only.

    Examples
    --------
    >>> from skdpfair.testing import example_records
    >>> class Normalised(Method):  # one with name="normalised" would be in METHODS
    ...     def clip(self, sample, state, release):
    ...         return Clip(1.0 / (sample.norm + 1.0), torch.tensor(1.0))
    >>> Normalised().clip(example_records(norm=[4.0, 1.0]), None, {})
    Clip(weight=tensor([0.2000, 0.5000]), bound=tensor(1.))
    """

    name: ClassVar[str]
    reference: ClassVar[str] = ""
    private: ClassVar[bool] = True
    takes_noise: ClassVar[bool] = True
    needs_groups: ClassVar[bool] = False
    needs_group_fractions: ClassVar[bool] = False
    binary: ClassVar[bool] = False
    takes_persons: ClassVar[bool] = True
    sees_gradients: ClassVar[bool] = False
    changes_gradients: ClassVar[bool] = False
    scale_fields: ClassVar[tuple[str, ...]] = ("max_grad_norm",)
    logit_scales: ClassVar[tuple[float, float]] = 0.85, 1.0
    needs_gradient_scale: ClassVar[bool] = False
    private_alternative: ClassVar[str] = "dpsgd"
    gradient_noise: float = 0.0
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {}

    def __init_subclass__(cls, *, name: str | None = None, reference: str = "") -> None:
        super().__init_subclass__()
        limits = [vars(base).get("_parameter_constraints", {}) for base in cls.__mro__]
        cls._parameter_constraints = dict(ChainMap(*limits))
        cls.__doc__ = _with_parameters_of_bases(cls)
        if "private" in vars(cls) and "takes_noise" not in vars(cls):
            cls.takes_noise = cls.private
        if "gradient_term" in vars(cls) and "changes_gradients" not in vars(cls):
            cls.changes_gradients = True
        if name is None and (hasattr(cls, "name") or abc.ABC in cls.__bases__):
            # a variant of a method, or a base of several
            return
        cls.name, cls.reference = name or cls.__name__, reference
        if name is None:
            return
        if name in METHODS and METHODS[name].__qualname__ != cls.__qualname__:
            raise ValueError(f"Method name {name!r} is already taken by {METHODS[name]}.")
        METHODS[name] = cls

    def planned(self, target_quantile: float) -> Method:
        """Return the method with the parameters set that follow from public facts.

        ``target_quantile`` is the share of gradient norms that are to exceed a clipping threshold.
        """
        return self

    def start(self, task: Task) -> State:
        """Return the state before the first step."""
        return None

    def rates(self, task: Task) -> Tensor:
        """Return the Poisson sampling rate of each group, shape (n_groups,), float64, in (0, 1].

        The accountant uses the largest.  Where there are `rate_choices`, it only sets the
        expected batch size.
        """
        return torch.full((task.n_groups,), task.sample_rate, dtype=torch.float64)

    def rate_choices(self, task: Task) -> tuple[float, ...]:
        """Return the sampling rates among which groups move from step to step; () for none.

        In its stratum, one of ``task.strata``, a group has a rate and a factor.  Weighted gradients
        of its records are at most as long as the bound of the `Clip` times that factor, and rows of
        queries at most as long as their sensitivity times it.
        """
        return ()

    def stratum(self, state: State) -> Tensor:
        """Return the position of each group's stratum in the next step, (n_groups,), int64."""
        raise NotImplementedError

    def queries(self, task: Task, noise_multiplier: float) -> tuple[Query, ...]:
        """Return the statistics to release in each step in addition to the gradient.

        ``noise_multiplier`` is that of the gradient sum, 0 for none; each query has its own, and
        all are accounted for.
        """
        return ()

    def parameter_perturbation(self, state: State) -> Tensor | None:
        """Return the vector by which parameters are moved to compute gradients; None moves none."""
        return None

    def per_sample_perturbation_radius(self) -> float:
        """Return the distance along its own gradient at which a record's gradient is computed."""
        return 0.0

    def gradient_term(
        self, sample: EarlySample, state: State, release: NoisySums
    ) -> GradientTerm | None:
        """Return the addition to each record's gradient, from ITS data and early releases.

        Parameters
        ----------
        sample, state, release
            As in :meth:`clip`; ``release`` has the noisy sums of the early queries only.

        Returns
        -------
        term : GradientTerm or None
            None adds nothing.
        """
        return None

    def refusal(self, task: Task, n_parameters: int) -> str | None:
        """Return why a task or the number of parameters is refused, as the end of a sentence."""
        if self.binary and task.n_groups != 2:
            return f"it is defined for two groups, and there are {task.n_groups}"
        return None

    @abc.abstractmethod
    def clip(self, sample: PerSample, state: State, release: NoisySums) -> Clip:
        """Weight each record by its OWN norm, loss and group, and by released values.

        The bound, which scales the noise, depends only on ``state`` and ``release``.
        """

    def update(self, state: State, release: NoisySums) -> State:
        """Return the next state, from released values.

        ``release`` has the noisy mean ``"gradient"`` of shape (n_parameters,), too, whose memory is
        reused.
        """
        return state

    def project(self, params: Params, state: State) -> Params:
        """Map the trainable parameters back to the feasible set after the optimizer step."""
        return params

    def step_size(self, t: int) -> float:
        """Return the factor of the learning rate at step t, from 0, without the warm-up.

        If it is not 1, callbacks must not set the rate.
        """
        return 1.0

    def at_scale(
        self, scale: float, norm_growth: float, output_growth: float = 1.0
    ) -> tuple[Method, float]:
        """Return the method with its clipping bounds set, and its unit learning rate.

        That rate changes a logit of a typical record by about 1 per step.  ``scale`` is the
        released estimate of a high quantile of the gradient norms, 1 without a warm-up;
        ``norm_growth`` is the factor by which norms are expected to grow from the initial weights,
        and ``output_growth`` that by which gradients in the outputs can grow, over that of two
        classes, which is smaller for more.
        """
        expected = norm_growth * scale
        method = self.filled(max_grad_norm=expected)
        return method, getattr(method, "max_grad_norm", expected) ** -2

    def filled(self, **values: Any) -> Self:
        """Return a copy in which those of its parameters that are ``"auto"`` have these values."""
        unset = {k: v for k, v in values.items() if self.is_auto(k)}
        copy: Self = clone(self).set_params(**unset)
        return copy

    def is_auto(self, field: str) -> bool:
        """Return whether a parameter exists and is ``"auto"``."""
        return is_auto(getattr(self, field, None))

    def number(self, field: str, default: float) -> float:
        """Return a parameter, or the default in place of ``"auto"``."""
        return default if self.is_auto(field) else getattr(self, field)

    def _validate_params(self) -> None:
        """Refuse parameters out of range; those without a constraint are > 0 or "auto"."""
        of = f" of method {self.name!r}"
        for name, value in self.get_params(deep=False).items():
            allowed = self._parameter_constraints.get(name, _POSITIVE_OR_AUTO)
            builtin = check_parameter(name, value, allowed, of)
            is_number = isinstance(builtin, (int, float)) and builtin != 0
            if is_number and not SMALL <= abs(builtin) <= LARGE:
                raise InvalidParameterError(
                    f"{name}{of} must lie between {SMALL:g} and {LARGE:g}, got "
                    f"{safe_repr(value)}: the squares of other numbers do not fit float32."
                )


def _with_parameters_of_bases(cls: type[Method]) -> str | None:
    """Return the docstring, with the parameters that only those of its bases describe."""
    docstring, *bases = (inspect.cleandoc(c.__doc__ or "") for c in (cls, *cls.__bases__))
    section = re.compile(r"Parameters\n-+\n(.*?)(?=\n\n|\Z)", re.DOTALL)
    texts: dict[str, str] = {}
    for doc in (docstring, *bases):
        for text in re.split(r"\n(?=\S)", match[1] if (match := section.search(doc)) else ""):
            texts.setdefault(text.partition(" :")[0], text)
    parameters = "Parameters\n----------\n" + "\n".join(filter(None, texts.values()))
    if not any(texts):
        return cls.__doc__
    if section.search(docstring):
        return section.sub(lambda _: parameters, docstring)
    return re.sub(r"(?=\n\nReferences\n|\Z)", lambda _: "\n\n" + parameters, docstring, count=1)


@dataclass(frozen=True)
class Mechanism:
    """A method bound to a task and a noise level: the definition of one step and of its cost.

    The engine reads it to add noise, and the accountant reads it to account for that noise.

    Parameters
    ----------
    method : Method
        The algorithm.
    task : Task
        What is public about the fit.
    noise_multiplier : float
        Noise standard deviation of the gradient sum divided by its sensitivity; 0 for none.
    """

    method: Method
    task: Task
    noise_multiplier: float

    @cached_property
    def rates(self) -> Tensor:
        """Sampling rate of each group, shape (n_groups,)."""
        return self.method.rates(self.task)

    @cached_property
    def queries(self) -> tuple[Query, ...]:
        """The statistics that each step releases in addition to the gradient."""
        return self.method.queries(self.task, self.noise_multiplier)

    @cached_property
    def hooks(self) -> RecordHooks:
        """The hooks of the method that see records."""
        return RecordHooks(self)

    @property
    def max_sample_rate(self) -> float:
        """Largest sampling rate of any record, in (0, 1], which the accountant uses."""
        return max((rate for rate, _ in self.task.strata), default=float(self.rates.max()))

    def rates_at(self, state: State) -> Tensor:
        """Return the sampling rate of each group in the next step, shape (n_groups,)."""
        return self._of_strata(state, 0) if self.task.strata else self.rates

    def factors_at(self, state: State) -> Tensor | None:
        """Return the factor of each group's sensitivities in the next step; None for all 1."""
        return self._of_strata(state, 1) if self.task.strata else None

    def _of_strata(self, state: State, column: int) -> Tensor:
        values = torch.tensor(self.task.strata, dtype=torch.float64)[:, column]
        return values[self.method.stratum(state).cpu()]

    @cached_property
    def expected_batch_size(self) -> float:
        """Mean size of a Poisson batch: the public denominator of gradient and counts."""
        if self.task.group_fractions is None:
            if bool((self.rates != self.rates[0]).any()):
                raise ValueError("Rates that differ by group need Task.group_fractions.")
            return self.task.n_samples * float(self.rates[0])
        return self.task.n_samples * float((self.rates * self.task.group_fractions).sum())

    @property
    def release(self) -> NoisyRelease:
        """The release of one step: the gradient and each query, in this order."""
        noise = (self.noise_multiplier, *(q.noise_multiplier for q in self.queries))
        rate, strata = self.max_sample_rate, self.task.strata or None
        return NoisyRelease("gradient sum", rate, noise, strata=strata)
