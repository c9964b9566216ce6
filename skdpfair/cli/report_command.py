"""``skdpfair report``: write the results of a sweep, or a model, as one page of HTML."""

import json
from pathlib import Path

import click

from skdpfair.cli._input import (
    AS_JSON,
    AnyPath,
    Unusable,
    check_outputs,
    echo,
    in_options,
    in_words,
    recorded_warnings,
    wrapped,
)

_WORDS = {"Use random_state=None": "Fit without --seed", "random_state": "--seed"}


@click.command()
@click.argument("results", type=AnyPath(exists=True))
@click.option(
    "--output",
    "-o",
    type=AnyPath(dir_okay=False),
    default="report.html",
    show_default=True,
    help="The page to write.",
)
@click.option("--title", help="Of the page.")
@click.option(
    "--data",
    type=AnyPath(exists=True, dir_okay=False),
    help="For a model: CSV file of test records, for a group table that is NOT private.",
)
@click.option(
    "--card", type=AnyPath(dir_okay=False), help="For a model: write a model card here, too."
)
@AS_JSON
def report(results, output, title, data, card, as_json):
    """Write a page about RESULTS: the folder of a sweep, or a model that `skdpfair fit` wrote.

    The page is one file without scripts or requests, and says whether its figures are private.
    """
    check_outputs(output, card, inputs=(results, data))
    with in_options({"store": "RESULTS"}), recorded_warnings() as said:
        if results.is_dir():
            if data or card:
                raise Unusable("--data and --card are for a model, and RESULTS is a folder.")
            private = _of_sweep(results, output, title)
        else:
            private = _of_model(results, output, title, data, card)
    for text in said():
        echo(wrapped(f"Note: {in_words(text, _WORDS)}"), err=True)
    written = [str(path) for path in (output, card) if path is not None]
    if as_json:
        return echo(json.dumps({"written": written, "private": private}))
    holds = "no figures that are not" if private else "figures that are NOT"
    echo(wrapped(f"Written to {' and '.join(written)}. It contains {holds} private."))


def _of_sweep(results, output, title):
    from skdpfair.cli.sweep_command import schema_beside
    from skdpfair.model_selection import TradeoffResults  # late: it needs most of the package

    schema = schema_beside(results)
    pipeline = None if schema is None else schema.preprocessor()
    if title is None and schema is not None:
        title = f"What privacy costs each group: {schema.target} by {' and '.join(schema.groups)}"
    TradeoffResults.from_store(results).to_html(output, title=title, pipeline=pipeline)
    return False


def _of_model(results, output, title, data, card):
    from skdpfair.budget.files import replace_file
    from skdpfair.release import load_release, schema_of
    from skdpfair.report import model_card, model_page

    clf, schema = load_release(results), schema_of(results)
    if schema is None and data is not None:
        raise ValueError(
            f"{Path(results).name} does not say how its features are made from a table, so --data "
            "cannot be read: save it with save_release(schema=...), or use "
            "skdpfair.report.model_page in Python."
        )
    X = y = groups = None
    if data is not None:
        X, y, groups = schema.split(schema.read_csv(data))
    pipeline = None if schema is None else schema.preprocessor()
    if title is None and schema is not None:
        title = f"A private classifier of {schema.target}"
    page = model_page(clf, X, y, sensitive_features=groups, title=title, pipeline=pipeline)
    pages = {output: page}
    if card is not None:
        pages[card] = model_card(clf, X, y, sensitive_features=groups).render()
    for path, text in pages.items():  # when all are made
        replace_file(path, text.encode())
    return X is None and clf.privacy_.is_private
