"""skdpfair statement prints or exports what a file guarantees, and ends with a status."""

import json
from hashlib import sha256

import numpy as np
import pytest
from click.testing import CliRunner

from skdpfair import DPFairClassifier
from skdpfair.budget import PrivacyLedger
from skdpfair.cli import main
from skdpfair.datasets import make_two_groups
from skdpfair.release import _file
from skdpfair.report import export_statement

pytestmark = pytest.mark.filterwarnings("ignore::skdpfair.exceptions.LowSignalWarning")


@pytest.fixture(scope="module")
def released(tmp_path_factory):
    """Files by kind, and the private classifier among them."""
    made, folder = make_two_groups(2000, random_state=0), tmp_path_factory.mktemp("released")
    fits = {
        "private": DPFairClassifier("dpsgd", epsilon=1.7, max_steps=10),
        "seeded": DPFairClassifier("dpsgd", epsilon=1.7, max_steps=10, random_state=0),
        "open": DPFairClassifier(epsilon=None, max_steps=10),
    }
    paths = {}
    with pytest.warns():  # of the seed, and of the fit without privacy
        for name, clf in fits.items():
            paths[name] = folder / f"{name}.safetensors"
            clf.fit(made.data, made.target).save_release(paths[name])
    return paths, fits["private"]


def test_statement_prints_thirteen_lines(released, run):
    paths, clf = released
    done = run("statement", paths["private"])
    lines, content = done.stdout.splitlines(), paths["private"].read_bytes()
    assert len(lines) == 13 and not done.stderr
    assert lines[1:10] == repr(clf.privacy_).splitlines()[1:]  # as in Python
    stated = {line[:13].strip(): line[13:].strip() for line in lines[1:]}
    assert stated["file"] == f"SHA-256 {sha256(content).hexdigest()}"
    assert stated["integrity"].startswith(f"intact, {len(content):,} bytes, written by")
    assert stated["trained"] == f"on {clf._day} (UTC)"


def test_statement_prints_and_writes_exports_of_the_library(released, run, tmp_path):
    path, out = released[0]["private"], tmp_path / "out"
    assert run("statement", path, "--json").stdout.rstrip() == export_statement(path, "json")
    assert not run("statement", path, "--export", "nist", "-o", out).stdout
    text = out.read_text("utf-8")
    assert text == export_statement(path, "nist")
    assert sha256(path.read_bytes()).hexdigest() in text and released[1]._day in text


def test_statement_with_a_ledger_states_its_facts(released, run, tmp_path):
    path, file = released[0]["private"], tmp_path / "ledger.jsonl"
    PrivacyLedger(file, delta=1e-6)
    options, ledger = ["--ledger", file], PrivacyLedger(file)
    printed = run("statement", path, *options, "--json").stdout.rstrip()
    assert printed == export_statement(path, "json", ledger=ledger)
    spent = json.loads(printed)["all_fits"]
    assert (spent["n_fits"], spent["holds_this_model"], spent["epsilon_total"]) == (0, "none", 0)
    assert spent["statement"] in " ".join(run("statement", path, *options).stdout.split())
    done = run("statement", path, *options, "--export", "nist")
    assert done.stdout == export_statement(path, "nist", ledger=ledger)


@pytest.mark.parametrize("name", ["seeded", "open"])
@pytest.mark.parametrize("options", [[], ["--json"], ["--export", "nist"]])
def test_statement_without_a_guarantee_ends_with_status_1(released, name, options, run):
    done = run("statement", released[0][name], *options, status=1)
    assert ("was seeded" if name == "seeded" else "NOT differentially private") in done.stderr
    assert done.stdout.strip()  # it is stated all the same


def test_statement_of_damage_or_no_release_ends_with_status_1(released, tmp_path, run):
    from safetensors.numpy import save_file

    content, path = released[0]["private"].read_bytes(), tmp_path / "model.safetensors"
    for other in (content[:-1], content[:-1] + bytes([content[-1] ^ 1]), b"", b"\x80\x04K\x00."):
        path.write_bytes(other)
        done = run("statement", path, "--json", status=1)
        assert not done.stdout and "damaged" in done.stderr
    save_file({"w": np.ones(2)}, path)
    assert "not a release" in " ".join(run("statement", path, status=1).stderr.split())


@pytest.mark.parametrize("part", ["method_", "_variables"])
@pytest.mark.parametrize("value", [None, 3, "x", [[]], {"float": "nan"}])
def test_statement_of_odd_facts_has_no_traceback(released, tmp_path, part, value):
    facts, weights = _file.opened(released[0]["private"])[:2]
    facts["fitted"][part] = value
    path = tmp_path / "model.safetensors"
    _file.write(path, facts, weights)
    done = CliRunner().invoke(main, ["statement", str(path), "--export", "nist"])
    assert done.exit_code in (0, 1) and isinstance(done.exception, SystemExit | None)


def test_unusable_statement_ends_with_status_2(released, folder, refused):
    path = released[0]["private"]
    refused("statement", folder / "none")
    for options in (["--json", "--export", "nist"], ["-o", "x.md"], ["--export", "iso"]):
        refused("statement", path, *options)
