"""The path of the README, with a ledger; and folders that cannot be written."""

import errno
import json
import os
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from skdpfair import load_release
from skdpfair._utils.files import replace_file
from skdpfair.budget import PrivacyLedger
from skdpfair.cli import main

STUDY = """
data = "loans.csv"
target = "paid"
classes = ["no", "yes"]
[groups]
sex = ["f", "m"]
[bounds]
income = [0, 100]
[sweep]
methods = ["dpsgd"]
epsilons = [2.0]
seeds = 2
store = "results"
[sweep.params]
max_steps = 3
module = "logistic"
batch_size = 100
"""
FIT = ["fit", "loans.csv", "--schema", "study.toml", "--method", "dpsgd", "--set", "max_steps=3"]
LEDGER = ["--ledger", "ledger.jsonl"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng, n = np.random.default_rng(0), 1000
    income = rng.uniform(0, 100, n)
    paid = np.where(income > 50, "yes", "no")
    table = pd.DataFrame({"income": income, "sex": rng.choice(["f", "m"], n), "paid": paid})
    table.to_csv("loans.csv", index=False)
    Path("study.toml").write_text(STUDY)
    return tmp_path


def invoke(*arguments):
    done = CliRunner().invoke(main, [str(a) for a in arguments])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.output
    return done.exit_code, " ".join(done.output.split())


def states(path="ledger.jsonl"):
    return PrivacyLedger(path).frame()["what"].tolist()


def test_the_path_of_the_readme_with_a_ledger(folder):
    code, said = invoke("sweep", "study.toml", *LEDGER, "--ledger-delta", 1e-5, "--jobs", 1)
    said = " ".join(said.split())
    assert code == 0 and "The 2 private fits in ledger.jsonl together cost at most eps" in said
    assert "too (2 fits): no epsilon covers them" in said and "epsilon inf" not in said
    assert sorted(states()) == ["gradient sum"] * 2 + ["not private"] * 2
    code, said = invoke("sweep", "study.toml", *LEDGER, "--jobs", 1)  # all is there
    assert code == 0 and len(states()) == 4
    assert said.endswith("Next: skdpfair report results -o report.html --ledger ledger.jsonl")
    next(Path("results").glob("[0-9a-f]*.json")).unlink()
    assert invoke("sweep", "study.toml", *LEDGER, "--jobs", 1)[0] == 0
    assert len(states()) == 5  # the one that was left
    code, said = invoke(*FIT, *LEDGER)
    assert code == 0 and len(states()) == 6
    assert re.search("The [34] private fits in ledger.jsonl", said)
    assert load_release("model.safetensors").privacy_.delta == PrivacyLedger("ledger.jsonl").delta
    assert invoke("report", "results", *LEDGER)[0] == 0
    page = Path("report.html").read_text()
    assert "The ledger of these records holds 6 fits" in page and "no ε covers them" in page
    assert invoke("report", "model.safetensors", *LEDGER, "--card", "card.md")[0] == 0
    for name in ("report.html", "card.md"):
        told = Path(name).read_text(encoding="utf-8")
        assert "holds 6 fits, that of this model among them" in told
        assert "no ε covers them" in told and "does not weaken the guarantee" in told
        assert "must not be subtracted" not in told  # as of two deltas
    assert "this model among them" in invoke("statement", "model.safetensors", *LEDGER)[1]
    export = ["--export", "nist", *LEDGER, "--data", "loans.csv", "-o", "nist.md"]
    assert invoke("statement", "model.safetensors", *export)[0] == 0
    text = Path("nist.md").read_text(encoding="utf-8")
    assert "this model among them" in text and "NOT private" in text and "| sex = f |" in text


@pytest.mark.parametrize(("budget", "n_fits"), [([], 4), (["--ledger-epsilon", 9], 2)])
def test_a_ledger_that_lacks_finished_fits_is_refused(budget, n_fits, folder):
    code, said = invoke("sweep", "study.toml", "--jobs", 1)
    assert code == 0 and said.endswith("skdpfair report results -o report.html")
    late = [*LEDGER, *budget, "--ledger-delta", 1e-5]
    code, said = invoke("sweep", "study.toml", *late, "--jobs", 1)
    assert code == 2 and not Path("ledger.jsonl").exists()
    assert f"store='results' holds {n_fits} finished fits that the ledger " in said
    assert "ledger.jsonl' has not recorded" in said and "from the first run on" in said
    PrivacyLedger("ledger.jsonl", delta=1e-5)
    assert invoke("report", "results", *LEDGER)[0] == 0
    assert "2 private fits of this sweep are not in the ledger" in Path("report.html").read_text()


def test_a_sweep_beyond_its_budget_is_refused_before_any_fit(folder):
    budget = ["--ledger-epsilon", 3, "--ledger-delta", 1e-5]
    code, said = invoke("sweep", "study.toml", *LEDGER, *budget, "--jobs", 1)
    assert code == 2 and "not private, which no budget allows" in said
    assert "in a ledger with a delta alone" in said
    assert sorted(path.name for path in folder.iterdir()) == ["loans.csv", "study.toml"]
    # where the references were trained before, private fits together count
    assert invoke("sweep", "study.toml", "--jobs", 1)[0] == 0
    for path in Path("results").glob("[0-9a-f]*.json"):
        if json.loads(path.read_text())["epsilon"]:
            path.unlink()
    code, said = invoke("sweep", "study.toml", *LEDGER, *budget, "--jobs", 1)
    assert code == 2 and "These 2 fits together would bring epsilon" in said
    assert not Path("ledger.jsonl").exists()
    wide = ["--ledger", "wide.jsonl", "--ledger-epsilon", 5, "--ledger-delta", 1e-5]
    assert invoke("sweep", "study.toml", *wide, "--jobs", 1)[0] == 0
    assert states("wide.jsonl") == ["gradient sum"] * 2


def contents():
    return {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()}


SWEEP = ["sweep", "study.toml", "--jobs", 1]
FREE, LIMITED = ["--ledger-delta", 1e-5], ["--ledger-delta", 1e-5, "--ledger-epsilon", 3]
REFUSED = {  # command, what its study says instead, and what is named
    "private models only": ([*SWEEP, *LIMITED], None, "no budget allows"),
    "a parameter": ([*SWEEP, *FREE], ("max_steps", "max_step"), "max_steps"),
    "a value": ([*SWEEP, *FREE], ("batch_size = 100", "batch_size = -1"), "batch_size"),
    "a method": ([*SWEEP, *FREE], ('["dpsgd"]', '["fairlens_dp"]\ncv = 1'), "cv"),
    "three classes": ([*SWEEP, *FREE], ('"yes"]', '"yes", "x"]'), "fairlens_dp"),
    "a class": ([*SWEEP, *FREE], ("max_steps = 3", "class_weight = {nay = 1}"), "nay"),
    "processes": ([*SWEEP[:-1], 0, *FREE], None, "--jobs"),
    "a folder": ([*SWEEP, *FREE], ('"results"', '"loans.csv"'), "loans.csv"),
    "a fit": ([*FIT, "--epsilon", 4, *LIMITED], None, "above the budget"),
    "a choice": ([*FIT, "--epsilon", 4, "--try", "lr=1,2", *LIMITED], None, "above the budget"),
    "a threshold": (
        [*FIT, "--epsilon", 4, "--threshold", "accuracy", *LIMITED],
        None,
        "above the budget",
    ),
    "a network": ([*FIT, "--try", "module=logistic,cnn", *FREE], None, "needs pictures"),
    "two classes": ([*FIT, "--threshold", "accuracy", *FREE], ('"yes"]', '"yes", "x"]'), "--thres"),
    "a weight": ([*FIT, "--set", 'class_weight={"nay": 1}', *FREE], None, "nay"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_leaves_nothing_behind(name, folder):
    command, change, named = REFUSED[name]
    text = STUDY if change is None else STUDY.replace(*change)
    if name == "three classes":
        text = text.replace("dpsgd", "fairlens_dp")
    Path("study.toml").write_text(text)
    before = contents()
    code, said = invoke(*command, *LEDGER)
    assert code == 2 and named in said and contents() == before
    assert not Path("results").exists()


@pytest.mark.parametrize("command", [SWEEP, FIT], ids=["sweep", "fit"])
@pytest.mark.parametrize(
    ("stored", "given", "named"),
    [
        ({"epsilon": 3, "delta": 1e-5}, FREE, "--ledger-delta alone stands for a ledger without"),
        ({"delta": 1e-6}, FREE, "--ledger-delta: delta=1e-05 differs from delta=1e-06"),
        ({"delta": 1e-5}, LIMITED, "--ledger-epsilon: epsilon=3.0 differs from epsilon=None"),
        ({}, FREE, "--ledger-delta: delta=1e-05 differs from delta=None"),
        (None, [], "is empty"),
    ],
)
def test_a_budget_that_contradicts_a_ledger_is_named(command, stored, given, named, folder):
    Path("ledger.jsonl").touch() if stored is None else PrivacyLedger("ledger.jsonl", **stored)
    before = contents()
    code, said = invoke(*command, *LEDGER, *given)
    assert code == 2 and named in said and contents() == before


def test_a_refused_fit_adds_no_line_to_a_ledger(folder):
    from skdpfair.budget.charging import charged
    from skdpfair.privacy import NoisyRelease

    release = NoisyRelease("gradient sum", 1.0, (9.0,), 1)
    with (
        PrivacyLedger("ledger.jsonl", epsilon=1, delta=1e-5),
        charged([release], [], protects="person"),
    ):
        pass
    before = contents()
    for options, named in (["--epsilon", 1], "protects each record"), (["--epsilon", 9], "protect"):
        code, said = invoke(*FIT, *options, *LEDGER)
        assert code == 2 and named in said and contents() == before


def full(monkeypatch, folder):
    """Let no file be written in a folder any more."""
    sync = os.fsync

    def fsync(descriptor):
        if Path(os.readlink(f"/proc/self/fd/{descriptor}")).parent == folder:
            raise OSError(errno.ENOSPC, "No space left on device")
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="names of open files")
def test_nothing_is_spent_where_no_model_can_be_written(folder, monkeypatch):
    there = folder / "full"
    there.mkdir()
    full(monkeypatch, there)
    budget = ["--ledger-epsilon", 3, "--ledger-delta", 1e-5]
    code, said = invoke(*FIT, *LEDGER, *budget, "-o", there / "model.safetensors")
    assert code == 2 and "cannot be written: No space left" in said
    assert not Path("ledger.jsonl").exists() and not list(there.iterdir())
    code, said = invoke(*FIT, "-o", "/proc/model.safetensors")
    assert code == 2 and "/proc/model.safetensors cannot be written" in said


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="names of open files")
def test_a_model_that_was_paid_for_is_written_elsewhere(folder, monkeypatch):
    from skdpfair import DPFairClassifier

    there, fit = folder / "full", DPFairClassifier.fit
    there.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))

    def fills(self, *args, **kwargs):
        full(monkeypatch, there)
        return fit(self, *args, **kwargs)

    monkeypatch.setattr(DPFairClassifier, "fit", fills)
    code, said = invoke(*FIT, "-o", there / "model.safetensors")
    assert code == 1 and "No space left on device. The model, which has cost budget" in said
    (kept,) = folder.glob("model-*.safetensors")
    assert load_release(kept).privacy_.steps == 3 and not list(there.iterdir())


def test_a_file_that_is_replaced_is_on_the_disk_with_its_folder(folder, monkeypatch):
    synced, sync = [], os.fsync

    def fsync(descriptor):
        synced.append(Path(f"/proc/self/fd/{descriptor}").resolve())
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    replace_file(folder / "a", b"a")
    assert synced[-1] == folder.resolve() if hasattr(os, "O_DIRECTORY") else len(synced) == 1
