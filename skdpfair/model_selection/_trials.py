"""Trials of a private search: their number, their fits and scores, and the choice of the best.

What must stay secret, the number of trials and their scores, lives in the frames of this module
only, and ends with them.  Code in the same process may still count the trials: the threat model
says so.
"""

import math
import warnings

import numpy as np
from scipy import stats

from skdpfair._utils.describe import describe, digest
from skdpfair._utils.group_names import read_from_rows
from skdpfair._utils.keystream import Keystream
from skdpfair.budget.charging import ledger_suspended, prepaid_fit
from skdpfair.estimators.classifier import classifier_of, private_logits
from skdpfair.exceptions import PrivacyAccountingError
from skdpfair.inputs import groups as _groups
from skdpfair.inputs import target as _target
from skdpfair.model_selection._forecast import configured
from skdpfair.privacy.one_time_noise import noisy
from skdpfair.privacy.renyi import rdp_curve, stop_parameter


def generator_of(search, pool, records):
    """Return the source of a search's secrets.

    A seed is mixed with a digest of the settings and of all records: searches of other records
    must not share the number of trials, nor noise, which would cancel in the difference.
    """
    if search.random_state is None:
        return Keystream.fresh()
    # the pool says what was drawn from these
    without = ("random_state", "param_distributions")
    params = sorted(search.get_params(deep=False).items())
    settings = [(name, value) for name, value in params if name not in without]
    mixed = digest(describe([settings, pool, list(records)]))
    return Keystream.seeded("search", int(search.random_state), mixed)


# of the number of trials: of a truncated negative binomial law, whose limit is Poisson
SHAPES = {"poisson": math.inf, "geometric": 1.0, "logarithmic": 0.0}


def draw_count(rng, mean_trials: float, shape: float) -> int:
    u = rng.random()
    if shape == math.inf:
        return int(stats.poisson.ppf(u, mean_trials))
    stop = stop_parameter(mean_trials, shape)
    if shape == 0:
        # the logarithmic law is a mixture of geometric ones
        return int(rng.geometric(stop**u, 1)[0])
    # the negative binomial law, but for its zeros
    return int(stats.nbinom.isf(u * stats.nbinom.sf(0, shape, stop), shape, stop))


def best_of(rng, law, pool, train, score):
    """Return the configuration and the model of the best trial; None, None without any."""
    best, winner = -math.inf, (None, None)
    for _ in range(draw_count(rng, *law)):
        params = pool[rng.integers(len(pool))]
        model = train(params)
        value = score(model)
        if value > best:
            best, winner = value, (params, model)
    return winner


def run(rng, law, pool, train, score):
    """Return ``best_of(...)`` and None, or None and an error that tells nothing of the trials."""
    try:
        with ledger_suspended(), warnings.catch_warnings():
            # warnings name the configurations that were drawn
            warnings.simplefilter("ignore")
            return best_of(rng, law, pool, train, score), None
    except KeyboardInterrupt:
        text = "the search ended without a model, and its cost stays charged"
        return None, KeyboardInterrupt(text)
    except Exception as error:
        kind = next((k for k in (ValueError, TypeError) if isinstance(error, k)), RuntimeError)
        return None, kind(f"A configuration of param_distributions cannot be fitted: {error}")
    except BaseException as error:  # such as SystemExit
        error.__traceback__ = error.__context__ = error.__cause__ = None
        return None, error


def trainer(estimator, data, routing, curve, rng, seeded, public):
    """Return the function that trains one configuration.

    ``routing`` holds further arguments of fit; ``public`` is the result of `public_sets`.
    """
    # what of a candidate leaves its sets to those of all records
    unset = {"classes": None, "group_col": classifier_of(estimator).group_col}

    def train(params):
        model = configured(estimator, params)
        seed = rng.integers(2**31) if seeded else None
        classifier = classifier_of(model)
        values = {name: getattr(classifier, name) for name in public}
        sets = {n: public[n] for n, v in values.items() if v is None or repr(v) == repr(unset[n])}
        classifier.set_params(random_state=seed, **sets)
        with prepaid_fit(curve):
            model.fit(*data, **routing)
        classifier = classifier_of(model)
        if not classifier.privacy_.stop.startswith("after all"):
            # the classifier took Ctrl-C for the end of this fit
            raise KeyboardInterrupt
        spent = rdp_curve(classifier.privacy_.releases)
        if (spent > curve * (1 + 1e-9)).any():
            raise PrivacyAccountingError("a trial released more than was planned for any")
        return model

    return train


def public_sets(estimator, X, y, sensitive_features, named):
    """Return classes, and groups unless a pipeline makes them; and which were read from records.

    They are of all records: whether a trial met a rare one would depend on the split. ``named`` is
    y as it was given.
    """
    last = classifier_of(estimator)
    classes, _ = _target.public_classes(y, last.classes, last.pos_label)
    column = last.group_col if last is estimator else None
    declared = _groups.Groups.of(last.group_col)
    is_unnamed = not _groups.as_columns(column) and sensitive_features is None
    public, read = {"classes": classes}, None
    rows = X if hasattr(X, "iloc") else np.asarray(X)
    if declared.levels is None and not is_unnamed:
        encoded = _groups.encode(rows, y, group_col=column, sensitive_features=sensitive_features)
        public["group_col"] = declared.set_params(levels=encoded.levels)
        read = encoded.undeclared
    variables = _groups.variables_of(named, rows, column, sensitive_features)
    undeclared = classes if last.classes is None else None
    return public, read_from_rows(variables, undeclared, read)


def scorer(X, y, noise, rng, share=None):
    """Return the function that counts correct predictions, with noise.

    One record changes the count by one at most: each is compared with one prediction, which
    depends on it alone.  So does one person, if each record counts by ``share``, one over the
    number of her records.
    """

    def score(model):
        # of private records, a classifier predicts one by one
        predicted = model.classes_[private_logits(model, X).argmax(axis=1)]
        if predicted.shape != np.shape(y):
            raise ValueError(
                f"The steps of the pipeline must return one row for each of {len(y)} rows, got "
                f"{len(predicted)}."
            )
        right = np.asarray(predicted == y, dtype=bool)
        count = right.sum() if share is None else right @ share
        return float(noisy(np.array([float(count)]), 1.0, noise, rng)[0])

    return score
