"""A table of loans with its schema and study in a folder, and commands that succeed or fail."""

import contextlib
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from skdpfair.cli import main
from skdpfair.preprocessing import TableSchema

SCHEMA = TableSchema(
    target="kredit ok?",
    classes=["nein", "ja"],
    groups={"Geschlecht": ["w", "m"]},
    bounds={"Größe": (100, 230), "Einkommen": (0, 100)},
    categories={"Kanton": ["ZH", "BE"], "Anrede": ["Frau", "Herr"]},
)
SWEEP = """
[sweep]
methods = ["dpsgd"]
epsilons = [2.0]
seeds = 2
store = "results"
[sweep.params]
max_steps = 3
module = "logistic"
batch_size = 200
"""
FIT = ["fit", "loans.csv", "--schema", "schema.toml", "--method", "dpsgd", "--set", "max_steps=5"]
FIT += ["--set", "module=logistic", "--set", "batch_size=200"]


@pytest.fixture(scope="session")
def loans():
    """Constants of the table of loans: a schema, the section of its study, and a short fit."""
    return SimpleNamespace(schema=SCHEMA, sweep=SWEEP, fit=FIT)


@pytest.fixture(scope="session")
def table():
    rng, n = np.random.default_rng(0), 1000
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


def write_files(table):
    table.to_csv("loans.csv", sep=";", index=False, encoding="utf-8-sig")
    Path("schema.toml").write_text(SCHEMA.to_toml(), encoding="utf-8")
    study = 'data = "loans.csv"\n' + SCHEMA.to_toml() + SWEEP
    Path("study.toml").write_text(study, encoding="utf-8")


@pytest.fixture
def folder(table, tmp_path, monkeypatch):
    """The current folder, with loans.csv, schema.toml and study.toml."""
    monkeypatch.chdir(tmp_path)
    write_files(table)
    return tmp_path


def invoke(*arguments):
    """Run a command; no traceback, no row and no code for the terminal may be printed."""
    done = CliRunner().invoke(main, [str(a) for a in arguments])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.output
    assert "secret-" not in done.output
    return done


@pytest.fixture(scope="session")
def run():
    """``run(*arguments, status=0)``: the outcome of a command, which ends with a status."""

    def run(*arguments, status=0):
        done = invoke(*arguments)
        assert done.exit_code == status, done.output
        return done

    return run


@pytest.fixture(scope="session")
def refused():
    """``refused(*arguments)``: what a command prints in one line, with status 2 and no change."""

    def contents():
        return {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()}

    def refused(*arguments):
        before = contents()
        done = invoke(*arguments)
        assert done.exit_code == 2 and contents() == before, done.output
        return " ".join(done.output.split())

    return refused


@pytest.fixture(scope="session")
def released(table, tmp_path_factory, run):
    """The bytes of a model of the loans, and what the command printed as JSON."""
    with contextlib.chdir(tmp_path_factory.mktemp("released")):
        write_files(table)
        printed = json.loads(run(*FIT, "--epsilon", 3, "--json").stdout)
        return Path(printed["written"]).read_bytes(), printed


@pytest.fixture
def model(folder, released):
    """The folder, with model.safetensors."""
    (folder / "model.safetensors").write_bytes(released[0])
    return folder
