"""`skdpfair statement` and `verify`: what a checker reads of a file, and its status."""

import json
from hashlib import sha256

import numpy as np
import pytest
from click.testing import CliRunner

from skdpfair import DPFairClassifier, load_release
from skdpfair.budget import PrivacyLedger
from skdpfair.cli import main
from skdpfair.datasets import make_two_groups
from skdpfair.release import _file
from skdpfair.report import export_statement, model_page
from skdpfair.testing import verify_release

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


def run(*arguments):
    return CliRunner().invoke(main, ["statement", *map(str, arguments)])


def test_a_private_file_is_stated_in_thirteen_lines(released):
    paths, clf = released
    done = run(paths["private"])
    lines, privacy = done.stdout.splitlines(), clf.privacy_
    assert done.exit_code == 0 and len(lines) == 13 and not done.stderr
    assert lines[1:10] == repr(privacy).splitlines()[1:]  # as in Python
    stated = {line[:13].strip(): line[13:].strip() for line in lines[1:]}
    content = paths["private"].read_bytes()
    assert stated["file"] == f"SHA-256 {sha256(content).hexdigest()}"
    assert stated["integrity"].startswith(f"intact, {len(content):,} bytes, written by")
    assert stated["trained"] == f"on {clf._day} (UTC)"


def test_json_is_all_that_the_reader_returns(released):
    paths, clf = released
    done = run(paths["private"], "--json")
    assert done.stdout.rstrip() == export_statement(paths["private"], "json")
    assert json.loads(done.stdout)["epsilon"] == clf.privacy_.epsilon and done.exit_code == 0


@pytest.mark.parametrize("name", ["seeded", "open"])
@pytest.mark.parametrize("options", [[], ["--json"], ["--export", "nist"]])
def test_what_gives_no_guarantee_ends_with_status_1(released, name, options):
    done = run(released[0][name], *options)
    assert done.exit_code == 1
    assert ("was seeded" if name == "seeded" else "NOT differentially private") in done.stderr
    assert "safetensors" in done.stdout or options  # it is told all the same
    assert done.stdout.strip()


def test_what_is_damaged_or_no_release_ends_with_status_1(released, tmp_path):
    content = released[0]["private"].read_bytes()
    path = tmp_path / "model.safetensors"
    for changed in (content[:-1], content[:-1] + bytes([content[-1] ^ 1]), b"", b"\x80\x04K\x00."):
        path.write_bytes(changed)
        done = run(path, "--json")
        assert done.exit_code == 1 and not done.stdout and "damaged" in done.stderr
    from safetensors.numpy import save_file

    save_file({"w": np.ones(2)}, path)
    done = run(path)
    assert done.exit_code == 1 and "not a release of skdpfair" in done.stderr.replace("\n", " ")


def test_what_cannot_be_run_ends_with_status_2(released, tmp_path):
    path = released[0]["private"]
    assert run(tmp_path / "none").exit_code == 2
    for options in (["--json", "--export", "nist"], ["-o", "x.md"], ["--export", "iso"]):
        assert run(path, *options).exit_code == 2
    before = path.read_bytes()
    assert run(path, "--export", "nist", "-o", path).exit_code == 2 and path.read_bytes() == before


def test_an_export_is_that_of_the_library(released, tmp_path):
    path, out = released[0]["private"], tmp_path / "out"
    done = run(path, "--export", "nist", "-o", out)
    assert done.exit_code == 0 and not done.stdout
    text = out.read_text("utf-8")
    assert text == export_statement(path, "nist")
    assert sha256(path.read_bytes()).hexdigest() in text and released[1]._day in text


def test_a_ledger_is_told_in_all_forms(released, tmp_path):
    path, file = released[0]["private"], tmp_path / "ledger.jsonl"
    PrivacyLedger(file, delta=1e-6)
    said = " ".join(run(path, "--ledger", file).stdout.split())
    first = "The given ledger, which may be of other records, holds 0 fits, and that of this model"
    assert first in said and "comes in addition to its total" in said
    printed = run(path, "--ledger", file, "--json").stdout.rstrip()
    assert printed == export_statement(path, "json", ledger=PrivacyLedger(file))
    told = json.loads(printed)["all_fits"]
    assert (told["n_fits"], told["holds_this_model"], told["epsilon_total"]) == (0, "none", 0)
    assert told["statement"].startswith(first)
    done = run(path, "--ledger", file, "--export", "nist")
    assert first in done.stdout and done.exit_code == 0
    assert done.stdout == export_statement(path, "nist", ledger=PrivacyLedger(file))


@pytest.mark.parametrize(
    ("name", "value"), [("_day", "2026-11-25 0.5"), ("_ledger_fits", {"tuple": ["Alice"]})]
)
def test_another_day_or_fit_is_refused(released, tmp_path, name, value):
    facts, weights = _file.read(released[0]["private"])
    path = tmp_path / "model.safetensors"
    _file.write(path, facts | {"fitted": facts["fitted"] | {name: value}}, weights)
    assert run(path).exit_code == 1
    for read in (load_release, verify_release):
        with pytest.raises(ValueError, match="cannot be loaded"):
            read(path)


@pytest.mark.parametrize("part", ["method_", "_variables"])
@pytest.mark.parametrize("value", [None, 3, "x", [[]], {"float": "nan"}])
def test_no_description_ends_with_a_traceback(released, tmp_path, part, value):
    facts, weights = _file.read(released[0]["private"])
    facts["fitted"][part] = value
    _file.write(tmp_path / "model.safetensors", facts, weights)
    done = run(tmp_path / "model.safetensors", "--export", "nist")
    assert done.exit_code in (0, 1) and isinstance(done.exception, SystemExit | None)


def verified(*arguments):
    return CliRunner().invoke(main, ["verify", *map(str, arguments)])


def test_a_file_is_verified_as_its_page_asks(released):
    path = released[0]["private"]
    assert "<code>skdpfair verify FILE</code>" in model_page(path)
    done = verified(path)
    assert done.exit_code == 0 and f"{path}: verified" in done.stdout and not done.stderr
    told = json.loads(verified(path, "--json").stdout)
    assert told == {"file": str(path), "verified": True, "problem": None}


def test_what_is_no_private_file_or_holds_more_is_not_verified(released, tmp_path):
    content, page = released[0]["private"].read_bytes(), tmp_path / "page.html"
    page.write_text(model_page(released[1]), "utf-8")
    files = [released[0]["open"], page]
    for i, changed in enumerate((content[:-1], b"", b"a,b\n1,2\n", b"<html></html>", b"\xff<")):
        files.append(tmp_path / f"{i}.safetensors")
        files[-1].write_bytes(changed)
    for file in files:
        done = verified(file)
        assert done.exit_code == 1 and not done.stdout and "Not verified:" in done.stderr
        done = verified(file, "--json")
        told = json.loads(done.stdout)
        assert done.exit_code == 1 and told["verified"] is False and told["problem"]
    assert verified(tmp_path / "none").exit_code == 2 and verified(tmp_path).exit_code == 2
