"""``skdpfair verify``: whether a file holds a release, and nothing more."""

import json

import click

from skdpfair.cli import _shell as shell


@click.command()
@click.argument("path", metavar="FILE", type=shell.FILE)
@shell.AS_JSON
def verify(path, as_json):
    """Check that FILE holds a private model, and nothing else.

    FILE was written by `skdpfair fit` or save_release. It is read as data: no code of it is run.
    Pages are not verified: write them again by `skdpfair report FILE`. The command ends with status
    0 if the file is verified, 1 if it is not, and 2 if it could not be run.
    `skdpfair statement FILE` prints the guarantee.
    """
    from skdpfair.testing import verify_release  # late: it needs torch

    problem = None
    with shell.in_options():
        try:
            verify_release(path)
        except ValueError as error:
            problem = str(error)
    if as_json:
        shell.echo(json.dumps({"file": str(path), "verified": problem is None, "problem": problem}))
    if problem is not None:
        shell.fail(f"Not verified: {problem}")
    if not as_json:
        shell.echo(f"{path}: verified. It holds a private release, and nothing else.")
