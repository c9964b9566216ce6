"""``skdpfair schema``: ask for the public facts about a table; and study files, which hold them."""

import csv
import json
import math
import re
import textwrap
import tomllib
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import click
import pandas as pd
from rich.box import SIMPLE_HEAD
from rich.table import Table

from skdpfair._files import replace_file
from skdpfair._validate import error_context, safe_repr
from skdpfair.cli._input import (
    AS_JSON,
    AnyPath,
    Screen,
    Unusable,
    check_outputs,
    echo,
    in_options,
    prompt,
    wrapped,
)
from skdpfair.preprocessing import TableSchema, columns_of, outside_public
from skdpfair.preprocessing._linter import PERSON_QUESTION, column_of_persons
from skdpfair.preprocessing._piecewise_linear import spans_decades
from skdpfair.preprocessing._schema import uncovered

WHY = (
    "Limits of numbers and lists of values must come from what everybody may know: a form, a code "
    "book, the meaning of a column. If you derive them from the data, they leak information that "
    "the privacy budget does not cover. This command asks you, and reads only the file's header."
)
_SWEEP_PARTS = (
    *("methods", "epsilons", "seeds", "store", "cv", "keep_predictions", "ceiling", "params"),
)
_MOST = 10_000  # values of a column
_MANY = 15  # columns to be asked about one by one
_SHOWN = 12  # values
_UNCOMMENT = "remove the # of the next two lines, and state the most rows of a person."
_GIVE = "give --unit {!r} and --max-records-per-unit."
_QUOTED_NOTHING = re.compile(r'(^|,)\s*""\s*(,|$)')
_RANGE = re.compile(r"(\d{1,9})\.\.(\d{1,9})")
DATA = click.argument("data", type=AnyPath(exists=True, dir_okay=False))
TARGET = click.option("--target", help="Column to predict.")
GROUP = click.option(
    "--group", "groups", multiple=True, help="Column of groups to compare; may be given again."
)
UNIT = click.option("--unit", help="Column that names the person of each record.")
MOST_RECORDS = click.option(
    "--max-records-per-unit",
    "most_records",
    type=click.IntRange(min=1),
    help="Most records of one person that are used, with --unit; public.",
)


@dataclass(frozen=True)
class Study:
    """The contents of a study file."""

    schema: TableSchema
    data: Path | None  # a relative path is taken from the current folder, then from the file's
    sweep: dict  # what to compare; empty if it does not say

    @classmethod
    def read(cls, path):
        """Return the study in a file of TOML."""
        with error_context(str(path), "is not TOML"):
            facts = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        data, sweep = facts.pop("data", None), facts.pop("sweep", {})
        if data is not None and not isinstance(data, str):
            raise ValueError(f"{path}: data must name a file, got {safe_repr(data)}.")
        if not isinstance(sweep, dict):
            raise ValueError(f"{path}: sweep must be a table, [sweep], got {safe_repr(sweep)}.")
        if unknown := sorted(sweep.keys() - set(_SWEEP_PARTS)):
            raise ValueError(
                f"{path}: [sweep] has no entry {unknown[0]!r}. It has {', '.join(_SWEEP_PARTS)}; "
                "parameters of DPFairClassifier go under [sweep.params]."
            )
        try:
            schema = TableSchema.from_dict(facts)
        except (ValueError, TypeError) as error:
            raise ValueError(f"{path}: {error}") from None
        # as the shell means it first: most people stand where their files are
        found = None if data is None else Path(data)
        if found is not None and not found.exists():
            found = Path(path).parent / found
        return cls(schema, found, sweep)


@click.command()
@DATA
@TARGET
@GROUP
@UNIT
@MOST_RECORDS
@click.option(
    "--output",
    "-o",
    type=AnyPath(dir_okay=False),
    default="schema.toml",
    show_default=True,
    help="The file to write.",
)
@click.option("--template", is_flag=True, help="Do not ask: write a file to fill in by hand.")
@click.option(
    "--check",
    type=AnyPath(exists=True, dir_okay=False),
    help="Write nothing: count the values in DATA that this schema does not cover. NOT private.",
)
@AS_JSON
def schema(data, target, groups, unit, most_records, output, template, check, as_json):
    """Declare the public facts about the columns of DATA, a CSV file.

    Limits of numbers and lists of values must come from what everybody may know, such as a form or
    a code book: if you derive them from the data, they leak information that the privacy budget
    does not cover. This command asks about each column, and reads only the header.
    """
    if check is not None:
        return _check(data, check, as_json)
    if target is None:
        raise Unusable("--target is missing: name the column to predict.")
    check_unit(unit, most_records)
    groups = tuple(dict.fromkeys(groups))
    check_outputs(output, inputs=(data,))
    with in_options():
        if output.exists():
            raise ValueError(f"{output} already exists. Give another --output, or remove it.")
        person = unit, most_records
        names, _ = columns_of(data, [target, *groups, *_named(unit)])
        text = _heading(data)
        if template:
            text = _template(data, names, target, groups, *person)
        else:
            kept = answers_beside(output)
            text += ask(names, target, groups, *person, kept=kept).to_toml()
            text += _SWEEP.format(stem=Path(data).stem)
        replace_file(output, text.encode())
        answers_beside(output).unlink(missing_ok=True)
    if as_json:
        return echo(json.dumps({"written": str(output)}))
    echo(wrapped(f"Written to {output}. Read it over, and correct it with any editor."))
    if not template:
        echo(f"Next:  skdpfair fit {data} --schema {output} --epsilon 1")
        echo(f"or     skdpfair sweep {output}")
        echo(f"Find typing errors, if you may look:  skdpfair schema {data} --check {output}")


def check_unit(unit, most_records):
    """Refuse a column of persons without a bound on their records, and the reverse."""
    if (unit is None) != (most_records is None):
        raise Unusable("--unit and --max-records-per-unit go together: give both, or none.")


def answers_beside(output):
    """Return the file that keeps answers until a schema is written."""
    return output.with_name(f"{output.name}.answers")


def ask(
    names, target, groups, unit=None, most_records=None, *, kept, labels_only=False
) -> TableSchema:
    """Ask a person about each column, or those of labels only, and return what they say.

    Each answer is written to ``kept``, from which the same questions continue.
    """
    echo(wrapped(WHY) + "\n\nAnswer b to go back to the question before.", err=True)
    others = [name for name in names if name not in (target, unit, *groups, "")]
    question = person_question(others, unit, "answer n.")
    if question and prompt(wrapped(question), type=click.Choice("yn")) == "n":
        likely = column_of_persons(others)
        unit = prompt("  Column that names the person", type=click.Choice(others), default=likely)
        most_records = prompt("  Most rows of a person that are used", type=click.IntRange(min=1))
        others.remove(unit)
    others *= not labels_only
    if len(others) > _MANY:
        said = f"{len(others)} columns: --template writes a file to fill in with an editor instead."
        echo(wrapped(said), err=True)
    group = _levels if labels_only else _group
    questions = [(_classes, target), *((group, name) for name in groups)]
    questions += [(_column, name) for name in others]
    answers = _answers(questions, labels_only, kept)
    columns = {name: answers[_column, name] for name in others}
    numbers = {name: answer for name, answer in columns.items() if answer[0] == "n"}
    levels = {name: answers[group, name] for name in groups}
    used = {name: values for name, (values, predicts) in levels.items() if predicts}
    return TableSchema(
        target=target,
        classes=answers[_classes, target],
        groups={name: values for name, (values, _) in levels.items()},
        bounds={name: limits for name, (_, limits, *_) in numbers.items()},
        categories=used | {name: a[1] for name, a in columns.items() if a[0] == "c"},
        missing=[name for name, (*_, missing, _) in numbers.items() if missing],
        log_columns=[name for name, (*_, is_amount) in numbers.items() if is_amount],
        unit=unit,
        max_records_per_unit=most_records,
    )


def person_question(names, unit, remedy=_GIVE, shared=()):
    """Return the question whether a row is a person; None if ``unit`` or the names answer it.

    ``shared`` are columns in which several rows share a value, which notes tell.
    """
    name = column_of_persons(names) if unit is None else None
    if name is not None:
        return PERSON_QUESTION.format(repr(name), remedy.format(name))
    if shared:
        return (
            "The guarantee is for one row, and several rows share a value of "
            f"{', '.join(map(repr, shared))}. If a value is a person, {remedy.format(shared[0])}"
        )
    return None


def _named(unit):
    return [] if unit is None else [unit]


class _Back(Exception):
    """The question before is to be asked again."""


def _answers(questions, labels_only, kept):
    """Return the answers by question and column, with a way back."""
    answers = _kept_answers(questions, kept)
    at = min(len(answers), len(questions) - 1)
    if answers:
        s = "s" * (len(answers) > 1)
        echo(wrapped(f"Continuing after the {len(answers)} answer{s} that {kept} holds."), err=True)
    while at < len(questions):
        question, name = questions[at]
        echo(f"Question {at + 1} of {len(questions)}", err=True)
        try:
            answers[question, name] = question(name)
        except _Back:
            if at == 0:
                echo("  This is the first question.", err=True)
            at = max(at - 1, 0)
            continue
        except click.Abort:
            if answers:
                echo(f"\nThe answers are in {kept}: the same command continues.", err=True)
            raise
        at += 1
        given = [(kind.__name__, column, answers[kind, column]) for kind, column in questions[:at]]
        replace_file(kept, json.dumps(given).encode())
        if at == len(questions) and not labels_only and not _predicts(answers.values()):
            echo("  Nothing is left to predict from. Once more:", err=True)
            at = next((i for i, (kind, _) in enumerate(questions) if kind is _column), at - 1)
    return answers


def _kept_answers(questions, kept):
    """Return the answers in a file, as far as they are those to the first of the questions."""
    answers = {}
    if kept.is_file():
        with error_context(str(kept), "holds no answers; remove it"):
            given = json.loads(kept.read_text(encoding="utf-8"))
            for (question, name), (kind, column, answer) in zip(questions, given, strict=False):
                if (question.__name__, name) != (kind, column):
                    break
                answers[question, name] = answer if question is _classes else tuple(answer)
    return answers


def _predicts(answers):
    """Tell whether some column is a number or a category, or a group is used."""
    return any(isinstance(a, tuple) and (a[0] in ("n", "c") or a[1] is True) for a in answers)


def _classes(name):
    return _values(f"All values that {name} can have, separated by commas (1..9 is 1 to 9)", 2)


def _levels(name):
    return _values(f'All groups of {name}, separated by commas ("" for a missing cell)', 2), False


def _group(name):
    while True:
        values, _ = _levels(name)
        with suppress(_Back):
            return values, _yes(f"May the model use {name} to predict?", default=False)


def _column(name):
    question = f"{name}: n for a number, c for a list of categories, s to leave it out"
    while True:
        kind = _asked(question, type=click.Choice("ncsb"), default="s")
        with suppress(_Back):
            if kind == "c":
                return kind, _values("  all values, separated by commas", least=1)
            return (kind, *_facts()) if kind == "n" else (kind, None)


def _facts():
    """Ask for the limits of a number, whether it may be missing, and whether it is an amount."""
    low = _number("  lowest possible value", -math.inf)
    high = _number("  highest possible value", low)
    missing = _yes("  Can a value be missing?", default=False)
    question = "  Is it an amount, such as money: mostly small, and sometimes very large?"
    return [_short(low), _short(high)], missing, _yes(question, default=spans_decades(low, high))


def _yes(question, *, default):
    answer = _asked(question, type=click.Choice("ynb"), default="y" if default else "n")
    return answer == "y"


def _number(question, above):
    while True:
        text = _asked(question)
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if math.isfinite(number) and number > above:
            return number
        limit = f" above {above:g}" if math.isfinite(above) else ""
        echo(f"  {text!r} is not a finite number{limit}.", err=True)


def _asked(question, **settings):
    answer = prompt(question, **settings)
    if str(answer).strip() == "b":
        raise _Back
    return answer


def _values(question, least):
    while True:
        text = _asked(question)
        parts = next(csv.reader([text], skipinitialspace=True))  # "Rente, Pension" is one
        values = [v for part in parts for v in _expanded(part.strip())]
        values = list(dict.fromkeys(values + [""] * bool(_QUOTED_NOTHING.search(text))))
        if least <= len(values) <= _MOST:
            shown = ", ".join(v or "(missing)" for v in values[:_SHOWN])
            more = ", ..." * (len(values) > _SHOWN)
            echo(f"  {len(values)} value{'s' * (len(values) > 1)}: {shown}{more}", err=True)
            return values
        echo(f"  At least {least}, and at most {_MOST}, please.", err=True)


def _expanded(part):
    """Return a value as a list, 1..17 as the seventeen, and nothing as none."""
    if found := _RANGE.fullmatch(part):
        return [str(i) for i in range(int(found[1]), min(int(found[2]), int(found[1]) + _MOST) + 1)]
    return [part] if part else []


def _short(number):
    return int(number) if number == int(number) else number


_SWEEP = """

# For `skdpfair sweep`: what to compare, each with several seeds, against a model without privacy.
[sweep]
methods = ["dpsgd", "global_adapt"]
epsilons = [1.0, 3.0]
seeds = 3
store = "{stem}-results"
"""


def _heading(data):
    first = "# Public facts about the columns. Nothing here was derived from the rows."
    return f"{first}\ndata = {_quoted(str(data))}\n"


def _template(data, names, target, groups, unit, most_records):
    """Return a file with a line for each column, to be filled in."""
    others = [name for name in names if name not in (target, unit, *groups, "")]
    person = [f"unit = {_quoted(name)}" for name in _named(unit)]
    if unit is None:
        name = column_of_persons(names)
        asked = f"If a person may have several rows, name the column that tells them: {_UNCOMMENT}"
        if name is not None:
            asked = PERSON_QUESTION.format(_quoted(name), _UNCOMMENT)
        person = textwrap.wrap(asked, 98, initial_indent="# ", subsequent_indent="# ")
        person.append(f"# unit = {_quoted(name or '')}")
    person.append(f"{'# ' * (unit is None)}max_records_per_unit = {most_records or 1}")
    kept = [name for name in groups if name != target]
    lines = [
        _heading(data).rstrip(),
        "# For each column keep ONE line, without its #, and fill it in; others are left out.",
        f"target = {_quoted(target)}",
        "classes = []  # all values that the target can have",
        *person,
        "missing = []  # columns of [bounds] in which a value can be missing",
        "# Amounts, such as money: mostly small, and sometimes very large. Without this line: the",
        "# columns whose bounds span several powers of ten.",
        "# log_columns = []",
        "",
        "[groups]  # all values of the columns whose groups are compared",
        *(f"{_quoted(name)} = []" for name in groups),
        "",
        "# Groups of numbers, such as ages, by public edges: [25, 65] makes three, below 25, from",
        "# 25 to below 65, and from 65 on. List such a column here, not under [groups].",
        "[bins]",
        "",
        "[bounds]  # numbers: the lowest and the highest possible value",
        *(f"# {_quoted(name)} = [0, 1]" for name in others),
        "",
        "[categories]  # texts: all values",
        *(f"# {_quoted(name)} = []" for name in [*others, *kept]),
    ]
    return "\n".join(lines) + _SWEEP.format(stem=Path(data).stem)


def _quoted(text):
    return json.dumps(text, ensure_ascii=False)


def _check(data, path, as_json):
    """Print how much of the file a schema misses."""
    from skdpfair.cli._sources import Rows, shared_columns, tell_uncovered  # late: they need torch

    with in_options({}):  # a file may have any name
        known = TableSchema.from_toml(path)
        table = known.read_csv(data)
        shared = shared_columns(Rows(data), known)
        lists = known.categories | known.groups | {known.target: known.classes}
        found = outside_public(table, known.bounds, lists)
    if known.unit is not None:
        found.loc[known.unit] = table[known.unit].isna().mean(), 0.0, None
    if as_json:
        return echo(found.reset_index().to_json(orient="records"))
    shown = Table(box=SIMPLE_HEAD, title="Shares of the rows; NOT private", title_justify="left")
    for head in ("column", "missing", "outside", "for example"):
        shown.add_column(head, justify="right" if head in ("missing", "outside") else "left")
    for column, row in found.iterrows():
        example = "" if pd.isna(row["example"]) else str(row["example"])
        shown.add_row(column, f"{row['missing']:.2%}", f"{row['outside']:.2%}", example)
    Screen().print(shown)
    tell_uncovered(uncovered(known, table))
    if question := person_question(columns_of(data)[0], known.unit, shared=shared):
        echo(wrapped(question))
    listed = known.groups | {known.target: known.classes}
    bad = found[found[["missing", "outside"]].any(axis=1)].index.intersection(list(listed))
    gaps = [name for name in bad if found["outside"][name] or "" not in listed[name]]
    if gaps:
        echo(
            wrapped(
                f"Rows that are missing or outside in {', '.join(gaps)} are refused by fit and "
                'sweep: list the values there, "" for a missing one, or leave these rows out.'
            )
        )
    try:
        known.units_in(table)
    except ValueError as error:
        echo(wrapped(error))
