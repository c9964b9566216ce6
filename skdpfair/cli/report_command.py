"""``skdpfair report``: write the results of a sweep, or a model, as one page of HTML."""

import json

import click

from skdpfair.cli import _shell as shell


@click.command()
@click.argument("results", type=shell.AnyPath(exists=True))
@shell.output_option("report.html", "The page to write.")
@click.option("--title", help="Title of the page.")
@click.option(
    "--data",
    type=shell.FILE,
    help="For a model: test records as in fit, for a group table that is NOT private.",
)
@click.option(
    "--card", type=shell.AnyPath(dir_okay=False), help="For a model: write a model card here, too."
)
@click.option(
    "--sweep",
    type=shell.AnyPath(exists=True, file_okay=False),
    help="For a model: folder of a sweep of the same data, to state the cost of each group. NOT "
    "private.",
)
@shell.LEDGER
@shell.MEASURES
@shell.AS_JSON
def report(results, output, title, data, card, sweep, ledger, measures, as_json):
    """Write a page about RESULTS: the folder of a sweep, or a model that `skdpfair fit` wrote.

    The page is one file without scripts or network requests, and states whether its figures are
    private.
    """
    shell.check_outputs(output, card, inputs=(results, data, ledger))
    if results.is_dir() and (data or card or sweep):
        raise shell.Unusable("--data, --card and --sweep are for a model, and RESULTS is a folder.")
    if measures is not None and data is None and not results.is_dir():
        raise shell.Unusable("--measures need test records: give --data FILE.")
    options = {"title": title, "measures": shell.names_in(measures)}
    store = "RESULTS" if results.is_dir() else "--sweep"
    with shell.in_options(shell.OPTIONS | {"store": store}), shell.recorded_warnings() as recorded:
        options["ledger"] = shell.existing_ledger(ledger)
        if results.is_dir():
            private = _of_sweep(results, output, options)
        else:
            private = _of_model(results, output, card, data, sweep, options)
    for text in shell.texts_of(recorded):
        shell.note(text)
    written = [str(path) for path in (output, card) if path is not None]
    if as_json:
        return shell.echo(json.dumps({"written": written, "private": private}))
    privacy_text = "All its figures are" if private else "It contains figures that are NOT"
    shell.say(f"Written to {' and '.join(written)}. {privacy_text} private.")


def _of_sweep(store, output, options):
    from skdpfair.model_selection import TradeoffResults  # late: it needs most of the package

    results = TradeoffResults.from_store(store)
    schema = results.schema
    if options["title"] is None and schema is not None:
        columns = " and ".join(schema.all_groups)
        options["title"] = f"What privacy costs each group: {schema.target} by {columns}"
    results.to_html(output, pipeline=_pipeline_of(schema), **options)
    return False


def _pipeline_of(schema):
    return schema.preprocessor() if schema is not None and schema.has_features else None


def _of_model(path, output, card, data, sweep, options):
    """Write the page of a model, and its card; return whether all figures are private."""
    from skdpfair._utils.files import replace_file  # late: they need most of the package
    from skdpfair.cli._sources import test_records
    from skdpfair.model_selection import TradeoffResults
    from skdpfair.release._release import load_release
    from skdpfair.report import model_card, model_page

    clf = load_release(path)
    schema = clf.schema_
    tests = {} if data is None else test_records(path, schema, data)
    title = options.pop("title")
    if title is None and schema is not None:
        title = f"A private classifier of {schema.target}"
    of_page = {"title": title, "pipeline": _pipeline_of(schema)}
    of_page["results"] = None if sweep is None else TradeoffResults.from_store(sweep)
    pages = {output: model_page(path, **tests, **of_page, **options)}
    if card is not None:
        pages[card] = model_card(path, **tests, **options)
    for page, text in pages.items():  # when all are made
        replace_file(page, text.encode())
    is_alone = data is None and sweep is None
    return is_alone and clf.privacy_.is_private and not clf.privacy_.seeded
