"""Pictures of bars, and classifiers of them, which tests of two files share."""

import numpy as np

from skdpfair import DPFairClassifier

FEATURES = "Scattering2D(), which learns nothing"


def classifier(**params):
    given = {"epsilon": 8.0, "delta": 1e-4, "max_steps": 30, "random_state": 0, "classes": [0, 1]}
    return DPFairClassifier(**given | params)


def bars():
    """Return pictures of horizontal or vertical bars, some of them faint, classes and groups."""
    rng = np.random.default_rng(0)
    y, group = rng.integers(0, 2, 600), rng.choice(["bright", "faint"], 600)
    phase = rng.uniform(0, 6, 600)[:, None, None]
    rows, columns = np.mgrid[:12, :10]
    waves = np.where(y[:, None, None], np.sin(rows * 1.5 + phase), np.sin(columns * 1.5 + phase))
    strength = np.where(group == "faint", 0.1, 0.4)[:, None, None]
    x = 0.5 + strength * waves + 0.1 * rng.standard_normal((600, 12, 10))
    return x.clip(0, 1).astype(np.float32), y, group


X, Y, GROUP = bars()
