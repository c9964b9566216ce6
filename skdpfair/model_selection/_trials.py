"""The trials of a private search: how many, and which is kept.

What must stay secret, the number of trials and their scores, lives in the frames of this module
only, and ends with them.
"""

import math
import warnings

import numpy as np
from sklearn import get_config
from sklearn.dummy import DummyClassifier
from sklearn.pipeline import Pipeline

from skdpfair.exceptions import PrivacyAccountingError
from skdpfair.model_selection._candidates import classifier_of, configured
from skdpfair.privacy.charging import suspended
from skdpfair.privacy.renyi import rdp_curve
from skdpfair.privacy.selection import stop_parameter

_DRAWS = 1000


def draw_count(rng, mean_trials: float, shape: float) -> int:
    """Draw the number of trials.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> counts = [draw_count(rng, 10.0, 0.0) for _ in range(2000)]
    >>> min(counts), 9 < sum(counts) / 2000 < 11
    (1, True)
    """
    if shape == math.inf:
        return int(rng.poisson(mean_trials))
    stop = stop_parameter(mean_trials, shape)
    if shape == 0:
        return int(rng.logseries(1 - stop))
    while True:  # the negative binomial law, but for its zeros
        drawn = rng.negative_binomial(shape, stop, size=_DRAWS)
        if drawn.any():
            return int(drawn[drawn > 0][0])


def best_of(rng, law, pool, train, score):
    """Return the configuration and the model of the best trial; None, None without any."""
    best, found = -math.inf, (None, None)
    for _ in range(draw_count(rng, *law)):
        params = pool[rng.integers(len(pool))]
        model = train(params)
        value = score(model)
        if value > best:
            best, found = value, (params, model)
    return found


def run(rng, law, pool, train, score):
    """Return ``best_of(...)`` and None, or None and an error that tells nothing of the trials."""
    try:
        with suspended(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # their number would tell that of the trials
            return best_of(rng, law, pool, train, score), None
    except Exception as error:
        kind = type(error) if isinstance(error, (ValueError, TypeError)) else RuntimeError
        kind = ValueError if issubclass(kind, ValueError) else kind
        return None, kind(f"A configuration of param_distributions cannot be fitted: {error}")


def trainer(estimator, data, sensitive_features, curve, rng, seeded):
    """Return the function that trains one configuration."""

    def train(params):
        model = configured(estimator, params)
        seed = int(rng.integers(2**31)) if seeded else None
        classifier_of(model).set_params(random_state=seed, verbose=0)
        model.fit(*data, **_routed(model, sensitive_features))
        spent = rdp_curve([entry.run for entry in classifier_of(model).privacy_.ledger.entries])
        if (spent > curve * (1 + 1e-9)).any():
            raise PrivacyAccountingError("a trial released more than was planned for any")
        return model

    return train


def scorer(X, y, noise, rng):
    """Return the function that counts correct predictions, with noise."""

    def score(model):
        return float(np.sum(model.predict(X) == y)) + noise * rng.standard_normal()

    return score


def know_nothing(classes):
    """Return a model that predicts all classes alike."""
    return DummyClassifier(strategy="prior").fit(np.zeros((len(classes), 1)), classes)


def _routed(model, sensitive_features):
    if sensitive_features is None:
        return {}
    name, step = "sensitive_features", model
    if not get_config()["enable_metadata_routing"]:
        path = []
        while isinstance(step, Pipeline):
            last, step = step.steps[-1]
            path.append(last)
        name = "__".join([*path, name])
    return {name: sensitive_features}
