"""Trials of a private search: their number, their fits and scores, and the choice of the best.

What must stay secret, the number of trials and their scores, lives in the frames of this module
only, and ends with them.
"""

import logging
import math
import random
import signal
import sys
import threading
import warnings
from contextlib import contextmanager
from io import TextIOBase

import numpy as np
import torch
from joblib import parallel_config
from sklearn.dummy import DummyClassifier
from sklearn.utils import check_random_state

from skdpfair._describe import describe, digest
from skdpfair.budget.charging import paid_for, suspended
from skdpfair.estimator import classifier_of, private_logits
from skdpfair.exceptions import PrivacyAccountingError
from skdpfair.inputs import groups as _groups
from skdpfair.inputs import labels as _labels
from skdpfair.model_selection._forecast import configured, planned_fit
from skdpfair.privacy import accounting, calibration, renyi
from skdpfair.privacy.one_time_noise import noisy
from skdpfair.privacy.renyi import rdp_curve, stop_parameter

_DRAWS = 1000


def generator_of(search, pool, records):
    """Return the source of a search's secrets.

    A seed is mixed with a digest of the settings and of all records: searches of other records
    must not share the number of trials, nor noise, which would cancel in the difference.
    """
    if search.random_state is None:
        return np.random.default_rng()
    without = ("random_state", "param_distributions")  # the pool says what was drawn from these
    params = sorted(search.get_params(deep=False).items())
    settings = [(name, value) for name, value in params if name not in without]
    mixed = digest(describe([settings, pool, list(records)]))
    return np.random.default_rng([int(search.random_state), int.from_bytes(mixed, "little")])


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
        with suspended(), _unnoticed(), _interruptible():
            return best_of(rng, law, pool, train, score), None
    except BaseException as error:
        return None, _told(error)


def _told(error):
    """Return an error that says what went wrong, without the frames in which it did."""
    if isinstance(error, (KeyboardInterrupt, _Interrupt)):
        return KeyboardInterrupt("the search ended without a model, and its cost stays charged")
    if not isinstance(error, Exception):  # such as SystemExit
        error.__traceback__ = error.__context__ = error.__cause__ = None
        return error
    kind = type(error) if isinstance(error, (ValueError, TypeError)) else RuntimeError
    kind = ValueError if issubclass(kind, ValueError) else kind
    return kind(f"A configuration of param_distributions cannot be fitted: {error}")


class _Interrupt(BaseException):
    """Ctrl-C by a name that skorch does not take for the end of one fit."""


def _interrupt(*_):
    raise _Interrupt


@contextmanager
def _interruptible():
    """Let Ctrl-C end all trials, not one of them."""
    main = threading.current_thread() is threading.main_thread()
    ours = main and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if ours:
        signal.signal(signal.SIGINT, _interrupt)
    try:
        yield
    finally:
        if ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def _unnoticed():
    """Let the trials leave no trace in the process by which they could be counted."""
    generators = (random.getstate, random.setstate), _numpys_global_generator()
    found = [(put, get()) for get, put in generators]
    try:
        with (
            _MUTE,
            warnings.catch_warnings(),
            # threads and processes of a step would not be silent
            parallel_config("sequential"),
            torch.random.fork_rng(devices=[]),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        for put, state in found:
            put(state)
        for module in (accounting, calibration, renyi):  # their caches count how often they serve
            for function in vars(module).values():
                if hasattr(function, "cache_clear"):
                    function.cache_clear()


def _numpys_global_generator():
    generator = check_random_state(None)
    return generator.get_state, generator.set_state


class _Nowhere(TextIOBase):
    """A file that keeps nothing."""

    def writable(self):
        """Return True."""
        return True

    def write(self, text):
        """Return the length of the text."""
        return len(text)


class _Mute:
    """Turns off what the process prints and logs while trials run in one or more threads."""

    # A child process would be quieter. But one that is started anew takes seconds, and a pipeline
    # that can be pickled; a forked one may hang after torch's threads, and cannot use CUDA; and of
    # the winner it could hand back only what a pickle holds.

    def __init__(self):
        self._lock, self._entered = threading.Lock(), 0

    def __enter__(self):
        with self._lock:
            if not self._entered:
                self._found = sys.stdout, sys.stderr, logging.root.manager.disable
                sys.stdout = sys.stderr = _Nowhere()
                logging.disable(sys.maxsize)
            self._entered += 1

    def __exit__(self, *exc):
        with self._lock:
            self._entered -= 1
            if not self._entered:
                sys.stdout, sys.stderr, disabled = self._found
                logging.disable(disabled)


_MUTE = _Mute()


def trainer(estimator, data, routing, n_samples, curve, rng, seeded, public):
    """Return the function that trains one configuration on so many records or persons.

    ``routing`` holds further arguments of fit; ``public`` is as of `public_sets`.
    """

    def train(params):
        model = configured(estimator, params)
        model.set_params(**_without_output(model))
        seed = int(rng.integers(2**31)) if seeded else None
        classifier = classifier_of(model)
        sets = {name: v for name, v in public.items() if getattr(classifier, name) is None}
        classifier.set_params(random_state=seed, **sets)
        _, planned = planned_fit(classifier, n_samples)
        with paid_for(curve):
            model.fit(*data, **routing)
        classifier = classifier_of(model)
        if classifier.n_steps_ < planned[-1].steps:
            raise _Interrupt  # that the classifier took for the end of this fit
        spent = rdp_curve(classifier.privacy_.ledger.entries)
        if (spent > curve * (1 + 1e-9)).any():
            raise PrivacyAccountingError("a trial released more than was planned for any")
        return model

    return train


def _without_output(model):
    """Return all parameters named verbose, and values that turn them off."""
    params = model.get_params().items()
    verbose = {k: v for k, v in params if k.rpartition("__")[2] == "verbose" and v}
    return {k: False if isinstance(v, bool) else 0 for k, v in verbose.items()}


def public_sets(estimator, X, y, sensitive_features):
    """Return the classes and, unless they come out of a pipeline, the groups of all records.

    A trial must not find them itself: whether it met a rare one would depend on the split.
    """
    last = classifier_of(estimator)
    classes, _ = _labels.classes_of(y, last.classes)
    column = last.group_col if last is estimator else None
    declared = _groups.Groups.of(last.group_col)
    is_unnamed = not _groups.as_columns(column) and sensitive_features is None
    if declared.levels is not None or is_unnamed:
        return {"classes": classes}
    rows = X if hasattr(X, "iloc") else np.asarray(X)
    found = _groups.encode(rows, y, group_col=column, sensitive_features=sensitive_features)
    return {"classes": classes, "group_col": declared.set_params(levels=found.levels)}


def scorer(X, y, noise, rng, share=None):
    """Return the function that counts correct predictions, with noise.

    One record changes the count by one at most: each is compared with one prediction, which a
    classifier makes of private records (those with noise) one by one.  So does one person, if
    each record counts by ``share``, one over the number of her records.
    """

    def score(model):
        if noise:
            predicted = model.classes_[private_logits(model, X).argmax(axis=1)]
        else:
            predicted = model.predict(X)
        right = np.asarray(predicted == y, dtype=bool)
        if right.shape != np.shape(y):
            raise ValueError(
                f"predict must return one label for each of {len(y)} rows, but the comparison "
                f"with their labels has shape {right.shape}. Check the steps of the pipeline."
            )
        count = right.sum() if share is None else right @ share
        return float(noisy(np.array([float(count)]), 1.0, noise, rng)[0])

    return score


def forget_times(net):
    """Drop when each epoch began and how long it took, which would tell a trial's position."""
    net.callbacks_ = []
    for epoch in net.history:
        epoch.pop("dur", None)


def know_nothing(classes):
    """Return a model that predicts all classes alike."""
    return DummyClassifier(strategy="prior").fit(np.zeros((len(classes), 1)), classes)
