"""What clipping does to a gradient, without noise: Knolle et al., Xu et al., Esipova et al."""

import copy
import math
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch

from skdpfair import get_method
from skdpfair.analysis._clipped_step import noiseless, weighed
from skdpfair.analysis._problem import of_tensors
from skdpfair.engine import Batch, PoissonSampler, Streams
from skdpfair.engine.flat import split
from skdpfair.engine.mechanism import Mechanism, Task
from skdpfair.training.batches import records_at


@dataclass(frozen=True)
class GradientBias:
    r"""The bias of a method's gradient: :math:`\bar g_B - g_B = (a - 1) g_B + c`.

    ``norm`` is its length, ``magnitude`` is a, ``direction`` the length of c, which is orthogonal
    to the reference :math:`g_B`, and ``cosine`` is of the angle between the two gradients.
    """

    norm: float
    magnitude: float
    direction: float
    cosine: float
    gradient_norm: float
    reference_norm: float


def problem_of(module, x, y, groups=None):
    """Return the problem of a copy of a module in evaluation mode, on arrays."""
    module = copy.deepcopy(module).eval()
    like = next(p for p in module.parameters() if p.requires_grad)
    x, y = torch.as_tensor(x).to(like.device, like.dtype), torch.as_tensor(y).to(like.device)
    levels, code = (None, np.zeros(len(x), np.int64))
    if groups is not None:
        levels, code = np.unique(groups, return_inverse=True)
        levels = levels.tolist()
    with torch.no_grad():
        n_classes = module(x[:1]).shape[1]
    group = torch.from_numpy(code).to(like.device)
    return of_tensors(module, Batch(x, y, group), n_classes, levels)


def gradient_bias(module, x, y, method, *, state=None, reference="batch") -> GradientBias:
    """Return the bias of a method's gradient on one batch: Lemma 1 and Theorem 1 of Knolle et al.

    The ``reference`` is the mean gradient at the module's parameters ("batch"), or the mean of the
    method's own gradients before they are clipped ("unclipped"), which may be at other parameters.

    Examples
    --------
    Two records have gradients of norm 0.7 and 1.4.  Clipping to 1 shortens the second:

    >>> module = torch.nn.Linear(2, 2, bias=False)
    >>> _ = torch.nn.init.zeros_(module.weight)
    >>> x, y = np.array([[1.0, 0.0], [0.0, 2.0]]), np.array([0, 1])
    >>> bias = gradient_bias(module, x, y, get_method("dpsgd", max_grad_norm=1.0))
    >>> round(bias.norm, 3), round(bias.magnitude, 3), round(bias.cosine, 3)
    (0.207, 0.766, 0.988)
    """
    problem = problem_of(module, x, y)
    mechanism = noiseless(Mechanism(method, Task(len(problem.batch), 1, 1.0), 0.0))
    state = method.start(mechanism.task) if state is None else state
    noise = Streams.seeded(0, digest=bytes(32)).noise(problem.batch.x.device)
    with problem.strategy() as strategy:
        step = weighed(strategy, problem.batch, mechanism, state, noise, problem.chunk)
    plain = step.plain if reference == "batch" else step.unclipped
    gradient, plain = step.gradient.double(), plain.double()
    norm, length = torch.linalg.vector_norm(gradient), torch.linalg.vector_norm(plain)
    product = gradient @ plain
    magnitude = product / length**2
    parts = torch.linalg.vector_norm(gradient - plain), magnitude
    parts += torch.linalg.vector_norm(gradient - magnitude * plain), product / (norm * length)
    return GradientBias(*map(float, (*parts, norm, length)))


def clipping_error_bound(module, x, y, groups, max_grad_norm, *, epsilon, batch_size):
    r"""Bound each group's expected error of the clipped and noisy mean gradient.

    This is equation 1 of Xu et al., with the mean bias of a batch, for the :math:`b_k = b n_k / n`
    records of group k in a batch of b, and Laplace noise of mean absolute value
    :math:`C / \epsilon` on the sum (of Gaussian noise on d parameters, the mean norm is at most
    :math:`C \sigma \sqrt d`, so that :math:`\epsilon = 1 / (\sigma \sqrt d)`):

    .. math::
        E |\tilde G_k - G_k| \le \frac{C}{b_k \epsilon}
            + \frac{1}{n_k} \sum_i \max(0, \|g_i\| - C).

    The best C is the :math:`1 - 1 / (b_k \epsilon)` quantile of the group's norms (Amin et al.,
    "Bounding User Contributions", ICML 2019), 0 if that is below 0.  The paper also prints half of
    the sum as a lower bound: this holds only if all gradients have one direction.

    Examples
    --------
    Gradients of norm 1, 2, 3 and 5:

    >>> module = torch.nn.Linear(1, 2, bias=False)
    >>> _ = torch.nn.init.zeros_(module.weight)
    >>> x = np.sqrt(2.0) * np.array([[1.0], [2.0], [3.0], [5.0]])
    >>> table = clipping_error_bound(
    ...     module, x, np.array([0, 1, 0, 1]), ["a", "a", "b", "b"], 2.0, epsilon=0.5, batch_size=4)
    >>> table[["noise", "bias", "best_max_grad_norm"]].round(3).to_numpy().tolist()
    [[2.0, 0.0, 1.0], [2.0, 2.0, 3.0]]
    """
    problem = problem_of(copy.deepcopy(module).double(), x, y, groups)
    rank, rows = len(problem.batch) / (batch_size * epsilon), []
    with problem.strategy() as strategy:
        for part in problem.by_group:
            chunks = [strategy.per_sample_gradients(chunk).norm for chunk in part.chunks()]
            norms = np.sort(torch.cat(chunks).cpu().numpy())
            n = len(norms)
            best = norms[-math.ceil(rank)] if rank <= n else 0.0
            (noise, bias), least = (
                (c * rank / n, np.maximum(norms - c, 0.0).mean()) for c in (max_grad_norm, best)
            )
            row = {"noise": noise, "bias": bias, "bound": noise + bias}
            row |= {"quantile": max(0.0, 1 - rank / n), "best_max_grad_norm": best}
            rows.append(row | {"best_bound": sum(least)})
    return pd.DataFrame(rows, index=problem.index)


def train_with_error(module, x, y, groups, *, error, lr, bound, n_epochs, batch_size=256, seed=0):
    r"""Train by DP-SGD without noise, with one error of clipping: Table 1 of Esipova et al.

    With the batch's mean gradient g and the clipped :math:`\bar g`, the step is g ("none"),
    :math:`\frac{\|\bar g\|}{\|g\|} g` ("magnitude"), :math:`\frac{\|g\|}{\|\bar g\|} \bar g`
    ("direction"), or :math:`\bar g` ("both").  Return a trained copy of the module, and each
    group's mean loss before each step, averaged over the batches of the last epoch.
    """
    problem = problem_of(module, x, y, groups)
    records, rng = problem.batch, np.random.default_rng(seed)
    per_epoch = -(-len(records) // batch_size)
    task = Task(len(records), problem.n_groups, 1 / per_epoch)
    mechanism = noiseless(Mechanism(get_method("dpsgd", max_grad_norm=bound), task, 0.0))
    noise = Streams.seeded(int(rng.integers(2**63)), digest=bytes(32)).noise(records.x.device)
    sampler = PoissonSampler(1 / per_epoch, len(records), rng)
    losses = []
    with problem.strategy() as strategy, torch.no_grad():
        for epoch in range(n_epochs):
            for index in sampler.draw(per_epoch):
                batch = records_at(records, index.to(records.y.device))
                if epoch == n_epochs - 1:
                    values = pd.Series(problem.loss(batch).cpu().numpy())
                    losses.append(values.groupby(batch.group.cpu().numpy()).mean())
                step = weighed(strategy, batch, mechanism, None, noise, problem.chunk)
                parts = split(_with_error(step, error), problem.parameters)
                for p, part in zip(problem.parameters, parts, strict=True):
                    p.sub_(part, alpha=lr)
    means = pd.concat(losses, axis=1).mean(axis=1)
    return problem.module, means.rename(index=dict(enumerate(problem.levels)))


def _with_error(step, error):
    """Return the step that has the error, from those without clipping and with it."""
    if error in ("none", "both"):
        return step.plain if error == "none" else step.gradient
    plain, clipped = (torch.linalg.vector_norm(v) for v in (step.plain, step.gradient))
    if plain == 0 or clipped == 0:
        return torch.zeros_like(step.plain)
    if error == "magnitude":
        return step.plain * (clipped / plain)
    return step.gradient * (plain / clipped)
