"""Fits, sweeps by hand, and what pages state: their facts, their texts and their tables."""

import os
import re
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from skdpfair import DPFairClassifier, Groups
from skdpfair.datasets import make_two_groups
from skdpfair.model_selection import TradeoffResults, sweep
from skdpfair.model_selection._sweep_spec import SweepSpec
from skdpfair.privacy import NoisyRelease
from skdpfair.report import _exports, _model_page, _summary, _sweep_page

HOSTILE = "<b onclick=x>|a|</b>"
VOID = {"meta", "br", "img", "link", "input", "hr"}
STEPS = NoisyRelease("gradient sum", 0.02, (1.25,), 900)
SPEC = SweepSpec(
    n_samples=12_345,
    n_examples=12_345,
    delta=1e-5,
    params={"module": "'logistic'"},
    skdpfair="0.1",
    torch="2.13",
)


@pytest.fixture(scope="session")
def hostile():
    return HOSTILE


@pytest.fixture(scope="session")
def fitted():
    """A classifier of two groups, one of a hostile name, with its records and their groups."""
    data = make_two_groups(3000, random_state=0)
    groups = np.where(data.sensitive_features == "a", HOSTILE, "b")
    levels = Groups(levels=[HOSTILE, "b"])
    clf = DPFairClassifier("dpsgd", epsilon=3.0, group_col=levels, max_steps=10)
    return clf.fit(data.data, data.target, sensitive_features=groups), data, groups


@pytest.fixture(scope="session")
def variables():
    """A classifier of named variables, whose values tell nothing alone, and its table."""
    rng, n = np.random.default_rng(0), 600
    X = pd.DataFrame({"a": rng.normal(size=n), "b": rng.normal(size=n)})
    y = pd.Series(np.where(X["a"] > 0, "yes", "no"), name="deny")
    groups = pd.DataFrame({"black": rng.choice(["yes", "no"], n), "sex": rng.choice(["0", "1"], n)})
    clf = DPFairClassifier("dpsgd", epsilon=9.0, module="logistic", max_steps=3, delta=1e-5)
    return clf.fit(X, y, sensitive_features=groups["black"]), X, y, groups


@pytest.fixture
def page_facts(monkeypatch):
    """``page_facts(write, ...)``: the facts that a function fills its template with.

    The facts of its sentences, if it has any, are in ``facts["summary"]``.
    """

    def facts_of(write, *args, **kwargs):
        facts, summary = {}, {}

        def keep(_, context):
            facts.update(context)

        def keep_summary(names, context):
            summary.update(context)
            return dict.fromkeys(names, "")

        with monkeypatch.context() as patch:
            for module, name in (
                (_sweep_page, "render"),
                (_model_page, "render"),
                (_model_page, "markdown"),
                (_exports, "markdown"),
            ):
                patch.setattr(module, name, keep)
            patch.setattr(_summary, "sentences", keep_summary)
            write(*args, **kwargs)
        return facts | {"summary": summary}

    return facts_of


@pytest.fixture
def check_golden():
    """``check_golden(name, lines)``: texts are the lines of the file ``golden/name``.

    ``SKDPFAIR_RENEW_GOLDEN=1 python -m pytest tests/report`` writes the files again; read the
    difference before you commit it, as by ``git diff --word-diff``.
    """

    def check(name, lines):
        path, text = Path(__file__).parent / "golden" / name, "".join(f"{t}\n" for t in lines)
        if os.environ.get("SKDPFAIR_RENEW_GOLDEN"):
            path.write_text(text, "utf-8")
        assert text.splitlines() == path.read_text("utf-8").splitlines()

    return check


class Page(HTMLParser):
    """The tags, attributes and texts of a page, whose tags must be closed in order."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.texts, self.open = [], [], [], []
        self.feed(text)
        assert self.open == []
        self.text = " ".join(" ".join(self.texts).split())
        self.ids = [value for _, name, value in self.attributes if name == "id"]

    def handle_starttag(self, tag, attributes):
        self.handle_startendtag(tag, attributes)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_startendtag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += [(tag, *pair) for pair in attributes]

    def handle_data(self, data):
        if "style" not in self.open:
            self.texts.append(data)


@pytest.fixture(scope="session")
def parsed():
    return Page


@pytest.fixture(scope="session")
def sections():
    """``sections(page)``: texts of the sections of a page, without its tables and words.

    Each is a list of blocks, of which a question with its answer is one.
    """

    def sections(page):
        body = page.split('<details aria-labelledby="words"')[0]
        body = re.sub(r"(?s)<(head|svg|table).*?</\1>", "", body)
        body = re.sub(r"</dt>\s*<dd>", ": ", body)
        for part in re.split("<h2[^>]*>", body):
            blocks = re.split(r"</?(?:p|dl|dd|li|h1|h2|summary|main)\b[^>]*>", part)
            texts = (" ".join(unescape(re.sub("<[^>]*>", " ", b)).split()) for b in blocks)
            yield [text for text in texts if text]

    return sections


def cells(groups=("F", "M"), methods=("poor", "even"), budgets=(1.0, 4.0), seeds=2):
    """Yield cells: the k-th method costs the first group 10 k + 5 points at budget 1."""
    n = [100 * (i + 1) for i in range(len(groups))]
    for seed in range(seeds):
        for k, method in enumerate(("reference", *methods)):
            for budget in [None] if method == "reference" else budgets:
                lost = 0 if budget is None else (10 * k + 5) / budget / 100
                right = [round(m * (0.9 - lost / (i + 1))) for i, m in enumerate(n)]
                accuracy = [r / m for r, m in zip([sum(right), *right], [sum(n), *n], strict=True)]
                more = [12 / (2 * sum(n)), *(4 / (2 * m) for m in n)]  # of the training records
                yield {
                    "method": method,
                    "epsilon": budget,
                    "seed": seed,
                    "fold": 0,
                    "reference": None if method == "reference" else "reference",
                    "n": [sum(n), *n],
                    "test": {"accuracy": accuracy},
                    "train": {"accuracy": [a + e for a, e in zip(accuracy, more, strict=True)]},
                    "epsilon_spent": np.inf if budget is None else 0.999 * budget,
                    "releases": [] if budget is None else [vars(STEPS)],
                    "fit_seconds": 1.0,
                    "low_signal": [],
                }


def results_of(found=None, **chosen):
    """Return the results of cells, by default those of ``cells(**chosen)``."""
    groups = list(chosen.get("groups", ("F", "M")))
    found = list(cells(**chosen)) if found is None else found
    return TradeoffResults.from_cells(found, groups, np.array([0, 1]), SPEC)


def scored(scores, n=400, groups=("F", "M"), is_counted=False):
    """Return results of models by the accuracies of their runs; the reference has .9.

    The shares of the classes are known if ``is_counted``: 60 % are of one.
    """
    rows, n_runs = [], len(next(iter(scores.values())))
    for (method, epsilon), runs in ({("reference", np.inf): 0.9} | scores).items():
        for seed, value in enumerate(np.broadcast_to(runs, (n_runs,))):
            run = {"method": method, "epsilon": epsilon, "seed": seed, "fold": 0}
            run |= {"accuracy": value, "privacy_cost": 0.9 - value, "epsilon_spent": epsilon}
            for group in ("overall", *groups):
                rows.append(run | {"group": group, "n": 2 * n if group == "overall" else n})
    found = TradeoffResults(pd.DataFrame(rows))
    if is_counted:
        found.spec = replace(SPEC, classes=[0, 1], counts=[[300, 200], [300, 200]])
    return found


@pytest.fixture(scope="session")
def by_hand():
    """Functions that make results, and runs of a mean of zero, whose differences vary."""
    noisy, near = np.array([-0.02, 0.0, 0.02]), np.array([-0.022, 0.002, 0.02])
    return SimpleNamespace(
        cells=cells, results=results_of, scored=scored, spec=SPEC, noisy=noisy, near=near
    )


@pytest.fixture(scope="session")
def swept(two_groups, tmp_path_factory):
    """The results of a small sweep, and its store."""
    folder = tmp_path_factory.mktemp("sweep") / "store"
    found = sweep(
        two_groups.data,
        two_groups.target,
        sensitive_features=two_groups.sensitive_features,
        methods=["dpsgd", "global"],
        epsilons=[20.0, 10.0],
        seeds=2,
        store=folder,
        keep_predictions=True,
        module="logistic",
        max_steps=5,
        batch_size=200,
        accountant="rdp",
    )
    return found, folder
