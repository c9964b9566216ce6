"""A study file is named with the entry that cannot be used, and its data are found."""

from pathlib import Path

import pytest

from skdpfair.cli._study import Study, person_question


def test_study_reads_data_here_or_beside_its_file(folder, loans, monkeypatch):
    study = Study.read("study.toml")
    assert (study.schema, study.data) == (loans.schema, Path("loans.csv"))
    assert study.sweep["epsilons"] == [2.0]
    (folder / "other").mkdir()
    monkeypatch.chdir(folder / "other")
    assert Study.read(folder / "study.toml").data == folder / "loans.csv"
    assert Study.read(folder / "schema.toml").sweep == {}


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("seeds = 2", "seed = 2", "study.toml: [sweep] has no entry 'seed'. Did you mean 'seeds'?"),
        ("seeds = 2", "seeds = 0", "study.toml: [sweep] seeds: seeds must"),
        ("seeds = 2", "cv = 1", "study.toml: [sweep] cv: cv must"),
        ("[2.0]", '["a"]', "study.toml: [sweep] epsilons: epsilons must"),
        ('["dpsgd"]', '["dpsdg"]', "study.toml: [sweep] methods: method must"),
        ('"results"', "3", "study.toml: [sweep] store: store must"),
        ('"results"', '"loans.csv"', "loans.csv"),
        ("max_steps", "max_step", "[sweep.params] max_step: there is no such parameter"),
        ("max_steps = 3", 'lr = "a"', "study.toml: [sweep.params] lr: lr must"),
        ("max_steps = 3", "epsilon = 5", "[sweep.params] epsilon: it is set by another option"),
        ("max_steps = 3", "class_weight = {nay = 1}", "nay"),
        ("batch_size = 200", "batch_size = -1", "batch_size"),
        ("[sweep.params]", "params = 3\n[sweep.more]", "must be tables"),
        ('"loans.csv"', "3", "data must name a file"),
        ('"loans.csv"', '"laons.csv"', "data = 'laons.csv' is no file. Did you mean 'loans.csv'?"),
        ("data =", "dta =", "no part 'dta'"),
        ("[sweep]", "[swep]", "Did you mean 'sweep'?"),
    ],
)
def test_unusable_study_is_named_by_its_entry(folder, old, new, named, refused):
    text = Path("study.toml").read_text(encoding="utf-8")
    assert old in text
    text = text.replace(old, new, 1)
    text = text.replace("[sweep.params]", "[swep.params]") if new == "[swep]" else text
    Path("study.toml").write_text(text, encoding="utf-8")
    ledger = ["--ledger", "ledger.jsonl", "--ledger-delta", 1e-5]
    assert named in refused("sweep", "study.toml", "--jobs", 1, *ledger)


def test_person_question_is_none_where_the_schema_declares_persons():
    assert "person = 'patientId'" in person_question(["age", "patientId"], None)
    assert person_question(["age", "patientId"], "patientId") is None
    assert person_question(["age"], None) is None
