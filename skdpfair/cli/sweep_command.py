"""``skdpfair sweep``: compare methods and budgets on a CSV file, as a study file asks."""

import sys
from pathlib import Path

import click
import pandas as pd

from skdpfair._files import replace_file
from skdpfair.cli._input import (
    AS_JSON,
    FILE_COLUMN,
    LABELS,
    MEASURES,
    MODE,
    SIZE,
    AnyPath,
    Screen,
    check_ledger,
    delta_of_fits,
    echo,
    in_options,
    ledger_options,
    names_in,
    opened_ledger,
    recorded_warnings,
    tell_ledger,
    wrapped,
)
from skdpfair.cli._sources import shared_columns, source_of
from skdpfair.cli.schema_command import Study, person_question
from skdpfair.exceptions import InterruptedWarning
from skdpfair.inputs.groups import Groups
from skdpfair.inputs.persons import Persons


@click.command()
@click.argument("study", type=AnyPath(exists=True, dir_okay=False))
@click.option(
    "--data",
    type=AnyPath(exists=True),
    help="CSV file, folder of pictures or .npz file; by default that of the study.",
)
@LABELS
@FILE_COLUMN
@SIZE
@MODE
@click.option(
    "--output",
    "-o",
    type=AnyPath(file_okay=False),
    help="Folder for finished fits; by default the study's. Run the command again to resume.",
)
@ledger_options
@click.option("--jobs", type=int, default=-1, show_default=True, help="Processes; -1: all cores.")
@MEASURES
@AS_JSON
def sweep(
    study, data, output, ledger, ledger_epsilon, ledger_delta, jobs, measures, as_json, **pictures
):
    """Compare the methods and budgets that STUDY, a TOML file, lists.

    STUDY declares the public facts about the columns, as written by `skdpfair schema`. Its section
    [sweep] has methods, epsilons and seeds, and optionally cv, store and params. The figures are
    NOT private.

    A ledger with a budget refuses a sweep, because its reference models have no privacy. Use
    --ledger-delta without --ledger-epsilon to record what was spent without a budget.
    """
    from skdpfair.metrics._measures import MEASURES as known
    from skdpfair.metrics._measures import chosen_measures
    from skdpfair.model_selection import sweep as run  # late: it needs most of the package
    from skdpfair.model_selection._results import SCHEMA_FILE
    from skdpfair.model_selection._store import delta_in
    from skdpfair.model_selection._sweep import budgets_of
    from skdpfair.report._summary import no_use

    check_ledger(ledger, ledger_epsilon, ledger_delta)
    with in_options():
        chosen_measures(names_in(measures), known, ())  # before hours of fits
    with in_options():
        asked = Study.read(study)
        data = data or asked.data
        if data is None:
            records = "FILE" if asked.schema.has_features else "FOLDER of pictures or FILE.npz"
            raise ValueError(f'{study} has no entry data = "...": give --data {records}.')
        options = {
            "methods": ["dpsgd", "global_adapt"],
            "epsilons": [1.0],
            "seeds": 3,
            **asked.sweep,
        }
        folder = output or options.pop("store", f"{study.stem}-results")
        options.pop("store", None)
        if not asked.schema.all_groups:
            raise ValueError(f"{study} names no groups, which a sweep compares. Add [groups].")
        params = options.pop("params", {})
        smallest = min(budgets_of(options["epsilons"]))  # features are the same for all fits
        source = source_of(data, **pictures)
        records = source.read(asked.schema, smallest)
        schema, X, y, groups, units, _ = records
        own = delta_of_fits(params.get("delta"), ledger, ledger_delta, records.n_units)
        if own != "auto" and delta_in(folder) in (None, own):  # what is continued keeps its delta
            params = params | {"delta": own}
        if units is not None:
            params = params | {"persons": Persons(max_records=schema.max_records_per_unit)}
            units = pd.Series(units, name=schema.unit)
        remedy = "add unit = {!r} and max_records_per_unit to the study."
        shared = shared_columns(source, schema)
        question = person_question(source.columns(), schema.unit, remedy, shared)
    if question is not None:
        echo(wrapped(f"Note: {question}"), err=True)
    active = opened_ledger(ledger, ledger_epsilon, ledger_delta)
    with in_options():
        with recorded_warnings() as said, active as active:
            results = run(
                options.pop("methods"),
                options.pop("epsilons"),
                options.pop("seeds"),
                X,
                pd.Series(y, name=schema.target, dtype=object),
                groups,
                n_jobs=jobs,
                store=folder,
                progress=not as_json,
                group_col=Groups(levels=schema.group_levels),
                classes=schema.classes,
                units=units,
                **options,
                **params,
            )
        replace_file(Path(folder) / SCHEMA_FILE, f"{schema.to_toml()}\n".encode())
    cut = said.met(InterruptedWarning)
    if as_json:
        with in_options():
            table = results.table(measures=names_in(measures))
        table.columns = [f"{measure} {stat}" for measure, stat in table.columns]
        echo(table.reset_index().to_json(orient="records"))
        for text in said() * cut:
            echo(wrapped(f"Note: {text}"), err=True)
        sys.exit(130 * cut)
    with in_options():
        Screen().print(results.as_text(names_in(measures)), highlight=False)
    tell_ledger(active)
    for text in (*no_use(results), *said()):
        echo(wrapped(f"Note: {text}"), err=True)
    if cut:
        echo(
            wrapped(f"Not finished: run the same command again to resume from {folder}."), err=True
        )
        sys.exit(130)
    echo(wrapped(f"Finished fits are in {folder}. These figures are NOT private."))
    recorded = "" if ledger is None else f" --ledger {ledger}"
    echo(f"Next:  skdpfair report {folder} -o report.html{recorded}")
