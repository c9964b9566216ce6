"""skdpfair fit: a model within its budget, chosen or with a threshold, and nothing else."""

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from skdpfair import load_release
from skdpfair.budget import PrivacyLedger
from skdpfair.budget.charging import charged
from skdpfair.preprocessing import TableSchema
from skdpfair.privacy import NoisyRelease
from skdpfair.report import model_page
from skdpfair.testing import verify_release
from skdpfair.training.net import PrivateNet

LEDGER = ["--ledger", "ledger.jsonl", "--ledger-delta", "1e-5"]
TRY = ["--try", "method=dpsgd,global_adapt", "--try", "lr=0.5,1", "--trials", "6"]


def test_fit_writes_a_model_of_the_schema(model, released, table, loans):
    printed, clf = released[1], load_release("model.safetensors")
    assert printed["written"] == "model.safetensors" and printed["epsilon"] <= 3.0
    assert printed["epsilon"] == clf.privacy_.epsilon
    assert clf.schema_ == loans.schema.with_fixed_encoding(len(table), epsilon=3.0)
    names = list(clf.feature_names_in_)
    assert {name.split("_")[0] for name in names[:-4]} == {"Größe", "Einkommen"}
    assert names[-4:] == ["Kanton_ZH", "Kanton_BE", "Anrede_Frau", "Anrede_Herr"]
    verify_release("model.safetensors")


def test_try_chooses_a_model_within_the_budget(folder, run, refused, loans):
    """The file holds one of the models to try; the ledger has the whole search."""
    done = run(*loans.fit, *TRY, *LEDGER, "--ledger-epsilon", 4, "--epsilon", 3, "--json")
    (limit,) = re.findall(r"at\s+most\s+([\d.]+)\s+%", done.stderr)  # before the fits
    printed, clf = json.loads(done.stdout), load_release("model.safetensors")
    chosen = printed["chosen"]
    assert (clf.method, clf.lr, clf.epsilon) == (chosen["method"], chosen["lr"], chosen["epsilon"])
    assert clf.method in ("dpsgd", "global_adapt") and clf.lr in (0.5, 1) and clf.epsilon < 2.0
    assert 2.9 < printed["epsilon"] == clf.privacy_.epsilon <= 3.0
    assert clf.privacy_.method == "private selection"
    assert PrivacyLedger("ledger.jsonl").epsilon() == pytest.approx(3.0, abs=0.05)
    assert limit in clf.privacy_.plain_statement
    run("predict", "model.safetensors", "loans.csv")
    again = [*loans.fit, *TRY, *LEDGER[:2], "--epsilon", 3, "-o", "b.safetensors"]
    assert "would bring epsilon" in refused(*again)


def test_threshold_is_charged_with_the_fit(folder, table, run, refused, loans):
    """For a class of a tenth; the file predicts by it, in the shell and in Python."""
    rows = pd.concat([table] * 3)
    rare = np.where(rows["Einkommen"] > 90, "ja", "nein")
    rows.assign(**{"kredit ok?": rare}).to_csv("loans.csv", index=False)
    options = "--set max_steps=10 --epsilon 3 --threshold balanced_accuracy --seed 1 --json"
    done = json.loads(run(*loans.fit, *options.split()).stdout)
    assert done["epsilon"] <= 3.0 and done["what"] == "fitted weights and thresholds"
    assert done["seeded"] and "seed" in " ".join(done["warnings"])
    assert "score counts" in [release["what"] for release in done["releases"]]
    run("predict", "model.safetensors", "loans.csv")
    found = pd.read_csv("predictions.csv")
    by_half = np.where(found["probability[ja]"] >= 0.5, "ja", "nein")
    assert (found["kredit ok?"] != by_half).any()
    assert (found["kredit ok?"] == load_release("model.safetensors").predict(rows)).all()
    assert "threshold of the probability" in model_page("model.safetensors")
    both = [*loans.fit, "--threshold", "accuracy", *TRY, "-o", "x.safetensors"]
    assert "--threshold and --try" in refused(*both)


def test_interrupted_fit_keeps_the_steps_that_were_taken(folder, monkeypatch, run, loans):
    whole, epochs = PrivateNet.run_single_epoch, []

    def stops(self, iterator, *args, **kwargs):
        epochs.append(1)
        if len(epochs) != 1:
            raise KeyboardInterrupt
        return whole(self, iterator, *args, **kwargs)

    monkeypatch.setattr(PrivateNet, "run_single_epoch", stops)
    fit = [*loans.fit[:6], "--set", "max_epochs=4", "-o"]
    done = run(*fit, "part.safetensors", status=130)
    assert "NOT finished: part.safetensors" in " ".join(done.output.split())
    assert load_release("part.safetensors").privacy_.steps > 0
    epochs.clear()
    done = run(*fit, "more.safetensors", "--json", status=130)
    assert json.loads(done.stdout)["interrupted"]
    before = Path("part.safetensors").read_bytes()
    run(*fit, "part.safetensors", "--force", status=130)  # before any step
    assert Path("part.safetensors").read_bytes() == before


def test_try_without_a_model_is_charged(folder, monkeypatch, run, refused, loans):
    from skdpfair.model_selection import _trials

    monkeypatch.setattr(_trials, "draw_count", lambda rng, mean, shape: 0)
    assert "Its cost is spent" in refused(*loans.fit, *TRY)

    def stops(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(_trials, "best_of", stops)
    assert "Its cost is spent" in run(*loans.fit, *TRY, status=130).stderr
    assert not Path("model.safetensors").exists()


def test_levels_of_bins_missing_cells_and_labels(folder, table, run, refused, loans):
    table.assign(Geschlecht=[None, "w", "m", "m"] * 250).to_csv("loans.csv", index=False)
    assert 'Add "" to the list' in refused(*loans.fit)
    groups = {"Geschlecht": ["w", "m", ""], "kredit ok?": ["nein", "ja"]}
    parts = vars(loans.schema) | {"groups": groups, "bins": {"Größe": [160, 180]}}
    Path("schema.toml").write_text(TableSchema(**parts).to_toml(), encoding="utf-8")
    run(*loans.fit, "--method", "naive")
    clf = load_release("model.safetensors")
    assert len(clf.levels_) == 18 and ("", "nein", "[160, 180)") in list(map(tuple, clf.levels_))
    assert not any("kredit" in name for name in clf.feature_names_in_)
    run("report", "model.safetensors", "--data", "loans.csv")
    assert "[160, 180)" in Path("report.html").read_text()


def test_fit_of_persons_needs_no_column_of_persons_later(folder, table, run, loans):
    table.assign(patientId=np.arange(len(table)) // 2).to_csv("visits.csv", index=False)
    persons = vars(loans.schema) | {"person": "patientId", "max_records": 2}
    Path("schema.toml").write_text(TableSchema(**persons).to_toml(), encoding="utf-8")
    run("fit", "visits.csv", *loans.fit[2:], "--epsilon", 11)
    clf = load_release("model.safetensors")
    assert (clf.schema_.person, clf.privacy_.protects) == ("patientId", "person")
    assert clf.privacy_.n_samples == 500
    for data in ("visits.csv", "loans.csv"):
        run("report", "model.safetensors", "--data", data)
        run("predict", "model.safetensors", data)


REFUSED = {  # options, and what is named
    "no schema": (["fit", "loans.csv"], "skdpfair schema loans.csv -o schema.toml"),
    "no folder": (["-o", "no/m.safetensors"], "no folder no"),
    "not private": (["--method", "sgd"], "--method"),
    "a method": (["--method", "dpsdg"], "Did you mean 'dpsgd'?"),
    "an epsilon": (["--epsilon", "1e-9"], "--epsilon: epsilon=1e-09"),
    "a delta": (["--delta", "0.5"], "Error: --delta: delta must"),
    "its own data": (["-o", "loans.csv"], "would replace"),
    "a budget": (["--epsilon", 4, *LEDGER, "--ledger-epsilon", 3], "above the budget"),
    "a choice": (["--epsilon", 4, *TRY, *LEDGER, "--ledger-epsilon", 3], "above the budget"),
    "a threshold": (
        ["--epsilon", 4, "--threshold", "accuracy", *LEDGER, "--ledger-epsilon", 3],
        "above the budget",
    ),
    "a network": (["--try", "module=logistic,cnn", *LEDGER], "needs pictures"),
    "a weight": (["--set", 'class_weight={"nay": 1}', *LEDGER], "nay"),
    "three classes": (["--threshold", "accuracy", *LEDGER], "--threshold"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_fit_writes_nothing(name, folder, refused, loans):
    options, named = REFUSED[name]
    if name == "three classes":
        Path("schema.toml").write_text(loans.schema.to_toml().replace('"ja"]', '"ja", "x"]'))
    fit = [] if name == "no schema" else loans.fit[:4] if "module=" in str(options) else loans.fit
    assert named in refused(*fit, *options)


def test_refused_fit_adds_no_line_to_a_ledger(folder, refused, loans):
    release, ledger = NoisyRelease("gradient sum", 1.0, (9.0,), 1), Path("ledger.jsonl")
    with PrivacyLedger(ledger, epsilon=1, delta=1e-5), charged([release], [], protects="person"):
        pass
    for epsilon in (1, 9):
        assert "protects" in refused(*loans.fit, "--epsilon", epsilon, *LEDGER[:2])


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ('target = "kredit ok?"', 'target = "other"', "no column 'other'"),
        ('["nein", "ja"]', '["nein", "jo"]', "classes does not list"),
        ('["w", "m"]', '["w", "d"]', "groups['Geschlecht'] does not list"),
        ("[100, 230]", "[230, 100]", "low < high"),
        ("[bounds]", '[bounds]\n"Name, Vorname" = [0, 1]', "not numbers"),
        ("[bounds]", "[bonds]", "no part 'bonds'"),
        ("[bounds]", "[bounds", "not TOML"),
    ],
)
def test_unusable_schema_is_named(folder, old, new, named, refused, loans):
    text = loans.schema.to_toml()
    assert old in text
    (folder / "schema.toml").write_text(text.replace(old, new, 1), encoding="utf-8")
    assert named in refused(*loans.fit)
