"""The vocabulary of a private step.  Read this page first.

Every method in this package is one sentence::

    sample a batch -> one gradient per record -> one weight per record
    -> weighted sum + Gaussian noise -> optimizer step

and a :class:`Method` says only what is its own in that sentence.  Two rules keep it
private by construction:

* what sees raw records (``queries``, ``clip``) keeps nothing;
* what keeps something (``update``) sees released, i.e. noised, values only.

A step runs: norms -> noisy queries (``release``) -> ``clip`` -> noisy gradient -> ``update``.
A method may change the gradients first: early queries -> ``extra`` -> norms, and so on.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import torch
from torch import Tensor

from skdpfair._registry import METHODS as METHODS
from skdpfair._registry import Registered

State: TypeAlias = Any
Release: TypeAlias = Mapping[str, Tensor]
Params: TypeAlias = Mapping[str, Tensor]


@dataclass(frozen=True)
class Task:
    """What is public about a training run before its first step.

    Parameters
    ----------
    n_samples : int
        Number of records.
    n_groups : int
        Number of groups, 1 if the run has none.
    sample_rate : float
        Probability, in (0, 1], with which a record enters a batch.
    group_fractions : Tensor of shape (n_groups,) or None
        Share of each group, declared by the user or released with noise, never counted.

    Examples
    --------
    >>> facts = Task(n_samples=1000, n_groups=2, sample_rate=0.1)
    >>> facts.n_samples * facts.sample_rate  # records in a batch, in the mean
    100.0
    """

    n_samples: int
    n_groups: int
    sample_rate: float
    group_fractions: Tensor | None = None


@dataclass(frozen=True)
class PerSample:
    """What a method may know of each record of the batch; private, never kept.

    Parameters
    ----------
    norm : Tensor of shape (batch,)
        L2 norm of the record's gradient over all trainable parameters.
    loss : Tensor of shape (batch,)
        Cross-entropy of the record.
    group : Tensor of shape (batch,), int64
        Code of the record's group, in 0..n_groups-1.
    probability : Tensor of shape (batch, n_classes)
        Predicted class probabilities.

    Examples
    --------
    >>> from skdpfair.testing import per_sample
    >>> sample = per_sample(norm=[4.0, 0.5, 3.0], group=[0, 1, 1])
    >>> sample.norm[sample.group == 1]
    tensor([0.5000, 3.0000])
    """

    norm: Tensor
    loss: Tensor
    group: Tensor
    probability: Tensor


@dataclass(frozen=True)
class PerSampleGradients(PerSample):
    """The same with each gradient (batch, n_parameters), for methods that ask for them.

    Examples
    --------
    >>> from skdpfair.testing import per_sample, with_gradients
    >>> sample = with_gradients(per_sample(norm=[4.0, 0.5]), n_parameters=3)
    >>> sample.gradient.shape, torch.allclose(sample.gradient.norm(dim=1), sample.norm)
    (torch.Size([2, 3]), True)
    """

    gradient: Tensor


@dataclass(frozen=True)
class Query:
    """A statistic released every step: a noisy sum of norm-bounded rows.

    The engine adds the noise, the accountant charges for it, and both read the same
    ``noise_multiplier``, so that noise and ledger cannot disagree.

    Parameters
    ----------
    name : str
        Key of the noisy sum in ``release``.
    rows : callable ``(PerSample, State) -> Tensor of shape (batch, d)``
        One row per record; a row may depend on its own record only.
    sensitivity : float
        Largest L2 norm of a row.
    noise_multiplier : float
        Standard deviation of the noise, divided by ``sensitivity``.
    early : bool
        Whether it is asked before :meth:`Method.extra`; norms are then those of the plain
        gradients if the method sees gradients, else unknown (NaN).

    Examples
    --------
    >>> from skdpfair.testing import per_sample
    >>> long = Query("long", lambda s, state: (s.norm > 1.0).float()[:, None], 1.0, 5.0)
    >>> long.rows(per_sample(norm=[4.0, 0.5]), None).tolist()  # their sum plus noise is a count
    [[1.0], [0.0]]
    """

    name: str
    rows: Callable[[PerSample, State], Tensor]
    sensitivity: float
    noise_multiplier: float
    early: bool = False


@dataclass(frozen=True)
class Extra:
    """What is added to each record's gradient before it is measured and clipped.

    Parameters
    ----------
    logit_gradient : Tensor of shape (batch, n_classes)
        Gradient in the logits of a loss that is added to the record's.
    hvp_vectors : Tensor of shape (batch, n_parameters) or None
        Vectors that the Hessian of the record's own loss is applied to.
    averaged : bool
        Whether each record gets the mean over the batch; no method that does is private.

    Examples
    --------
    >>> probability = torch.tensor([[0.75, 0.25]])
    >>> Extra(logit_gradient=probability - 0.5).logit_gradient
    tensor([[ 0.2500, -0.2500]])
    """

    logit_gradient: Tensor
    hvp_vectors: Tensor | None = None
    averaged: bool = False


@dataclass(frozen=True)
class Clip:
    """One weight per record, and the L2 norm that no weighted gradient exceeds.

    Parameters
    ----------
    weight : Tensor of shape (batch,)
        Factor of each record's gradient in the sum.
    bound : Tensor, 0-d
        Sensitivity of the sum; its noise is ``noise_multiplier * bound``.

    Examples
    --------
    >>> norm = torch.tensor([4.0, 0.5])
    >>> Clip(weight=(1.0 / norm).clamp(max=1.0), bound=torch.tensor(1.0))
    Clip(weight=tensor([0.2500, 1.0000]), bound=tensor(1.))
    """

    weight: Tensor
    bound: Tensor


class Method(Registered, abc.ABC):
    """How one algorithm departs from DP-SGD.  Only :meth:`clip` is compulsory.

    A concrete method is a keyword-only dataclass whose fields are its hyper-parameters,
    hence scikit-learn parameters; it is final: vary it by a new file, not by a subclass.
    The hooks are listed in the order in which a step calls them.  A field may be
    ``"auto"``: the estimator fills it from public facts or from released values, and a
    method on its own takes the number that its docstring states.

    Examples
    --------
    >>> from skdpfair.testing import per_sample
    >>> class Normalised(Method):  # one with name="normalised" would be in METHODS
    ...     def clip(self, sample, state, release):
    ...         return Clip(1.0 / (sample.norm + 1.0), torch.tensor(1.0))
    >>> Normalised().clip(per_sample(norm=[4.0, 1.0]), None, {})
    Clip(weight=tensor([0.2000, 0.5000]), bound=tensor(1.))
    """

    def start(self, task: Task) -> State:
        """Return the state before the first step."""
        return None

    def rates(self, task: Task) -> Tensor:
        """Return the Poisson sampling rate of each group, shape (n_groups,), float64."""
        return torch.full((task.n_groups,), task.sample_rate, dtype=torch.float64)

    def queries(self, task: Task, noise_multiplier: float) -> tuple[Query, ...]:
        """Return the statistics to release each step besides the gradient."""
        return ()

    def parameter_perturbation(self, state: State) -> Tensor | None:
        """Return by what flat vector to move the parameters while gradients are taken."""
        return None

    def per_sample_perturbation_radius(self) -> float:
        """Return how far along its own gradient each record's gradient is taken; 0 for here."""
        return 0.0

    def sees_gradients(self) -> bool:
        """Tell whether early queries need :class:`PerSampleGradients`, which take memory."""
        return False

    def extra(self, sample: PerSample, state: State, release: Release) -> Extra | None:
        """Return what to add to each record's gradient, from ITS data and early releases."""
        return None

    def refusal(self, task: Task, n_parameters: int) -> str | None:
        """Return why the method cannot train so many parameters on such a task, or None."""
        if self.binary and task.n_groups != 2:
            return f"it is defined for two groups, and there are {task.n_groups}"
        return None

    @abc.abstractmethod
    def clip(self, sample: PerSample, state: State, release: Release) -> Clip:
        """Weigh each record by its OWN norm, loss, group, and by what is released."""

    def update(self, state: State, release: Release) -> State:
        """Return the next state, from released values; "gradient" lies in memory used again."""
        return state

    def project(self, params: Params, state: State) -> Params:
        """Map the parameters back to the feasible set after the optimizer step."""
        return params

    def step_size(self, t: int) -> float:
        """Return the factor of the learning rate at step ``t``, counted from 0."""
        return 1.0

    def at_scale(self, scale: float, headroom: float) -> tuple[Method, float]:
        """Return the method with its clipping bounds set, and its unit learning rate.

        Parameters
        ----------
        scale : float
            Released estimate of a high quantile of the gradient norms.
        headroom : float
            Factor by which norms are expected to grow from the initial weights.

        Returns
        -------
        method : Method
            A copy whose bounds left at ``"auto"`` are set.
        unit_lr : float
            Learning rate that moves a logit of a typical record by about 1 a step.
        """
        method = self.filled(max_grad_norm=headroom * scale)
        return method, method.max_grad_norm**-2


def count_noise(value: float | str, noise_multiplier: float) -> float:
    """Return the noise multiplier of a count; ``"auto"`` is 5 times the gradient's.

    Examples
    --------
    >>> count_noise("auto", 1.5), count_noise(10.0, 1.5)
    (7.5, 10.0)
    """
    return 5.0 * noise_multiplier if value == "auto" else float(value)


@dataclass(frozen=True)
class Mechanism:
    """A method bound to a task and a noise level: all that one step needs, or costs.

    The engine reads it to add noise, the accountant to charge for that noise.

    Parameters
    ----------
    method : Method
        The algorithm.
    task : Task
        The public facts.
    noise_multiplier : float
        Noise standard deviation of the gradient sum divided by its sensitivity; 0 for none.

    Examples
    --------
    >>> from skdpfair import get_method
    >>> from skdpfair.testing import task
    >>> Mechanism(get_method("global_adapt"), task(), noise_multiplier=1.0).noise_multipliers
    (1.0, 5.0)
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
        """What is released each step besides the gradient."""
        return self.method.queries(self.task, self.noise_multiplier)

    @property
    def max_sample_rate(self) -> float:
        """Largest sampling rate of any record, in (0, 1]: the one to account for."""
        return float(self.rates.max())

    @cached_property
    def expected_batch_size(self) -> float:
        """Mean size of a Poisson batch: the public denominator of gradient and counts."""
        if self.task.group_fractions is None:
            if bool((self.rates != self.rates[0]).any()):
                raise ValueError("Rates that differ by group need Task.group_fractions.")
            return self.task.n_samples * float(self.rates[0])
        return self.task.n_samples * float((self.rates * self.task.group_fractions).sum())

    @property
    def noise_multipliers(self) -> tuple[float, ...]:
        """Noise multiplier of the gradient, then of each query."""
        return (self.noise_multiplier, *(q.noise_multiplier for q in self.queries))
