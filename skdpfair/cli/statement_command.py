"""``skdpfair statement``: print or export the privacy statement of a release file."""

import json
import sys

import click

from skdpfair.cli._input import (
    AS_JSON,
    AnyPath,
    Unusable,
    check_outputs,
    echo,
    in_options,
    in_words,
    wrapped,
)
from skdpfair.privacy.statement import MEMBERS, PROTECTED, UNITS, percent, rounded_up

_KINDS = ("nist", "registry", "annex-iv")  # those of skdpfair.report, without importing it
_NEIGHBOURS = {
    "record": "a null record replaces one record",
    "person": "null records replace all of one person",
}


@click.command()
@click.argument("path", type=AnyPath(exists=True, dir_okay=False))
@click.option(
    "--export",
    type=click.Choice(_KINDS),
    help="A checklist after NIST SP 800-226, a record for OpenDP's registry of deployments, or the "
    "items of Annex IV of the EU's AI Act.",
)
@click.option(
    "--output", "-o", type=AnyPath(dir_okay=False), help="File of the export; else it is printed."
)
@AS_JSON
def statement(path, export, output, as_json):
    """Print the privacy statement of PATH, a model that `skdpfair fit` or save_release wrote.

    No code of the file is run. The command ends with status 0 if the file is intact and its weights
    are private, 1 if they are not private, if their noise was seeded, or if the file is damaged or
    no release, and 2 if it could not be run.
    """
    if as_json and export:
        raise Unusable("--json and --export must not both be given: an export has its own form.")
    if output is not None and not export:
        raise Unusable(f"--output is for an export: give --export, one of {', '.join(_KINDS)}.")
    check_outputs(output, inputs=[path])
    from skdpfair.release import read_statement  # late: it needs the accountants

    with in_options({}):
        try:
            said = read_statement(path)
        except ValueError as error:
            _fail(str(error))
        if export:
            _export(path, export, output)
    if as_json:
        echo(json.dumps(said))
    elif not export:
        echo("\n".join(lines_of(path.name, said)))
    if not said["is_private"]:
        _fail(f"{path.name} is NOT differentially private: its epsilon is infinite.")
    if said["seeded"]:
        _fail(f"The noise in {path.name} was seeded: whoever knows the seed can remove it.")


def lines_of(name, said):
    """Return the lines that a person reads of a statement."""
    release = said["release"]
    what = f"{said['what']} of a {release['estimator']}"
    if not said["is_private"]:
        return [f"{name}: {what}, NOT differentially private", *_about_file(release)]
    rate, unit = said["detection_rate"], UNITS[said["adjacency"]]
    open_items = len(said["checklist"])
    rows = {
        "epsilon": f"{rounded_up(said['epsilon'])} ({said['accountant']} accountant)",
        "delta": rounded_up(said["delta"], 3),
        "mu": f"{said['mu']} of Gaussian differential privacy",
        "detection rate": f"at most {percent(rate['at_most'])} % of the {MEMBERS[unit]}, at "
        f"{percent(rate['false_alarm_rate'])} % false alarms",
        "unit": PROTECTED[unit],
        "adjacency": f"{said['adjacency']}: {_NEIGHBOURS[unit]}; the number of {unit}s is public",
        "method": f"{said['method']}, {said['steps']:,} steps",
        "sampling": f"Poisson, rate at most {rounded_up(said['sample_rate'])}",
        "seeded": "YES: whoever knows the seed can remove the noise" if said["seeded"] else "no",
    }
    return [
        f"{name}: differentially private {what}",
        *(f"  {head:<15} {text}" for head, text in rows.items()),
        *_about_file(release),
        f"  {'not covered':<15} {open_items} points to check, see --json",
    ]


def _about_file(release):
    return [
        f"  {'integrity':<15} intact, SHA-256 {release['sha256'][:16]}, written by skdpfair "
        f"{release['skdpfair_version']}"
    ]


def _export(path, kind, output):
    from skdpfair.budget.files import replace_file
    from skdpfair.report import export_statement  # late: it needs torch

    try:
        text = export_statement(path, kind)
    except (TypeError, ValueError) as error:  # what a file describes may be anything
        _fail(in_words(str(error), {"kind": "--export"}))
    if output is None:
        return echo(text.rstrip("\n"))
    replace_file(output, text.encode())
    echo(wrapped(f"Written to {output}."), err=True)


def _fail(text):
    """End with status 1, as a finding."""
    echo(wrapped(text), err=True)
    sys.exit(1)
