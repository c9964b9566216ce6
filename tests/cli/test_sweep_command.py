"""skdpfair sweep: finished fits in a folder, charged to a ledger, or refused before any fit."""

import json
from pathlib import Path

import pytest

from skdpfair import load_release
from skdpfair.budget import PrivacyLedger
from skdpfair.preprocessing import TableSchema

SWEEP = ["sweep", "study.toml", "--jobs", 1]
LEDGER, DELTA = ["--ledger", "ledger.jsonl"], ["--ledger-delta", 1e-5]


def releases(path="ledger.jsonl"):
    return PrivacyLedger(path).frame()["what"].tolist()


def test_sweep_prints_estimates(folder, run):
    rows = json.loads(run(*SWEEP, "--json").stdout)
    assert [(r["method"], r["epsilon"]) for r in rows] == [("reference", None), ("dpsgd", 2.0)]
    assert 0 <= rows[1]["accuracy[w] mean"] <= 1 and rows[0]["positive class"] == "ja"
    done = run(*SWEEP)
    assert "NOT private" in done.output and "skdpfair report results" in done.output


def test_sweep_fit_and_report_share_a_ledger(folder, run, loans):
    run(*SWEEP, *LEDGER, *DELTA)
    assert sorted(releases()) == ["gradient sum"] * 2 + ["not private"] * 2
    printed = run(*SWEEP, *LEDGER).output  # all is there
    assert len(releases()) == 4
    assert printed.split("Next:")[1].split()[-2:] == LEDGER
    next(Path("results").glob("[0-9a-f]*.json")).unlink()
    run(*SWEEP, *LEDGER)
    assert len(releases()) == 5  # the one that was left
    run(*loans.fit, *LEDGER)
    ledger = PrivacyLedger("ledger.jsonl")
    assert len(releases()) == 6 == ledger.report().n_fits
    assert load_release("model.safetensors").privacy_.delta == ledger.delta
    run("report", "results", *LEDGER)
    assert "holds 6 fits" in Path("report.html").read_text()
    run("report", "model.safetensors", *LEDGER, "--card", "card.md")
    nist = ["--export", "nist", "--data", "loans.csv", "-o", "nist.md"]
    run("statement", "model.safetensors", *LEDGER, *nist)
    for name in ("report.html", "card.md", "nist.md"):
        text = Path(name).read_text(encoding="utf-8")
        assert "holds 6 fits, that of this model among them" in text
    assert "| Geschlecht “w” |" in text and "NOT private" in text
    assert "6 fits" in run("statement", "model.safetensors", *LEDGER).stdout


@pytest.mark.parametrize(("budget", "n_fits"), [([], 4), (["--ledger-epsilon", 9], 2)])
def test_ledger_that_lacks_finished_fits_is_refused(budget, n_fits, folder, run, refused):
    run(*SWEEP)
    printed = refused(*SWEEP, *LEDGER, *budget, *DELTA)
    assert f"store='results' holds {n_fits} finished fits" in printed


def test_sweep_beyond_its_budget_is_refused_before_any_fit(folder, run, refused):
    budget = [*DELTA, "--ledger-epsilon", 3]
    assert "no budget allows" in refused(*SWEEP, *LEDGER, *budget)
    # where the references were trained before, private fits together count
    run(*SWEEP)
    for path in Path("results").glob("[0-9a-f]*.json"):
        if json.loads(path.read_text())["epsilon"]:
            path.unlink()
    assert "2 fits together would bring epsilon" in refused(*SWEEP, *LEDGER, *budget)
    run(*SWEEP, "--ledger", "wide.jsonl", *DELTA, "--ledger-epsilon", 5)
    assert releases("wide.jsonl") == ["gradient sum"] * 2


@pytest.mark.parametrize(
    ("changes", "options", "named"),
    [
        ({'["dpsgd"]': '["fairlens_dp"]', "seeds = 2": "seeds = 1\ncv = 1"}, [], "cv"),
        ({'["dpsgd"]': '["fairlens_dp"]', '"ja"]': '"ja", "x"]'}, [], "fairlens_dp"),
        ({}, ["--jobs", 0], "--jobs"),
        ({}, ["--measures", "accurac,log_loss"], "--measures: measures must"),
        ({'data = "loans.csv"': ""}, [], "--data FILE"),
        ({'Geschlecht = ["w", "m"]': ""}, [], "names no groups"),
    ],
)
def test_refused_sweep_writes_nothing(changes, options, named, folder, refused):
    text = Path("study.toml").read_text(encoding="utf-8")
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    Path("study.toml").write_text(text, encoding="utf-8")
    assert named in refused(*SWEEP, *options, *LEDGER, *DELTA)


def test_measures_are_chosen_by_name(folder, run, loans):
    groups = {"Geschlecht": ["w", "m"], "Kanton": ["ZH", "BE", "GE", ""]}
    schema = TableSchema(**vars(loans.schema) | {"groups": groups, "categories": {}})
    text = f'data = "loans.csv"\n{schema.to_toml()}{loans.sweep}'.replace("seeds = 2", "seeds = 1")
    Path("study.toml").write_text(text, encoding="utf-8")
    printed = run(*SWEEP, "--measures", "roc_auc, log_loss").output
    assert "roc auc (%)" in printed and "log loss (nats)" in printed
    assert "accuracy (%)" not in printed
