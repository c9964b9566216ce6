"""The statement of a release: that of the fit, read without torch, or refused."""

import json
import re
from pathlib import Path

import pytest

from skdpfair import load_release
from skdpfair.release import _file
from skdpfair.release._read_statement import read_statement

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


@pytest.mark.parametrize(("key", "value"), [("epsilon", 0.01), ("seeded", True)])
def test_a_statement_that_is_not_that_of_its_report_is_refused(saved, key, value):
    path, _ = saved
    facts, weights = _file.read(path)
    facts["privacy_statement"][key] = value
    _file.write(path, facts, weights)  # with a digest that matches
    for read in (read_statement, load_release):
        with pytest.raises(ValueError, match=f"its statement says {key}={value}"):
            read(path)


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
