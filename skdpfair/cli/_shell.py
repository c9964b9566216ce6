"""Options, errors and printing that the commands share; `--help` waits for nothing heavier."""

import functools
import re
import shutil
import sys
import textwrap
import warnings
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import click

from skdpfair.exceptions import BudgetExceededError, InterruptedWarning

# by the parameter of the library that they set
OPTIONS = {name: f"--{name}" for name in ("epsilon", "delta", "method", "measures")}
OPTIONS["random_state"] = "--seed"
_MAX_WIDTH = 100

AnyPath = functools.partial(click.Path, path_type=Path)
FILE = AnyPath(exists=True, dir_okay=False)
POSITIVE = click.FloatRange(min=0, min_open=True)

AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON only.")
EPSILON = click.option("--epsilon", type=POSITIVE, default=1.0, help="Privacy budget of a fit.")
SEED = click.option(
    "--seed", type=click.IntRange(min=0), help="Make noise reproducible: research only."
)
MEASURES = click.option(
    "--measures", help="Names separated by commas, such as balanced_accuracy,log_loss."
)
LEDGER = click.option(
    "--ledger",
    type=FILE,
    help="Ledger of the data set, to state the total cost of the fits that it has recorded.",
)


def output_option(default=None, text="The file to write.", *, file_okay=True):
    """Return the option --output of a command that writes one file, or a folder."""
    kind = AnyPath(dir_okay=not file_okay, file_okay=file_okay)
    return click.option("--output", "-o", type=kind, default=default, help=text)


def visible(text) -> str:
    from skdpfair._utils.validate import visible as escaped  # late: it needs numpy

    return escaped(text)


def names_in(text):
    return None if text is None else [name.strip() for name in text.split(",")]


class Unusable(click.ClickException):
    """An error of the input, which is no finding: status 2."""

    exit_code = 2

    def format_message(self):
        return visible(self.message)


def echo(text="", *, err=False):
    """Print a text; nothing in it, wherever it comes from, steers the terminal."""
    click.echo(visible(text), err=err)


def say(text, *, err=False):
    echo(wrapped(text), err=err)


def fail(text):
    """End with status 1, as a finding."""
    say(text, err=True)
    sys.exit(1)


def note(text):
    """Print a note, apart from the output."""
    say(f"Note: {text}", err=True)


def prompt(question, **settings):
    """Ask on the terminal, which nothing in the question steers."""
    return click.prompt(visible(question), err=True, **settings)


def check_outputs(*outputs, inputs=()):
    """Raise, before anything is computed, if a file cannot be written or would replace another."""
    from skdpfair._utils.files import check_writable  # late: it needs numpy

    used_paths = {Path(path).resolve(): path for path in inputs if path is not None}
    for output in outputs:
        if output is None:
            continue
        if not output.parent.is_dir():
            raise Unusable(f"{output} cannot be written: there is no folder {output.parent}.")
        resolved = output.resolve()
        if resolved in used_paths:
            raise Unusable(f"{output} would replace {used_paths[resolved]}. Name another file.")
        try:
            check_writable(output)
        except OSError as error:
            raise Unusable(f"{output} cannot be written: {error.strerror or error}.") from None
        used_paths[resolved] = output


_PARAMETER = re.compile(r"(\w+)(?==| must\b| names\b)")


@contextmanager
def in_options(options=OPTIONS):
    """Raise errors of the library with status 2, after what the user wrote for their parameter."""
    try:
        yield
    except RecursionError:
        raise Unusable("An input is nested too deeply.") from None
    except (ValueError, TypeError, OSError, ImportError, BudgetExceededError) as error:
        begins = _PARAMETER.match(str(error))
        option = options.get(getattr(error, "parameter", begins and begins[1]))
        raise Unusable(f"{option}: {error}" if option else str(error)) from None


def wrapped(text) -> str:
    """Return a sentence in lines no longer than the terminal's, nor than 100 characters."""
    width = min(_MAX_WIDTH, shutil.get_terminal_size().columns)
    return textwrap.fill(str(text), max(20, width), break_on_hyphens=False, break_long_words=False)


def recorded_warnings():
    return warnings.catch_warnings(record=True, action="always")


def texts_of(recorded) -> list:
    return list(dict.fromkeys(str(w.message) for w in recorded))


def is_interrupted(recorded) -> bool:
    return any(issubclass(w.category, InterruptedWarning) for w in recorded)


@dataclass(frozen=True)
class LedgerOptions:
    """The file of a ledger that a command charges, and the budget of a new one."""

    path: Path | None
    epsilon: float | None
    delta: float | None

    def __post_init__(self):
        if self.path is None and (self.epsilon, self.delta) != (None, None):
            raise Unusable(
                "--ledger-epsilon and --ledger-delta describe a ledger: name its file with "
                "--ledger, or leave them out."
            )
        if self.path is not None and _is_new(self.path):
            if self.delta is None:
                lacks = "is empty" if self.path.exists() else "does not exist"
                raise Unusable(
                    f"--ledger {self.path} {lacks}. To create it, give the budget of the data set: "
                    "--ledger-epsilon and --ledger-delta. With --ledger-delta alone, it has no "
                    "budget."
                )
            check_outputs(self.path)

    @property
    def as_option(self) -> str:
        """The option for a command that reads the ledger, "" without one."""
        return "" if self.path is None else f" --ledger {self.path}"

    def planned(self):
        """Return the ledger, with no file yet if it is new, to check fits; None without one."""
        if self.path is None:
            return None
        from skdpfair.budget.journal import Unbegun  # late: it needs the accountants

        ledger = self._of(Unbegun(self.path) if _is_new(self.path) else self.path)
        if self.epsilon is None and self.delta is not None and ledger.budget is not None:
            raise Unusable(
                f"--ledger-delta alone stands for a ledger without a budget, but {self.path} has "
                f"epsilon={ledger.budget:g}. Leave --ledger-delta out, or name another --ledger."
            )
        return ledger

    def opened(self):
        """Return the ledger, to be entered; without one, a context that gives None."""
        if self.path is None:
            return nullcontext()
        return self._of(self.path)

    def _of(self, journal):
        from skdpfair.budget import PrivacyLedger  # late: it needs the accountants

        options = {"epsilon": "--ledger-epsilon", "delta": "--ledger-delta", "path": "--ledger"}
        delta = self.delta
        if delta is None and self.epsilon is not None and not _is_new(self.path):
            delta = existing_ledger(self.path).delta
        with in_options(options):
            return PrivacyLedger(journal, epsilon=self.epsilon, delta=delta)

    def delta_of_fits(self, delta, n_examples):
        """Return the delta of fits, by default their ledger's if it suits so many examples.

        A model and all fits on its data are then stated at one delta.
        """
        if delta is None and self.path is not None:
            delta = self.planned().delta
            delta = delta if delta is not None and delta * n_examples < 1 else None
        return "auto" if delta is None else delta


def ledger_options(command):
    """Give a command the options of a ledger that it charges, as one object ``ledger``."""

    @click.option(
        "--ledger",
        type=AnyPath(dir_okay=False),
        help="Privacy ledger of this data set. Every fit is recorded, or refused if it would "
        "exceed the ledger's budget.",
    )
    @click.option("--ledger-epsilon", type=POSITIVE, help="Budget of a new ledger.")
    @click.option(
        "--ledger-delta",
        type=POSITIVE,
        help="Delta of a new ledger; without --ledger-epsilon, the ledger has no budget.",
    )
    @functools.wraps(command)
    def gathered(*, ledger, ledger_epsilon, ledger_delta, **values):
        return command(ledger=LedgerOptions(ledger, ledger_epsilon, ledger_delta), **values)

    return gathered


def existing_ledger(path):
    """Return the ledger of a file that is there, None without one."""
    if path is None:
        return None
    if _is_new(path):
        raise Unusable(f"--ledger {path} is empty: name a ledger that a fit has charged.")
    return LedgerOptions(path, None, None).opened()


def _is_new(path) -> bool:
    return not path.exists() or not path.stat().st_size


def print_spending(ledger):
    """Print what all fits of an open ledger cost, if there is one."""
    if ledger is None or ledger.delta is None:
        return
    for sentence in ledger.report().sentences(ledger.path.name, budget=ledger.budget):
        say(sentence)
