"""The command line: one command per module, imported when it is called."""

import sys
from difflib import get_close_matches
from importlib import import_module

try:
    import click
except ImportError as error:
    # the extra is optional, the library is not
    sys.exit(f'The command line needs an extra: pip install "skdpfair[cli,plot]" ({error}).')

from skdpfair import __version__

# what `skdpfair --help` says of a command without importing its module
COMMANDS = {
    "schema": "Begin a file of public facts about a table, or check one.",
    "fit": "Train a private classifier on a CSV file or Parquet files.",
    "predict": "Predict the rows of a CSV or Parquet file.",
    "sweep": "Compare methods and budgets on a CSV file.",
    "report": "Write a page about a sweep or a model.",
    "statement": "Print or export the privacy statement of a model.",
    "verify": "Check that a file holds a private model and nothing else.",
    "demo": "Compare the sexes on Adult, with and without privacy.",
}


class _LazyGroup(click.Group):
    """A group that imports a command when it is called, and lists a day's work first."""

    def list_commands(self, ctx):
        return list(COMMANDS)

    def get_command(self, ctx, name):
        if name not in COMMANDS:
            return None
        return getattr(import_module(f"skdpfair.cli.{name}_command"), name)

    def resolve_command(self, ctx, args):
        """Return the command that is asked for, or name the nearest."""
        if args[0] not in COMMANDS and not ctx.resilient_parsing:  # of a shell that completes
            near = get_close_matches(args[0], COMMANDS, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            ctx.fail(f"No such command {args[0]!r}.{hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx, formatter):
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def invoke(self, ctx):
        """Run a command; Ctrl-C ends it with the status that shells give it."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            click.echo("\nInterrupted.", err=True)
            ctx.exit(130)


@click.group(
    cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "show_default": True}
)
@click.version_option(__version__, prog_name="skdpfair")
def main():
    """Private classifiers, and what privacy costs each group."""
