"""What a private search may try, and what that costs at worst: public parameters only."""

import math
from collections.abc import Mapping

import numpy as np
from sklearn.model_selection import ParameterGrid, ParameterSampler

from skdpfair._validate import is_auto, safe_repr
from skdpfair.model_selection._budget import PlannedFit
from skdpfair.model_selection._candidates import (
    classifier_of,
    configured,
    parts_within,
    planned_runs,
    refuse_other_fits,
)
from skdpfair.privacy import NOT_ACCOUNTED, PrivacyReport, SampledGaussian
from skdpfair.privacy.renyi import curve_epsilon, rdp_curve
from skdpfair.privacy.selection import free_score_noise
from skdpfair.privacy.statement import ASSUMPTIONS

_ONLY = {"keep_reference": False, "warm_start": False, "callbacks": None}
_MIDDLE = 60  # position of an order near 7, by which curves are ranked for display


def pool_of(search):
    """Return the configurations, each of which must be private and silent."""
    spaces = search.param_distributions
    spaces = [spaces] if isinstance(spaces, Mapping) else list(spaces)
    if any(hasattr(values, "rvs") for space in spaces for values in space.values()):
        seed = 0 if search.random_state is None else search.random_state
        pool = list(ParameterSampler(spaces, search.n_candidates, random_state=seed))
    else:
        pool = list(ParameterGrid(spaces))
    for params in pool:
        candidate = configured(search.estimator, params)
        refuse_other_fits(candidate)
        classifier = classifier_of(candidate)
        for name, only in _ONLY.items():
            if getattr(classifier, name) not in (only, None):
                raise ValueError(
                    f"{name}={safe_repr(getattr(classifier, name))} would show trials that must "
                    f"stay secret. Set {name}={only!r} in the estimator and in "
                    "param_distributions."
                )
        for part in parts_within(candidate):
            _refuse_witnesses(part)
    return pool


def _refuse_witnesses(part):
    """Refuse what hears of each fit, or keeps something of it."""
    name = type(part).__name__
    heard = [type(callback).__name__ for callback in getattr(part, "_skl_callbacks", ())]
    if heard:
        raise ValueError(
            f"The {name} in estimator has callbacks, {heard}, which would hear of trials that must "
            "stay secret. Call set_callbacks on the DPRandomizedSearch, or on what holds it: a "
            "PrivacyLedger is charged once, for the whole search."
        )
    if getattr(part, "memory", None) is not None:
        raise ValueError(
            f"memory={safe_repr(part.memory)} of the {name} in estimator would keep records, and "
            "files of trials that must stay secret. Set memory=None."
        )


def trial_of(search, pool, n_samples, n_groups=1):
    """Return the costliest trial, the largest curve of all with the score's, and its noise."""
    n_train = n_samples - (0 if search.validation_data else n_held(search, n_samples))
    curves = {}
    for params in pool:
        classifier = classifier_of(configured(search.estimator, params))
        private, runs = planned_runs(classifier, n_train, n_groups)
        if not private:
            raise ValueError(
                f"{safe_repr(params)} trains without privacy, so that the search would have none. "
                "Take epsilon=None, noise_multiplier=0 and methods without noise out of "
                "param_distributions and the estimator."
            )
        if runs not in curves:
            curves[runs] = rdp_curve(runs)
    curve = np.max(list(curves.values()), axis=0)
    noise = search.score_noise_multiplier
    if search.validation_data:
        noise = 0.0
    elif is_auto(noise):
        noise = free_score_noise(curve)
    else:
        curve = np.maximum(curve, rdp_curve([SampledGaussian(1.0, float(noise), 1)]))
    worst = max(curves, key=lambda runs: curves[runs][_MIDDLE])
    return PlannedFit(0, "fit", n_train, 1, 1, True, worst), curve, noise


def n_held(search, n_samples):
    """Return how many records are held out to score the trials."""
    return min(max(1, round(search.holdout * n_samples)), n_samples - 1)


def report_of(search, trial, whole, delta, seeded):
    """Return what the search spent: the same whichever trial won, or whether one did."""
    run = trial.runs[-1]
    epsilon = curve_epsilon(whole, delta)
    scores = "validation" if search.validation_data else "held out"
    return PrivacyReport(
        method="private selection",
        epsilon=epsilon,
        delta=delta,
        accountant="rdp",
        noise_multiplier=run.noise_multiplier,
        sample_rate=run.sample_rate,
        steps=run.steps,
        expected_batch_size=run.sample_rate * trial.n_samples,
        is_private=epsilon < math.inf,
        seeded=seeded,
        assumptions=tuple(ASSUMPTIONS[name] for name in ("sets", scores, "trials")),
        not_accounted=NOT_ACCOUNTED,
    )
