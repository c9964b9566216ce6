"""From Parquet files to a model, predictions and a report, by one process or two."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from skdpfair import load_release
from skdpfair.budget import PrivacyLedger
from skdpfair.cli import main
from skdpfair.preprocessing import TableSchema

SCHEMA = TableSchema(
    target="paid",
    classes=["no", "yes"],
    groups={"sex": ["F", "M"]},
    bounds={"income": (0, 100)},
    categories={"ward": ["A", "B"]},
)
FIT = ["--schema", "schema.toml", "--epsilon", "3", "--method", "dpsgd", "--json"]
FIT += ["--set", "max_steps=10", "--set", "module=logistic", "--set", "batch_size=200"]
PARTS = ["a.parquet", "b.parquet"]


@pytest.fixture
def table(tmp_path, monkeypatch):
    """Rows, in a CSV file and in two Parquet files; temporary files have a folder of their own."""
    monkeypatch.chdir(tmp_path)
    Path("temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    rng, n = np.random.default_rng(0), 2000
    income = rng.uniform(0, 100, n).round(2)
    frame = pd.DataFrame({"income": income, "ward": rng.choice(["A", "B", None], n)})
    frame["sex"] = rng.choice(["F", "M"], n)
    frame["paid"] = np.where(income > 50, "yes", "no")
    frame.to_csv("all.csv", index=False)
    frame[:700].to_parquet(PARTS[0], row_group_size=300)
    frame[700:].to_parquet(PARTS[1])
    Path("schema.toml").write_text(SCHEMA.to_toml())
    return frame


def invoke(*arguments):
    return CliRunner().invoke(main, [str(a) for a in arguments])


def usable(*arguments):
    done = invoke(*arguments)
    assert done.exit_code == 0, done.output
    return done


def refused(*arguments):
    done = invoke(*arguments)
    assert done.exit_code == 2 and "Traceback" not in done.output, done.output
    return " ".join(done.output.split())


def test_two_files_give_the_model_of_the_csv_file(table):
    for name, data in (("one", PARTS), ("other", ["all.csv"])):
        usable("fit", *data, *FIT, "--seed", "1", "-o", f"{name}.safetensors")
        assert not list(Path("temporary").glob("**/*.npy"))
    one, other = load_release("one.safetensors"), load_release("other.safetensors")
    assert one.schema_ == other.schema_
    assert list(one.feature_names_in_) == list(other.feature_names_in_)
    X = one.schema_.preprocessor().transform(table)
    np.testing.assert_allclose(one.predict_proba(X), other.predict_proba(X), rtol=1e-4)
    predict = ["predict", "one.safetensors"]
    assert not usable(*predict, PARTS[1], "-o", "one.csv").stderr
    usable(*predict, "all.csv", "-o", "all-of-them.csv")
    found, expected = pd.read_csv("one.csv"), pd.read_csv("all-of-them.csv")[700:]
    pd.testing.assert_frame_equal(found, expected.reset_index(drop=True), rtol=1e-5)
    for name, data in (("one", PARTS[1]), ("other", "all.csv")):
        done = usable("report", "one.safetensors", "--data", data, "-o", f"{name}.html")
        assert "valid feature names" not in done.stderr


def test_what_cannot_be_used_is_refused(table, monkeypatch):
    assert "or several Parquet files" in refused("fit", "all.csv", *PARTS, *FIT)
    assert "no column 'income'" in refused("fit", wrong(table), PARTS[0], *FIT)
    assert not list(Path("temporary").glob("**/*.npy"))
    launcher = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1", "WORLD_SIZE": "3", "RANK": "1"}
    for name, value in launcher.items():
        monkeypatch.setenv(name, value)
    assert "3 processes train on at least as many Parquet files" in refused("fit", *PARTS, *FIT)
    assert "of which each reads its own, got 0" in refused("fit", "all.csv", *FIT)


def wrong(table):
    table.drop(columns="income").to_parquet("wrong.parquet")
    return "wrong.parquet"


@pytest.mark.slow
def test_two_processes_train_one_model(table):
    run = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    fit = ["-m", "skdpfair", "fit", *PARTS, *FIT, "--ledger", "l.jsonl", "--ledger-delta", "1e-6"]
    package = str(Path(__file__).parents[2])
    env = os.environ | {"PYTHONPATH": package}
    done = subprocess.run([*run, *fit], env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)  # of one process only
    assert any("one trusted curator" in text for text in said["assumptions"])
    clf, ledger = load_release("model.safetensors"), PrivacyLedger("l.jsonl")
    assert clf.schema_ == SCHEMA.with_fixed_encoding(len(table), 3.0)
    assert clf.privacy_.n_samples == len(table) and ledger.report().n_fits == 1
    assert not list(Path("temporary").glob("**/*.npy"))
