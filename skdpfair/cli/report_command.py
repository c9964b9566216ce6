"""``skdpfair report``: write the results of a sweep, or a model, as one page of HTML."""

import json

import click

from skdpfair.cli._input import (
    AS_JSON,
    FILE_COLUMN,
    LABELS,
    MEASURES,
    SIZE,
    AnyPath,
    Unusable,
    check_outputs,
    echo,
    existing_ledger,
    in_options,
    in_words,
    names_in,
    recorded_warnings,
    wrapped,
)


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
@click.option("--title", help="Title of the page.")
@click.option(
    "--data",
    type=AnyPath(exists=True),
    help="For a model: test records as in fit, for a group table that is NOT private.",
)
@LABELS
@FILE_COLUMN
@SIZE
@click.option(
    "--card", type=AnyPath(dir_okay=False), help="For a model: write a model card here, too."
)
@click.option(
    "--by",
    metavar="COLUMN",
    help="For a sweep whose groups are intersections of several columns: the groups of this one.",
)
@click.option(
    "--sweep",
    "compared",
    type=AnyPath(exists=True, file_okay=False),
    help="For a model: folder of a sweep of the same data, to tell the cost of each group. NOT "
    "private.",
)
@click.option(
    "--ledger",
    type=AnyPath(exists=True, dir_okay=False),
    help="Ledger of the data set: the page tells what all fits that it has recorded spent.",
)
@MEASURES
@AS_JSON
def report(results, output, title, data, card, by, compared, ledger, measures, as_json, **pictures):
    """Write a page about RESULTS: the folder of a sweep, or a model that `skdpfair fit` wrote.

    The page is one file without scripts or network requests, and states whether its figures are
    private.
    """
    check_outputs(output, card, inputs=(results, data, pictures["labels"], ledger))
    with in_options(), recorded_warnings() as said:
        if results.is_dir():
            if data or card or compared:
                raise Unusable(
                    "--data, --card and --sweep are for a model, and RESULTS is a folder."
                )
            private = _of_sweep(results, output, title, by, names_in(measures), ledger)
        else:
            if by:
                raise Unusable("--by is for a sweep, and RESULTS is a file.")
            measures = names_in(measures)
            private = _of_model(
                results, output, title, data, card, compared, measures, ledger, pictures
            )
    for text in said():
        echo(wrapped(f"Note: {in_words(text)}"), err=True)
    written = [str(path) for path in (output, card) if path is not None]
    if as_json:
        return echo(json.dumps({"written": written, "private": private}))
    holds = "no figures that are not" if private else "figures that are NOT"
    echo(wrapped(f"Written to {' and '.join(written)}. It contains {holds} private."))


def _of_sweep(results, output, title, by, measures, ledger):
    from skdpfair.model_selection import TradeoffResults  # late: it needs most of the package

    found = TradeoffResults.from_store(results)
    schema = found.schema
    pipeline = _pipeline_of(schema)
    if title is None and schema is not None:
        columns = by or " and ".join(schema.all_groups)
        title = f"What privacy costs each group: {schema.target} by {columns}"
    found = found if by is None else found.by(by)
    options = {"measures": measures, "ledger": existing_ledger(ledger)}
    found.to_html(output, title=title, pipeline=pipeline, **options)
    return False


def _pipeline_of(schema):
    return schema.preprocessor() if schema is not None and schema.has_features else None


def _of_model(results, output, title, data, card, compared, measures, ledger, pictures):
    from skdpfair._files import replace_file
    from skdpfair.cli._sources import tested
    from skdpfair.model_selection import TradeoffResults
    from skdpfair.release import load_release, schema_of
    from skdpfair.report import model_card, model_page

    if measures is not None and data is None:
        raise Unusable("--measures need test records: give --data FILE.")
    clf, schema = load_release(results), schema_of(results)
    X, y, groups = (None,) * 3 if data is None else tested(results, schema, clf, data, **pictures)
    pipeline = _pipeline_of(schema)
    if title is None and schema is not None:
        title = f"A private classifier of {schema.target}"
    given = {"sensitive_features": groups, "measures": measures}
    given["ledger"] = existing_ledger(ledger)
    costs = None if compared is None else TradeoffResults.from_store(compared)
    of_page = {"title": title, "pipeline": pipeline, "results": costs}
    pages = {output: model_page(results, X, y, **of_page, **given)}
    if card is not None:
        pages[card] = model_card(results, X, y, **given).render()
    for path, text in pages.items():  # when all are made
        replace_file(path, text.encode())
    alone = X is None and compared is None
    return alone and clf.privacy_.is_private and not clf.privacy_.seeded
