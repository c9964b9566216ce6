"""``skdpfair statement``: print or export the privacy statement of a release file."""

import json

import click

from skdpfair.cli import _shell as shell


@click.command()
@click.argument("path", type=shell.FILE)
@click.option(
    "--export", "kind", type=click.Choice(["nist"]), help="A checklist after NIST SP 800-226."
)
@shell.output_option(text="File to write the export to; by default it is printed.")
@shell.LEDGER
@click.option(
    "--data",
    type=shell.FILE,
    help="For an export: test records as in fit, for a group table that is NOT private.",
)
@shell.AS_JSON
def statement(path, kind, output, ledger, data, as_json):
    """Print the privacy statement of PATH, a model that `skdpfair fit` or save_release wrote.

    No code of the file is run. The command ends with status 0 if the file is intact and its weights
    are private, 1 if they are not private, if their noise was seeded, or if the file is damaged or
    no release, and 2 if it could not be run.
    """
    if as_json and kind:
        raise shell.Unusable(
            "--json and --export must not both be given: an export has its own form."
        )
    if kind is None and (output, data) != (None, None):
        raise shell.Unusable("--output and --data are for an export: give --export nist.")
    shell.check_outputs(output, inputs=[path, ledger, data])
    from skdpfair.release._read_statement import read_statement  # late: it needs the accountants

    with shell.in_options():
        ledger, tests = shell.existing_ledger(ledger), {}
        try:
            facts = read_statement(path)
        except ValueError as error:
            shell.fail(str(error))
        if data is not None:
            from skdpfair.cli._sources import test_records  # late, as what follows: it needs torch
            from skdpfair.release._release import load_release

            tests = test_records(path, load_release(path).schema_, data)
        if kind is not None or ledger is not None:
            from skdpfair.report import export_statement

            try:
                text = export_statement(path, kind or "json", ledger=ledger, **tests)
            except (TypeError, ValueError) as error:  # what a file describes may be anything
                shell.fail(str(error))
            facts = facts if kind else json.loads(text)
        if output is not None:
            from skdpfair._utils.files import replace_file

            replace_file(output, text.encode())
            shell.echo(f"Written to {output}.", err=True)
        elif as_json:
            shell.echo(json.dumps(facts))
        else:
            shell.echo(text.rstrip("\n") if kind else "\n".join(_lines(path.name, facts)))
    if not facts["is_private"]:
        shell.fail(f"{path.name} is NOT differentially private: its epsilon is infinite.")
    if facts["seeded"]:
        shell.fail(f"The noise in {path.name} was seeded: whoever knows the seed can remove it.")


def _lines(name, facts):
    """Return the lines that a person reads of a statement, and of the ledger if there is one."""
    release = facts["release"]
    private = "differentially private" if facts["is_private"] else "NOT differentially private"
    version = f"written by skdpfair {release['skdpfair_version']}"
    rows = facts["summary"] | {
        "file": f"SHA-256 {release['file_sha256']}",
        "integrity": f"intact, {release['n_bytes']:,} bytes, {version}",
        "trained": f"on {release['trained']} (UTC)",
    }
    lines = [f"{name}: {private} {facts['what']} of a {release['estimator']}"]
    lines += [f"  {head:<11}  {text}" for head, text in rows.items()]
    return lines + ([shell.wrapped(facts["all_fits"]["statement"])] if "all_fits" in facts else [])
