"""The statement of a release: that of the fit, read without torch, or refused."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from skdpfair.release import _file, read_statement

pytestmark = pytest.mark.filterwarnings("ignore::skdpfair.exceptions.LowSignalWarning")


@pytest.fixture
def saved(table, path, fitted):
    """A file, and the classifier in it."""
    model = fitted(table, "dpsgd_f")
    model.save_release(path)
    return path, model


def test_it_is_that_of_the_fit_with_facts_of_the_file(saved):
    path, model = saved
    said = read_statement(path)
    release = said.pop("release")
    assert said == model.privacy_statement()
    _, weights = _file.read(path)
    assert release["n_weights"] == sum(w.size for w in weights.values())
    assert release["estimator"] == type(model).__name__ and release["format_version"] == 1
    assert len(release["sha256"]) == 64
    json.dumps(said | release, allow_nan=False)


def test_a_fit_without_privacy_says_so(table, path, fitted):
    with pytest.warns(match="NOT differentially private"):
        fitted(table, "sgd", noise_multiplier=None).save_release(path)
    said = read_statement(path)
    assert said["epsilon"] == "inf" and not said["is_private"] and not said["releasable"]


@pytest.mark.parametrize("share", [0.1, 0.5, 0.999])
def test_any_changed_byte_is_refused(saved, share):
    path, _ = saved
    content = bytearray(path.read_bytes())
    content[int(share * (len(content) - 1))] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match="damaged"):
        read_statement(path)


def test_files_that_are_no_release_are_refused(tmp_path):
    from safetensors.numpy import save_file

    path = tmp_path / "other.safetensors"
    save_file({"w": np.ones(2)}, path)
    with pytest.raises(ValueError, match="not a release of skdpfair"):
        read_statement(path)
    path.write_bytes(b"")
    with pytest.raises(ValueError, match="not a safetensors file"):
        read_statement(path)


@pytest.mark.parametrize(
    ("key", "value", "error"),
    [
        ("epsilon", 0.01, "its statement says epsilon=0.01"),
        ("seeded", True, "its statement says seeded=True"),
    ],
)
def test_a_statement_that_is_not_that_of_its_report_is_refused(saved, key, value, error):
    path, _ = saved
    facts, weights = _file.read(path)
    facts["privacy_statement"][key] = value
    _file.write(path, facts, weights)  # with a digest that matches
    with pytest.raises(ValueError, match=error):
        read_statement(path)


@pytest.mark.parametrize(
    "report", [{"optimizer": "SGD"}, {"report": [1]}, {"os.system": "true"}, [], None]
)
def test_what_stands_in_place_of_the_report_is_refused(saved, report):
    path, _ = saved
    facts, weights = _file.read(path)
    facts["fitted"]["privacy_"] = report
    _file.write(path, facts, weights)
    with pytest.raises(ValueError, match="no privacy statement that can be read"):
        read_statement(path)


def test_the_page_on_releases_lists_the_keys(saved):
    text = (Path(__file__).parents[2] / "docs/release.md").read_text("utf-8")
    table = text.split("| keys | contents |")[1].split("\n\n")[0]
    heads = [row.split("|")[1] for row in table.splitlines()[2:]]
    listed = {key for head in heads for key in re.findall("`(.*?)`", head)}
    assert listed == {*read_statement(saved[0])}
