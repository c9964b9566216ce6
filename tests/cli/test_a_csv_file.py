"""From a CSV file to a model, predictions, a comparison and a report."""

import contextlib
import json
import re
import tomllib
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from skdpfair import load_release
from skdpfair.budget import PrivacyLedger
from skdpfair.cli import main, schema_command
from skdpfair.preprocessing import TableSchema
from skdpfair.testing import verify_release
from skdpfair.training.net import PrivateNet

SCHEMA = TableSchema(
    target="kredit ok?",
    classes=["nein", "ja"],
    groups={"Geschlecht": ["w", "m"]},
    bounds={"Größe": (100, 230), "Einkommen": (0, 100)},
    categories={"Kanton": ["ZH", "BE"], "Anrede": ["Frau", "Herr"]},
)
SHORT = ["--set", "max_steps=10", "--set", "module=logistic", "--set", "batch_size=200"]


FIT = ["fit", "loans.csv", "--schema", "schema.toml"]

STUDY = """
[sweep]
methods = ["dpsgd"]
epsilons = [2.0]
seeds = 2
store = "results"
[sweep.params]
max_steps = 5
module = "logistic"
batch_size = 200
"""


def write_study():
    text = 'data = "loans.csv"\n' + SCHEMA.to_toml() + STUDY
    Path("study.toml").write_text(text, encoding="utf-8")


@pytest.fixture(scope="module")
def table():
    rng, n = np.random.default_rng(0), 3000
    income = rng.uniform(0, 100, n).round(2)
    return pd.DataFrame(
        {
            "Name, Vorname": [f"secret-{i}" for i in range(n)],
            "Größe": rng.normal(170, 10, n).round(1),
            "Kanton": rng.choice(["ZH", "BE", "GE", ""], n),
            "Einkommen": income,
            "Geschlecht": rng.choice(["w", "m"], n),
            "Anrede": rng.choice(["Frau", "Herr"], n),
            "kredit ok?": np.where(income + rng.normal(0, 10, n) > 50, "ja", "nein"),
        }
    )


def write_tables(table):
    table.to_csv("loans.csv", sep=";", index=False, encoding="utf-8-sig")
    Path("schema.toml").write_text(SCHEMA.to_toml(), encoding="utf-8")


@pytest.fixture
def folder(table, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_tables(table)
    return tmp_path


def invoke(*arguments, **settings):
    return CliRunner().invoke(main, [str(a) for a in arguments], **settings)


def usable(done):
    assert done.exit_code == 0, done.output
    return done


def refused(*arguments, **settings):
    done = invoke(*arguments, **settings)
    assert done.exit_code == 2 and "Traceback" not in done.output, done.output
    assert "secret-" not in done.output
    return " ".join(done.output.split())


def fitted(*arguments):
    fit = ["fit", "loans.csv", "--schema", "schema.toml", "--epsilon", "3", *SHORT]
    return usable(invoke(*fit, "--method", "dpsgd", "--force", *arguments))


@pytest.fixture(scope="module")
def released(table, tmp_path_factory):
    """The file of a model, and what the command said as JSON."""
    with contextlib.chdir(tmp_path_factory.mktemp("released")):
        write_tables(table)
        said = json.loads(fitted("--json").stdout)
        return Path(said["written"]).read_bytes(), said


@pytest.fixture
def model(folder, released):
    """A folder with a model that was fitted before."""
    (folder / "model.safetensors").write_bytes(released[0])
    return folder


def test_fit_predict_report(model, released, table):
    """The file's predictions are those of the classifier on features made by the schema."""
    assert released[1]["epsilon"] <= 3.0 and released[1]["written"] == "model.safetensors"
    without = table.drop(columns=["kredit ok?", "Geschlecht"])[::-1]
    without.to_csv("new.csv", index=False)
    clf = load_release("model.safetensors")
    schema = clf.schema_
    assert schema == SCHEMA.with_fixed_encoding(len(table), epsilon=3.0)
    names = list(clf.feature_names_in_)
    assert {name.split("_")[0] for name in names[:20]} == {"Größe", "Einkommen"}
    assert names[20:] == ["Kanton_ZH", "Kanton_BE", "Anrede_Frau", "Anrede_Herr"]
    X = schema.preprocessor().transform(without.replace("", None))
    predict, (no, yes) = ["predict", "model.safetensors", "new.csv"], SCHEMA.classes
    usable(invoke(*predict, "-o", "out.csv"))
    out = pd.read_csv("out.csv")
    chances = out[[f"probability[{c}]" for c in clf.classes_]]
    assert np.allclose(chances, clf.predict_proba(X), atol=1e-5)
    expected = np.where(out[f"probability[{yes}]"] >= 0.5, yes, no)
    assert (out["kredit ok?"] == expected).all() and len(out) == len(without)
    report = ["report", "model.safetensors", "--card", "card.md"]
    said = json.loads(usable(invoke(*report, "--json")).stdout)
    assert said == {"written": ["report.html", "card.md"], "private": True}
    verify_release("model.safetensors")
    usable(invoke(*report, "--data", "loans.csv", "--measures", "roc_auc"))
    page = (model / "report.html").read_text()
    assert "contains non-private figures" in page and "ROC AUC" in page
    assert "NOT private" in (model / "card.md").read_text()


TRY = ["--try", "method=dpsgd,global_adapt", "--try", "lr=0.5,1", "--trials", "6"]


def test_a_model_is_chosen_within_the_budget(folder):
    """The file holds one of the models to try; the ledger and the page have the whole search."""
    ledger = ["--ledger", "books.jsonl", "--ledger-epsilon", "4", "--ledger-delta", "1e-5"]
    said = fitted("--json", *TRY, *ledger, "--seed", "1")
    assert "makes the noise" in " ".join(json.loads(said.stdout)["warnings"])
    (limit,) = re.findall(r"right in at\s+most\s+([\d.]+)\s+%", said.stderr)  # before the fits
    said = json.loads(said.stdout)
    clf = load_release("model.safetensors")
    assert clf.method == said["chosen"]["method"] in ("dpsgd", "global_adapt")
    assert clf.lr == said["chosen"]["lr"] in (0.5, 1)
    assert clf.epsilon == said["chosen"]["epsilon"] < 2.0
    assert 2.9 < said["epsilon"] == clf.privacy_.epsilon <= 3.0
    assert clf.privacy_.method == "private selection"
    assert PrivacyLedger("books.jsonl").epsilon() == pytest.approx(3.0, abs=0.05)
    usable(invoke("report", "model.safetensors"))
    page = (folder / "report.html").read_text()
    assert "The best of a random number of trials" in page
    assert f"with a probability of at most {limit} %" in page
    usable(invoke("predict", "model.safetensors", "loans.csv"))
    assert "would bring epsilon" in refused(*FIT, *TRY, *ledger[:2], "--epsilon", "3", "-o", "b.st")


def test_a_threshold_is_paid_for_with_the_fit(folder, table):
    """For a class of a tenth; the file predicts by it, in the shell and in Python."""
    rare = np.where(table["Einkommen"] > 90, "ja", "nein")
    table.assign(**{"kredit ok?": rare}).to_csv("loans.csv", index=False)
    done = json.loads(fitted("--threshold", "balanced_accuracy", "--seed", "1", "--json").stdout)
    assert done["epsilon"] <= 3.0 and done["what"] == "fitted weights and thresholds"
    assert "score counts" in [release["what"] for release in done["releases"]]
    usable(invoke("predict", "model.safetensors", "loans.csv"))
    rows = pd.read_csv("predictions.csv")
    by_half = np.where(rows["probability[ja]"] >= 0.5, "ja", "nein")
    assert (rows["kredit ok?"] != by_half).any()
    assert (rows["kredit ok?"] == load_release("model.safetensors").predict(table)).all()
    usable(invoke("report", "model.safetensors", "--data", "loans.csv"))
    assert "threshold of the probability" in (folder / "report.html").read_text()
    both = [*FIT, "--threshold", "accuracy", "--try", "lr=1,2", "-o", "x.safetensors"]
    assert "must not both be given" in refused(*both)


def test_an_interrupted_fit_says_so_and_keeps_what_was_paid_for(folder, monkeypatch):
    whole, epochs = PrivateNet.run_single_epoch, []

    def stops(self, iterator, *args, **kwargs):
        epochs.append(1)
        if len(epochs) != 1:
            raise KeyboardInterrupt
        return whole(self, iterator, *args, **kwargs)

    monkeypatch.setattr(PrivateNet, "run_single_epoch", stops)
    fit = [*FIT, "--method", "dpsgd", "--set", "max_epochs=4"]
    done = invoke(*fit, "-o", "part.safetensors")
    assert done.exit_code == 130, done.output
    assert "NOT finished: part.safetensors" in " ".join(done.output.split())
    assert load_release("part.safetensors").privacy_.steps > 0
    epochs.clear()
    done = invoke(*fit, "-o", "more.safetensors", "--json")
    assert done.exit_code == 130 and json.loads(done.stdout)["interrupted"]
    before = Path("part.safetensors").read_bytes()
    assert invoke(*fit, "-o", "part.safetensors", "--force").exit_code == 130  # before any step
    assert Path("part.safetensors").read_bytes() == before


def test_a_choice_without_a_model_says_what_was_spent(folder, monkeypatch):
    from skdpfair.model_selection import _trials

    monkeypatch.setattr(_trials, "draw_count", lambda rng, mean, shape: 0)
    assert "Its cost is spent" in refused(*FIT, *SHORT, *TRY)

    def stops(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(_trials, "best_of", stops)
    cut = invoke(*FIT, *SHORT, *TRY)
    assert cut.exit_code == 130 and "Its cost is spent" in cut.stderr
    assert not (folder / "model.safetensors").exists()


def test_errors_name_the_option_and_leave_other_words_alone(model, table):
    table.rename(columns={"Anrede": "store"}).to_csv("delta.csv", index=False)
    text = refused("fit", "delta.csv", "--schema", "schema.toml", "-o", "x.safetensors")
    assert "delta.csv" in text and "--delta" not in text and "'Anrede'" in text
    text = refused(*FIT, "--delta", "0.5", "-o", "x.safetensors")
    assert text.startswith("Error: --delta: delta must lie below 1/n_samples")
    done = fitted("--seed", "3", "--epsilon", "40", "--set", "batch_size=300")
    text = " ".join(done.output.split())
    assert "makes the noise reproducible" in text
    usable(invoke("report", "model.safetensors", "-o", "s.html"))
    assert "was seeded" in Path("s.html").read_text()


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--ledger-epsilon", 1.5], "name its file with --ledger"),
        (["--ledger", "e.jsonl", "--ledger-epsilon", 1.5], "does not exist. To create it"),
        (
            [
                *("--ledger", "e.jsonl", "--ledger-epsilon", 3, "--ledger-delta", 1e-5),
                *("--set", "max_steps=abc"),
            ],
            "max_steps",
        ),
    ],
)
def test_options_that_cannot_be_used_begin_no_ledger(folder, options, named):
    assert named in refused(*FIT, "-o", "none.safetensors", *options)
    assert not Path("e.jsonl").exists() and not Path("none.safetensors").exists()


def test_a_sweep_is_reported_and_quoted_by_the_page_of_a_model(model):
    write_study()
    found = json.loads(usable(invoke("sweep", "study.toml", "--jobs", 1, "--json")).stdout)
    assert [(r["method"], r["epsilon"]) for r in found] == [("reference", None), ("dpsgd", 2.0)]
    assert 0 <= found[1]["accuracy[w] mean"] <= 1
    done = usable(invoke("sweep", "study.toml", "--jobs", 1))
    assert "NOT private" in done.output and "skdpfair report results" in done.output
    usable(invoke("report", "results", "--title", "Loans"))
    page = (model / "report.html").read_text()
    assert "No step is known to learn from the records outside the budget" in page
    quoted = ["report", "model.safetensors", "--sweep", "results", "-o", "quoted.html"]
    assert json.loads(usable(invoke(*quoted, "--json")).stdout)["private"] is False
    assert "in 2 runs of dpsgd at ε 2" in (model / "quoted.html").read_text(encoding="utf-8")
    assert "--sweep" in refused("report", "results", "--sweep", "results")
    (model / "schema.toml").write_text(SCHEMA.to_toml().replace('Anrede = ["Frau", "Herr"]', ""))
    fitted()  # on another table
    said = refused(*quoted[:-1], "other.html")
    assert "belong to the table of the model" in said and "'Anrede'" in said
    assert not (model / "other.html").exists()


def test_bins_and_missing_cells_and_labels_are_groups(folder, table):
    table.assign(Geschlecht=[None, "w", "m"] * 1000).to_csv("loans.csv", index=False)
    assert 'Add "" to the list' in refused(*FIT, *SHORT)
    groups = {"Geschlecht": ["w", "m", ""], "kredit ok?": ["nein", "ja"]}
    parts = vars(SCHEMA) | {"groups": groups, "bins": {"Größe": [160, 180]}}
    Path("schema.toml").write_text(TableSchema(**parts).to_toml(), encoding="utf-8")
    fitted("--method", "naive")
    clf = load_release("model.safetensors")
    assert len(clf.levels_) == 18 and ("", "nein", "[160, 180)") in list(map(tuple, clf.levels_))
    assert not any("kredit" in name for name in clf.feature_names_in_)
    usable(invoke("report", "model.safetensors", "--data", "loans.csv"))
    assert "[160, 180)" in (folder / "report.html").read_text()
    usable(invoke("predict", "model.safetensors", "loans.csv"))


def test_measures_are_chosen_on_the_command_line(folder):
    groups = {"Geschlecht": ["w", "m"], "Kanton": ["ZH", "BE", "GE", ""]}
    schema = TableSchema(**vars(SCHEMA) | {"groups": groups, "categories": {}})
    text = f'data = "loans.csv"\n{schema.to_toml()}{STUDY}'
    Path("study.toml").write_text(text, encoding="utf-8")
    said = refused("sweep", "study.toml", "--measures", "accurac,log_loss")
    assert "--measures: measures must be one of" in said and not (folder / "results").exists()
    done = usable(invoke("sweep", "study.toml", "--jobs", 1, "--measures", "roc_auc, log_loss"))
    assert "roc auc (%), mean" in done.output and "log loss (nats)" in done.output
    assert "accuracy (%)" not in done.output


def draft(data="loans.csv", *options):
    usable(invoke("schema", data, "-o", "draft.toml", *options))
    text = Path("draft.toml").read_text(encoding="utf-8")
    tomllib.loads(text)  # as it is
    return text


def test_a_file_to_fill_in_holds_names_and_kinds_and_becomes_a_schema(folder, table):
    table.to_csv("loans.csv", sep=";", index=True, encoding="utf-8-sig")  # with numbers of rows
    table.to_parquet("loans.parquet")
    labels = ["--target", "kredit ok?", "--group", "Geschlecht"]
    text = draft("loans.csv", *labels)
    assert "secret-" not in text and "nan" not in text and "ZH" not in text
    parts = text.split("\n[bounds]")[1]
    numbers, texts = parts[: parts.index("[categories]")], parts[parts.index("[categories]") :]
    assert all(f'# "{name}" = []' in numbers for name in SCHEMA.bounds)
    assert all(f'# "{name}" = []' in texts for name in (*SCHEMA.categories, "Geschlecht"))
    assert '"" = []' not in parts and "already exists" in refused(
        "schema", "loans.csv", "-o", "draft.toml"
    )
    assert "classes must list at least 2" in refused(*FIT[:2], "--schema", "draft.toml")
    for line, filled in {
        "classes = []": 'classes = ["nein", "ja"]',
        '\n"Geschlecht" = []': '\n"Geschlecht" = ["w", "m"]',
        '# "Größe" = []': '"Größe" = [100, 230]',
        '# "Einkommen" = []': '"Einkommen" = [0, 100]',
        '# "Kanton" = []': '"Kanton" = ["ZH", "BE"]',
        '# "Anrede" = []': '"Anrede" = ["Frau", "Herr"]',
    }.items():
        assert line in text
        text = text.replace(line, filled, 1)
    Path("schema.toml").write_text(text, encoding="utf-8")
    found = TableSchema.from_toml("schema.toml")
    assert (found.bounds, found.categories) == (SCHEMA.bounds, SCHEMA.categories)
    assert found.groups == SCHEMA.groups and found.log_columns == "auto"
    fitted()
    Path("draft.toml").unlink()
    assert [x for x in draft("loans.parquet", *labels).splitlines() if "Anrede" in x] == [
        '# "Anrede" = []'
    ]


@pytest.fixture
def visits(folder, table):
    """The same loans, whose persons have three each."""
    table.assign(patientId=np.arange(len(table)) // 3).to_csv("visits.csv", index=False)
    return ["fit", "visits.csv", "--schema", "schema.toml", "--method", "dpsgd", *SHORT]


PERSONS = TableSchema(**vars(SCHEMA) | {"person": "patientId", "max_records": 2})


def test_whether_a_person_has_several_rows_is_asked_first_and_nothing_else(visits, monkeypatch):
    terminal = SimpleNamespace(isatty=lambda: True)
    monkeypatch.setattr(schema_command, "sys", SimpleNamespace(stdin=terminal))
    answers = iter(["n", "y", "patientId", 2])
    monkeypatch.setattr(schema_command.shell, "prompt", lambda *_, **__: next(answers))
    for facts in ((None, None), ("patientId", 2)):
        person = tomllib.loads(draft("visits.csv"))
        assert (person.get("person"), person.get("max_records")) == facts
        Path("draft.toml").unlink()
    assert next(answers, None) is None


def test_a_schema_names_the_likely_column_of_persons(visits):
    text = draft("visits.csv")
    filled = tomllib.loads(text.replace("# person =", "person =").replace("# max_rec", "max_rec"))
    assert filled["person"] == "patientId" and filled["max_records"] == 1


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_schema_proposes_a_column_of_repeated_texts_or_whole_numbers(tmp_path, monkeypatch, kind):
    monkeypatch.chdir(tmp_path)
    n = 300
    columns = {
        "account_never_delinq_percent": np.arange(n) % 7,  # no such name
        "LoanID": np.arange(n),  # one a row
        "is_member": np.arange(n) % 2,
        "household": np.arange(n) % 50 + 0.5,
        "Borrower No": np.where(np.arange(n) < 9, np.nan, np.arange(n) // 3),
        "client": [f"c{i // 2}" for i in range(n)],
    }
    for lacking, proposed in (([], "Borrower No"), (["Borrower No"], "client"), (["client"], None)):
        columns = {name: values for name, values in columns.items() if name not in lacking}
        table, path = pd.DataFrame(columns | {"y": np.arange(n) % 2}), Path(f"loans.{kind}")
        table.to_csv(path, index=False) if kind == "csv" else table.to_parquet(path)
        text = draft(str(path), "--target", "y")
        Path("draft.toml").unlink()
        assert ('# person = ""' if proposed is None else f'# person = "{proposed}"') in text


def test_a_fit_on_persons_is_reported_with_and_without_their_column(visits):
    Path("schema.toml").write_text(PERSONS.to_toml(), encoding="utf-8")
    text = usable(invoke(*visits, "--epsilon", "11")).output
    assert "can learn about all records of one" in text and "Is a row a person?" not in text
    assert load_release("model.safetensors").schema_.person == "patientId"
    for data in ("visits.csv", "loans.csv"):
        usable(invoke("report", "model.safetensors", "--data", data, "--card", "card.md"))
        assert "<dt>persons trained on</dt><dd>1,000</dd>" in Path("report.html").read_text()
        usable(invoke("predict", "model.safetensors", data))
    verify_release("model.safetensors")


def test_a_column_that_may_name_persons_is_noted(visits):
    question = "the column 'patientId' may name persons"
    assert question in " ".join(usable(invoke(*visits)).output.split())
    notes = json.loads(usable(invoke(*visits, "--force", "--json")).stdout)["warnings"]
    assert sum(question in text for text in notes) == 1
    compared = ["sweep", "schema.toml", "--data", "visits.csv", "--ledger", "spent"]
    text = refused(*compared, "--ledger-epsilon", 1, "--ledger-delta", 1e-5)  # before any fit
    assert question in text and "add person = 'patientId'" in text


def test_what_a_schema_misses_is_counted(folder, table):
    table.to_parquet("loans.parquet")
    for data in ("loans.csv", "loans.parquet"):
        done = usable(invoke("schema", data, "--check", "schema.toml", "--json"))
        shares = {row["column"]: row for row in json.loads(done.output)}
        assert shares["Kanton"]["missing" if data == "loans.csv" else "outside"] > 0
        outside = (table["Kanton"] == "GE").mean() + (data != "loans.csv") * (
            table["Kanton"] == ""
        ).mean()
        assert shares["Kanton"]["outside"] == pytest.approx(outside)
    text = usable(invoke("schema", "loans.csv", "--check", "schema.toml")).output
    assert "NOT private" in text and "No row has" not in text


def test_persons_of_a_file_are_one_however_spelt_and_none_is_missing(folder, table):
    persons = [f"{i // 3}{['', ' ', '.0'][i % 3]}" for i in range(len(table))]
    table.assign(patientId=persons).to_csv("visits.csv", index=False)
    units = PERSONS.persons_in(PERSONS.read_csv("visits.csv"))
    assert units.tolist() == [*np.arange(len(table)) // 3]
    table.assign(patientId=[None, *persons[1:]]).to_csv("visits.csv", index=False)
    with pytest.raises(ValueError, match="Column of persons 'patientId' has missing values"):
        PERSONS.persons_in(PERSONS.read_csv("visits.csv"))


def test_a_schema_that_covers_no_row_of_a_column_is_noticed(folder):
    """By whoever types the command; it is in no file, and refuses nothing."""
    text = SCHEMA.to_toml().replace('["ZH", "BE"]', '["zh"]')
    (folder / "schema.toml").write_text(text, encoding="utf-8")
    note = "No row has a listed value in Kanton, nor a number within the limits"
    done = fitted("--json")
    assert note in " ".join(done.stderr.split()) and "No row" not in done.stdout
    predicted = usable(invoke("predict", "model.safetensors", "loans.csv"))
    checked = usable(invoke("schema", "loans.csv", "--check", "schema.toml"))
    for done in (predicted, checked):
        assert note in " ".join(done.stderr.split())


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ('target = "kredit ok?"', 'target = "other"', "no column 'other'"),
        ('["nein", "ja"]', '["nein", "jo"]', "values that classes does not list"),
        ('["w", "m"]', '["w", "d"]', "groups['Geschlecht'] does not list"),
        ("[100, 230]", "[230, 100]", "finite numbers low < high"),
        ("[bounds]", '[bounds]\n"Name, Vorname" = [0, 1]', "texts that are not numbers"),
        ("[bounds]", "[bonds]", "no part 'bonds'"),
        ("[bounds]", "[bounds", "not TOML"),
    ],
)
def test_a_schema_that_cannot_be_used_is_named(folder, old, new, named):
    text = SCHEMA.to_toml()
    assert old in text
    (folder / "schema.toml").write_text(text.replace(old, new, 1), encoding="utf-8")
    assert named in refused("fit", "loans.csv", "--schema", "schema.toml", *SHORT)
    assert not (folder / "model.safetensors").exists()


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["fit", "loans.csv"], "skdpfair schema loans.csv -o schema.toml"),
        (["fit", "loans.csv", "--schema", "schema.toml", "--set", "max_epoch=3"], "'max_epochs'"),
        (
            ["fit", "loans.csv", "--schema", "schema.toml", "--set", "epsilon=7"],
            "an option of its own",
        ),
        (["fit", "loans.csv", "--schema", "schema.toml", "-o", "no/m.safetensors"], "no folder no"),
        (["fit", "loans.csv", "--schema", "schema.toml", "--method", "sgd"], "--method"),
        ([*FIT, "--try", "lr"], "--try 'lr' must be NAME=VALUE"),
        ([*FIT, "--try", "lrr=1,2"], "--try lrr: there is no such parameter. Did you mean 'lr'?"),
        ([*FIT, "--try", "method=dpsgd,sgd"], "--try method: method must be one of"),
        ([*FIT, "--try", "lr=1,fast"], "--try lr: lr must be"),
        ([*FIT, "--try", "epsilon=1,2"], "--try epsilon: an option of its own"),
        ([*FIT, "--set", "max_step=9"], "--set max_step: there is no such parameter. Did you mean"),
        ([*FIT, "--set", "batch_size=0"], "--set batch_size: batch_size must be"),
        ([*FIT, "--set", "optimizer=adamm"], "--set optimizer: optimizer must be one of"),
        (
            [*FIT, "--set", "module=mlp", "--set", "module__width=3"],
            "--set module__width: there is",
        ),
        ([*FIT, "--method", "dpsdg"], "Did you mean 'dpsgd'?"),
        ([*FIT, "--epsilon", "1e-9"], "--epsilon: epsilon=1e-09"),
        (["ftt", "loans.csv"], "No such command 'ftt'. Did you mean 'fit'?"),
        (["predict", "loans.csv", "loans.csv"], "not a safetensors file"),
        (["sweep", "schema.toml"], "--data FILE"),
        (["report", "loans.csv"], "not a safetensors file"),
        (["report", ".", "--data", "loans.csv"], "RESULTS is a folder"),
        (["report", "."], "RESULTS: store='.' holds no sweep"),
        (["report", ".", "--ledger", "loans.csv"], "--ledger: path="),
        (["schema", "loans.csv", "--target", "x", "-o", "new.toml"], "no column 'x'"),
        (["schema", "loans.csv", "--target", "Kredit ok", "-o", "n.toml"], "Did you mean 'kredit "),
        (
            ["schema", "loans.csv", "--group", "Kantone", "-o", "new.toml"],
            "--group: loans.csv has no",
        ),
    ],
)
def test_what_cannot_be_used_is_named(folder, arguments, named):
    assert named in refused(*arguments)


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("seeds = 2", "seed = 2", "study.toml: [sweep] has no entry 'seed'. Did you mean 'seeds'?"),
        ("seeds = 2", "seeds = 0", "study.toml: [sweep] seeds: seeds must be"),
        ("seeds = 2", "cv = 1", "study.toml: [sweep] cv: cv must be"),
        ("[2.0]", '["a"]', "study.toml: [sweep] epsilons: epsilons must be"),
        ('["dpsgd"]', '["dpsdg"]', "study.toml: [sweep] methods: method must be one of"),
        ('"results"', "3", "study.toml: [sweep] store: store must be"),
        (
            "max_steps",
            "max_step",
            "[sweep.params] max_step: there is no such parameter",
        ),
        ("max_steps = 5", 'lr = "a"', "study.toml: [sweep.params] lr: lr must be"),
        (
            "max_steps = 5",
            "epsilon = 5",
            "[sweep.params] epsilon: an option of its own",
        ),
        ("[sweep.params]", "params = 3\n[sweep.more]", "must be tables"),
        ('"loans.csv"', '"laons.csv"', "data = 'laons.csv' is no file. Did you mean 'loans.csv'?"),
        ("data =", "dta =", "no part 'dta'"),
        ("[sweep]", "[swep]", "Did you mean 'sweep'?"),
    ],
)
def test_a_study_that_cannot_be_used_is_named_by_its_field(folder, old, new, named):
    write_study()
    text = Path("study.toml").read_text(encoding="utf-8")
    assert old in text
    text = text.replace(old, new, 1)
    text = text.replace("[sweep.params]", "[swep.params]") if new == "[swep]" else text
    Path("study.toml").write_text(text, encoding="utf-8")
    assert named in refused("sweep", "study.toml", "--jobs", 1)
    assert not Path("results").exists()


@pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00a", b"a,b\n1,2,3,4\n"])
def test_broken_tables_are_named(folder, content):
    (folder / "loans.csv").write_bytes(content)
    assert "loans.csv" in refused("fit", "loans.csv", "--schema", "schema.toml")


def test_a_release_without_a_schema_cannot_read_tables(folder):
    from skdpfair import DPFairClassifier
    from skdpfair.datasets import make_two_groups

    data = make_two_groups(2000, random_state=0)
    clf = DPFairClassifier("dpsgd", epsilon=3.0, max_steps=5).fit(data.data, data.target)
    clf.save_release("bare.safetensors")
    assert "does not say how" in refused("predict", "bare.safetensors", "loans.csv")
    assert "does not say how" in refused("report", "bare.safetensors", "--data", "loans.csv")
    with pytest.raises(ValueError, match="schema gives the features"):
        clf.save_release("bare.safetensors", schema=SCHEMA)


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("a;b\n1;2\n1,5;2;3\n", "line 3 has 3 fields, and the header 2"),
        ("a;b\n1\n", "line 2 has 1 fields"),
        ("c;a;a\n1;2;3\n", "columns 2 and 3 have the same name"),
        ("c;bb\n1;2\n", "no column 'a'. Its first line"),
        ("a;bb\n1;2\n", "no column 'b'. Did you mean 'bb'? Its first line"),
        ("", "is empty"),
        ("a;b\n", "no rows below its header"),
    ],
)
def test_a_table_that_shifts_is_refused(tmp_path, content, named):
    path = tmp_path / "t.csv"
    path.write_text(content)
    schema = TableSchema(target="b", classes=["2", "3"], bounds={"a": (0, 9)})
    with pytest.raises(ValueError, match=re.escape(named)):
        schema.read_csv(path)


def test_another_encoding_is_named(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes("Größe;b\n1;2\n".encode("cp1252"))
    with pytest.raises(ValueError, match="not in UTF-8"):
        SCHEMA.read_csv(path)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["fit", "loans.csv", "--schema", "schema.toml", "-o", "loans.csv"], "would replace"),
        (["fit", "loans.csv", "--schema", "schema.toml"], "already exists"),
        (
            ["fit", "loans.csv", "--schema", "schema.toml", "--force", "--ledger", "b"],
            "does not exist",
        ),
        (["predict", "model.safetensors", "loans.csv", "-o", "loans.csv"], "would replace"),
        (["report", "model.safetensors", "-o", "model.safetensors"], "would replace"),
        (["report", "model.safetensors", "-o", "x.html", "--card", "x.html"], "would replace"),
        (["schema", "loans.csv", "--target", "x", "-o", "loans.csv"], "would replace"),
    ],
)
def test_nothing_is_replaced_unasked(model, arguments, named):
    before = {path.name: path.read_bytes() for path in model.iterdir()}
    assert named in refused(*arguments)
    assert {path.name: path.read_bytes() for path in model.iterdir()} == before
