"""`skdpfair statement`: what a checker reads of a file, and the status that says what it is."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

from skdpfair import DPFairClassifier
from skdpfair.cli import main
from skdpfair.datasets import make_two_groups
from skdpfair.privacy.statement import rounded_up
from skdpfair.release import _file, read_statement
from skdpfair.report import export_statement
from skdpfair.report._exports import KINDS

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


def test_a_private_file_is_told_in_twelve_lines(released):
    paths, clf = released
    done = run(paths["private"])
    lines, privacy = done.stdout.splitlines(), clf.privacy_
    assert done.exit_code == 0 and len(lines) == 12 and not done.stderr
    said = {line[:17].strip(): line[17:].strip() for line in lines[1:]}
    assert said["epsilon"] == f"{rounded_up(privacy.epsilon)} (pld accountant)"
    assert said["delta"] == rounded_up(privacy.delta, 3) and said["seeded"] == "no"
    assert said["mu"].startswith(rounded_up(privacy.mu))
    rate = float(said["detection rate"].split()[2])
    assert 100 * privacy.detection_rate() <= rate <= 101 * privacy.detection_rate()
    assert said["unit"] == "one record" and said["method"] == "dpsgd, 10 steps"
    sha256 = read_statement(paths["private"])["release"]["sha256"]
    assert said["integrity"].startswith(f"intact, SHA-256 {sha256[:16]}")


def test_json_is_all_that_the_reader_returns(released):
    paths, clf = released
    done = run(paths["private"], "--json")
    assert json.loads(done.stdout) == read_statement(paths["private"])
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


@pytest.mark.parametrize("kind", KINDS)
def test_exports_are_those_of_the_library(released, tmp_path, kind):
    assert kind in run("--help").stdout
    path, out = released[0]["private"], tmp_path / "out"
    done = run(path, "--export", kind, "-o", out)
    assert done.exit_code == 0 and not done.stdout
    assert out.read_text("utf-8") == export_statement(path, kind)
    assert run(path, "--export", kind).stdout.rstrip() == out.read_text("utf-8").rstrip()


def test_a_record_of_no_private_release_is_refused(released):
    done = run(released[0]["open"], "--export", "registry")
    assert done.exit_code == 1 and not done.stdout and "--export='registry' is for" in done.stderr


@pytest.mark.parametrize("part", [("module",), ("fitted", "classes_"), ("fitted", "groups_")])
@pytest.mark.parametrize("value", [None, 3, "x", [[]], {"float": "nan"}])
def test_no_description_ends_with_a_traceback(released, tmp_path, part, value):
    facts, weights = _file.read(released[0]["private"])
    held = facts if len(part) == 1 else facts[part[0]]
    held[part[-1]] = value
    _file.write(tmp_path / "model.safetensors", facts, weights)
    done = run(tmp_path / "model.safetensors", "--export", "annex-iv")
    assert done.exit_code in (0, 1) and isinstance(done.exception, SystemExit | None)
