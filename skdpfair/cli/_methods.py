"""``skdpfair methods``: what can be trained."""

import click
from rich.box import SIMPLE_HEAD
from rich.table import Table

from skdpfair.cli._input import AS_JSON, Screen, echo
from skdpfair.methods import methods_table


@click.command()
@click.option("--markdown", is_flag=True, help="Print the table of the docs.")
@AS_JSON
def methods(markdown, as_json):
    """List the methods: paper, privacy, groups, what they release."""
    found = methods_table().reset_index()
    if as_json:
        return echo(found.to_json(orient="records"))
    if markdown:
        return echo(_markdown(found))
    table = Table(title="Methods", box=SIMPLE_HEAD)
    for column in found.columns:
        table.add_column(column, no_wrap=column == "name")
    for row in found.itertuples(index=False):
        table.add_row(*row)
    Screen().print(table)


def _markdown(table):
    """Return a table of text as lines of Markdown."""
    rows = [table.columns, ["---"] * table.shape[1], *table.itertuples(index=False)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)
