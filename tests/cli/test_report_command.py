"""skdpfair report: the page of a sweep or of a model, and whether its figures are private."""

import json
from pathlib import Path

import pytest

from skdpfair import load_release
from skdpfair.budget import PrivacyLedger
from skdpfair.model_selection import TradeoffResults
from skdpfair.report import model_card, model_page

MODEL = "model.safetensors"


@pytest.fixture
def store(model, run):
    """The folder with a model and the results of a sweep of its table."""
    run("sweep", "study.toml", "--jobs", 1)
    return "results"


def test_report_of_a_sweep_is_its_page(store, run, refused):
    found = TradeoffResults.from_store(store)
    pipeline, names = found.schema.preprocessor(), "roc_auc,excessive_risk"
    title = "What privacy costs each group: kredit ok? by Geschlecht"
    for options, arguments in (
        ([], {"title": title}),
        (
            ["--title", "Loans", "--measures", names],
            {"title": "Loans", "measures": names.split(",")},
        ),
    ):
        done = run("report", store, "-o", "page.html", *options)
        assert "NOT private" in " ".join(done.output.split())
        assert Path("page.html").read_text() == found.to_html(pipeline=pipeline, **arguments)
    assert "--measures: measures must" in refused("report", store, "--measures", "accurac")
    assert "--sweep" in refused("report", store, "--sweep", store)
    PrivacyLedger("ledger.jsonl", delta=1e-5)
    ledger = PrivacyLedger("ledger.jsonl")
    run("report", store, "--ledger", "ledger.jsonl")
    page = found.to_html(pipeline=pipeline, title=title, ledger=ledger)
    assert Path("report.html").read_text() == page


def test_report_of_a_model_is_its_page_and_card(model, run):
    pipeline = load_release(MODEL).schema_.preprocessor()
    done = run("report", MODEL, "--card", "card.md", "--json")
    assert json.loads(done.stdout) == {"written": ["report.html", "card.md"], "private": True}
    page = model_page(MODEL, pipeline=pipeline, title="A private classifier of kredit ok?")
    assert Path("report.html").read_text() == page
    assert Path("card.md").read_text() == model_card(MODEL)
    tests = ["--data", "loans.csv", "--measures", "roc_auc", "--card", "card.md"]
    assert json.loads(run("report", MODEL, *tests, "--json").stdout)["private"] is False
    assert "ROC AUC" in Path("report.html").read_text()
    assert "NOT private" in Path("card.md").read_text()


def test_report_of_a_model_takes_a_sweep_of_its_table(store, run, refused, loans):
    quoted = ["report", MODEL, "--sweep", store, "-o"]
    assert json.loads(run(*quoted, "quoted.html", "--json").stdout)["private"] is False
    assert 'id="cost"' in Path("quoted.html").read_text(encoding="utf-8")
    schema = loans.schema.to_toml().replace('Anrede = ["Frau", "Herr"]', "")
    Path("schema.toml").write_text(schema, encoding="utf-8")
    run(*loans.fit, "--force")  # on another table
    printed = refused(*quoted, "other.html")
    assert "table of the model" in printed and "'Anrede'" in printed


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["loans.csv"], "not a safetensors file"),
        ([".", "--data", "loans.csv"], "RESULTS is a folder"),
        (["."], "RESULTS: store='.' holds no sweep"),
        ([".", "--ledger", "loans.csv"], "--ledger: path="),
        ([MODEL, "--measures", "accuracy"], "--data FILE"),
    ],
)
def test_unusable_report_is_named(model, arguments, named, refused):
    assert named in refused("report", *arguments)
