"""The report of a sweep: what it says, that it needs nothing else, that no name breaks it."""

import json
import re
from dataclasses import asdict, replace
from html.parser import HTMLParser
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from click import Context
from click.testing import CliRunner
from scipy.stats import binom, binomtest
from scipy.stats import t as student
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skdpfair import DPFairClassifier
from skdpfair.budget import PrivacyLedger
from skdpfair.cli import main
from skdpfair.metrics._measures import MEASURES, level_of
from skdpfair.model_selection import TradeoffResults, sweep
from skdpfair.model_selection._spec import SweepSpec
from skdpfair.privacy import NoisyRelease, compute_epsilon, trade_off
from skdpfair.privacy.gdp import auto_delta
from skdpfair.privacy.statement import rounded_up
from skdpfair.report._recommendation import Costs, estimated, recommend, small_groups
from skdpfair.report._summary import release_commands

SECTIONS = {"answers", "groups", "cost"}
FOLDED = {"measures", "tradeoff", "generalisation", "data", "settings", "privacy", "pipeline"}
FOLDED |= {"not-accounted", "words"}
HOSTILE = ("<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "$x_{$ & {{ 7 * 7 }}")
VOID = {"meta", "br", "img", "link", "input", "hr"}


class Page(HTMLParser):
    """The tags, attributes and texts of a page, whose tags must be closed in order."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.texts, self._open = [], [], [], []
        self.cells, self._row = [], None
        self.feed(text)
        assert self._open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += [(tag, *pair) for pair in attributes]
        if tag not in VOID:
            self._open.append(tag)
        if tag == "tr":
            self.cells.append([])
        if tag in ("td", "th"):
            self.cells[-1].append("")

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_startendtag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += [(tag, *pair) for pair in attributes]

    def handle_data(self, data):
        if "style" not in self._open:
            self.texts.append(data)
        if self._open[-1:] in (["td"], ["th"]):
            self.cells[-1][-1] += data

    @property
    def text(self):
        return " ".join(" ".join(self.texts).split())


STEPS = NoisyRelease("gradient sum", 0.02, (1.25,), 900)


def cells(groups=("F", "M"), methods=("poor", "even"), budgets=(1.0, 4.0), seeds=2):
    """Finished cells: the k-th method costs the first group 10 k + 5 points at budget 1."""
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


SPEC = SweepSpec(
    n_samples=12_345,
    n_examples=12_345,
    delta=1e-5,
    params={"module": "'logistic'"},
    skdpfair="0.1",
    torch="2.13",
)
TWO_CLASSES = replace(SPEC, classes=[0, 1], counts=[[300, 200], [300, 200]])


def results(**chosen):
    groups = list(chosen.get("groups", ("F", "M")))
    return TradeoffResults.from_cells(list(cells(**chosen)), groups, np.array([0, 1]), SPEC)


@pytest.fixture(scope="module")
def page():
    return Page(results().to_html())


def test_all_sections_are_there_once(page):
    ids = [value for _, name, value in page.attributes if name == "id"]
    assert len(set(ids)) == len(ids)
    assert set(ids) >= SECTIONS | FOLDED
    assert page.tags.count("section") == len(SECTIONS)
    assert page.tags.count("details") == page.tags.count("summary") == len(FOLDED)
    links = [value for tag, name, value in page.attributes if (tag, name) == ("a", "href")]
    assert set(links) <= {f"#{i}" for i in ids}


def test_what_is_not_folded_is_short():
    text = results().to_html()
    visible = re.sub(r"(?s)<(details|head|svg).*?</\1>", " ", text)
    assert len(re.sub(r"<[^>]*>", " ", visible).split()) <= 950


def test_words_are_explained_where_they_occur(page):
    text = results().to_html(measures=["accuracy"])
    before, after = text.split('id="words"')
    explained = re.findall(r"<dt>(.*?)</dt>", after)
    assert 6 <= len(explained) <= 12 and "sampling rate" in explained
    assert all(word in before for term in explained for word in term.split(" and "))
    assert "balanced accuracy" not in explained and "logit" not in explained
    assert "guessing well about people whom it has never seen" in page.text


def test_it_asks_for_nothing():
    text = results().to_html()
    page = Page(text)
    assert not {"script", "link", "img", "iframe", "object", "embed"} & set(page.tags)
    assert not re.search(r"url\(|@import|https?:|javascript:", text)
    assert not [name for _, name, _ in page.attributes if name.startswith("on")]
    policy = next(v for _, name, v in page.attributes if name == "content" and "default-src" in v)
    assert policy == "default-src 'none'; style-src 'unsafe-inline'"


def test_it_says_that_it_is_not_private(page):
    assert "This page contains non-private figures." in page.text
    assert "as a whole, it is not private" in page.text
    assert "replaces by a null record" in page.text.replace("replaced", "replaces")


def test_the_command_of_a_release_is_one_of_the_shell(page):
    commands = re.findall("skdpfair (fit DATA .*)", page.text)
    assert commands
    for command in commands:
        name, *words = command.replace("METHOD", "dpsgd").replace("EPSILON", "1").split()
        shell = main.get_command(None, name)
        given = shell.make_parser(Context(shell)).parse_args(words)[0]
        assert given["epsilon"] == "1" and given["schema"] == "SCHEMA.toml"


def test_the_commands_of_a_release_fit_what_is_recommended():
    spec = SweepSpec(
        classes=["no", "yes"],
        methods={"dpsgd": "'dpsgd'", "global_adapt": "'global_adapt'", "own": "Own()"},
        params={
            "delta": "1e-06",
            "classes": "('no', 'yes')",
            "module": "'mlp'",
            "module__hidden_layer_sizes": "(8, 8)",
        },
    )
    found = SimpleNamespace(spec=spec, leading_measures=["accuracy"])
    advised = SimpleNamespace(method="dpsgd", epsilon=0.5, score=None, is_useful=True)
    tried, fixed = release_commands(found, advised)
    fit = "skdpfair fit DATA --schema SCHEMA.toml --epsilon 0.5 "
    end = "--delta 1e-06 --set module=mlp --set 'module__hidden_layer_sizes=[8, 8]'"
    assert tried == f"{fit}--try method=dpsgd,global_adapt {end}"
    assert fixed == f"{fit}--method dpsgd {end}"
    found.spec = SweepSpec()
    tried, fixed = release_commands(found, None)
    assert tried is None and "--epsilon EPSILON --method METHOD" in fixed


def test_the_figures_are_those_of_the_results():
    found = results()
    page = Page(found.to_html())
    cost = found.table().loc[("poor", 1.0), "privacy_cost[F]"]["mean"]
    assert cost == pytest.approx(0.15)
    row = next(r for r in page.cells if r[:2] == ["poor", "1"] and r[3].split()[0] == "15.0")
    assert (
        row[2].split()[0]
        == f"{100 * found.table().loc[('poor', 1.0), ('privacy_cost', 'mean')]:.1f}"
    )
    assert ["F", "100", "100"] in page.cells and ["M", "200", "200"] in page.cells
    assert ["even", "4", "3.996", "900 steps with sampling rate 0.02 and noise 1.25"] in page.cells
    assert "12,345" in page.text and "(Rényi accountant)" in page.text
    # 4 of 200 training records of F more are right than the share of the test records
    assert found.table().loc[("even", 1.0), ("dg_gap[F]", "mean")] == pytest.approx(0.02)


def test_intervals_are_students_over_runs():
    rows = list(cells())
    for cell, more in ((rows[0], 2), (rows[5], -2)):  # the runs of the reference, of F
        cell["test"]["accuracy"][1] += more / 100
    found = TradeoffResults.from_cells(rows, ["F", "M"], np.array([0, 1]), SPEC)
    # mean .90, runs .92 and .88, standard error .02, t of one degree 12.706; at most 100 %
    text = Page(found.to_html()).text
    assert "90.0 64.6 to 100.0" in text


def test_one_run_has_wilsons_intervals():
    text = Page(results(seeds=1).to_html()).text
    assert "90.0 82.6 to 94.5" in text  # 90 of 100: Wilson 1927
    assert "(Wilson's interval)" in text and "Here it is Wilson's" in text


@pytest.mark.parametrize("name", HOSTILE)
def test_no_name_breaks_the_page(name):
    found = results(groups=("F", name), methods=("poor", name))
    page = Page(found.to_html(title=name))
    assert page.tags == Page(results(methods=("poor", "even")).to_html()).tags
    assert " ".join(name.split()) in page.text


def test_a_sweep_without_references_or_budgets():
    alone = [c for c in cells() if c["method"] != "reference"]
    text = Page(TradeoffResults.from_cells(alone, ["F", "M"], np.array([0, 1])).to_html()).text
    assert "there are no runs of the reference model" in text and "spent ε ≤" not in text
    alone = [c for c in cells() if c["method"] == "reference"]
    Page(TradeoffResults.from_cells(alone, ["F", "M"], np.array([0, 1])).to_html())


def test_a_bare_table_is_enough():
    found = TradeoffResults(results().frame.drop(columns="dg_gap"))
    text = Page(found.to_html()).text
    assert "Training scores were not kept" in text
    assert "these results come from a table without them" in text


def test_the_linter_is_heard():
    pipe = make_pipeline(StandardScaler(), DPFairClassifier())
    text = Page(results().to_html(pipeline=pipe)).text
    assert "StandardScaler learns" in text and "which no ε covers" in text
    clean = Page(results().to_html(pipeline=make_pipeline(DPFairClassifier()))).text
    assert "No step is known to learn" in clean
    assert "was not checked" in Page(results().to_html()).text


def test_a_hundred_models_are_less_than_half_a_megabyte():
    methods = [f"method {i}" for i in range(10)]
    many = results(methods=methods, budgets=tuple(np.geomspace(0.1, 10, 10)), seeds=5)
    text = many.to_html()
    assert len(text.encode()) < 500_000
    Page(text)


def test_bad_arguments_are_named(tmp_path):
    with pytest.raises(TypeError, match="title must be a text"):
        results().to_html(title=3)
    with pytest.raises(TypeError, match="path must name a file"):
        results().to_html(3)
    with pytest.raises(ValueError, match="holds no sweep"):
        TradeoffResults.from_store(tmp_path)
    (tmp_path / "manifest.json").write_text('{"methods": {}}')
    with pytest.raises(ValueError, match="an older version"):
        TradeoffResults.from_store(tmp_path)
    manifest = asdict(SweepSpec())
    for version in (2, None):
        (tmp_path / "manifest.json").write_text(json.dumps(manifest | {"format_version": version}))
        with pytest.raises(ValueError, match=f"format version is {version}, .* reads 1"):
            TradeoffResults.from_store(tmp_path)
    with pytest.raises(TypeError, match="store must be the path"):
        TradeoffResults.from_store(None)


@pytest.fixture(scope="module")
def swept(two_groups, tmp_path_factory):
    folder = tmp_path_factory.mktemp("sweep") / "store"
    settings = {"module": "logistic", "max_steps": 5, "batch_size": 200, "accountant": "rdp"}
    found = sweep(
        two_groups.data,
        two_groups.target,
        sensitive_features=two_groups.sensitive_features,
        methods=["dpsgd", "global"],
        epsilons=[20.0, 10.0],
        seeds=2,
        store=folder,
        keep_predictions=True,
        **settings,
    )
    return found, folder


def test_a_store_gives_the_results_back(swept):
    found, folder = swept
    again = TradeoffResults.from_store(folder)
    assert again.frame.equals(found.frame)
    assert again.releases.equals(found.releases) and again.spec == found.spec
    assert list(again.predictions) == list(found.predictions)
    one = next(iter(found.predictions))
    assert again.predictions[one].equals(found.predictions[one])
    assert again.to_html() == found.to_html()


def test_the_page_states_what_an_attacker_finds(swept):
    found, _ = swept
    page, worst = found.to_html(), {}
    for (_, epsilon, *_), rows in found.releases.groupby(["method", "epsilon", "seed", "fold"]):
        columns = ("sample_rate", "noise_multiplier", "steps", "strata")
        steps = rows[list(columns)].itertuples(index=False)
        curve = trade_off(
            [NoisyRelease("step", q, (s,), n, strata=strata) for q, s, n, strata in steps]
        )
        numbers = [curve.mu, float(curve.true_positive_rate(0.01)), 0.5 + curve.total_variation / 2]
        worst[epsilon] = np.maximum(worst.get(epsilon, 0.0), numbers)
    for epsilon, (mu, rate, guess) in worst.items():
        cells = [rounded_up(mu), rounded_up(100 * rate, 3), rounded_up(100 * guess, 3)]
        row = "".join(f'<td class="n">{cell}</td>' for cell in cells)
        assert f'<tr><th scope="row">{epsilon:g}</th>{row}</tr>' in page


def test_the_command_writes_the_page(swept, tmp_path):
    found, folder = swept
    path = tmp_path / "page.html"
    done = CliRunner().invoke(main, ["report", str(folder), "-o", str(path), "--title", "Ours"])
    assert done.exit_code == 0 and "NOT private" in done.output
    assert path.read_text() == found.to_html(title="Ours")
    wrong = CliRunner().invoke(main, ["report", str(tmp_path)])
    assert wrong.exit_code == 2 and "holds no sweep" in wrong.output
    assert "Traceback" not in wrong.output


def test_the_size_and_delta_of_one_fit_are_told(swept, two_groups):
    """A fifth is held out, and "auto" means the delta of what is left."""
    page = swept[0].to_html()
    n = len(two_groups.target) * 4 // 5
    assert f"<dt>records of one fit</dt><dd>{n:,}</dd>" in page
    told = float(re.search(r"<dt>δ of one fit</dt><dd>([^<]*)</dd>", page)[1])
    assert told == pytest.approx(auto_delta(n))
    assert "20 % held out per seed" in page


def test_no_digest_of_the_data_is_in_the_page(swept):
    found, _ = swept
    assert not re.search(r"[0-9a-f]{40}", found.to_html())


def test_what_is_not_finished_and_small_groups_are_told(swept):
    found, _ = swept
    assert "not finished" not in found.to_html() and "Fewer than 30" not in found.to_html()
    part = TradeoffResults(found.frame.query("seed == 0 or epsilon == inf"), spec=found.spec)
    assert "not finished" in part.to_html()
    few = TradeoffResults(found.frame.assign(n=12), spec=found.spec)
    assert "Fewer than 30 test records" in few.to_html()


def test_many_groups_are_split_into_tables_that_fit_a_page(swept):
    """26 groups and three more columns, 8 to a table; missing cells have a name."""
    frame = swept[0].frame.query("group != 'overall'").drop_duplicates(["method", "epsilon"])
    names = ["F, ", *(f"F, kanton {i}" for i in range(25))]
    many = [swept[0].frame.query("group == 'overall'")]
    many += [frame.assign(group=name, n=100) for name in names]
    spec = replace(swept[0].spec, variables=["target"])
    page = TradeoffResults(pd.concat(many), spec=spec).to_html(measures=["accuracy"])
    ids = [value for _, name, value in Page(page).attributes if name == "id"]
    assert [i for i in ids if i.startswith("table-accuracy")] == [
        "table-accuracy",
        *(f"table-accuracy-{i}" for i in (2, 3, 4)),
    ]
    heads = re.findall(r'<th scope="col" class="n">([^<]*)</th>', page.split('id="cost"')[0])
    own = [head for head in heads if head not in ("ε", "fewest tested", "most tested")]
    own = [head for head in own if head not in ("records", "target = 1, %")]
    assert own == ["all", "F, (missing)", *names[1:], "difference", "worst group"]


def test_groups_called_as_heads_of_a_table_keep_their_own(swept):
    """Whatever they are called, the page has the same figures under distinct heads."""
    names = ("all", "worst group")
    frame = swept[0].frame.replace({"group": dict(zip("ab", names, strict=True))})
    pages = [Page(TradeoffResults(f).to_html()) for f in (swept[0].frame, frame)]
    for plain, named in zip(*(page.cells for page in pages), strict=True):
        if plain[:4] == ["method", "ε", "all", "a"]:
            assert named == ["method", "ε", "all", "'all'", "'worst group'", *plain[5:]]
        elif len(plain) > 4:
            assert named[2:] == plain[2:]


def test_a_measure_of_one_group_only_is_not_compared(swept):
    frame = swept[0].frame.copy()
    frame.loc[frame["group"] == "a", "accuracy"] = np.nan
    page = Page(TradeoffResults(frame).to_html(measures=["accuracy"]))
    rows = [row for row in page.cells if "not compared" in row]
    assert rows and all(row[3] == "–" and row[5] == "not compared" for row in rows)


def test_names_that_become_equal_stay_as_they_are(swept):
    frame = swept[0].frame.replace({"group": {"a": "", "b": "(missing)"}})
    assert "(missing)" in TradeoffResults(frame).to_html()


def test_a_delta_of_numpys_is_told(swept):
    spec = replace(swept[0].spec, delta=1e-5, params={"delta": repr(np.float64(1e-5))})
    page = TradeoffResults(swept[0].frame, spec=spec).to_html()
    assert "<dt>δ of one fit</dt><dd>1e-05</dd>" in page


def test_a_reference_that_is_worse_than_private_models_is_told(swept):
    good = swept[0].frame.assign(privacy_cost=0.02)
    assert "reference is worse" not in TradeoffResults(good).to_html()
    bad = good.assign(privacy_cost=np.where(good["method"] == "global", -0.05, 0.02))
    page = TradeoffResults(bad).to_html()
    assert "reference is worse than a private model" in page
    assert "global at ε 20 is 5.0 points higher in accuracy" in page
    other = good.assign(privacy_cost=np.where(np.isinf(good["epsilon"]), -0.05, 0.02))
    assert "reference is worse" not in TradeoffResults(other).to_html()


def test_a_rare_class_leads_the_page():
    """A page that would say "no cost" in accuracy begins with what is missed."""
    found = list(cells(methods=("poor",), budgets=(1.0,)))
    for cell in found:
        recall = 0.5 if cell["epsilon"] is None else 0.1
        cell["test"] |= {
            "accuracy": [0.9, 0.9, 0.9],
            "balanced_accuracy": [0.5 + recall / 2, 0.5 + recall / 2, 0.75],
            "rarest_class_recall": [recall, recall, 0.5],
            "rarest_class_share": [0.11, 0.11, 0.11],
            "log_loss": [0.4, 0.4 - recall, 0.4],
        }
    spec = replace(SPEC, rarest_class=HOSTILE[0], classes=[0, 1])
    rare = TradeoffResults.from_cells(found, ["F", "M"], np.array([0, 1]), spec)
    page = Page(rare.to_html())
    said = page.text
    assert f"class {HOSTILE[0]} has 11.0 % of the test records" in said
    assert "as accuracy hides how often a rare class is missed" in said
    assert "The largest cost of privacy for a group is that of F: 20.0 points" in said
    assert "of balanced accuracy" in said and "points of accuracy" not in said
    ids = [v for _, n, v in page.attributes if n == "id" and v.startswith("table-")]
    assert ids == [
        "table-balanced-accuracy",
        "table-balanced-accuracy-cost",
        "table-rarest-class-recall",
        "table-accuracy",
        "table-rarest-class-recall-cost",
        "table-privacy-cost",
        "table-dg-gap",
    ]
    chosen = Page(rare.to_html(measures=["log_loss", "excessive_risk"]))
    row = next(r for r in chosen.cells if r[:2] == ["poor", "1"] and len(r) == 7)
    # all, F, M, difference, worst group
    assert [cell[:5] for cell in row[2:]] == ["0.400", "0.300", "0.400", "0.100", "0.400"]
    assert "Excessive risk in nats" in chosen.text
    with pytest.raises(ValueError, match=r"measures must be one of .*got 'auc'"):
        rare.to_html(measures=["auc"])


def test_a_class_that_is_not_rare_leaves_accuracy_first(swept):
    page = Page(swept[0].to_html())
    assert "a rare class is missed" not in page.text
    assert re.search(
        r"largest cost of privacy for a group is that of group = [ab]: .* of accuracy", page.text
    )
    everything = [name for name in swept[0].frame if name in MEASURES]
    assert len(everything) == len(MEASURES)
    ids = {v for _, n, v in Page(swept[0].to_html(measures=everything)).attributes if n == "id"}
    assert {f"table-{name.replace('_', '-')}" for name in everything} <= ids


def test_rates_of_errors_are_told_with_the_names_of_the_classes(swept):
    page = swept[0].to_html(measures=["false_positive_rate", "false_negative_rate"])
    for actual, predicted in ((0, 1), (1, 0)):
        assert (
            f"(share of actual target = {actual} predicted as target = {predicted}) in per cent"
            in page
        )
    one = TradeoffResults(swept[0].frame.query("seed == 0"), spec=swept[0].spec)
    row = one.frame.query("group == 'a' and method == 'global' and epsilon == 20").iloc[0]
    rarest = swept[0].spec.rarest_class == "0"
    n = round(row["n"] * (row["rarest_class_share"] if rarest else 1 - row["rarest_class_share"]))
    low, high = binomtest(round(n * row["false_positive_rate"]), n).proportion_ci(method="wilson")
    page = one.to_html(measures=["false_positive_rate"])
    assert f'<span class="i">{100 * low:.1f} to {100 * high:.1f}</span>' in page


def test_the_command_takes_names_of_measures(swept, tmp_path):
    found, folder = swept
    call = ["report", str(folder), "-o", str(tmp_path / "page.html"), "--measures"]
    done = CliRunner().invoke(main, [*call, "roc_auc,excessive_risk"])
    assert done.exit_code == 0, done.output
    measures = ["roc_auc", "excessive_risk"]
    assert (tmp_path / "page.html").read_text() == found.to_html(measures=measures)
    wrong = CliRunner().invoke(main, [*call, "accurac"])
    assert wrong.exit_code == 2 and "--measures: measures must be one of" in wrong.output


def summary(page):
    """The answers that a page begins with."""
    return page.text.partition("Which model is recommended? ")[2].partition("What was pro")[0]


def scored(scores, n=400, groups=("F", "M"), share=0.5):
    """Results of methods and budgets by the accuracies of their runs; the reference has .9."""
    rows = []
    for (method, epsilon), runs in ({("reference", np.inf): 0.9} | scores).items():
        for seed, value in enumerate(np.broadcast_to(runs, (len(next(iter(scores.values()))),))):
            for group in ("overall", *groups):
                rows.append(
                    {
                        "method": method,
                        "epsilon": epsilon,
                        "seed": seed,
                        "fold": 0,
                        "group": group,
                        "n": 2 * n if group == "overall" else n,
                        "accuracy": value,
                        "privacy_cost": 0.9 - value,
                        "epsilon_spent": epsilon,
                    }
                )
    return TradeoffResults(pd.DataFrame(rows))


NOISY = np.array([-0.02, 0.0, 0.02])
NEAR = np.array([-0.022, 0.002, 0.02])  # whose differences from NOISY are not all the same


def test_the_group_whose_cost_may_be_highest_is_named():
    found = scored({("a", 1.0): 0.8 + NOISY})
    frame = found.frame
    cost = {
        ("F", 0): 0.10,
        ("F", 1): 0.10,
        ("F", 2): 0.13,
        ("M", 0): 0.0,
        ("M", 1): 0.08,
        ("M", 2): 0.16,
    }
    mine = (frame["method"] == "a") & (frame["group"] != "overall")
    keys = zip(frame.loc[mine, "group"], frame.loc[mine, "seed"], strict=True)
    frame.loc[mine, "privacy_cost"] = [cost[key] for key in keys]
    text = summary(Page(found.to_html()))
    assert "for a group is that of F: 11" in text
    # mean .08, standard deviation .08, t of two degrees at an error of .05 / 2: 6.205
    most = f"{100 * (0.08 + 6.2053 * 0.08 / 3**0.5):.1f}"
    assert f"For M, up to {most} points cannot be excluded." in text
    assert f" to {most}</span>" in found.to_html()  # as in the table


@pytest.mark.parametrize("n_groups", [2, 3, 5, 10, 20])
@pytest.mark.parametrize("n_runs", [3, 10])
def test_groups_without_a_cost_have_none_in_95_percent_of_sweeps(n_groups, n_runs):
    """The largest cost, the largest difference and the worst group, chosen by their means."""
    values = np.random.default_rng(0).normal(0, 0.02, (1000, n_runs, n_groups))
    order = values.mean(axis=1).argsort(axis=1)
    least, most = (np.take_along_axis(values, order[:, None, [i]], 2)[..., 0] for i in (0, -1))
    for column, runs in {
        "privacy_cost[F]": most,
        "privacy_cost_difference": most - least,
        "privacy_cost_group_max": most,
    }.items():
        reach = student.ppf((1 + level_of(column, n_groups)) / 2, n_runs - 1)
        errors = runs.std(axis=1, ddof=1) / n_runs**0.5
        alarms = np.abs(runs.mean(axis=1)) > reach * errors
        assert alarms.sum() <= binom.ppf(0.999, len(alarms), 0.05), column


def test_what_is_chosen_among_groups_has_a_wider_interval():
    groups = ("F", "M", "X")
    frame = scored({("a", 1.0): 0.8 + NOISY}, groups=groups).frame
    mine = (frame["method"] == "a") & (frame["group"] != "overall")
    part = frame.loc[mine].pivot(index="seed", columns="group", values="accuracy")
    part += np.array([[0.0, 0.01, 0.05], [0.0, 0.03, 0.0], [0.0, 0.01, 0.02]])
    frame.loc[mine, "accuracy"] = part.loc[range(3)].to_numpy().ravel()
    page = TradeoffResults(frame).to_html(measures=["accuracy"])
    row = next(row for row in page.split("<tr>") if row.startswith('<th scope="row">a</th>'))
    ends = [tuple(map(float, s.split(" to "))) for s in re.findall('<span class="i">(.*?)<', row)]
    gap, mean, error = part["X"] - part["F"], part["F"].mean(), part["F"].sem()
    for (low, high), (centre, reach) in zip(
        ends[1:],
        [
            (mean, student.ppf(0.975, 2) * error),
            *((part[g].mean(), student.ppf(0.975, 2) * part[g].sem()) for g in "MX"),
            (gap.mean(), student.ppf(1 - 0.025 / 3, 2) * gap.sem()),
            (mean, student.ppf(1 - 0.025 / 3, 2) * error),
        ],
        strict=True,
    ):
        least, most = (100 * np.clip([centre - reach, centre + reach], 0, 1)).round(1)
        assert (low, high) == pytest.approx((least, most), abs=0.051)


def test_intervals_end_where_shares_do():
    wide = estimated([-0.2, 0.5], 0.0)
    assert (wide.low, wide.high) == (-1.0, 1.0)
    costs = Costs(None, {"a": estimated([-0.3, 0.3], 0.0), "b": wide}, None)
    assert costs.largest == ("b", wide)
    assert costs.highest == ("b", 1.0)  # of equal ends, the larger cost's


def test_a_clear_winner_is_recommended():
    found = scored({("a", 1.0): 0.70 + NEAR, ("a", 2.0): 0.80 + NOISY, ("b", 2.0): 0.75 + NEAR})
    said = recommend(found)
    assert (said.method, said.epsilon, said.larger) == ("a", 2.0, None)
    assert said.smaller[:2] == (1.0, 2.0) and said.smaller[2].mean == pytest.approx(0.1)
    assert said.equals == []  # b is worse by about .05 in every run
    text = summary(Page(found.to_html()))
    assert text.startswith("Take a at ε 2.")
    assert "The next smaller budget, ε 1, is measurably worse in accuracy: ε 2 gains 10.0" in text
    assert "Whether the gain is worth the larger budget is your decision." in text
    assert "no ε covers the choice" in found.to_html()


def test_without_a_measurable_difference_the_smallest_budget_is_recommended():
    other = np.array([0.03, -0.02, 0.0])
    found = scored({("a", 0.5): 0.8 + NOISY, ("b", 0.5): 0.79 + other, ("a", 4.0): 0.81 + other})
    said = recommend(found)
    assert (said.method, said.epsilon, said.smaller) == ("a", 0.5, None)
    assert said.larger[:2] == ("a", 4.0) and said.equals == ["b"]
    text = summary(Page(found.to_html()))
    # differences .06, -.01 and -.01: mean .0133, standard error .0233, t of two degrees 4.303
    assert "the largest gain is 1.3 points (95 % interval -8.7 to 11.4), with a at ε 4" in text
    assert "At this budget" not in text and "Take" not in text.partition("Who pays")[0]
    most = 100 * (0.04 / 3 + student.ppf(0.975, 2) * np.std([0.06, -0.01, -0.01], ddof=1) / 3**0.5)
    told = f"ε 0.5 is enough, with a or b, unless 1.3 points (up to {most:.1f}) of accuracy matter"
    assert text.startswith(f"{told}: three runs cannot tell.")


def test_between_them_the_smallest_budget_that_no_larger_one_beats_is_recommended():
    aside = np.array([0.03, -0.02, 0.0])
    scores = {("a", 1.0): 0.7 + NEAR, ("a", 2.0): 0.8 + NOISY, ("a", 4.0): 0.81 + aside}
    said = recommend(scored(scores))
    assert (said.epsilon, said.smaller[0], said.larger[1]) == (2.0, 1.0, 4.0)


def test_values_that_are_the_same_in_all_runs_have_no_interval():
    found = scored({("a", 1.0): np.full(3, 0.6), ("a", 2.0): np.full(3, 0.7)})
    page = Page(found.to_html())
    text = summary(page)
    assert "70.0 to 70.0" not in page.text and "(the same in all 3 runs)" in text
    for said in (
        '70.0 <span class="i">in all runs</span>',
        "a, ε 2: 70.00 (the same in all runs)",
        "a, F: 20.00 points (the same in all runs)",
    ):
        assert said in found.to_html()
    # a gain of .1 in each of three runs is no interval above zero
    assert recommend(found).epsilon == 1.0
    assert "the largest gain is 10.0 points (the same in all 3 runs), with a at ε 2" in text
    two = scored({("a", 1.0): np.full(2, 0.6)})
    assert "60.0 % (the same in both runs) accuracy" in summary(Page(two.to_html()))


@pytest.mark.parametrize(("score", "is_taken"), [(0.6, False), (0.605, False), (1.0, True)])
def test_the_same_score_in_all_runs_is_compared_with_chance_over_the_test_records(score, is_taken):
    """Of 800 records, Wilson's interval of .605 begins at .571, and that of 1 at .995."""
    found = scored({("a", 1.0): np.full(3, score)})
    found.spec = TWO_CLASSES
    assert summary(Page(found.to_html())).startswith("Take a at ε 1.") == is_taken


def test_one_run_allows_no_recommendation():
    found = scored({("a", 1.0): np.array([0.7]), ("a", 2.0): np.array([0.8])})
    assert recommend(found) is None
    text = summary(Page(found.to_html()))
    assert text.startswith("No model can be recommended, as every private model has one run only:")
    assert "Take a" not in text and "Sweep with 5 or more seeds" in text
    assert "One run gives no intervals" in Page(found.to_html()).text
    none = scored({("sgd", np.inf): np.array([0.7, 0.7])})
    assert summary(Page(none.to_html())).startswith("There is no private model")


def test_the_cost_of_a_small_group_is_not_judged():
    found = scored({("a", 1.0): 0.85 + NOISY})
    frame = found.frame
    few = (frame["group"] == "F") & (frame["seed"] == 1)
    frame.loc[few, "n"] = 29
    frame.loc[frame["group"] == "F", "privacy_cost"] += 0.2
    assert small_groups(found) == ["F"] and recommend(found).costs.largest[0] == "M"
    page = Page(found.to_html())
    text = summary(page)
    assert "largest cost of privacy for a group is that of M: 5.0 points" in text
    assert "so it may be zero" not in text.partition("that of M")[2][:60]
    assert "the smallest group, F, has 29; F has too few to be judged" in text
    assert "Not drawn, as they have too few test records: F." in page.text
    frame["n"] = 29
    assert recommend(found).costs.largest is None
    assert "as no group has enough test records" in summary(Page(found.to_html()))


def test_a_model_that_does_not_beat_chance_is_told():
    found = scored({("a", 1.0): 0.6 + NOISY})
    found.spec = TWO_CLASSES
    text = summary(Page(found.to_html()))
    assert text.startswith(
        "No private model can be recommended. a at ε 1 reaches 60.0 % (95 % interval "
    )
    assert "reaches 60.0 %, which it does not measurably exceed" in text


def test_models_that_do_not_beat_chance_do_not_compete():
    """The smallest budget is one that larger ones do not beat measurably, and no better than .6."""
    wide = np.array([-0.12, 0.0, 0.12])
    scores = {("a", 0.5): 0.62 + wide, ("a", 1.0): 0.7 + NOISY, ("b", 1.0): 0.72 + wide}
    scores |= {("a", 4.0): 0.705 + NEAR[[2, 0, 1]], ("b", 8.0): 0.65 + wide}
    found = scored(scores)
    assert recommend(found).epsilon == 0.5  # as long as it is not known what one class reaches
    found.spec = TWO_CLASSES
    said = recommend(found)
    assert (said.method, said.epsilon, said.is_useful) == ("a", 1.0, True)
    page = Page(found.to_html())
    assert summary(page).startswith("ε 1 is enough, with a, unless 0.5 points (up to 9.1) of ")
    assert (
        "60.0 % of always predicting the same class: a at ε 0.5, b at ε 1 and b at ε 8."
        in summary(page)
    )
    assert "only models compete whose accuracy is measurably above" in page.text


def test_models_that_predict_one_class_and_costs_against_them_are_told():
    found = scored({("a", 1.0): 0.9 + NOISY, ("b", 1.0): 0.6 + NEAR, ("c", 1.0): np.full(3, 0.6)})
    found.spec = TWO_CLASSES
    found.frame["balanced_accuracy"] = np.where(found.frame["method"] == "c", 0.5, 0.7)
    text = summary(Page(found.to_html()))
    assert "Of no use, as the same class is predicted for all test records: c at ε 1." in text
    assert "not measurably above the 60.0 % of always predicting the same class: b at ε 1." in text
    assert "largest cost of privacy" in text and "points" in str(found)
    costs = found.as_text(["privacy_cost"])
    assert " 0.0 " in costs
    found.frame.loc[found.frame["method"] == "reference", "balanced_accuracy"] = 0.5
    page = Page(found.to_html())
    assert "predicted for all test records: reference and c at ε 1." in summary(page)
    assert "unknown, as the reference model predicts one class only" in summary(page)
    assert "largest cost of privacy" not in page.text
    assert not re.search(
        r"\d\.\d", found.as_text(["privacy_cost"]).partition("\n")[2].replace("1.0", "")
    )


def test_intersections_are_told_with_their_variables():
    found = results(groups=("F, A", "F, ", "M, A"))
    found.spec = replace(
        found.spec,
        variables=["deny", "sex", "race"],
        groups=["F, A", "F, ", "M, A"],
        classes=[0, 1],
    )
    page = found.to_html()
    assert "sex = F, race = A; sex = F, race = (missing); sex = M, race = A" in page
    assert "deny = 0, deny = 1" in page and "sex = M, race = A" in str(found)


def test_intervals_of_a_gap_do_not_go_below_zero():
    rows = list(cells())
    for seed, cell in enumerate(c for c in rows if c["method"] == "reference"):
        cell["test"]["accuracy"][1] += 0.04 * (1 - 2 * seed)
    page = TradeoffResults.from_cells(rows, ["F", "M"], np.array([0, 1]), SPEC).to_html()
    table = page.split('id="table-privacy-cost"')[1].split("</table>")[0]
    rows = [re.findall(r'<span class="i">(.*?)</span>', row) for row in table.split("<tr>")[2:]]
    assert len(rows) == 4 and all(row[1].startswith("-") for row in rows)  # the cost of F
    assert all(row[3].startswith("0.0 to") for row in rows)  # the difference


def test_no_budget_is_dropped_without_a_word():
    few = Page(results(budgets=(0.5, 1.0, 2.0, 4.0)).to_html()).text
    assert all(f"of each group at ε {e}" in few for e in ("0.5", "1", "2", "4"))
    assert "but in the tables" not in few
    many = Page(results(budgets=tuple(float(i) for i in range(1, 9))).to_html()).text
    assert many.count("Privacy cost of each group at ε") == 6
    assert "Not drawn, but in the tables: ε 3, 6." in many


def test_the_data_are_described(swept, two_groups):
    found, _ = swept
    page = Page(found.to_html())
    counts = pd.crosstab(two_groups.sensitive_features, two_groups.target)
    for group, row in counts.iterrows():
        share = f"{100 * row.iloc[1] / row.sum():.1f}"
        size = next(r for r in page.cells if r[0] == f"group = {group}" and len(r) == 5)
        assert size[1:3] == [f"{row.sum():,}", share]
    assert f"<dt>features</dt><dd>{two_groups.data.shape[1]}</dd>" in found.to_html()
    assert re.search(r"<dt>trained on</dt><dd>\d{4}-\d\d-\d\d", found.to_html())
    assert f"target = 1 ({100 * counts[1].sum() / counts.to_numpy().sum():.1f} %)" in page.text


def test_ten_questions_are_answered_from_the_facts(swept):
    found, _ = swept
    answers = dict(re.findall(r"<dt>([^<]*\?)</dt><dd>(.*?)</dd>", found.to_html(), re.S))
    assert len(answers) == 10 and all(a.strip().endswith(".") for a in answers.values())
    advised = recommend(found)
    best = f"ε {advised.epsilon:g} is enough" if advised.larger else f"Take {advised.method} "
    best = best if advised.is_useful else "No private model can be recommended."
    assert answers["Which model is recommended?"].startswith(best)
    assert advised.costs.largest[0] in answers["Who pays for privacy, and how much?"]
    assert answers["How many people are in the test?"].startswith("120 records in each of 2 runs")
    assert answers["May this page be published?"].startswith("No")
    (guess,) = (row[-1] for row in Page(found.to_html()).cells if row[0] == "10" and len(row) == 4)
    assert f"{guess} % at ε 10" in answers["What does ε mean?"]  # as in the section on privacy
    few = scored({("a", 1.0): 0.8 + NOISY})
    few.spec = replace(SPEC, params={"delta": "1e-05"})
    assert "at most 73.2 % at ε 1, if either" in few.to_html()  # e / (1 + e) = .73106
    assert "Take a at ε 1." in few.to_html()


def epsilon_of_all(releases, delta):
    runs = releases[["sample_rate", "noise_multiplier", "steps"]].itertuples(index=False)
    return compute_epsilon(
        [NoisyRelease("steps", q, (s,), int(t)) for q, s, t in runs], delta, "rdp"
    )


def test_a_ledger_tells_what_was_fitted_before(swept, two_groups, tmp_path):
    assert "no ledger was given" in swept[0].to_html()
    path, folder = tmp_path / "ledger.jsonl", tmp_path / "store"
    ledger = PrivacyLedger(path, delta=1e-6)
    given = two_groups.data, two_groups.target, two_groups.sensitive_features
    with ledger:
        DPFairClassifier(epsilon=1.0, max_steps=3).fit([[0.0], [1.0]] * 1000, [0, 1] * 1000)
        settings = {"module": "logistic", "max_steps": 3, "batch_size": 200}
        found = sweep(
            *given[:2],
            sensitive_features=given[2],
            methods=["dpsgd"],
            epsilons=[5.0],
            seeds=1,
            store=folder,
            **settings,
        )
    spent = ledger.report()
    page = found.to_html(ledger=ledger)
    paid = f"cost at most ε {rounded_up(spent.epsilon)}, at δ 1e-06."
    assert "holds 3 fits." in page and "The 2 private fits in it" in page
    assert paid in page and "trained on the same records, too (1 fit): no ε covers" in page
    inside = f"The ε ≤ {rounded_up(epsilon_of_all(found.releases, found.spec.delta))} at δ = "
    assert inside in page and "counts the private fits of this page only" in page
    out = tmp_path / "page.html"
    done = CliRunner().invoke(main, ["report", str(folder), "-o", str(out), "--ledger", str(path)])
    assert done.exit_code == 0, done.output
    assert out.read_text() == page
    with pytest.raises(TypeError, match="ledger must be a PrivacyLedger"):
        found.to_html(ledger=3)


def test_a_ledger_without_the_fits_of_the_sweep_tells_no_total(swept, tmp_path):
    ledger = PrivacyLedger(tmp_path / "ledger.jsonl", delta=1e-6)
    with ledger:
        DPFairClassifier(epsilon=1.0, max_steps=3).fit([[0.0], [1.0]] * 1000, [0, 1] * 1000)
    for found in (swept[0], TradeoffResults.from_store(swept[1]), TradeoffResults(swept[0].frame)):
        page = found.to_html(ledger=ledger)
        assert "8 private fits of this sweep are not in the ledger, so it does not tell" in page
        assert "The ledger of these records" not in page and "another total" not in page


def test_what_all_pay_is_told_first_and_whether_one_group_pays_more():
    """The difference has its interval over the runs, at the level of all pairs of groups."""
    found = scored({("a", 1.0): 0.88 + NOISY}, groups=("F", "M", "X"))
    frame = found.frame
    for group, cost in {"F": 0.02, "M": 0.021, "X": 0.05}.items():
        of_group = (frame["group"] == group) & (frame["method"] == "a")
        frame.loc[of_group, "privacy_cost"] = cost + np.array([0.0, 0.003, -0.002]) * (group == "X")
    text = summary(Page(found.to_html())).partition("how much? ")[2]
    assert text.startswith("Privacy costs 2.0 points (95 % interval -3.0 to 7.0) of accuracy over")
    more = np.array([0.03, 0.033, 0.028])
    reach = student.ppf(1 - 0.025 / 3, 2) * more.std(ddof=1) / 3**0.5
    low, high = (f"{100 * (more.mean() + side * reach):.1f}" for side in (-1, 1))
    told = f"Compared with F, X pays 3.0 points (95 % interval {low} to {high}) more."
    assert told in text
    frame.loc[(frame["group"] == "X") & (frame["seed"] == 0), "privacy_cost"] = 0.0
    assert "more, which may be chance." in summary(Page(found.to_html()))


@pytest.mark.parametrize(
    ("n_seeds", "said"),
    [
        (3, "About 7 seeds instead of 3 would halve the intervals."),
        (5, "No number of seeds would halve the intervals"),
    ],
)
def test_the_page_says_how_many_seeds_would_halve_its_intervals(n_seeds, said):
    found = scored({("a", 1.0): 0.8 + np.random.default_rng(0).normal(0, 0.02, n_seeds)})
    assert "halve" not in found.to_html()  # the number of training records is not known
    found.frame["n_train"] = 3200  # of 800 test records
    assert said in summary(Page(found.to_html()))


def test_intervals_of_a_sweep_allow_for_shared_test_records(swept):
    """By the formula of Nadeau and Bengio, in all doors: estimates, print, page and store."""
    found, folder = swept
    assert (
        set(found.frame["n_train"]) == {480} and TradeoffResults.from_store(folder).overlap == 0.2
    )
    runs = found.by_run().xs(("global", 10.0), level=["method", "epsilon"])["log_loss"]
    reach = student.ppf(0.975, 1) * runs.std(ddof=1) * (1 / 2 + 120 / 480) ** 0.5
    row = found.estimates().loc[("global", 10.0), "log_loss"]
    assert [row["low"], row["high"]] == pytest.approx([row["mean"] - reach, row["mean"] + reach])
    ends = f"{row['low']:.3f} to {row['high']:.3f}"
    assert ends in found.as_text(["log_loss"]) and ends in found.to_html(measures=["log_loss"])
