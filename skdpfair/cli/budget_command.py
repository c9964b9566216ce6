"""``skdpfair budget``: compute the budget, the noise or the steps from the other two."""

import json
import math
from dataclasses import replace

import click
from rich.box import SIMPLE_HEAD
from rich.table import Table

from skdpfair.cli._input import Positive, Screen, Unusable, echo, in_options, wrapped
from skdpfair.privacy import Release, calibrated, gdp_parameter
from skdpfair.privacy import epsilon as epsilon_of
from skdpfair.privacy.accounting import ACCOUNTANTS
from skdpfair.privacy.calibration import max_steps
from skdpfair.privacy.gdp import delta_for
from skdpfair.privacy.releases import MAX_RECORDS
from skdpfair.privacy.statement import ADJACENCY_IN_WORDS, rounded_up

_POSITIVE = Positive()


@click.command()
@click.option(
    "--records",
    type=click.IntRange(min=1),
    required=True,
    help="Number of records, or of persons if the guarantee is for persons.",
)
@click.option(
    "--batch-size", type=_POSITIVE, required=True, help="Expected size of a Poisson batch."
)
@click.option("--epsilon", type=_POSITIVE, help="The budget.")
@click.option(
    "--noise-multiplier",
    type=_POSITIVE,
    help="Standard deviation of the noise, divided by the largest effect of one record.",
)
@click.option("--steps", type=click.IntRange(min=1), help="Number of training steps.")
@click.option("--epochs", type=_POSITIVE, help="Instead of steps: passes over the records.")
@click.option("--delta", type=_POSITIVE, help="Delta; by default that of a fit on so many records.")
@click.option(
    "--accountant",
    type=click.Choice(sorted(ACCOUNTANTS)),
    default="pld",
    show_default=True,
    help="How epsilon is computed; pld is the tightest.",
)
@click.option(
    "--records-per-person",
    type=click.IntRange(1, MAX_RECORDS),
    default=1,
    show_default=True,
    help="Largest number of records of one person; --epsilon is then the budget of a person.",
)
@click.option(
    "--candidates",
    type=click.IntRange(min=1),
    help="Forecast a grid search over this number of settings.",
)
@click.option(
    "--folds", type=click.IntRange(min=2), default=5, show_default=True, help="Of that search."
)
@click.option("--json", "as_json", is_flag=True, help="Print an object of JSON.")
def budget(
    records,
    batch_size,
    epsilon,
    noise_multiplier,
    steps,
    epochs,
    delta,
    accountant,
    records_per_person,
    candidates,
    folds,
    as_json,
):
    """Compute the budget, the noise or the number of steps of a fit.

    Give two of --epsilon, --noise-multiplier and --steps (or --epochs): the third is found.

    \b
    skdpfair budget --records 36178 --batch-size 512 --epochs 10 --epsilon 1
    skdpfair budget --records 36178 --batch-size 512 --steps 700 --noise-multiplier 1.2
    skdpfair budget --records 36178 --batch-size 512 --epochs 10 --epsilon 1 --records-per-person 5
    """  # noqa: D301 (click reads the character)
    if batch_size > records:
        raise Unusable(f"--batch-size {batch_size:g} is more than --records {records}.")
    if steps is not None and epochs is not None:
        raise Unusable("--steps and --epochs say the same thing: give one.")
    if epochs is not None:
        steps = math.ceil(epochs * records / batch_size)
    if candidates is not None and records_per_person > 1:
        raise Unusable("--candidates forecasts what a record pays: leave --records-per-person out.")
    given = {"--epsilon": epsilon, "--noise-multiplier": noise_multiplier, "--steps": steps}
    missing = [name for name, value in given.items() if value is None]
    if len(missing) != 1:
        raise Unusable(f"Give two of {', '.join(given)}; the third is found.")
    with in_options():
        delta = delta_for("auto" if delta is None else delta, records)
        release = Release("steps", batch_size / records, (noise_multiplier or 1.0,), steps or 1)
        person = {"accountant": accountant, "records_per_person": records_per_person}
        if missing == ["--noise-multiplier"]:
            (release,) = calibrated([release], epsilon, delta, **person)
        elif missing == ["--steps"]:
            release = replace(release, steps=max_steps(release, epsilon, delta, **person))
        found = _facts(release, records, delta, **person)
        if candidates is not None:
            found["search"] = _search(release, records, delta, accountant, candidates, folds)
    _print(found, as_json)


def _facts(release, records, delta, accountant, records_per_person):
    epsilon = epsilon_of([release], delta, accountant)
    return {
        "epsilon": epsilon,
        "records_per_person": records_per_person,
        "epsilon_of_person": epsilon_of([release], delta, accountant, records_per_person),
        "delta": delta,
        "signal": records * gdp_parameter(epsilon, delta),
        "noise_multiplier": release.joint_noise_multiplier,
        "steps": release.steps,
        "sample_rate": release.sample_rate,
        "expected_batch_size": release.sample_rate * records,
        "epochs": release.steps * release.sample_rate,
        "records": records,
        "accountant": accountant,
        "adjacency": "zero_out",
    }


def _search(release, records, delta, accountant, candidates, folds):
    """Return what a grid search of equal fits costs the record that pays most."""
    from sklearn.model_selection import GridSearchCV  # late: a search needs most of the package

    from skdpfair import DPFairClassifier
    from skdpfair.model_selection import plan as plan_of

    fit = DPFairClassifier(
        "dpsgd",
        epsilon=None,
        noise_multiplier=release.joint_noise_multiplier,
        batch_size=round(release.sample_rate * records),
        max_steps=release.steps,
    )
    grid = {"lr": [float(i + 1) for i in range(candidates)]}
    search = GridSearchCV(fit, grid, cv=folds)
    planned = plan_of(search, records, delta=delta, accountant=accountant)
    return {
        "candidates": candidates,
        "folds": folds,
        "fits": sum(f.n_fits for f in planned.fits),
        "fits_that_read_a_record": sum(f.n_fits_per_record for f in planned.fits),
        "epsilon": planned.epsilon,
    }


def _print(found, as_json):
    if as_json:
        return echo(json.dumps(found))
    table = Table(box=SIMPLE_HEAD, show_header=False)
    n = found["records_per_person"]
    person = {f"epsilon of a person with {n} records": rounded_up(found["epsilon_of_person"])}
    rows = {
        "epsilon": rounded_up(found["epsilon"]),
        **(person if n > 1 else {}),
        "delta": rounded_up(found["delta"], 3),
        "noise multiplier": f"{found['noise_multiplier']:.4f}",
        "steps": f"{found['steps']:,}",
        "sampling rate": f"{found['sample_rate']:.5g}",
        "epochs": f"{found['epochs']:.3g}",
        "signal (500 is comfortable)": f"{found['signal']:,.0f}",
        "accountant": found["accountant"],
    }
    for row in rows.items():
        table.add_row(*row)
    Screen().print(table)
    echo(wrapped(f"Where {ADJACENCY_IN_WORDS[found['adjacency']]}."))
    if "search" in found:
        search = found["search"]
        echo(
            wrapped(
                f"A grid search over {search['candidates']} such settings in {search['folds']} "
                f"folds makes {search['fits']} fits, of which {search['fits_that_read_a_record']} "
                f"read a record: epsilon {rounded_up(search['epsilon'])} together, and its scores "
                "are not private."
            )
        )
