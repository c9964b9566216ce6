"""A synthetic data set with a majority and a minority that have different decision boundaries."""

import numpy as np
import pandas as pd
from sklearn.utils import Bunch

from skdpfair._utils.validate import generator, integer, number

_SEPARATION = 0.6  # of the groups in the last feature; they overlap below 0.5
_DESCRIPTION = """\
Two groups (synthetic)
======================

Binary classification with a majority "a" and a minority "b": other label rates, other boundaries,
and the last feature tells the groups apart. Made up; it describes nobody.
"""


def make_two_groups(n_samples=1000, *, n_features=6, minority=0.3, noise=0.05, random_state=None):
    """Make a data set of a majority and a minority with different decision boundaries.

    A flexible model learns both boundaries, since the last feature separates the groups. Training
    with clipping and noise learns the majority's boundary first, which harms the minority more.

    Parameters
    ----------
    n_samples : int, default=1000
        Number of rows, at least 2.
    n_features : int, default=6
        Number of features, at least 3. The first two determine the label and the last one depends
        on the group; the others are not informative.
    minority : float, default=0.3
        Share of the rows in group ``"b"``, in (0, 1), rounded so that no group is empty.
    noise : float, default=0.05
        Expected share of flipped labels, in [0, 0.5].
    random_state : int, numpy.random.RandomState, numpy.random.Generator or None, default=None
        Seed or generator. None uses a fresh generator, never numpy's global one.

    Returns
    -------
    sklearn.utils.Bunch
        ``data`` (columns ``x0, x1, ...``, each in [-1, 1]), ``target`` (0 or 1),
        ``sensitive_features`` ("a" or "b", which is not in ``data``), ``frame`` (all together),
        ``feature_names``, ``target_names`` and ``DESCR``; pandas objects.

    Notes
    -----
    Before labels are flipped, y = 1 if x0 > 0 in ``"a"``, and y = 1 if x1 > 0.5 in ``"b"``, about
    a quarter of its rows. The last feature is below 0 in ``"a"`` and above 0 in ``"b"``.

    Examples
    --------
    >>> from skdpfair.datasets import make_two_groups
    >>> data = make_two_groups(200, random_state=0)
    >>> data.data.shape
    (200, 6)
    >>> data.sensitive_features.value_counts().to_dict()
    {'a': 140, 'b': 60}
    >>> data.target.groupby(data.sensitive_features).mean().round(2).to_dict()
    {'a': 0.56, 'b': 0.35}
    """
    n_samples = integer("n_samples", n_samples, low=2)
    n_features = integer("n_features", n_features, low=3)
    number("minority", minority, low=0, high=1, low_open=True, high_open=True)
    number("noise", noise, low=0, high=0.5)
    rng = generator("random_state", random_state)
    # a fixed number of rows of group b, in random places
    n_b = min(max(round(minority * n_samples), 1), n_samples - 1)
    in_b = rng.permutation(n_samples) < n_b
    x = rng.uniform(-1, 1, size=(n_samples, n_features))
    x[:, -1] = (1 - _SEPARATION) * x[:, -1] + _SEPARATION * np.where(in_b, 1.0, -1.0)
    flipped = rng.uniform(size=n_samples) < noise
    is_positive = np.where(in_b, x[:, 1] > 0.5, x[:, 0] > 0)
    data = pd.DataFrame(x, columns=[f"x{j}" for j in range(n_features)])
    target = pd.Series((is_positive ^ flipped).astype(np.int64), name="target")
    group = pd.Series(np.where(in_b, "b", "a"), name="group")
    return Bunch(
        data=data,
        target=target,
        sensitive_features=group,
        frame=pd.concat([data, group, target], axis=1),
        feature_names=list(data.columns),
        target_names=[0, 1],
        DESCR=_DESCRIPTION,
    )
