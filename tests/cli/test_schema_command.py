"""skdpfair schema begins a file of public facts from names and kinds, or counts what it misses."""

import json
import tomllib
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from skdpfair.cli import schema_command
from skdpfair.preprocessing import TableSchema


@pytest.fixture
def draft(run):
    """``draft(data, *options)``: the text of a schema that is begun."""

    def draft(data, *options):
        Path("draft.toml").unlink(missing_ok=True)
        run("schema", data, "-o", "draft.toml", *options)
        text = Path("draft.toml").read_text(encoding="utf-8")
        tomllib.loads(text)  # as it is
        return text

    return draft


def test_begun_schema_holds_names_and_kinds_only(folder, table, draft, run, refused, loans):
    table.to_csv("loans.csv", sep=";", index=True, encoding="utf-8-sig")  # with numbers of rows
    table.to_parquet("loans.parquet")
    labels = ["--target", "kredit ok?", "--group", "Geschlecht"]
    text = draft("loans.csv", *labels)
    assert not any(value in text for value in ("secret-", "nan", "ZH"))
    numbers, texts = text.split("\n[bounds]")[1].split("[categories]")
    assert all(f'# "{name}" = []' in numbers for name in loans.schema.bounds)
    assert all(f'# "{name}" = []' in texts for name in (*loans.schema.categories, "Geschlecht"))
    assert '"" = []' not in numbers + texts
    assert "classes must" in refused(*loans.fit[:2], "--schema", "draft.toml")
    schema = loans.schema
    for begin, name, values in (
        ("", "classes", schema.classes),
        ("\n", '"Geschlecht"', schema.groups["Geschlecht"]),
        *(("# ", f'"{n}"', v) for n, v in {**schema.bounds, **schema.categories}.items()),
    ):
        line = f"{begin}{name} = []"
        assert line in text
        text = text.replace(line, f"{begin.strip('# ')}{name} = {json.dumps([*values])}", 1)
    Path("schema.toml").write_text(text, encoding="utf-8")
    found = TableSchema.from_toml("schema.toml")
    assert found.log_columns == "auto"
    for part in ("bounds", "categories", "groups", "classes"):
        assert getattr(found, part) == getattr(loans.schema, part)
    run(*loans.fit)
    lines = draft("loans.parquet", *labels).splitlines()
    assert [line for line in lines if "Anrede" in line] == ['# "Anrede" = []']


@pytest.fixture
def visits(folder, table):
    """A file of the loans, of which each person has three."""
    table.assign(patientId=np.arange(len(table)) // 3).to_csv("visits.csv", index=False)
    return "visits.csv"


def test_schema_prompts_for_persons_only(visits, draft, monkeypatch):
    terminal = SimpleNamespace(isatty=lambda: True)
    monkeypatch.setattr(schema_command, "sys", SimpleNamespace(stdin=terminal))
    answers = iter(["n", "y", "patientId", 2])
    monkeypatch.setattr(schema_command.shell, "prompt", lambda *_, **__: next(answers))
    for facts in ((None, None), ("patientId", 2)):
        person = tomllib.loads(draft(visits))
        assert (person.get("person"), person.get("max_records")) == facts
    assert next(answers, None) is None


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_column_of_persons_has_repeated_texts_or_whole_numbers(tmp_path, monkeypatch, kind, draft):
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
    for lacking, proposed in ((None, "Borrower No"), ("Borrower No", "client"), ("client", "")):
        columns.pop(lacking, None)
        table, path = pd.DataFrame(columns | {"y": np.arange(n) % 2}), Path(f"loans.{kind}")
        table.to_csv(path, index=False) if kind == "csv" else table.to_parquet(path)
        text = draft(str(path), "--target", "y")
        filled = tomllib.loads(text.replace("# person", "person").replace("# max_rec", "max_rec"))
        assert (filled["person"], filled["max_records"]) == (proposed, 1)


def test_open_question_of_persons_is_noted(visits, run, refused, loans):
    question = "'patientId' may name persons"
    fit = ["fit", visits, *loans.fit[2:]]
    assert question in " ".join(run(*fit).output.split())
    notes = json.loads(run(*fit, "--force", "--json").stdout)["warnings"]
    assert sum(question in text for text in notes) == 1
    assert question in " ".join(run("schema", visits, "--check", "schema.toml").output.split())
    ledger = ["--ledger", "spent", "--ledger-epsilon", 1, "--ledger-delta", 1e-5]
    compared = refused("sweep", "schema.toml", "--data", visits, *ledger)  # before any fit
    assert question in compared and "person = 'patientId'" in compared


def test_check_counts_what_a_schema_misses(folder, table, run):
    table.to_parquet("loans.parquet")
    is_other, is_empty = (table["Kanton"] == "GE").mean(), (table["Kanton"] == "").mean()
    for data, outside, missing in (
        ("loans.csv", is_other, is_empty),
        ("loans.parquet", is_other + is_empty, 0),
    ):
        done = run("schema", data, "--check", "schema.toml", "--json")
        shares = {row["column"]: row for row in json.loads(done.output)}["Kanton"]
        assert [shares["outside"], shares["missing"]] == pytest.approx([outside, missing])
    assert "NOT private" in run("schema", "loans.csv", "--check", "schema.toml").output


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--target", "x"], "no column 'x'"),
        (["--target", "Kredit ok"], "Did you mean 'kredit "),
        (["--group", "Kantone"], "--group: loans.csv has no"),
    ],
)
def test_unknown_columns_are_named(folder, options, named, refused):
    assert named in refused("schema", "loans.csv", *options, "-o", "new.toml")
