"""Training with one error of clipping at a time, of direction or of magnitude."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch

from skdpfair import _validate
from skdpfair.analysis._mechanisms import as_numbers_of, noiseless, weighed
from skdpfair.analysis._problem import problem
from skdpfair.engine import PoissonSampler, Streams
from skdpfair.engine.flat import split
from skdpfair.mechanism import Mechanism, Task
from skdpfair.methods import get_method
from skdpfair.training.schedule import record_rates

ERRORS = ("none", "magnitude", "direction", "both")


@dataclass(frozen=True)
class ErrorRun:
    """A module trained with one error of clipping.

    Parameters
    ----------
    module : torch.nn.Module
        The trained module; NOT private.
    losses : pandas.DataFrame
        Index group; ``loss`` is the group's mean loss before each step, averaged over the batches
        of the last epoch.

    Examples
    --------
    >>> x = np.random.default_rng(0).normal(size=(200, 3)).astype(np.float32)
    >>> y, groups = (x[:, 0] > 0).astype(int), ["a", "b"] * 100
    >>> run = train_with_error(torch.nn.Linear(3, 2), x, y, error="none", lr=1.0, n_epochs=5,
    ...                        batch_size=20, sensitive_features=groups)
    >>> run.losses.index.tolist(), bool((run.losses["loss"] < 0.6).all())
    (['a', 'b'], True)
    """

    module: torch.nn.Module
    losses: pd.DataFrame


def train_with_error(
    module,
    X,
    y,
    method="dpsgd",
    *,
    error,
    lr,
    n_epochs,
    batch_size=256,
    sensitive_features=None,
    chunk_size="auto",
    random_state=None,
) -> ErrorRun:
    r"""Train with gradient steps that have one of the two errors of clipping; NOT private.

    Parameters
    ----------
    module : torch.nn.Module
        Maps (batch, ...) to logits (batch, n_classes); a copy is trained, in the same dtype.
    X : array of shape (n_samples, ...)
        Training data.
    y : array of shape (n_samples,)
        Class codes.
    method : str or Method, default="dpsgd"
        The method whose clipping causes the errors; its noise is left out.
    error : {"none", "magnitude", "direction", "both"}
        With the batch's mean gradient g and the clipped :math:`\bar g`, the step is g,
        :math:`\frac{\|\bar g\|}{\|g\|} g`, :math:`\frac{\|g\|}{\|\bar g\|} \bar g`, or
        :math:`\bar g`, respectively.
    lr : float
        Learning rate of plain SGD.
    n_epochs : int
        Number of passes over the data, each of ceil(n / batch_size) steps.
    batch_size : int, default=256
        Expected size of the Poisson batches.
    sensitive_features : array-like of shape (n_samples,), optional
        The groups whose losses are returned.
    chunk_size : int or "auto", default="auto"
        Number of records held in memory at once.
    random_state : int, numpy.random.Generator or None, default=None
        Seed of the batches.  Training starts from the module's weights, so runs can be paired.

    Returns
    -------
    ErrorRun

    Raises
    ------
    ValueError, TypeError
        If an argument cannot be used.

    References
    ----------
    Esipova et al., ICLR 2023, Table 1 and Appendix B.4.

    Examples
    --------
    >>> import numpy as np, torch
    >>> from skdpfair import get_method
    >>> from skdpfair.analysis import train_with_error
    >>> x = np.random.default_rng(0).normal(size=(200, 3)).astype(np.float32)
    >>> run = train_with_error(torch.nn.Linear(3, 2), x, (x[:, 0] > 0).astype(int),
    ...                        get_method("dpsgd", max_grad_norm=0.1), error="direction", lr=1.0,
    ...                        n_epochs=5, batch_size=20, random_state=0)
    >>> bool(run.losses.loc["all", "loss"] < 0.4)
    True
    """
    error = _validate.one_of("error", error, ERRORS)
    lr = _validate.number("lr", lr, low=0, low_open=True)
    n_epochs = _validate.integer("n_epochs", n_epochs)
    rng = _validate.generator("random_state", random_state)
    found = problem(
        module, X, y, sensitive_features=sensitive_features, chunk_size=chunk_size, dtype=None
    )
    per_epoch = -(-len(found.batch) // _validate.integer("batch_size", batch_size))
    shares = found.sizes.double().cpu() / len(found.batch)
    task = Task(len(found.batch), found.n_groups, 1 / per_epoch, shares)
    mechanism = noiseless(Mechanism(get_method(method), task, 0.0))
    noise = Streams.seeded(int(rng.integers(2**63)), digest=bytes(32)).noise(found.batch.x.device)
    rates = record_rates(mechanism, found.batch.group.cpu().numpy())
    sampler = PoissonSampler(rates, len(found.batch), rng)
    losses = [[] for _ in found.levels]
    state = as_numbers_of(found.parameters[0], mechanism.method.start(task))
    with found.strategy() as strategy, torch.no_grad():
        for epoch in range(n_epochs):
            for index in sampler.draw(per_epoch):
                batch = found.batch.select(index.to(found.batch.y.device))
                if epoch == n_epochs - 1:
                    _note(found, batch, losses)
                both = weighed(strategy, batch, mechanism, state, noise, found.chunk)
                step = _with_error(both.plain, both.gradient, error)
                state = mechanism.method.update(state, both.release | {"gradient": step})
                for p, part in zip(found.parameters, split(step, found.parameters), strict=True):
                    p.sub_(part, alpha=lr)
    means = [float(np.mean(own)) if own else np.nan for own in losses]
    return ErrorRun(found.module, pd.DataFrame({"loss": means}, index=found.index))


def _note(found, batch, losses):
    """Add the groups' mean losses on a batch."""
    loss = found.loss(batch)
    for k in batch.group.unique().tolist():
        losses[k].append(float(loss[batch.group == k].mean()))


def _with_error(plain, clipped, error):
    """Return the step that has the error, from those without clipping and with it."""
    if error in ("none", "both"):
        return plain if error == "none" else clipped
    length, clipped_length = (torch.linalg.vector_norm(v) for v in (plain, clipped))
    if length == 0 or clipped_length == 0:
        return torch.zeros_like(plain)
    if error == "magnitude":
        return plain * (clipped_length / length)
    return clipped * (length / clipped_length)
