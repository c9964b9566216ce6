"""``skdpfair schema``: what is public about a table, asked of a person and never of the rows."""

import csv
import json
import re
from pathlib import Path

import click
import pandas as pd
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from skdpfair.cli._input import (
    AS_JSON,
    AnyPath,
    Unusable,
    check_outputs,
    in_options,
    printable,
    wrapped,
)
from skdpfair.cli._study import STUDY_PARTS
from skdpfair.preprocessing import TableSchema, columns_of, outside_public

WHY = (
    "Limits of numbers and lists of values must come from what everybody may know: a form, a code "
    "book, the meaning of a column. Read off the rows, they would tell of the people in them, and "
    "no epsilon would cover that. So this asks you, and looks at the header of the file only."
)
_MOST = 10_000  # values of a column
_RANGE = re.compile(r"(\d{1,9})\.\.(\d{1,9})")
DATA = click.argument("data", type=AnyPath(exists=True, dir_okay=False))
TARGET = click.option("--target", help="Column to predict.")
GROUP = click.option(
    "--group", "groups", multiple=True, help="Column of groups to compare; may be given again."
)


@click.command(short_help="Write down what is public about a CSV file.")
@DATA
@TARGET
@GROUP
@click.option(
    "--output",
    "-o",
    type=AnyPath(dir_okay=False),
    default="schema.toml",
    show_default=True,
    help="The file to write.",
)
@click.option("--template", is_flag=True, help="Ask nothing: write a file to fill in by hand.")
@click.option(
    "--check",
    type=AnyPath(exists=True, dir_okay=False),
    help="Write nothing: count what this schema misses in DATA. NOT private.",
)
@AS_JSON
def schema(data, target, groups, output, template, check, as_json):
    """Write down what is public about the columns of DATA, a CSV file.

    Limits of numbers and lists of values must come from what everybody may know, such as a form or
    a code book: read off the rows, they would tell of the people in them, and no epsilon would
    cover that. So this asks you for each column, and looks at the header only.
    """
    if check is not None:
        return _check(data, check, as_json)
    if target is None:
        raise Unusable("--target is missing: name the column to predict.")
    groups = tuple(dict.fromkeys(groups))
    check_outputs(output, inputs=(data,))
    with in_options({}):
        if output.exists():
            raise ValueError(f"{output} is there already. Give another --output, or remove it.")
        text = _template(data, target, groups) if template else _heading(data)
        if not template:
            text += ask(data, target, groups).to_toml() + _SWEEP.format(stem=Path(data).stem)
        output.write_text(text, encoding="utf-8")
    if as_json:
        return click.echo(json.dumps({"written": str(output)}))
    click.echo(wrapped(f"Written to {output}. Read it over, and mend it with any editor."))
    if not template:
        click.echo(f"Next:  skdpfair fit {data} --schema {output} --epsilon 1")
        click.echo(f"or     skdpfair sweep {output}")


def ask(data, target, groups) -> TableSchema:
    """Ask a person about each column of a file, and return what they say."""
    names, _ = columns_of(data)
    for name in (target, *groups):
        if name not in names:
            raise ValueError(f"{Path(data).name} has no column {name!r}. It has {names}.")
    click.echo(wrapped(WHY) + "\n", err=True)
    classes = _values(
        f"All values that {target} can have, separated by commas (1..9 is 1 to 9)", least=2
    )
    levels, bounds, categories = {}, {}, {}
    for name in groups:
        levels[name] = _values(f"All groups of {name}, separated by commas", least=2)
        if click.confirm(f"May the model use {name} to predict?", default=False, err=True):
            categories[name] = levels[name]
    click.echo(
        "\nThe other columns: n for a number, c for a list of categories, s to leave it out,\n"
        "b to go back to the one before.",
        err=True,
    )
    others = [name for name in names if name != target and name not in levels]
    at = 0
    while at < len(others):
        name = others[at]
        kind = click.prompt(name, err=True, type=click.Choice("ncsb"), default="s")
        at = max(at - 1, 0) if kind == "b" else at + 1
        for said in (bounds, categories):  # before going back
            said.pop(name, None)
        if kind == "n":
            low = click.prompt("  lowest possible value", err=True, type=float)
            high = click.prompt("  highest possible value", err=True, type=float)
            while not high > low:
                high = click.prompt(
                    f"  highest possible value, above {low:g}", err=True, type=float
                )
            bounds[name] = [_short(low), _short(high)]
        elif kind == "c":
            categories[name] = _values("  all values, separated by commas", least=1)
    return TableSchema(
        target=target, classes=classes, groups=levels, bounds=bounds, categories=categories
    )


def _values(question, least):
    while True:
        text = click.prompt(question, err=True)
        parts = next(csv.reader([text], skipinitialspace=True))  # "Rente, Pension" is one
        values = list(dict.fromkeys(v for part in parts for v in _expanded(part.strip())))
        if least <= len(values) <= _MOST:
            return values
        click.echo(f"  At least {least}, and at most {_MOST}, please.", err=True)


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
    return (
        "# What is public about the columns. Nothing here was read off the rows.\n"
        f"data = {_quoted(str(data))}\n"
    )


def _template(data, target, groups):
    """Return a file with a line for each column, to be filled in."""
    names, _ = columns_of(data)
    for name in (target, *groups):
        if name not in names:
            raise ValueError(f"{Path(data).name} has no column {name!r}. It has {names}.")
    others = [name for name in names if name != target and name not in groups]
    kept = [name for name in groups if name != target]
    lines = [
        _heading(data).rstrip(),
        "# For each column keep ONE line, without its #, and fill it in; others are left out.",
        f"target = {_quoted(target)}",
        "classes = []  # all values that the target can have",
        "",
        "[groups]  # all values of the columns whose groups are compared",
        *(f"{_quoted(name)} = []" for name in groups),
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
    with in_options({}):
        known = TableSchema.from_toml(path, besides=STUDY_PARTS)
        table = known.read_csv(data)
        lists = known.categories | known.groups | {known.target: known.classes}
        found = outside_public(table, known.bounds, lists)
    if as_json:
        return click.echo(found.reset_index().to_json(orient="records"))
    shown = Table(box=SIMPLE_HEAD, title="Shares of the rows; NOT private", title_justify="left")
    for head in ("column", "missing", "outside", "for example"):
        shown.add_column(head, justify="right" if head in ("missing", "outside") else "left")
    for column, row in found.iterrows():
        example = "" if pd.isna(row["example"]) else printable(row["example"])
        shown.add_row(column, f"{row['missing']:.2%}", f"{row['outside']:.2%}", example)
    Console().print(shown)
