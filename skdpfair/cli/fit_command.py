"""``skdpfair fit``: train a private classifier on records, and write it to one file."""

import json
import sys
from contextlib import nullcontext

import click

from skdpfair.cli import _shell as shell


@click.command()
@click.argument("data", nargs=-1, required=True, type=shell.FILE)
@click.option(
    "--schema",
    type=shell.FILE,
    help="Required: file of public facts about the columns; `skdpfair schema` begins one.",
)
@shell.EPSILON
@click.option(
    "--delta",
    type=click.FloatRange(0, 1, True, True),
    help='By default the delta of the ledger, or "auto" without a ledger.',
)
@click.option(
    "--method", default="global_adapt", help="The private method, such as dpsgd; some need groups."
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="Another parameter of DPFairClassifier, such as max_epochs=20; may be repeated.",
)
@click.option(
    "--try",
    "candidates",
    multiple=True,
    metavar="NAME=VALUE,VALUE",
    help="Values to choose from within --epsilon, such as method=dpsgd,global_adapt or lr=0.5,1,2; "
    "may be repeated. Only the best model is released.",
)
@click.option(
    "--trials",
    type=click.FloatRange(min=1),
    default=10,
    help="Mean number of trials with --try; the number drawn stays secret.",
)
@click.option(
    "--threshold",
    type=click.Choice(["balanced_accuracy", "accuracy"]),
    help="For two classes: choose the threshold that serves this measure, within --epsilon.",
)
@shell.ledger_options
@shell.SEED
@shell.output_option("model.safetensors", "The model to write.")
@click.option("--force", is_flag=True, help="Replace an existing model.")
@shell.AS_JSON
def fit(
    data,
    schema,
    epsilon,
    delta,
    method,
    settings,
    candidates,
    trials,
    threshold,
    ledger,
    seed,
    output,
    force,
    as_json,
):
    """Train a private classifier on DATA, and write it to one file.

    \b
    skdpfair fit loans.csv --schema loans.toml --epsilon 1 -o model.safetensors
    skdpfair fit loans.csv --schema loans.toml --try method=dpsgd,global_adapt --try lr=0.5,1,2
    torchrun --nproc-per-node 2 -m skdpfair fit parts/*.parquet --schema loans.toml

    DATA is a CSV file, one Parquet file or several. Only the model and its privacy cost are printed
    or kept. --try trains a secret number of models, chooses one by a noisy score on held-out
    records, and spends no more than --epsilon; it shows no progress, because the number of trials
    must stay secret.
    """  # noqa: D301 (click reads the character)
    if schema is None:
        raise shell.Unusable(
            "Give --schema FILE, the public facts about the columns. To begin one: skdpfair schema "
            f"{data[0]} -o schema.toml"
        )
    shell.check_outputs(output, inputs=(*data, schema, ledger.path))
    if output.exists() and not (force and output.is_file()):
        raise shell.Unusable(
            f"{output} already exists, and retraining would spend more budget. Give another "
            "--output, or --force."
        )
    import skdpfair.cli._fitting as fitting  # late: it needs most of the package
    from skdpfair.cli._study import person_question
    from skdpfair.model_selection import DPRandomizedSearch, DPThresholdClassifier
    from skdpfair.release._read_statement import statement

    params = fitting.parameters_of(settings)
    space = fitting.space_of(candidates, params)
    written_as = shell.OPTIONS | {name: f"--set {name}" for name in params}
    written_as |= {name: f"--try {name}" for name in space}
    if threshold and candidates:
        raise shell.Unusable("--threshold and --try must not both be given: leave one of them out.")
    with shell.in_options(written_as):
        job = fitting.Job.read(data, schema, epsilon)
        if (candidates or threshold) and job.n_processes > 1:
            raise shell.Unusable("--try and --threshold run in one process. Leave out torchrun.")
        job.check_methods(space.get("method", [method]))
        params |= {
            "epsilon": epsilon,
            "delta": ledger.delta_of_fits(delta, job.records.n_examples),
            "random_state": seed,
            "verbose": 0 if as_json or candidates else 1,
        }
        clf = job.classifier(method, params)
        if candidates:
            clf = DPRandomizedSearch(clf.set_params(random_state=None), space, mean_trials=trials)
            clf.set_params(epsilon=epsilon, delta=params["delta"], random_state=seed)
        elif threshold:
            clf = DPThresholdClassifier(clf, threshold, random_state=seed)
        question = person_question([] if job.rank else job.source.columns(), job.schema.person)
        if question is not None and not as_json:
            shell.note(question)
        limit = job.check_plan(clf, ledger.planned())  # before there is a ledger
        if limit is not None:
            shell.note(f"{limit}.")
    # the ledger of process 0 is charged for all
    active = nullcontext() if job.rank else ledger.opened()
    with shell.in_options(written_as), shell.recorded_warnings() as recorded, active as active:
        try:
            job.fit(clf, active)
        except KeyboardInterrupt:
            if not candidates:
                raise
            shell.echo(
                "NOT finished: the search ended without a model. Its cost is spent.", err=True
            )
            sys.exit(130)
        if job.rank:
            return
        model, chosen = fitting.winner_of(clf)
        cut = shell.is_interrupted(recorded)
        # a finished model is not replaced by half of one
        if cut and output.exists():
            output = output.with_name(f"{output.stem[:200]}.part{output.suffix}")
        written, problem = job.save(model, output)
    notes = [*shell.texts_of(recorded), *([problem] if problem else [])]
    status = 130 if cut else 0 if problem is None else 1
    if as_json:
        notes += [question] * (question is not None)
        facts = statement(model.privacy_) | {"written": str(written), "warnings": notes}
        facts |= {"chosen": chosen} if candidates else {}
        shell.echo(json.dumps(facts | {"interrupted": cut}))
        sys.exit(status)
    if candidates:
        shell.echo(f"Chosen: {', '.join(f'{name} {chosen[name]}' for name in space)}.")
    shell.say(model.privacy_.plain_statement)
    shell.print_spending(active)
    for text in notes:
        shell.note(text)
    if cut:
        shell.say(f"NOT finished: {written} holds the partly trained model.")
    else:
        shell.echo(f"Written to {written}.")
        page = f"skdpfair report {written} --data TEST{ledger.as_option}"
        shell.echo(f"Next:  skdpfair predict {written} DATA   or   {page}")
    sys.exit(status)
