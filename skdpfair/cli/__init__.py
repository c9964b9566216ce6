"""The command line: parses, calls, prints."""

import sys

try:
    import click
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
except ImportError as error:  # the extra is optional, the library is not
    sys.exit(f'The command line needs an extra: pip install "skdpfair[cli,plot]" ({error}).')

import skdpfair
from skdpfair.cli._audit import audit
from skdpfair.cli._budget import budget
from skdpfair.cli._data import data
from skdpfair.cli._demo import demo
from skdpfair.cli._report import report
from skdpfair.cli._reproduce import reproduce
from skdpfair.methods import methods_table


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(skdpfair.__version__, prog_name="skdpfair")
def main():
    """Private classifiers, and what privacy costs each group."""


main.add_command(audit)
main.add_command(budget)
main.add_command(data)
main.add_command(demo)
main.add_command(report)
main.add_command(reproduce)


@main.command()
@click.option("--markdown", is_flag=True, help="Print the table of the docs.")
def methods(markdown):
    """List the methods: paper, privacy, groups, what they release."""
    found = methods_table().reset_index()
    if markdown:
        click.echo(_markdown(found))
        return
    table = Table(title="Methods", box=SIMPLE_HEAD)
    for column in found.columns:
        table.add_column(column, no_wrap=column == "name")
    for row in found.itertuples(index=False):
        table.add_row(*row)
    Console().print(table)


def _markdown(table):
    """Return a table of text as lines of Markdown."""
    rows = [table.columns, ["---"] * table.shape[1], *table.itertuples(index=False)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)
