"""What commands share: paths that cannot exist, errors in their words, and all that is printed."""

import math
import re
import shutil
import textwrap
import warnings
from contextlib import contextmanager
from pathlib import Path

import click
from rich.console import Console

from skdpfair._validate import visible
from skdpfair.budget.files import check_writable
from skdpfair.exceptions import BudgetExceeded

WORDS = {
    "n_draws": "--draws",
    "n_canaries": "--canaries",
    "noise_multiplier": "--noise-multiplier",
    "random_state": "--seed",
    "epsilon": "--epsilon",
    "method": "--method",
    "rows": "--rows",
    "path_or_object": "PATH",
    "store": "RESULTS",
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
            path.exists()
        except (OSError, ValueError) as error:
            self.fail(f"cannot be used: {getattr(error, 'strerror', None) or error}.", param, ctx)
        return path


AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON, and nothing else.")


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
def in_options(names=WORDS):
    """Raise errors of the library with status 2, and ``names`` of options for its parameters."""
    try:
        yield
    except RecursionError:
        raise Unusable("What was given is nested too deeply.") from None
    except (ValueError, TypeError, OSError, ImportError, BudgetExceeded) as error:
        raise Unusable(in_words(str(error), names)) from None


def in_words(text, names) -> str:
    """Return what the library says, with the words of the command line for ``names``.

    Examples
    --------
    >>> in_words("delta=0.5 is large. Use delta='auto'.", {"delta": "--delta",
    ...          "Use delta='auto'": "Leave --delta out"})
    '--delta=0.5 is large. Leave --delta out.'
    >>> in_words("delta.csv has no column 'delta'.", {"delta": "--delta"})
    "delta.csv has no column 'delta'."
    """
    if not names:
        return text
    longest_first = sorted(names, key=len, reverse=True)
    parts = "|".join(
        re.escape(name) + r"\b(?![-/\\]|\.\w)" * name[-1].isalnum() for name in longest_first
    )
    quoted = r"(?<!\w)(?:'[^'\n]*'|\"[^\"\n]*\")"  # paths, columns and values stay as they are
    return re.sub(
        rf"{quoted}|\b(?<![-/\\.])({parts})", lambda m: names[m[1]] if m[1] else m[0], text
    )


def wrapped(text) -> str:
    """Return a sentence in lines no longer than the terminal's, nor than 100 characters."""
    width = min(_WIDEST, shutil.get_terminal_size().columns)
    return textwrap.fill(str(text), max(20, width), break_on_hyphens=False, break_long_words=False)


class told:
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
