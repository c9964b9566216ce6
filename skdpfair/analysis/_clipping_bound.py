"""Bound on the error of a private gradient: bias of clipping plus noise, by group."""

import math

import numpy as np
import pandas as pd
import torch

from skdpfair import _validate
from skdpfair.analysis._problem import problem


def clipping_error_bound(
    model,
    X,
    y,
    max_grad_norm,
    *,
    epsilon,
    batch_size=None,
    sensitive_features=None,
    chunk_size="auto",
) -> pd.DataFrame:
    r"""Bound each group's expected error of the clipped and noisy mean gradient.

    Parameters
    ----------
    model, X, y, sensitive_features, chunk_size
        As in `group_gradients`.  Without groups, all records are one group, "all".
    max_grad_norm : float > 0
        Clipping bound C.
    epsilon : float > 0
        Budget of one step with Laplace noise: the mean absolute noise of the sum is
        :math:`C / \epsilon`.  For Gaussian noise on d parameters, pass
        ``1 / (noise_multiplier * math.sqrt(d))``: its mean norm is at most
        :math:`C \sigma \sqrt d`.
    batch_size : float > 0 or None, default=None
        Expected number b of records of a batch, at most the number of records; None takes all
        records as one batch.

    Returns
    -------
    pandas.DataFrame
        Index group: ``n_samples``; ``noise``, ``bias`` and their sum ``bound``;
        ``best_max_grad_norm``, the C for which the bound of the group is least, ``best_bound``,
        and ``quantile``, that of the group's gradient norms which the best C is.  The table is
        NOT private.

    Raises
    ------
    ValueError, TypeError
        If the data do not match the model, or a number lies outside its range.

    Notes
    -----
    For group k, of :math:`b_k = b n_k / n` records in a batch,

    .. math::
        E |\tilde G_k - G_k| \le \frac{C}{b_k \epsilon}
            + \frac{1}{n_k} \sum_i \max(0, \|g_i\| - C),

    equation 1 of Xu et al. with the mean bias of a batch.  The best C is the
    :math:`\lceil n / (b \epsilon) \rceil`-th largest norm of the group, its
    :math:`1 - 1 / (b_k \epsilon)` quantile, and 0 if the group has fewer records.  The paper also
    prints half of this sum as a lower bound on the error.  This holds if all gradients have one
    direction; otherwise, the errors of clipping may cancel.

    References
    ----------
    Xu, Du, Wu, "Removing Disparate Impact on Model Accuracy in Differentially Private Stochastic
    Gradient Descent", KDD 2021, equation 1; Amin et al., "Bounding User Contributions", ICML 2019.

    Examples
    --------
    Gradients of norm :math:`\sqrt{.5} |x|`:

    >>> import numpy as np, torch
    >>> from skdpfair.analysis import clipping_error_bound
    >>> module = torch.nn.Linear(1, 2, bias=False)
    >>> _ = torch.nn.init.zeros_(module.weight)
    >>> X = np.sqrt(2.0) * np.array([[1.0], [2.0], [3.0], [5.0]])
    >>> found = clipping_error_bound(module, X, np.array([0, 1, 0, 1]), 2.0, epsilon=0.5,
    ...                              sensitive_features=["a", "a", "b", "b"])
    >>> found[["noise", "bias", "best_max_grad_norm"]].round(3).to_numpy().tolist()
    [[2.0, 0.0, 1.0], [2.0, 2.0, 3.0]]
    """
    bound, epsilon = (
        _validate.number(name, value, low=0, high=math.inf, low_open=True, high_open=True)
        for name, value in (("max_grad_norm", max_grad_norm), ("epsilon", epsilon))
    )
    found = problem(model, X, y, sensitive_features=sensitive_features, chunk_size=chunk_size)
    n = len(found.batch)
    if batch_size is None:
        batch_size = n
    size = _validate.number("batch_size", batch_size, low=0, low_open=True, high=n)
    with found.strategy() as strategy:
        parts = [strategy.per_sample_gradients(chunk).norm for chunk in found.chunks()]
    norms = torch.cat(parts).cpu().numpy()
    code = found.batch.group.cpu().numpy()
    rows = [
        _errors(np.sort(norms[code == k]), bound, n / size / epsilon) for k in range(found.n_groups)
    ]
    return pd.DataFrame(rows, index=found.index)


def _errors(norms, bound, rank):
    """Return a group's row from its sorted norms; ``rank`` is n / (b epsilon)."""
    n_k = len(norms)
    if n_k == 0:
        return {"n_samples": 0}

    def parts(c):
        return c * rank / n_k, np.maximum(norms - c, 0.0).mean()

    best = norms[-math.ceil(rank)] if rank <= n_k else 0.0
    noise, bias = parts(bound)
    return {
        "n_samples": n_k,
        "noise": noise,
        "bias": bias,
        "bound": noise + bias,
        "quantile": max(0.0, 1 - rank / n_k),
        "best_max_grad_norm": best,
        "best_bound": sum(parts(best)),
    }
