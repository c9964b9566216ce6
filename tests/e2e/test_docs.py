"""What the docs name exists, and what they say is what was measured."""

import builtins
import inspect
import json
import math
import re
import tomllib
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from pkgutil import iter_modules

import numpy as np
import pytest
import torch
from numpydoc.validate import validate
from torch import nn

import skdpfair
from docs.methods_table import methods_table, sensitivities
from skdpfair import DPFairClassifier, get_method
from skdpfair.engine import Batch
from skdpfair.engine.mechanism import Method
from skdpfair.methods import METHODS
from skdpfair.privacy.privacy_report import PrivacyReport
from skdpfair.release._read_statement import read_statement
from skdpfair.testing import example_task
from tests.contracts.method_steps import PRIVATE, mechanism_of, step_of

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("docs/*.md"), *ROOT.glob("docs/*/*.md"), *ROOT.glob("*.md")])


@pytest.mark.parametrize("page, least", [("threat_model.md", 26), ("faults_elsewhere.md", 12)])
def test_every_test_that_a_page_names_exists(page, least):
    page = (ROOT / "docs/evidence" / page).read_text()
    named, file = [], None
    for path, test in re.findall(r"`([\w/]*(?:\.py)?)(?:::([\w:]+))?`", page):
        file = path if path.endswith(".py") else file
        if path.endswith("/"):
            assert (ROOT / "tests" / path).is_dir(), path
        elif path.endswith(".py") or test:
            named.append((file, test))
    assert len(named) >= least
    for file, test in named:
        text = (ROOT / "tests" / file).read_text()
        assert all(f" {part}" in text for part in test.split("::") if part), (file, test)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_of_a_page_exist(page):
    links = re.findall(r"\]\(([^)#\s]+)", page.read_text())
    paths = [link for link in links if not link.startswith(("http://", "https://", "mailto:"))]
    assert [path for path in paths if not (page.parent / path).exists()] == []


RETIRED = (ROOT / "docs" / "retired_words.txt").read_text().splitlines()
PHRASES = [phrase for phrase, _, _ in (line.partition("->") for line in RETIRED) if " " in phrase]
TEXTS = [*PAGES, *sorted(ROOT.glob("examples/*.py"))]


@pytest.mark.parametrize("page", TEXTS, ids=lambda p: p.name)
def test_pages_hold_no_retired_phrase(page):
    """codespell refuses the single words of the list; it does not compare phrases."""
    text = " ".join(page.read_text().replace("\n# ", " ").split()).lower()
    assert [phrase for phrase in PHRASES if f" {phrase} " in text] == []


SPEC = spec_from_file_location("conf_of_docs", ROOT / "docs" / "conf.py")
CONF = module_from_spec(SPEC)
SPEC.loader.exec_module(CONF)
# the modules of the API reference, with the names that it lists
ROOMS = CONF.public_names()
LISTED = [(n, getattr(import_module(room), n)) for room, names in ROOMS.items() for n in names]


def test_public_names_have_examples():
    """The examples themselves run as doctests."""
    assert [name for name, value in LISTED if ">>> " not in (value.__doc__ or "")] == []


# what numpydoc checks of every public name: sections, their order, parameters, and what is returned
_DOCSTRING_RULES = {
    *("GL01", "GL02", "GL03", "GL05", "GL06", "GL07", "GL08", "GL09"),
    *("SS03", "PR01", "PR02", "PR10", "RT01", "YD01"),
}
_SECTIONS = {"PR01", "RT01"}  # a method without sections says both in sentences


def _public_callables():
    """Yield the path of each public function and class, and of the methods that we define."""
    seen = set()
    for _, value in LISTED:
        members = [value] * (not getattr(value, "_is_protocol", False))
        if inspect.isclass(value):
            found = inspect.getmembers(value)
            members += [member for name, member in found if not name.startswith("_")]
        for member in members:
            member = member.fget if isinstance(member, property) else member
            module = getattr(member, "__module__", None) or ""
            if callable(member) and module.startswith("skdpfair"):
                seen.add(f"{module}.{member.__qualname__}")
    return sorted(seen)


@pytest.mark.parametrize("path", _public_callables())
def test_public_docstrings_have_their_sections(path):
    found = validate(path)
    is_of_a_class = path.split(".")[-2].strip("_")[0].isupper()
    says_in_sentences = is_of_a_class and "---" not in found["docstring"]
    rules = _DOCSTRING_RULES - (_SECTIONS if says_in_sentences else set())
    assert [text for code, text in found["errors"] if code in rules] == []


def test_the_reference_lists_each_public_name_once():
    modules = ["skdpfair", *(f"skdpfair.{m.name}" for m in iter_modules(skdpfair.__path__))]
    private = {"skdpfair.__main__", "skdpfair._utils", "skdpfair.cli"}
    public = {
        id(getattr(module, name))
        for module in map(import_module, sorted({*modules} - private))
        for name in getattr(module, "__all__", [])
        if name != "__version__"
    }
    listed = [id(value) for _, value in LISTED]
    assert len(listed) == len(set(listed)) and public == set(listed)
    # a user who needs four of them must find them
    assert sum(len(names) for room, names in ROOMS.items() if room != "skdpfair.testing") <= 54


def test_every_private_method_has_a_step_on_every_model(kept_results):
    steps = json.loads((kept_results / "training.json").read_text())["steps"]
    private = {name for name, method in METHODS.items() if method.private}
    assert not any(private - engines.keys() for engines in steps.values())


def test_comparison_holds_the_measured_ratios(kept_results):
    page = (ROOT / "docs/evidence/comparison.md").read_text()
    assert (kept_results / "rivals.md").read_text() in page
    found = json.loads((kept_results / "training.json").read_text())
    engines = ("dpsgd", "Opacus ghost clipping", "Opacus hooks")
    rows = {
        f"{start} private step, {model}": [found[kind][model][e]["ratio"] for e in engines]
        for model in ("Adult MLP", "MNIST CNN")
        for kind, start in (("steps", "a"), ("memory", "additional memory of a"))
    }
    rows["a whole fit, Adult MLP"] = [found["fits"]["Adult MLP"]["dpsgd"]["ratio"], 1.0]
    for start, measured in rows.items():
        row = re.search(rf"^\| {start} (.*)", page, re.M)[1]
        assert list(map(float, re.findall(r"\d+\.\d+", row))) == pytest.approx(measured, rel=0.01)


def test_examples_with_seeds_say_that_they_are_for_research():
    without_noise = r"\b(?:make_two_groups|GroupShuffleSplit|train_test_split)\([^()]*\)"
    for example in ROOT.glob("examples/plot_*.py"):
        _, about, code = example.read_text().split('"""', 2)
        if re.search(r"\brandom_state\b|\bsweep\(", re.sub(without_noise, "", code)):
            assert "for research: do not copy it for private data" in about, example.name


def test_sharp_edges_are_rated():
    listed, *edges = (ROOT / "docs/sharp_edges.md").read_text().split("\n## ")
    assert len(edges) == listed.count("](#") >= 13
    for edge in edges:
        title, text = edge.split("\n", 1)
        severity = re.search(r"^\*\*Severity: (.*?)\.\*\*", text, re.M)[1]
        assert severity in ("critical", "theoretical", "negligible")
        assert re.search(rf"^\| \[{title}\]\(#[\w-]+\) \| {severity} \|", listed, re.M), title
        assert "**What to do.**" in text, title


WORDS = {
    "start.md": ["LogisticRegression"],
    "troubleshooting.md": ["one class only", "negative"],
    "choosing.md": ["how to choose epsilon"],
    "user_guide.md": ["imbalance", "sparse", "image"],
    "postprocessing.md": ["imbalance", "CalibratedClassifierCV", "ThresholdOptimizer"],
    "preprocessing.md": ["polars"],
    "images.md": ["images"],
}


@pytest.mark.parametrize("page", WORDS)
def test_pages_hold_the_words_that_readers_search_for(page):
    text = (ROOT / "docs" / page).read_text().lower()
    assert [word for word in WORDS[page] if word.lower() not in text] == []


def test_lowest_versions_that_are_tested_are_those_of_the_project():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    parts = [project["dependencies"], *(extras[e] for e in extras.keys() - {"test", "docs"})]
    tested = (ROOT / "requirements" / "lowest.txt").read_text()
    assert set(re.findall(r"^\S+==\S+", tested, re.M)) == {
        requirement.replace(">=", "==")
        for part in parts
        for requirement in part
        if not requirement.startswith("skdpfair[")
    }


OF_OTHERS = {"make_pipeline", "cross_validate", "train_test_split", "set_config", *dir(builtins)}
BLOCK = re.compile(r"^```.*?^```$", re.M | re.S)
# what comes before the dot of our own methods
CALLED = re.compile(r"`(?:(?:clf|model|results|ledger|schema)\.(?:\w+\.)*)?([a-z]\w*)\(")


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_names_that_a_page_calls_are_public(page):
    """Public names, or those of their attributes."""
    text, classes = page.read_text(), [PrivacyReport, Method, *(value for _, value in LISTED)]
    attributes = {name for cls in filter(inspect.isclass, classes) for name in dir(cls)}
    known = OF_OTHERS | attributes | {name for name, _ in LISTED}
    assert set(CALLED.findall(BLOCK.sub("", text))) - known == set()
    assert re.findall(r"^(?:from|import) (skdpfair\S*\._\S*)", text, re.M) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_numbers_beside_an_output_without_a_seed_are_in_it(page):
    """They change from run to run: a reader compares the prose with the output."""
    unseeded = r"^```python\n((?:(?!^```).)*# unseeded.*?)^```\n\n^```text\n(.*?)^```\n\n(.*?)\n\n"
    for code, output, prose in re.findall(unseeded, page.read_text(), re.M | re.S):
        prose = re.sub(r"\(.*?\.md.*?\)", "", prose)
        numbers = set(re.findall(r"\d+(?:\.\d+)?", prose))
        shown = set(re.findall(r"\d+(?:\.\d+)?", code + output))
        assert numbers <= shown, prose


class Recorded:
    """A source of noise that keeps the sensitivities by which it is scaled, and adds none."""

    def __init__(self):
        self.sensitivities = []

    def fill_(self, out, sensitivity, noise_multiplier=1.0):
        self.sensitivities.append(float(sensitivity))
        return out.zero_()

    def all_reduce_(self, sums):
        return sums


@pytest.mark.parametrize("name", PRIVATE)
@pytest.mark.parametrize("n_groups", [2, 3])
def test_listed_sensitivities_are_those_that_scale_the_noise(name, n_groups):
    noise, n_groups = Recorded(), 2 if METHODS[name].binary else n_groups
    mechanism, group = mechanism_of(name, 1.0, n_groups), torch.arange(6) % n_groups
    batch = Batch(torch.rand(6, 5), torch.zeros(6, dtype=torch.int64), group)
    step_of(nn.Linear(5, 2), batch, mechanism, noise)
    gradient, *queries = sensitivities(mechanism.method, mechanism.task).values()
    assert noise.sensitivities[:-1] == queries
    assert gradient is None or noise.sensitivities[-1] == gradient
    assert "unbounded" not in methods_table().loc[name, "sensitivity"]


def test_sensitivities_of_bounds_that_move_or_do_not_exist_are_no_numbers():
    assert sensitivities(get_method("dpsgd_f"), example_task())["gradient sum"] is None
    assert methods_table().loc["dpsgd_f", "sensitivity"] == "C times released factors; 1"
    assert math.isinf(sensitivities(get_method("sgd"), example_task())["gradient sum"])


@pytest.fixture(scope="module")
def built():
    """Return a function that fills in a page of the docs."""

    def page(name):
        source = [(ROOT / "docs" / f"{name}.md").read_text()]
        CONF.fill_in(None, name, source)
        return source[0]

    return page


@pytest.mark.parametrize("page", sorted(ROOT.glob("docs/**/*.md")), ids=lambda p: p.stem)
def test_readers_see_no_marker_of_the_tool_that_runs_blocks(page, built):
    text = built(page.relative_to(ROOT / "docs").with_suffix(""))
    assert not re.search(r"# unseeded|# your pipeline", text)


def test_docs_have_the_table_of_methods(built):
    lines = built("methods").splitlines()
    rows = [f"| {' | '.join([name, *row])} |" for name, row in methods_table().iterrows()]
    assert set(rows) <= set(lines)


def test_docs_have_the_papers_of_all_methods(built):
    papers = built("evidence/references")
    own = [name for name, method in METHODS.items() if not method.reference]
    assert all(f"- `{name}`: " in papers for name in own)


def test_docs_list_the_keys_of_read_statement(tmp_path):
    text, path = (ROOT / "docs/release.md").read_text("utf-8"), tmp_path / "model.safetensors"
    table = text.split("| keys | contents |")[1].split("\n\n")[0]
    heads = [row.split("|")[1].split("`")[1::2] for row in table.splitlines()[2:]]
    X, y = np.linspace(-1, 1, 1200).reshape(400, 3), np.arange(400) % 2
    clf = DPFairClassifier("dp_is_sgd", epsilon=8.0, batch_size=50, max_steps=4)
    clf.fit(X, y, sensitive_features=np.where(np.arange(400) % 8, "a", "b")).save_release(path)
    assert {key for keys in heads for key in keys} == {*read_statement(path)}
