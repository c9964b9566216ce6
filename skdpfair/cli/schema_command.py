"""``skdpfair schema``: begin a file of public facts about a table, or check one."""

import json
import sys

import click

from skdpfair.cli import _shell as shell

_TEMPLATE = """\
# Public facts about the columns of a table. Fill in what everybody may know: from a form, a code
# book, or the meaning of a column. Limits and lists that are derived from the rows leak
# information that the privacy budget does not cover. Nothing in this file was derived from the
# rows, except which columns hold numbers, and which one may name persons.
data = {data}
target = {target}  # the column to predict
classes = []  # all values that the target can have, such as ["no", "yes"]
# If a person can have several rows, name their column, and state the most rows of a person:
{mark}person = {person}
{mark}max_records = {max_records}
missing = []  # columns of [bounds] in which a value can be missing
# Amounts, such as money, mostly small and sometimes very large; without this line, the columns
# whose limits span several powers of ten:
# log_columns = []

[groups]  # columns whose groups are compared, with all their values; "" stands for a missing one
{groups}

[bounds]  # numbers: the lowest and the highest possible value, such as [18, 100]
{numbers}

[categories]  # texts: all possible values. A number that is a code belongs here, too
{texts}

[bins]  # groups of numbers by public edges: age = [25, 65] is below 25, 25 to below 65, and 65 on

# For `skdpfair sweep`: what to compare, each with several seeds, against a model without privacy.
[sweep]
methods = ["dpsgd", "global_adapt"]
epsilons = [1.0, 3.0]
seeds = 5
store = {store}
"""


@click.command()
@click.argument("data", type=shell.FILE)
@click.option("--target", help="Column to predict.")
@click.option(
    "--group", "groups", multiple=True, help="Column of groups to compare; may be given again."
)
@shell.output_option("schema.toml")
@click.option(
    "--check",
    type=shell.FILE,
    help="Write nothing: count the values in DATA that this schema does not cover. NOT private.",
)
@shell.AS_JSON
def schema(data, target, groups, output, check, as_json):
    """Begin a file of public facts about the columns of DATA, a CSV or Parquet file.

    \b
    skdpfair schema loans.csv --target approved --group sex -o loans.toml
    skdpfair schema loans.csv --check loans.toml

    Fill the file in with an editor: limits of numbers and lists of values must come from what
    everybody may know, such as a form or a code book. If you derive them from the data, they leak
    information that the privacy budget does not cover.
    """  # noqa: D301 (click reads the character)
    if check is not None:
        return _check(data, check, as_json)
    shell.check_outputs(output, inputs=(data,))
    from skdpfair._utils.files import replace_file  # late: it needs pandas
    from skdpfair.cli._sources import source_of
    from skdpfair.preprocessing._linter import columns_of_persons

    with shell.in_options():
        if output.exists():
            raise ValueError(f"{output} already exists. Give another --output, or remove it.")
        source, groups = source_of(data), list(dict.fromkeys(groups))
        names = source.columns()
        for option, label in [("--target", target), *(("--group", name) for name in groups)]:
            if label is not None and label not in names:
                try:
                    source.columns([label])
                except ValueError as error:
                    raise shell.Unusable(f"{option}: {error}") from None
        names = [name for name in names if name not in ("", target)]
        head = source.head(columns_of_persons(name for name in names if name not in groups))
        likely = next((name for name in head if _may_name_persons(head[name])), None)
        person, max_records = None, 1
        if sys.stdin.isatty():
            person, max_records = _person(names, likely)
        features = [name for name in names if name not in (person, *groups)]
        numbers = [*source.head(features).select_dtypes("number")]
    text = _TEMPLATE.format(
        data=_quoted(str(data)),
        target=_quoted(target or ""),
        mark="# " if person is None else "",
        person=_quoted(person or likely or ""),
        max_records=max_records,
        groups="\n".join(f"{_quoted(name)} = []" for name in groups) or '# "" = []',
        numbers=_lines(name for name in features if name in numbers),
        texts=_lines(name for name in [*features, *groups] if name not in numbers),
        store=_quoted(f"{data.stem}-results"),
    )
    replace_file(output, text.encode())
    if as_json:
        return shell.echo(json.dumps({"written": str(output)}))
    shell.say(f"Written to {output}. Fill it in with any editor, and check its guesses.")
    shell.echo(f"Then:  skdpfair fit {data} --schema {output} --epsilon 1")
    shell.echo(f"or     skdpfair sweep {output}")
    shell.echo(f"Find typing errors, if you may look:  skdpfair schema {data} --check {output}")


def _may_name_persons(values):
    """Return whether a column repeats texts or whole numbers, and has more than two of them."""
    values = values.dropna()
    is_fraction = values.dtype.kind == "f" and (values % 1 != 0).any()
    return not is_fraction and 2 < values.nunique() < len(values)


def _person(names, likely):
    """Ask whether a person can have several rows, and return their column and how many, if so."""
    question = "Can one person have several rows?"
    if shell.prompt(question, type=click.Choice("yn"), default="n") == "n":
        return None, 1
    column = shell.prompt("Column that names the person", type=click.Choice(names), default=likely)
    return column, shell.prompt("Most rows of a person that are used", type=click.IntRange(min=1))


def _lines(names):
    return "\n".join(f"# {_quoted(name)} = []" for name in names)


def _quoted(text):
    return json.dumps(text, ensure_ascii=False)


def _check(data, path, as_json):
    # late, with all that takes time to import
    from skdpfair.cli._sources import print_uncovered, source_of
    from skdpfair.cli._study import Study, person_question
    from skdpfair.preprocessing._schema import uncovered

    with shell.in_options({}):  # a file may have any name
        known = Study.read(path).schema
        source = source_of(data)
        table = source.table_of(known)
        uncovered_fractions = known.check(table)
    if as_json:
        return shell.echo(uncovered_fractions.reset_index().to_json(orient="records"))
    shell.echo("Shares of the rows; NOT private")
    percent = dict.fromkeys(("missing", "outside"), "{:.2%}".format)
    shell.echo(uncovered_fractions.to_string(formatters=percent, index_names=False))
    print_uncovered(uncovered(known, table))
    if question := person_question(source.columns(), known.person):
        shell.say(question)
