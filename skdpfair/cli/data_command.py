"""``skdpfair data``: find the data sets and check their digests."""

import json
import sys

import click

from skdpfair.cli._input import AS_JSON, AnyPath, echo, wrapped
from skdpfair.datasets import fetch_dutch, load_adult
from skdpfair.exceptions import DataIntegrityError

_SETS = {
    "adult": None,  # in the package
    "dutch": fetch_dutch,
}
_NAMES = click.argument("names", nargs=-1, type=click.Choice(list(_SETS)))
_FOLDER = click.option(
    "--folder", type=AnyPath(), help="Where to look; by default the folder SKDPFAIR_DATA names."
)


@click.group()
def data():
    """Find data sets, and check their digests.

    Each command ends with status 0 if all are as recorded, 1 if one is missing or another version.
    """


@data.command()
@_NAMES
@_FOLDER
@AS_JSON
def fetch(names, folder, as_json):
    """Get NAMES, or all, to where the library finds them.

    Adult is in the package. The Dutch census has no lasting address with a recorded digest: if it
    is missing, where to get it and where to put it is named.
    """
    _report(names, folder, as_json, download=True)


@data.command()
@_NAMES
@_FOLDER
@AS_JSON
def verify(names, folder, as_json):
    """Check that NAMES, or all, are at hand and bit for bit the recorded ones."""
    _report(names, folder, as_json, download=False)


def _report(names, folder, as_json, *, download):
    found = {name: _look(name, folder, download) for name in names or _SETS}
    if as_json:
        echo(json.dumps(found))
    else:
        for name, fact in found.items():
            said = "as recorded" if fact["problem"] is None else fact["problem"]
            size = "" if fact["records"] is None else f", {fact['records']:,} records"
            echo(wrapped(f"{name}: {said}{size}"))
    sys.exit(any(fact["problem"] is not None for fact in found.values()))


def _look(name, folder, download):
    load = _SETS[name]
    try:
        if load is None:
            records = len(load_adult().target)
        else:
            records = len(load(data_home=folder, download_if_missing=download).target)
    except DataIntegrityError as error:
        return {"records": None, "problem": str(error).replace("data_home=", "--folder")}
    return {"records": records, "problem": None}
