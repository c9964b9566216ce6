"""``skdpfair fit`` and ``skdpfair predict``: train a model on records, and predict with it."""

import json
import os
import sys
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path

import click
import numpy as np
import pandas as pd

from skdpfair._files import replace_file
from skdpfair._validate import nearest, safe_repr
from skdpfair.cli._input import (
    AS_JSON,
    FILE_COLUMN,
    LABELS,
    MODE,
    RECORDS,
    SIZE,
    AnyPath,
    Unusable,
    check_ledger,
    check_outputs,
    delta_of_fits,
    echo,
    in_options,
    in_words,
    ledger_options,
    opened_ledger,
    recorded_warnings,
    tell_ledger,
    wrapped,
)
from skdpfair.cli._sources import Parquet, part_of, shared_columns, source_for, source_of
from skdpfair.cli.schema_command import (
    GROUP,
    MOST_RECORDS,
    TARGET,
    UNIT,
    WHY,
    Study,
    answers_beside,
    ask,
    check_unit,
    person_question,
)
from skdpfair.exceptions import InterruptedWarning
from skdpfair.inputs.groups import Groups, named
from skdpfair.inputs.persons import Persons
from skdpfair.methods import METHODS
from skdpfair.release import load_release, schema_of
from skdpfair.release._file import require_safetensors
from skdpfair.training import plan as _planning
from skdpfair.training.processes import launched

_OWN = {
    **{name: f"--{name}" for name in ("epsilon", "delta", "method")},
    "random_state": "--seed",
    "noise_multiplier": "--epsilon, which finds it",
    **dict.fromkeys(("group_col", "classes"), "the schema"),
    "persons": "--unit and --max-records-per-unit",
    "verbose": "--json, which is quiet",
    "distributed": "torchrun",
    "keep_reference": "Python: the file would not hold it",
}
_LARGE = 10  # an epsilon that promises little
_MOST_PREDICTED = 100_000  # training records, to see whether a model is of use
_PRIVATE = sorted(name for name, method in METHODS.items() if method.private)


@click.command()
@click.argument("data", nargs=-1, required=True, type=AnyPath(exists=True))
@click.option(
    "--schema",
    "path",
    type=AnyPath(exists=True, dir_okay=False),
    help="Public facts about the columns, as written by `skdpfair schema`.",
)
@TARGET
@GROUP
@UNIT
@MOST_RECORDS
@LABELS
@FILE_COLUMN
@SIZE
@MODE
@click.option(
    "--epsilon",
    type=click.FloatRange(min=0, min_open=True),
    default=1.0,
    show_default=True,
    help="Privacy budget of the fit.",
)
@click.option(
    "--delta",
    type=click.FloatRange(0, 1, True, True),
    help='By default that of the ledger; without one, "auto".',
)
@click.option(
    "--method",
    type=click.Choice(_PRIVATE),
    default="global_adapt",
    show_default=True,
    help="The private method; some need groups.",
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
    "tried",
    multiple=True,
    metavar="NAME=VALUE,VALUE",
    help="Values to choose from within --epsilon, such as method=dpsgd,global_adapt or lr=0.5,1,2; "
    "may be repeated. Nothing but the best model is released.",
)
@click.option(
    "--trials",
    type=click.FloatRange(min=1),
    help="Mean number of trials with --try, by default 10; the number drawn stays secret.",
)
@ledger_options
@click.option("--seed", type=click.IntRange(min=0), help="Make noise reproducible: research only.")
@click.option(
    "--output",
    "-o",
    type=AnyPath(dir_okay=False),
    default="model.safetensors",
    show_default=True,
    help="The model to write.",
)
@click.option("--force", is_flag=True, help="Replace an existing model.")
@AS_JSON
def fit(
    data,
    path,
    target,
    groups,
    unit,
    most_records,
    epsilon,
    delta,
    method,
    settings,
    tried,
    trials,
    ledger,
    ledger_epsilon,
    ledger_delta,
    seed,
    output,
    force,
    as_json,
    **pictures,
):
    """Train a private classifier on DATA, and write it to one file.

    \b
    skdpfair fit loans.csv --schema schema.toml --epsilon 1 -o model.safetensors
    skdpfair fit loans.csv --target approved --group sex
    skdpfair fit loans.csv --schema schema.toml --try method=dpsgd,global_adapt --try lr=0.5,1,2
    skdpfair fit faces --labels faces.csv --schema schema.toml --epsilon 3
    torchrun --nproc-per-node 2 -m skdpfair fit parts/*.parquet --schema schema.toml

    DATA is a CSV file, one Parquet file or several, a folder of pictures, or an .npz file with an
    array "images". --schema names a file of what is public about the columns; without it, fit asks.
    Nothing but the model and what it has spent is printed or kept, except for a note on the screen
    if the model is of no use on its records. --try trains a secret number of
    models, chooses one by a noisy score on held-out records, and spends no more than --epsilon; it
    shows no progress, because the number of trials must stay secret.
    """  # noqa: D301 (click reads the character)
    rank, n_processes = launched()
    check_outputs(output, inputs=(*data, path, ledger, pictures["labels"]))
    if output.exists() and not (force and output.is_file()):
        raise Unusable(
            f"{output} already exists, and retraining would spend more budget. Give another "
            "--output, or --force."
        )
    check_ledger(ledger, ledger_epsilon, ledger_delta)
    check_unit(unit, most_records)
    with in_options():
        source = part_of(source_of(*data, **pictures), rank, n_processes)
        source.columns()  # before anything is asked
    if n_processes > 1 and path is None:
        raise Unusable(f"{n_processes} processes cannot ask. Give --schema FILE.")
    if n_processes > 1 and tried:
        raise Unusable("--try runs in one process. Leave out torchrun.")
    schema, given = _schema(source, path, target, groups, (unit, most_records), output)
    if trials is not None and not tried:
        raise Unusable("--trials is for a choice: give --try NAME=VALUE,VALUE, or leave it out.")
    with in_options():
        space, given_once = _space(tried), _parsed(settings)
    if twice := sorted(space.keys() & given_once.keys()):
        raise Unusable(f"--set and --try both give {twice[0]!r}. Leave one of them out.")
    for name in space.get("method", [method]):
        if METHODS[name].needs_groups and not schema.all_groups:
            raise Unusable(
                f"Method {name} needs groups: name their column under [groups] of the schema."
            )
    from skdpfair import DPFairClassifier  # late: it needs most of the package

    with in_options():
        require_safetensors()  # before anything is spent
        records = source.read(schema, epsilon)
        schema, X, y, sensitive, units, _ = records
        shared = () if as_json or rank else shared_columns(source, schema)
        question = None if given else person_question(source.columns(), schema.unit, shared=shared)
        params = {
            "method": method,
            "epsilon": epsilon,
            "delta": delta_of_fits(delta, ledger, ledger_delta, records.n_units),
            "classes": schema.classes,
            "group_col": Groups(levels=schema.group_levels),
            "persons": Persons(max_records=schema.max_records_per_unit),
            "random_state": seed,
            "verbose": 0 if as_json or tried else 1,
            "distributed": "auto" if n_processes > 1 else None,
        }
        clf = DPFairClassifier(**params).set_params(**given_once)
        if space:
            clf = _search(clf, space, trials or 10.0)
    if question is not None and not as_json and rank == 0:
        echo(wrapped(f"Note: {question}"), err=True)
    with in_options():  # before there is a ledger
        n_groups = len(schema.group_levels or [None])
        if space:
            _, limit = clf.forecast(records.n_units, n_groups=n_groups).reasons
            echo(wrapped(f"Note: {limit}."), err=True)
        elif ledger is not None:
            _planning.check(clf, records.n_units, n_groups)
    if rank:
        ledger = None  # that of process 0 is charged for all
    active = opened_ledger(ledger, ledger_epsilon, ledger_delta)
    with in_options(), recorded_warnings() as said, active as active:
        fitted = clf.fit if ledger is None else partial(active.fit, clf)
        try:
            persons = None if units is None else pd.Series(units, name=schema.unit)
            fitted(X, y, sensitive_features=sensitive, units=persons)
        except KeyboardInterrupt:
            if not space:
                raise
            echo("NOT finished: the search ended without a model. Its cost is spent.", err=True)
            sys.exit(130)
        if rank:
            return
        chosen = {}
        if space:
            chosen, clf = clf.best_params_, _winner(clf)
        if isinstance(source, Parquet):  # whose memory map has no names
            clf.feature_names_in_ = np.asarray(schema.feature_names, dtype=object)
        cut = said.met(InterruptedWarning)
        if cut and output.exists():  # a finished model is not replaced by half of one
            output = output.with_name(f"{output.stem[:200]}.part{output.suffix}")
        written, problem = _saved(clf, output, schema)
    notes = [in_words(text) for text in said()] + [problem] * (problem is not None)
    status = 130 if cut else 0 if problem is None else 1
    if as_json:
        notes += [question] * (question is not None)
        facts = clf.privacy_statement() | {"written": str(written), "warnings": notes}
        facts |= {"chosen": chosen} if space else {}
        echo(json.dumps(facts | {"interrupted": cut}))
        sys.exit(status)
    if space:
        echo(f"Chosen: {', '.join(f'{name} {chosen[name]}' for name in space)}.")
    echo(wrapped(clf.privacy_.plain_statement))
    notes += _no_use(clf, X, y, schema.target)
    if clf.privacy_.epsilon > _LARGE:
        notes.append(
            f"An epsilon above {_LARGE} promises little: the odds of guessing that a "
            f"{clf.privacy_.unit} took part may be multiplied by e to the epsilon."
        )
    tell_ledger(active)
    for text in notes:
        echo(wrapped(f"Note: {text}"), err=True)
    if given:
        echo(f"The public facts are saved in {given}, for the next time.")
    if cut:
        echo(wrapped(f"NOT finished: {written} holds the partly trained model."))
    else:
        echo(f"Written to {written}.")
        recorded = "" if ledger is None else f" --ledger {ledger}"
        echo(
            f"Next:  skdpfair predict {written} DATA   or   skdpfair report {written} --data TEST"
            f"{recorded}"
        )
    sys.exit(status)


def _no_use(clf, X, y, target):
    """Return a note, not private, if a model is no better than predicting one class."""
    rows = slice(None, None, -(-len(y) // _MOST_PREDICTED))
    predicted, y = clf.predict(X.iloc[rows] if hasattr(X, "iloc") else X[rows]), y[rows]
    constant = np.unique(y, return_counts=True)[1].max() / len(y)
    if (right := np.mean(predicted == y)) > constant:
        return []
    does = f"it has {right:.1%} accuracy, and always predicting the same class {constant:.1%}"
    if (predicted == predicted[0]).all():
        does = f"it always predicts {named(predicted[:1], [target])[0]}"
    return [
        f"By accuracy, the model is of no use: on its training records, {does}. This is not "
        "private: no epsilon covers it, so do not pass it on."
    ]


def _search(clf, space, trials):
    """Return the private search whose budget is that of the classifier."""
    from skdpfair.model_selection import DPRandomizedSearch  # late: it needs most of the package

    budget = {name: getattr(clf, name) for name in ("epsilon", "delta", "random_state")}
    return DPRandomizedSearch(
        clf.set_params(random_state=None), space, mean_trials=trials, **budget
    )


def _winner(search):
    """Return the classifier that a search found."""
    found = search.best_estimator_
    if not hasattr(found, "save_release"):
        raise ValueError(
            "the search drew no trial, as it must do now and then, so there is no model. Its cost "
            "is spent. Run it again, with a larger --trials to make this rarer."
        )
    return found


def _saved(clf, output, schema):
    """Write a model, which has cost budget; return where, and why it lies elsewhere if it does."""
    other = f"{output.stem[:200]}-{os.urandom(4).hex()}{output.suffix}"  # replaces nothing
    problem = None
    for path in (output, Path.cwd() / other, Path(tempfile.gettempdir()) / other):
        try:
            clf.save_release(path, schema=schema)
        except OSError as error:
            if problem is None:
                problem = f"{output} cannot be written: {error.strerror or error}."
            continue
        said = (
            None if problem is None else f"{problem} The model, which has cost budget, is {path}."
        )
        return path, said
    raise OSError(f"{problem} Nor can the current folder and that for temporary files.")


def _schema(source, path, target, groups, person, output):
    """Return the schema, and where it was written if it had to be asked for."""
    if path is not None:
        with in_options():
            schema = Study.read(path).schema
            if schema.unit is None and person != (None, None):
                unit, most_records = person
                schema = replace(schema, unit=unit, max_records_per_unit=most_records)
        if target not in (None, schema.target) or (
            groups and set(groups) != set(schema.all_groups)
        ):
            raise Unusable(
                f"{path} says target {schema.target!r} and groups {list(schema.all_groups)}: "
                "--target and --group say something else. Leave them out."
            )
        if person not in ((None, None), (schema.unit, schema.max_records_per_unit)):
            raise Unusable(
                f"{path} says unit {schema.unit!r} and max_records_per_unit "
                f"{schema.max_records_per_unit}: --unit and --max-records-per-unit say something "
                "else. Leave them out."
            )
        return schema, None
    if target is None:
        raise Unusable("Give --schema FILE, or --target COLUMN and maybe --group COLUMN.")
    if not sys.stdin.isatty():
        named = "".join(f" --group {name}" for name in groups)
        make = f"skdpfair schema {source.table or 'LABELS.csv'} --target {target}{named} --template"
        raise Unusable(
            f"{WHY} There is no terminal to ask on. Write a file first: {make}, fill it in, and "
            "pass it as --schema."
        )
    kept = output.with_suffix(".schema.toml")
    with in_options():
        names = source.columns([target, *groups, *(name for name in person[:1] if name)])
        if kept.exists():
            raise ValueError(f"{kept} already exists: pass it as --schema, or remove it.")
        answers = answers_beside(kept)
        schema = ask(
            names, target, groups, *person, kept=answers, labels_only=source.holds_pictures
        )
        replace_file(kept, f"{schema.to_toml()}\n".encode())
        answers.unlink(missing_ok=True)
    return schema, kept


def _parsed(settings):
    """Return NAME=VALUE pairs as a dict; a value is JSON, or else a text."""
    out = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals:
            raise ValueError(f"--set {setting!r} must be NAME=VALUE.")
        _check_name(name, f"--set {setting!r}")
        out[name] = _value(value)
    return out


def _space(tried):
    """Return the values to choose from, by parameter."""
    space = {}
    for given in tried:
        name, _, values = given.partition("=")
        found = [_value(value) for value in values.split(",")]
        if name in space or len(found) < 2:
            raise ValueError(
                f"--try {given!r} must be NAME=VALUE,VALUE, once for each name. For one value, use "
                "--set, or --method."
            )
        if name != "method":
            _check_name(name, f"--try {given!r}")
        elif unknown := [value for value in found if value not in _PRIVATE]:
            raise ValueError(
                f"--try {given!r}: {safe_repr(unknown[0])} is no private method. There are "
                f"{', '.join(_PRIVATE)}."
            )
        space[name] = found
    return space


def _check_name(name, option):
    """Raise if a parameter is unknown, or has an option of its own."""
    from skdpfair import DPFairClassifier

    known = DPFairClassifier().get_params(deep=False)
    name = name.partition("__")[0]
    if name in _OWN:
        raise ValueError(f"{option}: use {_OWN[name]} instead.")
    if name not in known:
        others = ", ".join(k for k in known if k not in _OWN)
        raise ValueError(
            f"{option}: DPFairClassifier has no parameter {name!r}.{nearest(name, list(known))} It "
            f"has {others}."
        )


def _value(text):
    """Return JSON, or else the text."""
    try:
        return json.loads(text)
    except (json.JSONDecodeError, RecursionError):
        return text


@click.command()
@click.argument("model", type=AnyPath(exists=True, dir_okay=False))
@RECORDS
@SIZE
@click.option(
    "--threshold",
    type=click.FloatRange(0, 1),
    help="Predict the second of two classes of the schema from this probability on; default 0.5.",
)
@click.option(
    "--id",
    "ids",
    multiple=True,
    help="Column of DATA to copy, such as a number of the record; may be given again.",
)
@click.option(
    "--output",
    "-o",
    type=AnyPath(dir_okay=False),
    default="predictions.csv",
    show_default=True,
    help="The CSV file to write, a line for each of DATA.",
)
@AS_JSON
def predict(model, data, threshold, ids, output, as_json, size):
    """Predict the records of DATA with MODEL, which `skdpfair fit` wrote.

    Writes the columns of --id, the class, and the probability of each class. A CSV or Parquet file
    needs the feature columns only; of a folder, all pictures are predicted, in the order of their
    names. A threshold that was chosen on private records is not covered by epsilon.
    """
    check_outputs(output, inputs=(model, data))
    with in_options():
        schema = schema_of(model)
        if schema is None:
            raise ValueError(
                f"{model} does not say how its features are made from a table. Use "
                "skdpfair.load_release in Python, or save it with save_release(schema=...)."
            )
        clf = load_release(model)
        if not hasattr(clf, "predict_proba"):
            raise ValueError(
                f"{model} holds a regressor, which this command cannot use, as a schema describes "
                "classes. In Python: skdpfair.load_release(path).predict(X)."
            )
        if schema.target in ids:
            raise ValueError(
                f"--id {schema.target!r} is the column of the predictions. Leave it out."
            )
        if threshold is not None and len(clf.classes_) != 2:
            raise ValueError(
                f"--threshold is for two classes, and {model} has {len(clf.classes_)}. Leave it "
                "out, and use the probabilities."
            )
        names, X = source_for(model, schema, clf, data, size=size).unlabelled(schema, ids)
        if not hasattr(X, "columns"):
            vars(clf).pop("feature_names_in_", None)  # the schema makes the features, in its order
        chances = clf.predict_proba(X)
        out = pd.DataFrame(chances, columns=[f"probability[{c}]" for c in clf.classes_])
        chosen = chances.argmax(axis=1)
        if threshold is not None:
            second = list(clf.classes_).index(schema.classes[1])
            chosen = np.where(chances[:, second] >= threshold, second, 1 - second)
        out.insert(0, schema.target, clf.classes_[chosen])
        out = pd.concat([names, out], axis=1)
        replace_file(output, out.to_csv(index=False, float_format="%.6g").encode())
    if as_json:
        return echo(json.dumps({"written": str(output), "rows": len(out)}))
    echo(f"Written to {Path(output)}: {len(out):,} rows.")
