"""A synthetic data set with a majority and a minority that have different decision boundaries."""

import numpy as np
import pandas as pd
from sklearn.utils import Bunch

from skdpfair._utils.validate import flag, generator, integer, number

_DESCRIPTION = """\
Two groups (synthetic)
======================

Binary classification with a majority "a" and a minority "b": other label rates, other boundaries,
the last feature tells the groups apart with overlap or without. Made up; it describes nobody.
"""


def make_two_groups(
    n_samples=1000,
    *,
    n_features=6,
    minority=0.3,
    rotation=90.0,
    shift=0.5,
    separation=0.6,
    noise=0.05,
    as_frame=True,
    random_state=None,
):
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
    rotation : float, default=90.0
        Angle from the boundary of ``"a"`` to that of ``"b"`` in degrees, in [0, 180].
    shift : float, default=0.5
        Distance by which the boundary of ``"b"`` is moved, in [-1, 1]; a positive one makes the
        label 1 rarer in ``"b"`` (about 30 % at the default, 50 % in ``"a"``).
    separation : float, default=0.6
        Distance of the groups in the last feature, in [0, 1]. The groups overlap below 0.5, and
        with 0 the feature is not informative.
    noise : float, default=0.05
        Expected share of flipped labels, in [0, 0.5].
    as_frame : bool, default=True
        Return pandas objects; else numpy arrays.
    random_state : int, numpy.random.RandomState, numpy.random.Generator or None, default=None
        Seed or generator. None uses a fresh generator, never numpy's global one.

    Returns
    -------
    sklearn.utils.Bunch
        ``data`` (columns ``x0, x1, ...``, each in [-1, 1]), ``target`` (0 or 1),
        ``sensitive_features`` ("a" or "b", which is not in ``data``), ``frame`` (all together, or
        None unless ``as_frame``), ``feature_names``, ``target_names`` and ``DESCR``.

    Notes
    -----
    Let u = (cos r, sin r, 0, ..., 0) for ``rotation`` r. Before labels are flipped, y = 1 if x0 > 0
    in ``"a"``, and y = 1 if <u, x> > ``shift`` in ``"b"``.

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
    number("rotation", rotation, low=0, high=180)
    number("shift", shift, low=-1, high=1)
    number("separation", separation, low=0, high=1)
    number("noise", noise, low=0, high=0.5)
    flag("as_frame", as_frame)
    rng = generator("random_state", random_state)
    # a fixed number of rows of group b, in random places
    n_b = min(max(round(minority * n_samples), 1), n_samples - 1)
    in_b = rng.permutation(n_samples) < n_b
    data = rng.uniform(-1, 1, size=(n_samples, n_features))
    data[:, -1] = (1 - separation) * data[:, -1] + separation * np.where(in_b, 1.0, -1.0)
    flipped = rng.uniform(size=n_samples) < noise
    angle = np.deg2rad(rotation)
    rotated = np.cos(angle) * data[:, 0] + np.sin(angle) * data[:, 1]
    is_positive = np.where(in_b, rotated > shift, data[:, 0] > 0)
    target, group = (is_positive ^ flipped).astype(np.int64), np.where(in_b, "b", "a")
    names, frame = [f"x{j}" for j in range(n_features)], None
    if as_frame:
        data = pd.DataFrame(data, columns=names)
        target, group = pd.Series(target, name="target"), pd.Series(group, name="group")
        frame = pd.concat([data, group, target], axis=1)
    return Bunch(
        data=data,
        target=target,
        sensitive_features=group,
        frame=frame,
        feature_names=names,
        target_names=[0, 1],
        DESCR=_DESCRIPTION,
    )
