"""What comes from files reaches the terminal as text, and bad files are named."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import skdpfair.cli
from skdpfair.cli import main

ODD = "\x1b[31mf\x1b[0m\x07\u202e[bold]"  # red, a bell, and turned around
SHOWN = r"\u001b[31mf\u001b[0m\u0007\u202e[bold]"
STUDY = """
data = "loans.csv"
target = "paid"
classes = ["no", "yes"]
[groups]
"s\\u001bex" = ["\\u001b[31mf\\u001b[0m\\u0007\\u202e[bold]", "m"]
[bounds]
income = [0, 100]
[sweep]
methods = ["dpsgd"]
epsilons = [2.0]
seeds = 1
store = "results"
[sweep.params]
max_steps = 1
module = "logistic"
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng, n = np.random.default_rng(0), 400
    income = rng.uniform(0, 100, n)
    table = {"income": income, "s\x1bex": np.where(rng.uniform(size=n) > 0.5, ODD, "m")}
    pd.DataFrame(table | {"paid": np.where(income > 50, "yes", "no")}).to_csv("loans.csv")
    Path("study.toml").write_text(STUDY)
    return tmp_path


def printed(*arguments, **settings):
    done = CliRunner().invoke(main, [str(a) for a in arguments], **settings)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.output
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", done.output)
    return done.output


def test_no_name_from_a_file_steers_the_terminal(folder):
    assert SHOWN in printed("sweep", "study.toml", "--jobs", "1")
    table = pd.read_csv("loans.csv")
    table["s\x1bex"] = ODD + "x"
    table.to_csv("other.csv")
    assert SHOWN + "x" in printed("schema", "other.csv", "--check", "study.toml")
    assert r"s\u001bex" in printed("schema", "other.csv", "--check", "study.toml", "--json")
    said = printed("sweep", "study.toml", "--data", "other.csv", "-o", "new")
    assert "x1b[31mf" in said
    assert r"no column 's\x1bx'" in printed("schema", "loans.csv", "--group", "s\x1bx")


def test_all_that_is_printed_passes_one_place():
    for path in Path(skdpfair.cli.__file__).parent.glob("*.py"):
        raw = re.findall(r"click\.(?:echo|prompt|secho)\(", path.read_text())
        assert len(raw) == {"__init__.py": 1, "_shell.py": 2}.get(path.name, 0), path.name


def test_a_file_that_is_nested_too_deeply_is_refused(folder):
    Path("deep.toml").write_text(STUDY + "class_weight." + "a." * 5000 + "b = 1")
    assert printed("sweep", "deep.toml", "--jobs", "1").startswith("Error: ")
