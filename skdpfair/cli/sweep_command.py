"""``skdpfair sweep``: compare methods and budgets on a CSV file, as a study file asks."""

import json
import sys
from pathlib import Path

import click

from skdpfair.cli import _shell as shell

_DEFAULTS = {"methods": ["dpsgd", "global_adapt"], "epsilons": [1.0], "seeds": 5}


@click.command()
@click.argument("study", type=shell.FILE)
@click.option("--data", type=shell.FILE, help="CSV file; by default the file that STUDY names.")
@shell.output_option(
    text="Folder for finished fits; by default the study's. Run the command again to resume.",
    file_okay=False,
)
@shell.ledger_options
@click.option("--jobs", type=int, default=-1, help="Processes; -1: all cores.")
@shell.MEASURES
@shell.AS_JSON
def sweep(study, data, output, ledger, jobs, measures, as_json):
    """Compare the methods and budgets that STUDY, a TOML file, lists.

    STUDY declares the public facts about the columns, as begun by `skdpfair schema`. Its section
    [sweep] has methods, epsilons and seeds, and optionally cv, store and params. The figures are
    NOT private.

    A ledger with a budget refuses a sweep, because the reference models have no privacy. To record
    the cost without a budget, use --ledger-delta without --ledger-epsilon.
    """
    import pandas as pd  # late, with all that takes time to import

    from skdpfair import Groups, Persons
    from skdpfair._utils.files import replace_file
    from skdpfair._utils.validate import nearest
    from skdpfair.cli._fitting import RESERVED, check_names
    from skdpfair.cli._sources import source_of
    from skdpfair.cli._study import ENTRIES, Study, person_question
    from skdpfair.metrics._measures import MEASURES as known
    from skdpfair.metrics._measures import chosen_measures
    from skdpfair.model_selection._results import SCHEMA_FILE
    from skdpfair.model_selection._store import delta_in
    from skdpfair.model_selection._sweep import budgets_of, planned_sweep
    from skdpfair.report._summary import no_use

    measures = shell.names_in(measures)
    with shell.in_options():
        chosen_measures(measures, known, ())  # before hours of fits
        plan = Study.read(study)
    options = _DEFAULTS | plan.sweep
    written_as = {name: f"{study}: [sweep.params] {name}" for name in options.get("params", ())}
    written_as |= {name: f"{study}: [sweep] {name}" for name in ENTRIES}
    written_as |= {"method": written_as["methods"], "n_jobs": "--jobs"}
    written_as |= {"epsilon": written_as["epsilons"]}
    written_as |= {} if output is None else {"store": "--output"}
    with shell.in_options(written_as):
        data = data or plan.data
        if data is None:
            raise ValueError(f'{study} has no entry data = "...": give --data FILE.')
        if not data.exists():
            near = nearest(data.name, [path.name for path in data.parent.glob("*")])
            raise ValueError(f"{study}: data = {str(data)!r} is no file.{near}")
        store = options.pop("store", f"{study.stem}-results")
        folder = output or store
        if not plan.schema.all_groups:
            raise ValueError(f"{study} names no groups, which a sweep compares. Add [groups].")
        params = options.pop("params", {})
        check_names(params, f"{study}: [sweep.params]", RESERVED - {"delta", "verbose"})
        smallest = min(budgets_of(options["epsilons"]))  # features are the same for all fits
        source = source_of(data)
        records = source.read(plan.schema, smallest)
        schema, persons = records.schema, records.persons
        delta = ledger.delta_of_fits(params.get("delta"), records.n_examples)
        # a continued sweep keeps its own
        if delta != "auto" and delta_in(folder) in (None, delta):
            params = params | {"delta": delta}
        if persons is not None:
            params = params | {"persons": Persons(max_records=schema.max_records)}
            persons = pd.Series(persons, name=schema.person)
        if question := person_question(source.columns(), schema.person):
            shell.note(question)
        y = pd.Series(records.y, name=schema.target, dtype=object)
        planned = planned_sweep(
            records={"X": records.X, "y": y, "sensitive_features": records.groups},
            n_jobs=jobs,
            store=folder,
            group_col=Groups(levels=schema.group_levels),
            classes=schema.classes,
            persons=persons,
            **options,
            **params,
        )
        planned.check(ledger.planned())
        with shell.recorded_warnings() as recorded, ledger.opened() as active:
            results = planned.run(progress=not as_json)
        names = f"data = {json.dumps(str(data), ensure_ascii=False)}\n{schema.to_toml()}\n"
        replace_file(Path(folder) / SCHEMA_FILE, names.encode())
        cut = shell.is_interrupted(recorded)
        if as_json:
            table = results.estimates(measures)
            table.columns = [f"{measure} {stat}" for measure, stat in table.columns]
            table = table.copy().reset_index()  # in one block
            if len(results.spec.classes) == 2:
                table["positive class"] = str(results.spec.classes[1])
            shell.echo(table.to_json(orient="records"))
            for text in shell.texts_of(recorded) * cut:
                shell.note(text)
            sys.exit(130 * cut)
        shell.echo(results.as_text(measures))
    shell.print_spending(active)
    for text in filter(None, (no_use(results), *shell.texts_of(recorded))):
        shell.note(text)
    if cut:
        again = f"Not finished: run the same command again to resume from {folder}."
        shell.say(again, err=True)
        sys.exit(130)
    shell.say(f"Finished fits are in {folder}. These figures are NOT private.")
    shell.echo(f"Next:  skdpfair report {folder} -o report.html{ledger.as_option}")
