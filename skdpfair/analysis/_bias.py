"""Bias of the clipped gradient: its length, and its parallel and orthogonal parts."""

from dataclasses import asdict, dataclass

import pandas as pd
import torch
from sklearn.utils.validation import check_is_fitted
from torch import nn

from skdpfair import _validate
from skdpfair.analysis._mechanisms import as_numbers_of, kept_state, noiseless, weighed
from skdpfair.analysis._problem import problem
from skdpfair.engine import PoissonSampler, Streams
from skdpfair.mechanism import Mechanism, Task
from skdpfair.methods import get_method

_SIZES = (32, 128, 512, 2048)


@dataclass(frozen=True)
class GradientBias:
    r"""The bias of a method's gradient on one batch: :math:`\bar g_B - g_B = (a - 1) g_B + c`.

    Parameters
    ----------
    norm : float
        Length of the bias, which combines both parts.
    magnitude : float
        The factor a, the projection of the method's gradient on the reference, in units of the
        reference.  Below 1 the step is too short, which a larger learning rate corrects.
    direction : float
        Length of c, the part orthogonal to the reference, which no learning rate corrects.
    cosine : float
        Cosine of the angle between the two gradients, in [-1, 1].
    gradient_norm, reference_norm : float
        Lengths of the method's mean gradient and of the reference; a value that is divided by a
        length of 0 is NaN.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.random.default_rng(0).normal(size=(200, 3))
    >>> y, method = (x[:, 0] > 0).astype(int), get_method("dpsgd", max_grad_norm=0.1)
    >>> bias = gradient_bias(nn.Linear(3, 2), x, y, method)
    >>> 0.0 < bias.magnitude < 1.0, bias.norm >= bias.direction
    (True, True)
    """

    norm: float
    magnitude: float
    direction: float
    cosine: float
    gradient_norm: float
    reference_norm: float


def gradient_bias(
    model,
    X,
    y,
    method=None,
    *,
    sensitive_features=None,
    state=None,
    reference="batch",
    chunk_size="auto",
) -> GradientBias:
    r"""Measure the bias of a method's gradient on one batch, without noise.

    Noise has mean zero, so the expectation of the private gradient is the sum of the weighted
    gradients over the batch size, and only clipping causes bias.

    Parameters
    ----------
    model, X, y, sensitive_features, chunk_size
        As in `group_gradients`; X and y are the batch.  Only methods that need groups use them.
    method : str, Method or None, default=None
        None uses the estimator's own.  The statistics of the groups that a method releases, such
        as the counts of "dpsgd_f", are those of the batch without noise.
    state : object, default=None
        State of the method between steps, such as the last released gradient of "dp_sat".  None
        uses the initial state, or for the estimator's own method the state after its fit.
    reference : {"batch", "unclipped"}, default="batch"
        The reference of the bias.  "batch" is the mean gradient at the model's parameters, for
        every method.  "unclipped" is the mean of the method's own gradients before they are
        weighted, which isolates clipping.  The two differ only for methods that compute gradients
        at other parameters ("bam", "dp_sat") or add to them ("fairlens_dp").

    Returns
    -------
    GradientBias
        The bias is not private.

    Raises
    ------
    ValueError, TypeError
        If the method needs groups and there are none, or the data do not match the model.

    Notes
    -----
    With weights :math:`w_i` and gradients :math:`g'_i` of the method, :math:`\bar g_B = \frac1l
    \sum_i w_i g'_i`, where l is the number of records, which is also the expected batch size, and
    the reference :math:`g_B = \frac1l \sum_i g_i`, Lemma 1 and Theorem 1 of [knolle2023]_ state

    .. math:: \bar g_B = a g_B + c, \quad a = \langle \bar g_B, g_B \rangle / \|g_B\|^2,
        \quad \|\bar g_B - g_B\|^2 = (a - 1)^2 \|g_B\|^2 + \|c\|^2.

    Lemma 1 is about clipping, so for "bam" the paper's claim has two readings: the bias of its
    step against the gradient of the batch, which includes the perturbation ("batch"), and the
    bias of its clipping ("unclipped").  ``gradient_bias(model, X, y, "dpsgd")`` on the trained
    model shows whether a method reached parameters where clipping causes less bias.

    References
    ----------
    .. [knolle2023] M. Knolle et al., "Bias-Aware Minimisation: Understanding and Mitigating
       Estimator Bias in Private SGD", 2023, Lemma 1 and Appendix C.

    Examples
    --------
    Two records have gradients of norm 0.7 and 1.4.  Clipping to 1 shortens the second:

    >>> import numpy as np, torch
    >>> from skdpfair import get_method
    >>> from skdpfair.analysis import gradient_bias
    >>> module = torch.nn.Linear(2, 2, bias=False)
    >>> _ = torch.nn.init.zeros_(module.weight)
    >>> X, y = np.array([[1.0, 0.0], [0.0, 2.0]]), np.array([0, 1])
    >>> bias = gradient_bias(module, X, y, get_method("dpsgd", max_grad_norm=1.0))
    >>> round(bias.norm, 3), round(bias.magnitude, 3), round(bias.cosine, 3)
    (0.207, 0.766, 0.988)
    >>> gradient_bias(module, X, y, get_method("dpsgd", max_grad_norm=2.0)).norm < 1e-4
    True
    """
    groups = sensitive_features
    found, method, state = _read(model, X, y, method, groups, state, reference, chunk_size)
    with found.strategy() as strategy:
        return _measured(found, strategy, found.batch, method, state, reference)


def bias_by_batch_size(
    model,
    X,
    y,
    method=None,
    *,
    sensitive_features=None,
    batch_sizes=None,
    n_batches=10,
    state=None,
    reference="batch",
    chunk_size="auto",
    random_state=None,
) -> pd.DataFrame:
    """Measure the bias on Poisson batches of several sizes; larger batches have less bias.

    Parameters
    ----------
    model, X, y, method, sensitive_features, state, reference, chunk_size
        As in `gradient_bias`; X and y are the records to draw from.
    batch_sizes : sequence of int or None, default=None
        Expected sizes, at most the number of records; None uses the sizes 32, 128, 512 and 2048
        that are smaller.
    n_batches : int, default=10
        Number of batches of each size; empty batches are left out.
    random_state : int, numpy.random.Generator or None, default=None
        Seed of the batches.

    Returns
    -------
    pandas.DataFrame
        One row per batch: ``batch_size`` (expected), ``size``, and the fields of `GradientBias`.
        The table is not private.

    Raises
    ------
    ValueError, TypeError
        As in `gradient_bias`, or if a size cannot be drawn.

    References
    ----------
    Knolle et al., "Bias-Aware Minimisation", 2023, Appendix A.3, Figures 5 and 6.

    Examples
    --------
    >>> import numpy as np, torch
    >>> from skdpfair import get_method
    >>> from skdpfair.analysis import bias_by_batch_size
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(1000, 5))
    >>> y = (X[:, 0] + rng.normal(size=1000) > 0).astype(int)
    >>> table = bias_by_batch_size(torch.nn.Linear(5, 2), X, y,
    ...                            get_method("dpsgd", max_grad_norm=0.5),
    ...                            batch_sizes=[10, 500], random_state=0)
    >>> means = table.groupby("batch_size")[["norm", "cosine"]].mean()
    >>> bool((means.loc[500, "norm"] < means.loc[10, "norm"]))
    True
    """
    rng, groups = _validate.generator("random_state", random_state), sensitive_features
    found, method, state = _read(model, X, y, method, groups, state, reference, chunk_size)
    n_samples = len(found.batch)
    if batch_sizes is None:
        batch_sizes = [size for size in _SIZES if size < n_samples] or [n_samples]
    sizes = [
        _validate.integer("batch_sizes", size, high=n_samples)
        for size in _validate.listed("batch_sizes", batch_sizes, "integers")
    ]
    n_batches, rows = _validate.integer("n_batches", n_batches), []
    with found.strategy() as strategy:
        for size in sizes:
            for index in PoissonSampler(size / n_samples, n_samples, rng).draw(n_batches):
                if len(index):
                    batch = found.batch.select(index.to(found.batch.y.device))
                    bias = _measured(found, strategy, batch, method, state, reference)
                    rows.append({"batch_size": size, "size": len(batch)} | asdict(bias))
    return pd.DataFrame(rows)


def _read(model, X, y, method, sensitive_features, state, reference, chunk_size):
    """Return the records, in groups if the method needs them, the method, and its state."""
    _validate.one_of("reference", reference, ("batch", "unclipped"))
    if method is None:
        if isinstance(model, nn.Module):
            raise ValueError(
                "method=None uses the method of the estimator, but model is a module. Pass a "
                'method: "dpsgd", "bam" or "dp_sat".'
            )
        check_is_fitted(model, "net_")
        state = kept_state(model) if state is None else state
        method = model.method_
    method = get_method(method)
    given = {"sensitive_features": sensitive_features, "with_groups": method.needs_groups}
    found = problem(model, X, y, **given, chunk_size=chunk_size, dtype=None)
    if method.needs_groups and found.levels == ["all"]:
        raise ValueError(
            f"method={method.name!r} needs groups. Pass sensitive_features=, or measure the rows "
            'of each group with "dpsgd".'
        )
    return found, method, state


def _measured(found, strategy, batch, method, state, reference):
    """Return the bias on one batch, whose size is the expected one."""
    n_groups, shares = found.n_groups, None
    if method.needs_group_fractions:
        shares = batch.group.bincount(minlength=n_groups) / len(batch)
    task = Task(len(batch), n_groups, sample_rate=1.0, group_fractions=shares)
    state = as_numbers_of(found.parameters[0], method.start(task) if state is None else state)
    mechanism = Mechanism(method, task, noise_multiplier=0.0)
    mechanism = noiseless(mechanism, has_noisy_queries=False)
    noise = Streams.seeded(0, digest=bytes(32)).noise(batch.x.device)
    step = weighed(strategy, batch, mechanism, state, noise, found.chunk)
    plain = step.plain if reference == "batch" else step.unclipped
    share = mechanism.expected_batch_size / len(batch)  # of a method with rates by group, below 1
    return _bias(share * step.gradient.double(), share * plain.double())


def _bias(gradient, reference):
    """Return the bias of one vector against another."""
    norm, length = torch.linalg.vector_norm(gradient), torch.linalg.vector_norm(reference)
    product = gradient @ reference
    magnitude = product / length**2
    return GradientBias(
        norm=float(torch.linalg.vector_norm(gradient - reference)),
        magnitude=float(magnitude),
        direction=float(torch.linalg.vector_norm(gradient - magnitude * reference)),
        cosine=float(product / (norm * length)),
        gradient_norm=float(norm),
        reference_norm=float(length),
    )
