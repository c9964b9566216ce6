"""The command line: parses, calls, prints."""

import sys

try:
    import click
    import rich  # noqa: F401 (the commands import it)
except ImportError as error:  # the extra is optional, the library is not
    sys.exit(f'The command line needs an extra: pip install "skdpfair[cli,plot]" ({error}).')

import skdpfair
from skdpfair.cli._audit import audit
from skdpfair.cli._budget import budget
from skdpfair.cli._dashboard import dashboard
from skdpfair.cli._data import data
from skdpfair.cli._demo import demo
from skdpfair.cli._fit import fit, predict
from skdpfair.cli._methods import methods
from skdpfair.cli._report import report
from skdpfair.cli._schema import schema
from skdpfair.cli._sweep import sweep


class _InOrder(click.Group):
    """A group that lists its commands as they were added: a day's work, then the tools."""

    def list_commands(self, ctx):
        return list(self.commands)

    def invoke(self, ctx):
        """Run a command; Ctrl-C ends it with the status that shells give it."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            click.echo("\nInterrupted.", err=True)
            ctx.exit(130)


@click.group(cls=_InOrder, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(skdpfair.__version__, prog_name="skdpfair")
def main():
    """Private classifiers, and what privacy costs each group."""


for command in (
    *(schema, fit, predict, sweep, report, dashboard),
    *(budget, methods, audit, data, demo),
):
    main.add_command(command)
