"""``skdpfair report``: a sweep's results as one page of HTML."""

import click

from skdpfair.cli._input import AnyPath, in_options, wrapped


@click.command()
@click.argument("results", type=AnyPath(exists=True, file_okay=False))
@click.option(
    "--output",
    "-o",
    type=AnyPath(dir_okay=False),
    default="report.html",
    show_default=True,
    help="The page to write.",
)
@click.option("--title", help="Of the page.")
def report(results, output, title):
    """Write a page about RESULTS, the folder that a sweep was given as store.

    The page is one file without scripts or requests. It holds figures that are not private.
    """
    from skdpfair.model_selection import TradeoffResults  # late: it needs most of the package

    with in_options():
        TradeoffResults.from_store(results).to_html(output, title=title)
    click.echo(wrapped(f"Written to {output}. It contains non-private figures."))
