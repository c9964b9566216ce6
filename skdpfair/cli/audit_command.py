"""Audits from the command line."""

import json
import sys
from contextlib import contextmanager
from dataclasses import asdict

import click
import numpy as np

import skdpfair
from skdpfair.audit import audit_fit, audit_step
from skdpfair.cli._input import AS_JSON, echo, in_options, wrapped
from skdpfair.datasets import ADULT_BOUNDS, ADULT_CATEGORIES, load_adult
from skdpfair.methods import METHODS
from skdpfair.preprocessing import public_preprocessor
from skdpfair.privacy.releases import MAX_RECORDS

_METHOD = click.option(
    "--method",
    type=click.Choice(sorted(name for name, method in METHODS.items() if method.private)),
    default="dpsgd",
    show_default=True,
    help="The private method.",
)
_SEED = click.option(
    "--seed", type=click.IntRange(min=0), default=None, help="Make the attack reproducible."
)


@click.group()
def audit():
    """Measure lower bounds on epsilon.

    Each command ends with status 0 if it finds no more than was claimed, 1 if it finds more, and
    2 if it could not be run.
    """


@audit.command()
@_METHOD
@click.option(
    "--epsilon",
    type=click.FloatRange(min=0, min_open=True),
    default=8.0,
    show_default=True,
    help="Budget of the fit.",
)
@click.option(
    "--canaries",
    type=click.IntRange(min=10),
    default=1000,
    show_default=True,
    help="Records put in by coin; at most half of all.",
)
@click.option(
    "--records",
    type=click.IntRange(min=20),
    default=10_000,
    show_default=True,
    help="Records of Adult, canaries included.",
)
@click.option(
    "--attack",
    type=click.Choice(["black_box", "white_box"]),
    default="black_box",
    show_default=True,
    help="What the attacker sees: the fitted model, or the noisy sums of all steps.",
)
@_SEED
@AS_JSON
def run(method, epsilon, canaries, records, attack, seed, as_json):
    """Fit on Adult with canaries, and guess which of them took part."""
    data = load_adult(subset="train")
    features = public_preprocessor(ADULT_BOUNDS, ADULT_CATEGORIES, epsilon=epsilon)
    sex = data.sensitive_features["sex"].to_numpy()
    with in_options():
        chosen = np.random.default_rng(seed).permutation(len(sex))[:records]
        found = audit_fit(
            # one layer and no warm-up: what the attack sees best
            skdpfair.DPFairClassifier(
                method, epsilon=epsilon, module="logistic", lr=0.5, batch_size=500
            ),
            features.fit_transform(data.data.iloc[chosen]),
            data.target.to_numpy()[chosen],
            canaries,
            sensitive_features=sex[chosen],
            attack=attack,
            random_state=seed,
        )
    _report(found, as_json)


@audit.command()
@_METHOD
@click.option(
    "--noise-multiplier",
    type=click.FloatRange(min=1e-3, max=1e6),
    default=1.0,
    show_default=True,
    help="Standard deviation of the noise, divided by the largest effect of one record.",
)
@click.option(
    "--draws",
    type=click.IntRange(min=100),
    default=20_000,
    show_default=True,
    help="Steps of each of six kinds; the default takes minutes, 1000 take seconds.",
)
@click.option(
    "--records-per-person",
    type=click.IntRange(1, MAX_RECORDS),
    default=1,
    show_default=True,
    help="If more than 1, attack persons with so many records.",
)
@_SEED
@AS_JSON
def step(method, noise_multiplier, draws, records_per_person, seed, as_json):
    """Attack single steps, knowing all but whether a record or person took part.

    Minutes at the default number of draws.
    """
    settings = {"noise_multiplier": noise_multiplier, "n_draws": draws, "random_state": seed}
    settings["records_per_person"] = records_per_person
    with in_options(), _progress(6 * draws) as callback:
        found = audit_step(method, callback=callback, **settings)
    _report(found, as_json)


@contextmanager
def _progress(length):
    """Give a function that moves a bar on a terminal; None elsewhere, where all is quiet."""
    if not sys.stderr.isatty():
        yield None
        return
    with click.progressbar(length=length, label="Steps", file=sys.stderr) as bar:
        yield bar.update


def _report(found, as_json):
    facts = asdict(found) | {"passed": found.passed}
    echo(json.dumps(facts) if as_json else wrapped(str(found)))
    sys.exit(not found.passed)
