"""Rows of a CSV file or of Parquet files, read by one process or several, and odd tables."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from skdpfair import load_release
from skdpfair.budget import PrivacyLedger
from skdpfair.cli._sources import Rows, part_of, source_for, source_of
from skdpfair.preprocessing import TableSchema

PARTS = ["a.parquet", "b.parquet"]


@pytest.fixture
def parts(folder, table, monkeypatch):
    """The rows in two Parquet files; temporary files have a folder of their own."""
    temporary = folder / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    monkeypatch.setenv("TMPDIR", str(temporary))
    frame = table.replace("", None)
    frame[:700].to_parquet(PARTS[0], row_group_size=300)
    frame[700:].to_parquet(PARTS[1])
    return temporary


def test_parquet_files_give_the_model_of_the_csv_file(parts, table, run, loans):
    for name, data in (("one", PARTS), ("other", ["loans.csv"])):
        run("fit", *data, *loans.fit[2:], "--seed", 1, "-o", f"{name}.safetensors")
        assert not list(parts.glob("**/*.npy"))
    one, other = load_release("one.safetensors"), load_release("other.safetensors")
    assert one.schema_ == other.schema_
    assert list(one.feature_names_in_) == list(other.feature_names_in_)
    X = one.schema_.preprocessor().transform(table.replace("", None))
    np.testing.assert_allclose(one.predict_proba(X), other.predict_proba(X), rtol=1e-4)
    predict = ["predict", "one.safetensors"]
    assert not run(*predict, PARTS[1], "-o", "one.csv").stderr
    run(*predict, "loans.csv", "-o", "all.csv")
    found, expected = pd.read_csv("one.csv"), pd.read_csv("all.csv")[700:]
    pd.testing.assert_frame_equal(found, expected.reset_index(drop=True), rtol=1e-5)
    done = run("report", "one.safetensors", "--data", PARTS[1])
    assert "feature names" not in done.stderr


def test_part_of_needs_a_file_for_each_process(parts, table, refused, loans, monkeypatch):
    source = source_of(Path("a.parquet"), Path("b.parquet"))
    with pytest.raises(ValueError, match="several Parquet files"):
        source_of(Path("loans.csv"), Path("a.parquet"))
    assert part_of(source, 0, 1) is source and part_of(source, 1, 2).rank == 1
    for found, n_files in ((source, 2), (Rows(Path("loans.csv")), 0)):
        with pytest.raises(ValueError, match=f"3 processes .* got {n_files}"):
            part_of(found, 1, 3)
    table.drop(columns="Einkommen").to_parquet("wrong.parquet")
    assert "no column 'Einkommen'" in refused("fit", "wrong.parquet", PARTS[0], *loans.fit[2:])
    launcher = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1", "WORLD_SIZE": "3", "RANK": "1"}
    for name, value in launcher.items():
        monkeypatch.setenv(name, value)
    assert "3 processes" in refused("fit", *PARTS, *loans.fit[2:])
    assert not list(parts.glob("**/*.npy"))


@pytest.mark.slow
def test_two_processes_train_one_model(parts, table, loans):
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    fit = ["-m", "skdpfair", "fit", *PARTS, *loans.fit[2:], "--epsilon=3", "--json"]
    fit += ["--ledger", "l.jsonl", "--ledger-delta", "1e-6"]
    env = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run([*launch, *fit], env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout)  # by one process only
    assert any("one trusted curator" in text for text in printed["assumptions"])
    clf, ledger = load_release("model.safetensors"), PrivacyLedger("l.jsonl")
    assert clf.schema_ == loans.schema.with_fixed_encoding(len(table), 3.0)
    assert clf.privacy_.n_samples == len(table) and ledger.report().n_fits == 1
    assert not list(parts.glob("**/*.npy"))


def test_source_for_needs_a_schema_of_a_table(folder):
    with pytest.raises(ValueError, match=r"^m\.safetensors .*schema="):
        source_for("m.safetensors", None, Path("loans.csv"))
    pictures = TableSchema(target="y", classes=["0", "1"])
    with pytest.raises(ValueError, match=r"^m\.safetensors takes no rows"):
        source_for("m.safetensors", pictures, Path("loans.csv"))


def test_columns_without_a_covered_row_are_noted(model, run, loans):
    """To whoever types the command; it is in no file, and refuses nothing."""
    text = loans.schema.to_toml().replace('["ZH", "BE"]', '["zh"]')
    Path("schema.toml").write_text(text, encoding="utf-8")
    done = run(*loans.fit, "--force", "--json")
    assert "In Kanton, no row" in " ".join(done.stderr.split()) and "Kanton, no" not in done.stdout
    for command in (
        ["predict", "model.safetensors", "loans.csv"],
        ["schema", "loans.csv", "--check", "schema.toml"],
    ):
        assert "In Kanton, no row" in " ".join(run(*command).stderr.split())


def test_persons_are_one_however_spelt_and_none_is_missing(folder, table, loans):
    schema = TableSchema(**vars(loans.schema) | {"person": "patientId", "max_records": 2})
    persons = [f"{i // 3}{['', ' ', '.0'][i % 3]}" for i in range(len(table))]
    table.assign(patientId=persons).to_csv("visits.csv", index=False)
    records = Rows(Path("visits.csv")).read(schema)
    assert records.persons.tolist() == [*np.arange(len(table)) // 3]
    assert records.n_examples == len(set(records.persons))
    table.assign(patientId=[None, *persons[1:]]).to_csv("visits.csv", index=False)
    with pytest.raises(ValueError, match="'patientId' has missing"):
        Rows(Path("visits.csv")).read(schema)


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (b"a;b\n1;2\n1,5;2;3\n", "line 3 has 3 fields, .* 2"),
        (b"a;b\n1\n", "line 2 has 1 fields"),
        (b"c;a;a\n1;2;3\n", "columns 2 and 3 "),
        (b"c;bb\n1;2\n", "no column 'a'"),
        (b"a;bb\n1;2\n", "no column 'b'. Did you mean 'bb'?"),
        (b"", "is empty"),
        (b"a;b\n", "no rows"),
        ("Größe;b\n1;2\n".encode("cp1252"), "UTF-8"),
        (b"\xff\xfe\x00a", "t.csv"),
    ],
)
def test_unusable_tables_are_named(tmp_path, content, named):
    path = tmp_path / "t.csv"
    path.write_bytes(content)
    schema = TableSchema(target="b", classes=["2", "3"], bounds={"a": (0, 9)})
    with pytest.raises(ValueError, match=named):
        source_of(path).read(schema)
