"""The ledger of a data set, as commands that train open it."""

from contextlib import nullcontext

import click

from skdpfair.cli._input import AnyPath, Positive, Unusable, echo, in_options, wrapped
from skdpfair.privacy.statement import rounded_up

WORDS = {"a ledger without a budget": "a ledger begun by --ledger-delta alone"}
_OPTIONS = (
    click.option(
        "--ledger",
        type=AnyPath(dir_okay=False),
        help="Privacy ledger of this data set. Every fit is recorded, or refused if it would "
        "exceed the ledger's budget.",
    ),
    click.option("--ledger-epsilon", type=Positive(), help="Budget of a new ledger."),
    click.option(
        "--ledger-delta", type=Positive(), help="At which it holds; alone, for one without budget."
    ),
)


def options(command):
    """Give a command the options --ledger, --ledger-epsilon and --ledger-delta."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def check(ledger, epsilon, delta):
    """Raise if the options do not go together."""
    if ledger is None and (epsilon, delta) != (None, None):
        raise Unusable(
            "--ledger-epsilon and --ledger-delta are those of a ledger: name its file by --ledger, "
            "or leave them out."
        )
    if epsilon is not None and delta is None:
        raise Unusable("--ledger-epsilon holds at a --ledger-delta: give both.")
    if ledger is not None and not ledger.exists() and delta is None:
        raise Unusable(
            f"--ledger {ledger} is not there. To begin a new one, say what may be spent in all: "
            "--ledger-epsilon and --ledger-delta. --ledger-delta alone begins one without a budget."
        )


def opened(ledger, epsilon, delta):
    """Return the ledger, to be entered; without one, a context that gives None."""
    from skdpfair.budget import PrivacyLedger

    if ledger is None:
        return nullcontext()
    with in_options({"epsilon": "--ledger-epsilon", "delta": "--ledger-delta"}):
        return PrivacyLedger(ledger, epsilon=epsilon, delta=delta)


def tell(books):
    """Print what all fits of a ledger cost, if there is one."""
    if books is None or books.delta is None:
        return
    spent, paid = books.report(), rounded_up(books.epsilon())
    if books.budget is not None:
        paid += f" of {books.budget:g}"
    said = f"Spent in {books.path.name}: epsilon {paid}, at delta {books.delta:g}"
    if spent.reasons:
        whole = "there is no bound" if spent.known else "it is unknown"
        said += f", by the fits alone; as a whole {whole}: {'; '.join(spent.reasons)}"
    echo(wrapped(f"{said}."))
