"""``skdpfair data``: find the data sets and check their digests."""

import json
import sys

import click

from skdpfair.cli._input import AS_JSON, AnyPath, echo, wrapped
from skdpfair.datasets import fetch_dutch, load_adult
from skdpfair.exceptions import DataIntegrityError

_SETS = {
    "adult": lambda folder: load_adult(),
    "dutch": lambda folder: fetch_dutch(data_home=folder),
}


@click.group()
def data():
    """Find data sets, and check their digests."""


@data.command()
@click.argument("names", nargs=-1, type=click.Choice(list(_SETS)))
@click.option(
    "--folder", type=AnyPath(), help="Where to look; by default the folder SKDPFAIR_DATA names."
)
@AS_JSON
def verify(names, folder, as_json):
    """Check that NAMES, or all, are at hand and bit for bit the recorded ones.

    It ends with status 0 if they are, and with 1 if one is missing or another version.
    """
    facts = {name: _look(name, folder) for name in names or _SETS}
    if as_json:
        echo(json.dumps(facts))
    else:
        for name, fact in facts.items():
            state = "as recorded" if fact["problem"] is None else fact["problem"]
            size = "" if fact["records"] is None else f", {fact['records']:,} records"
            echo(wrapped(f"{name}: {state}{size}"))
    sys.exit(any(fact["problem"] is not None for fact in facts.values()))


def _look(name, folder):
    try:
        return {"records": len(_SETS[name](folder).target), "problem": None}
    except DataIntegrityError as error:
        return {"records": None, "problem": str(error).replace("data_home=", "--folder")}
