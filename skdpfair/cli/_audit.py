"""Audits from the command line."""

import sys
from pathlib import Path

import click
import numpy as np

import skdpfair
from skdpfair.audit import audit_artifact, audit_fit, audit_step
from skdpfair.datasets import ADULT_BOUNDS, ADULT_CATEGORIES, load_adult
from skdpfair.preprocessing import public_preprocessor

_METHOD = click.option("--method", default="dpsgd", show_default=True, help="Which one.")
_SEED = click.option("--seed", type=int, default=None, help="Make the attack reproducible.")


@click.group()
def audit():
    """Lower bounds of what a method spends, and leaks in files.

    Each command ends with status 1 if it finds more than was claimed.
    """


@audit.command()
@_METHOD
@click.option("--epsilon", default=8.0, show_default=True, help="Budget of the fit.")
@click.option("--canaries", default=1000, show_default=True, help="Records put in by coin.")
@click.option("--records", default=10_000, show_default=True, help="Records of Adult in all.")
@_SEED
def run(method, epsilon, canaries, records, seed):
    """Fit on Adult with canaries, and guess which of them took part."""
    data = load_adult(subset="train")
    features = public_preprocessor(ADULT_BOUNDS, ADULT_CATEGORIES).fit_transform(data.data)
    sex = data.sensitive_features["sex"].to_numpy()
    chosen = np.random.default_rng(seed).permutation(len(features))[:records]
    # one layer and no warm-up: what the attack sees best
    settings = {"module": "logistic", "lr": 0.5, "batch_size": 500}
    _report(
        lambda: audit_fit(
            skdpfair.DPFairClassifier(method, epsilon=epsilon, **settings),
            features.iloc[chosen],
            data.target.to_numpy()[chosen],
            canaries,
            sensitive_features=sex[chosen],
            random_state=seed,
        )
    )


@audit.command()
@_METHOD
@click.option("--noise-multiplier", default=1.0, show_default=True, help="Of the gradient.")
@click.option("--draws", default=20_000, show_default=True, help="Steps of each kind.")
@_SEED
def step(method, noise_multiplier, draws, seed):
    """Attack single steps, knowing all but whether a record took part."""
    settings = {"noise_multiplier": noise_multiplier, "n_draws": draws, "random_state": seed}
    _report(lambda: audit_step(method, **settings))


@audit.command()
@click.argument("path", type=click.Path(exists=True, path_type=Path))
def artifact(path):
    """Find training data in a pickle or another file, without executing it."""
    try:
        report = audit_artifact(path)
    except (ValueError, OSError) as error:
        raise click.ClickException(str(error)) from None
    click.echo(str(report))
    sys.exit(bool(report.findings))


def _report(audited):
    try:
        found = audited()
    except (ValueError, TypeError) as error:
        raise click.ClickException(str(error)) from None
    click.echo(str(found))
    sys.exit(not found.passed)
