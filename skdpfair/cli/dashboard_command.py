"""``skdpfair dashboard``: serve all models of a sweep in the Fairlearn dashboard."""

import threading
from contextlib import suppress

import click

from skdpfair.cli._input import MEASURES, AnyPath, echo, in_options, names_in, wrapped


@click.command()
@click.argument("results", type=AnyPath(exists=True, file_okay=False))
@click.option("--port", type=click.IntRange(1, 65_535), help="Of localhost; by default a free one.")
@click.option("--seed", type=int, help="Seed whose test records are shown; by default the first.")
@click.option("--fold", type=int, default=0, show_default=True, help="Which of its folds.")
@MEASURES
def dashboard(results, port, seed, fold, measures):
    """Show all models of RESULTS, the folder of a sweep, in the Fairlearn dashboard.

    The sweep must have kept its predictions: keep_predictions = true under [sweep]. The dashboard
    is served on this machine only, until Ctrl-C; what it shows is NOT private.
    """
    from skdpfair.model_selection import TradeoffResults  # late: it needs most of the package
    from skdpfair.report import launch_fairness_dashboard

    with in_options():
        found = TradeoffResults.from_store(results)
        served = launch_fairness_dashboard(
            found, port, seed=seed, fold=fold, measures=names_in(measures)
        )
    echo(f"The dashboard is at {served.url}")
    echo(wrapped("It shows private records' labels and groups. Ctrl-C ends it."))
    with suppress(KeyboardInterrupt):
        threading.Event().wait()
