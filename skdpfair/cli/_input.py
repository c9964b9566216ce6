"""Options, error messages and printing that the commands share."""

import math
import re
import shutil
import textwrap
import warnings
from contextlib import contextmanager, nullcontext
from pathlib import Path

import click
from rich.console import Console

from skdpfair.exceptions import BudgetExceeded

OPTIONS = {  # by the parameter of the library that they set
    **{name: f"--{name}" for name in ("epsilon", "delta", "method", "measures", "attack", "port")},
    **{name: f"--{name}" for name in ("seed", "fold", "rows")},
    **{f"n_{name}": f"--{name}" for name in ("draws", "canaries", "jobs")},
    **{"noise_multiplier": "--noise-multiplier", "random_state": "--seed", "column": "--by"},
    **{"path_or_object": "PATH", "store": "folder", "kind": "--export"},
    **{"results": "--sweep", "X, y": "--data"},
}
_WIDEST = 100


class AnyPath(click.Path):
    """A path; one that no file system takes is a usage error, not a traceback."""

    def __init__(self, **settings):
        super().__init__(path_type=Path, **settings)

    def convert(self, value, param, ctx):
        """Return the path."""
        try:
            path = super().convert(value, param, ctx)
            Path(str(path)).exists()
        except (OSError, ValueError) as error:
            self.fail(f"cannot be used: {getattr(error, 'strerror', None) or error}.", param, ctx)
        return path


def visible(text) -> str:
    """Return a text in which nothing steers a terminal, see `skdpfair._validate.visible`."""
    text = str(text)
    if text.isascii() and re.sub(r"[\n\t]", "", text).isprintable():
        return text  # without importing the library
    from skdpfair._validate import visible as escaped

    return escaped(text)


AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON, and nothing else.")


MEASURES = click.option(
    "--measures", help="Names separated by commas, such as balanced_accuracy,log_loss."
)


FILE = "file"  # column of the names of pictures


class Size(click.ParamType):
    """WIDTHxHEIGHT in pixels."""

    name = "WIDTHxHEIGHT"

    def convert(self, value, param, ctx):
        """Return (width, height)."""
        found = re.fullmatch(r"([1-9][0-9]{0,4})x([1-9][0-9]{0,4})", str(value))
        if not found:
            self.fail(f"{value!r} is not a size such as 32x32.", param, ctx)
        return int(found[1]), int(found[2])


LABELS = click.option(
    "--labels",
    type=AnyPath(exists=True, dir_okay=False),
    help="For pictures: CSV file of their targets and groups.",
)
FILE_COLUMN = click.option(
    "--file-column",
    default=FILE,
    show_default=True,
    help="For a folder of pictures: column of --labels with the file names.",
)
SIZE = click.option(
    "--size", type=Size(), help="For a folder of pictures: resize each, for example to 32x32."
)
MODE = click.option(
    "--mode",
    type=click.Choice(["L", "RGB"]),
    help="For a folder of pictures: convert each to grey (L) or colour (RGB).",
)


RECORDS = click.argument("data", type=AnyPath(exists=True))


def names_in(text):
    """Return the names in a list with commas, None for None."""
    return None if text is None else [name.strip() for name in text.split(",")]


class Unusable(click.ClickException):
    """An error of the input, which is no finding: status 2."""

    exit_code = 2

    def format_message(self):
        """Return the message as it is printed."""
        return visible(self.message)


def echo(text="", *, err=False):
    """Print a text; nothing in it, wherever it comes from, steers the terminal."""
    click.echo(visible(text), err=err)


def prompt(question, **settings):
    """Ask on the terminal, which nothing in the question steers."""
    return click.prompt(visible(question), err=True, **settings)


class Screen(Console):
    """Prints tables; nothing in their cells steers the terminal, or is taken for markup."""

    def __init__(self, **settings):
        super().__init__(markup=False, emoji=False, **settings)

    def render_str(self, text, **settings):
        """Return the text as it is printed."""
        return super().render_str(visible(text), **settings)


class Positive(click.FloatRange):
    """A finite number above zero."""

    def __init__(self):
        super().__init__(min=0, min_open=True)

    def convert(self, value, param, ctx):
        """Return the number."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number


def check_outputs(*outputs, inputs=()):
    """Raise, before anything is computed, if a file cannot be written or would replace another."""
    from skdpfair._files import check_writable  # late: it needs numpy

    taken = {Path(path).resolve(): path for path in inputs if path is not None}
    for output in outputs:
        if output is None:
            continue
        if not output.parent.is_dir():
            raise Unusable(f"{output} cannot be written: there is no folder {output.parent}.")
        if output.resolve() in taken:
            raise Unusable(f"{output} would replace {taken[output.resolve()]}. Name another file.")
        try:
            check_writable(output)
        except OSError as error:
            raise Unusable(f"{output} cannot be written: {error.strerror or error}.") from None
        taken[output.resolve()] = output


@contextmanager
def in_options(options=OPTIONS):
    """Raise errors of the library with status 2; ``options`` are in place of parameters."""
    try:
        yield
    except RecursionError:
        raise Unusable("What was given is nested too deeply.") from None
    except (ValueError, TypeError, OSError, ImportError, BudgetExceeded) as error:
        raise Unusable(in_words(str(error), options)) from None


def in_words(text, options=OPTIONS) -> str:
    """Return a message with the option in place of the parameter that it begins with, if it does.

    All other words stay: they may be those of a file, of a column or of a value.

    Examples
    --------
    >>> in_words("random_state=3 makes the noise reproducible.")
    '--seed=3 makes the noise reproducible.'
    >>> in_words("delta.csv has no column 'delta'.")
    "delta.csv has no column 'delta'."
    """
    begins = (name for name in options if text.startswith((f"{name}=", f"{name} must ")))
    name = next(begins, "")
    return options.get(name, "") + text.removeprefix(name)


def wrapped(text) -> str:
    """Return a sentence in lines no longer than the terminal's, nor than 100 characters."""
    width = min(_WIDEST, shutil.get_terminal_size().columns)
    return textwrap.fill(str(text), max(20, width), break_on_hyphens=False, break_long_words=False)


class recorded_warnings:
    """Collect the library's warnings; calling it returns each text once."""

    def __enter__(self):
        self._catch = warnings.catch_warnings(record=True)
        self._said = self._catch.__enter__()
        warnings.simplefilter("always")
        return self

    def __call__(self):
        return list(dict.fromkeys(str(w.message) for w in self._said))

    def met(self, category) -> bool:
        """Return whether there was a warning of a category."""
        return any(issubclass(w.category, category) for w in self._said)

    def __exit__(self, *error):
        return self._catch.__exit__(*error)


_LEDGER_OPTIONS = (
    click.option(
        "--ledger",
        type=AnyPath(dir_okay=False),
        help="Privacy ledger of this data set. Every fit is recorded, or refused if it would "
        "exceed the ledger's budget.",
    ),
    click.option("--ledger-epsilon", type=Positive(), help="Budget of a new ledger."),
    click.option(
        "--ledger-delta",
        type=Positive(),
        help="Delta of a new ledger; alone, it creates one without a budget.",
    ),
)


def ledger_options(command):
    """Give a command the options --ledger, --ledger-epsilon and --ledger-delta."""
    for option in reversed(_LEDGER_OPTIONS):
        command = option(command)
    return command


def check_ledger(ledger, epsilon, delta):
    """Raise if the options do not go together."""
    if ledger is None and (epsilon, delta) != (None, None):
        raise Unusable(
            "--ledger-epsilon and --ledger-delta describe a ledger: name its file with --ledger, "
            "or leave them out."
        )
    if epsilon is not None and delta is None:
        raise Unusable("--ledger-epsilon holds at a --ledger-delta: give both.")
    if ledger is not None and not ledger.exists() and delta is None:
        raise Unusable(
            f"--ledger {ledger} does not exist. To create it, give the budget of the data set: "
            "--ledger-epsilon and --ledger-delta. With --ledger-delta alone, it has no budget."
        )


def opened_ledger(ledger, epsilon, delta):
    """Return the ledger, to be entered; without one, a context that gives None."""
    from skdpfair.budget import PrivacyLedger

    if ledger is None:
        return nullcontext()
    with in_options({"epsilon": "--ledger-epsilon", "delta": "--ledger-delta", "path": "--ledger"}):
        return PrivacyLedger(ledger, epsilon=epsilon, delta=delta)


def existing_ledger(path):
    """Return the ledger of a file that is there, None without one."""
    from skdpfair.budget import PrivacyLedger

    return None if path is None else PrivacyLedger(path)


def delta_of_fits(delta, ledger, ledger_delta, n_units):
    """Return the delta of fits, by default their ledger's if it suits so many units.

    A model and all fits on its data are then stated at one delta.
    """
    if delta is None and ledger is not None:
        delta = ledger_delta or existing_ledger(ledger).delta
        delta = delta if delta is not None and delta * n_units < 1 else None
    return "auto" if delta is None else delta


def tell_ledger(ledger):
    """Print what all fits of a ledger cost, if there is one."""
    if ledger is None or ledger.delta is None:
        return
    for said in ledger.report().sentences(ledger.path.name, budget=ledger.budget):
        echo(wrapped(said))
