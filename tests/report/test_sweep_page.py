"""The page of a sweep has its figures in tables, asks for nothing, and no name breaks it."""

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binomtest
from scipy.stats import t as student
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skdpfair import DPFairClassifier
from skdpfair.metrics._measures import MEASURES
from skdpfair.model_selection import TradeoffResults
from skdpfair.privacy import NoisyRelease, trade_off
from skdpfair.privacy.gdp import auto_delta
from skdpfair.privacy.privacy_report import rounded_up
from skdpfair.report import _sweep_page

SECTIONS = {"in-short", "answers", "groups", "cost"}
FOLDED = {"measures", "tradeoff", "generalisation", "data", "settings", "privacy", "pipeline"}
FOLDED |= {"not-accounted", "words"}
HOSTILE = ("<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "$x_{$ & {{ 7 * 7 }}")


def table_of(facts, part, name):
    """Return the heads and rows of a table of a page, by method and budget."""
    (table,) = (t for t in facts[part] if t["id"] == f"table-{name.replace('_', '-')}")
    return table["heads"], {(method, e): cells for method, e, cells in table["rows"]}


def test_sweep_page_by_hand(by_hand, sections, check_golden, parsed):
    """Its texts and sections; it asks for nothing, and few words are not folded."""
    text = by_hand.results().to_html()
    check_golden("sweep_page.txt", map(" | ".join, sections(text)))
    page = parsed(text)
    assert len(set(page.ids)) == len(page.ids) and set(page.ids) >= SECTIONS | FOLDED
    assert page.tags.count("section") == len(SECTIONS)
    assert page.tags.count("details") == page.tags.count("summary") == len(FOLDED)
    links = [value for tag, name, value in page.attributes if (tag, name) == ("a", "href")]
    assert set(links) <= {f"#{i}" for i in page.ids}
    assert not {"script", "link", "img", "iframe", "object", "embed"} & set(page.tags)
    assert not re.search(r"url\(|@import|https?:|javascript:", text)
    assert not [name for _, name, _ in page.attributes if name.startswith("on")]
    policy = next(v for _, name, v in page.attributes if name == "content" and "default-src" in v)
    assert policy == "default-src 'none'; style-src 'unsafe-inline'"
    visible = re.sub(r"(?s)<(details|head|svg).*?</\1>", " ", text)
    assert len(re.sub(r"<[^>]*>", " ", visible).split()) <= 1200


@pytest.mark.parametrize("name", HOSTILE)
def test_names_break_no_sweep_page(name, by_hand, parsed):
    found = by_hand.results(groups=("F", name), methods=("poor", name))
    page = parsed(found.to_html(title=name))
    assert page.tags == parsed(by_hand.results().to_html()).tags
    assert " ".join(name.split()) in page.text


def test_figures_are_those_of_the_results(by_hand, page_facts):
    found = by_hand.results()
    table, facts = found.table(), page_facts(found.to_html)
    cost = table.loc[("poor", 1.0)]
    assert cost["privacy_cost[F]"]["mean"] == pytest.approx(0.15)
    heads, rows = table_of(facts, "costs", "privacy_cost")
    assert heads == ["all", "F", "M", "difference", "worst group"]
    overall = f"{100 * cost['privacy_cost', 'mean']:.1f}"
    assert [value for value, _ in rows["poor", "1"][:2]] == [overall, "15.0"]
    assert facts["sizes"] == [("F", 100, 100), ("M", 200, 200)]
    steps = "900 steps with sampling rate 0.02 and noise 1.25"
    assert facts["releases"][-1] == ("even", "4", "3.996", steps)
    # 4 of 200 training records of F more are right than the share of the test records
    assert table.loc[("even", 1.0), ("dg_gap[F]", "mean")] == pytest.approx(0.02)


def test_intervals_are_students_over_runs_and_wilsons_of_one_run(by_hand, page_facts):
    rows = list(by_hand.cells())
    for cell, more in ((rows[0], 2), (rows[5], -2)):  # the runs of the reference, of F
        cell["test"]["accuracy"][1] += more / 100
    _, found = table_of(page_facts(by_hand.results(rows).to_html), "measures", "accuracy")
    # mean .90, runs .92 and .88, standard error .02, t of one degree 12.706; at most 100 %
    assert found["reference", "none"][1] == ("90.0", "64.6 to 100.0")
    one = page_facts(by_hand.results(seeds=1).to_html)
    # 90 of 100: Wilson 1927
    cell = table_of(one, "measures", "accuracy")[1]["reference", "none"][1]
    assert (one["n_runs"], cell) == (1, ("90.0", "82.6 to 94.5"))
    equal = by_hand.scored({("a", 1.0): np.full(3, 0.6), ("a", 2.0): np.full(3, 0.7)})
    cells = table_of(page_facts(equal.to_html), "measures", "accuracy")[1]["a", "2"]
    assert cells[:3] == [("70.0", "in all runs")] * 3


def test_intervals_of_a_difference_do_not_go_below_zero(by_hand, page_facts):
    rows = list(by_hand.cells())
    for seed, cell in enumerate(c for c in rows if c["method"] == "reference"):
        cell["test"]["accuracy"][1] += 0.04 * (1 - 2 * seed)
    _, costs = table_of(page_facts(by_hand.results(rows).to_html), "costs", "privacy_cost")
    ends = [[interval for _, interval in cells] for cells in costs.values()]
    assert len(ends) == 4 and all(row[1].startswith("-") for row in ends)  # the cost of F
    assert all(row[3].startswith("0.0 to") for row in ends)  # the difference


def test_sweep_page_without_references_budgets_or_settings(by_hand, page_facts, parsed):
    bare = TradeoffResults(by_hand.results().frame.drop(columns="dg_gap"))
    facts = page_facts(bare.to_html)
    assert (facts["generalisation"], facts["is_known"], facts["attackers"]) == ([], False, [])
    parsed(bare.to_html())
    for is_reference in (False, True):
        rows = [c for c in by_hand.cells() if (c["method"] == "reference") == is_reference]
        found = TradeoffResults.from_cells(rows, ["F", "M"], np.array([0, 1]))
        parsed(found.to_html())
        facts = page_facts(found.to_html)
        assert facts["costs"] == [] and facts["total"] is None
        assert facts["has_private"] != is_reference and (facts["attackers"] == []) == is_reference


def test_findings_are_those_of_the_linter(by_hand, page_facts):
    write, clf = by_hand.results().to_html, DPFairClassifier()
    found = page_facts(write, pipeline=make_pipeline(StandardScaler(), clf))["lint"]
    assert "StandardScaler" in str(found.findings)
    assert page_facts(write, pipeline=make_pipeline(clf))["lint"].findings == []
    assert page_facts(write)["lint"] is None


def test_sweep_page_of_a_hundred_models_has_less_than_half_a_megabyte(by_hand, parsed):
    methods, budgets = [f"method {i}" for i in range(10)], tuple(np.geomspace(0.1, 10, 10))
    text = by_hand.results(methods=methods, budgets=budgets).to_html()
    assert len(text.encode()) < 500_000
    parsed(text)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [({"title": 3}, "^title .*3"), ({"path": 3}, "^path .*3"), ({"ledger": 3}, "^ledger .*3")],
)
def test_to_html_refuses_arguments_of_other_types(arguments, named, by_hand):
    with pytest.raises(TypeError, match=named):
        by_hand.results().to_html(**arguments)


def test_attackers_are_those_of_the_worst_model_at_each_budget(swept, page_facts):
    worst = {}
    columns = ["sample_rate", "noise_multiplier", "steps", "strata"]
    for (_, epsilon, *_), rows in swept[0].releases.groupby(["method", "epsilon", "seed", "fold"]):
        steps = rows[columns].itertuples(index=False)
        curve = trade_off(
            [NoisyRelease("step", q, (s,), n, strata=strata) for q, s, n, strata in steps]
        )
        numbers = [curve.mu, float(curve.true_positive_rate(0.01)), 0.5 + curve.total_variation / 2]
        worst[epsilon] = np.maximum(worst.get(epsilon, 0.0), numbers)
    facts = page_facts(swept[0].to_html)
    assert facts["attackers"] == [
        (f"{e:g}", rounded_up(mu), rounded_up(100 * rate, 3), rounded_up(100 * guess, 3))
        for e, (mu, rate, guess) in sorted(worst.items())
    ]
    guesses = [f"{guess} % at ε {epsilon}" for epsilon, *_, guess in facts["attackers"]]
    assert facts["summary"]["limits"] == guesses


def test_settings_state_size_and_delta_of_one_fit(swept, two_groups, page_facts):
    """A fifth is held out, and "auto" means the delta of what is left."""
    found, n = swept[0], len(two_groups.target) * 4 // 5
    settings = dict(page_facts(found.to_html)["settings"])
    assert settings["records of one fit"] == f"{n:,}"
    assert float(settings["δ of one fit"]) == pytest.approx(auto_delta(n))
    spec = replace(found.spec, delta=1e-5, params={"delta": repr(np.float64(1e-5))})
    settings = dict(page_facts(TradeoffResults(found.frame, spec=spec).to_html)["settings"])
    assert settings["δ of one fit"] == "1e-05"


def test_unfinished_models_and_small_groups(swept, by_hand, page_facts):
    found = swept[0]
    facts = page_facts(found.to_html)
    assert (facts["unfinished"], facts["small"]) == (None, [])
    part = TradeoffResults(found.frame.query("seed == 0 or epsilon == inf"), spec=found.spec)
    assert page_facts(part.to_html)["unfinished"].startswith("4 of 5 models")
    few = by_hand.scored({("a", 1.0): 0.85 + by_hand.noisy})
    few.frame.loc[(few.frame["group"] == "F") & (few.frame["seed"] == 1), "n"] = 29
    facts = page_facts(few.to_html)
    assert facts["small"] == ["F"] == facts["undrawn"]
    assert facts["first_charts"][-1]["legend"] == [("M", "var(--c0)")]


def test_at_most_six_budgets_are_drawn_and_the_others_named(by_hand, page_facts):
    few = page_facts(by_hand.results(budgets=(0.5, 1.0, 2.0, 4.0)).to_html)
    drawn = [*few["first_charts"][1:], *few["bars"]]
    assert [chart["title"].split()[-1] for chart in drawn] == ["0.5", "1", "2", "4"]
    many = page_facts(by_hand.results(budgets=tuple(float(i) for i in range(1, 9))).to_html)
    assert len(many["first_charts"][1:] + many["bars"]) == 6 and (
        few["budgets"],
        many["budgets"],
    ) == ([], ["3", "6"])


def test_tables_of_many_groups_are_split(swept, parsed):
    """26 groups and three more columns, 8 to a table; missing cells have a name."""
    frame = swept[0].frame.query("group != 'overall'").drop_duplicates(["method", "epsilon"])
    names = ["F, ", *(f"F, kanton {i}" for i in range(25))]
    many = [swept[0].frame.query("group == 'overall'")]
    many += [frame.assign(group=name, n=100) for name in names]
    spec = replace(swept[0].spec, variables=["target"])
    page = TradeoffResults(pd.concat(many), spec=spec).to_html(measures=["accuracy"])
    ids = [f"table-accuracy{end}" for end in ("", "-2", "-3", "-4")]
    assert [i for i in parsed(page).ids if i.startswith("table-accuracy")] == ids
    parts = [text.split("</thead>")[0] for text in page.split('id="table-accuracy')[1:]]
    heads = [h for part in parts for h in re.findall('class="n">([^<]*)</th>', part)[1:]]
    assert heads == ["all", "F, (missing)", *names[1:], "difference", "worst group"]


def test_groups_with_odd_names_have_their_own(swept, page_facts):
    """Whatever they are called, the page has the same figures under distinct heads."""
    plain = page_facts(TradeoffResults(swept[0].frame).to_html)
    for names, shown in (
        (("all", "worst group"), ("'all'", "'worst group'")),
        (("", "(missing)"), ("", "(missing)")),  # which stay, as they would become equal
    ):
        frame = swept[0].frame.replace({"group": dict(zip("ab", names, strict=True))})
        named = page_facts(TradeoffResults(frame).to_html)
        for one, other in zip(plain["measures"], named["measures"], strict=True):
            assert other["heads"] == ["all", *shown, *one["heads"][3:]]
            assert other["rows"] == one["rows"]


def test_measure_of_one_group_only_is_not_compared(swept, page_facts):
    frame = swept[0].frame.copy()
    frame.loc[frame["group"] == "a", "accuracy"] = np.nan
    facts = page_facts(TradeoffResults(frame).to_html, measures=["accuracy"])
    rows = table_of(facts, "measures", "accuracy")[1].values()
    assert rows and all((row[1][0], row[3][0]) == ("–", "not compared") for row in rows)


def test_rare_class_leads_the_sweep_page(by_hand, page_facts, parsed):
    """A page that would say "no cost" in accuracy begins with what is missed."""
    found = list(by_hand.cells(methods=("poor",), budgets=(1.0,)))
    for cell in found:
        recall = 0.5 if cell["epsilon"] is None else 0.1
        cell["test"] |= {
            "accuracy": [0.9, 0.9, 0.9],
            "balanced_accuracy": [0.5 + recall / 2, 0.5 + recall / 2, 0.75],
            "rarest_class_recall": [recall, recall, 0.5],
            "rarest_class_share": [0.11, 0.11, 0.11],
            "log_loss": [0.4, 0.4 - recall, 0.4],
        }
    rare = by_hand.results(found)
    rare.spec = replace(by_hand.spec, rarest_class=HOSTILE[0], classes=[0, 1])
    summary = page_facts(rare.to_html)["summary"]
    found = summary["name"], summary["rarest"], summary["rare_share"]
    assert found == ("balanced accuracy", f"“{HOSTILE[0]}”", pytest.approx(0.11))
    group, cost = summary["costs"].largest
    assert (group, cost.mean) == ("F", pytest.approx(0.2))
    page = parsed(rare.to_html())
    assert [i for i in page.ids if i.startswith("table-")] == [
        "table-balanced-accuracy",
        "table-balanced-accuracy-cost",
        "table-rarest-class-recall",
        "table-accuracy",
        "table-rarest-class-recall-cost",
        "table-privacy-cost",
        "table-dg-gap",
    ]
    chosen = page_facts(rare.to_html, measures=["log_loss", "excessive_risk"])
    cells = table_of(chosen, "measures", "log_loss")[1]["poor", "1"]
    # all, F, M, difference, worst group
    assert [value for value, _ in cells] == ["0.400", "0.300", "0.400", "0.100", "0.400"]
    assert [part["caption"].split()[-1] for part in chosen["costs"]] == ["nats"]
    with pytest.raises(ValueError, match=r"^measures .*'auc'"):
        rare.to_html(measures=["auc"])


def test_accuracy_leads_where_no_class_is_rare(swept, page_facts):
    facts = page_facts(swept[0].to_html)
    assert facts["measure"] == "accuracy" and facts["summary"]["rare_share"] is None
    assert facts["leading"] == ["table-accuracy", "table-privacy-cost"]
    everything = [name for name in swept[0].frame if name in MEASURES]
    assert len(everything) == len(MEASURES)
    facts = page_facts(swept[0].to_html, measures=everything)
    parts = facts["measures"] + facts["costs"] + facts["generalisation"]
    assert {part["id"] for part in parts} == {f"table-{n.replace('_', '-')}" for n in everything}


def test_rates_of_errors_name_their_classes_and_have_wilsons_intervals(swept, page_facts):
    found = swept[0]
    rates = ["false_positive_rate", "false_negative_rate"]
    captions = [part["caption"] for part in page_facts(found.to_html, measures=rates)["measures"]]
    for caption, (actual, predicted) in zip(captions, ((0, 1), (1, 0)), strict=True):
        assert f"actual target “{actual}” predicted as target “{predicted}”)" in caption
    one = TradeoffResults(found.frame.query("seed == 0"), spec=found.spec)
    row = one.frame.query("group == 'a' and method == 'global' and epsilon == 20").iloc[0]
    rarest = found.spec.rarest_class == "0"
    n = round(row["n"] * (row["rarest_class_share"] if rarest else 1 - row["rarest_class_share"]))
    low, high = binomtest(round(n * row["false_positive_rate"]), n).proportion_ci(method="wilson")
    facts = page_facts(one.to_html, measures=rates[:1])
    cell = table_of(facts, "measures", rates[0])[1]["global", "20"][1]
    assert cell[1] == f"{100 * low:.1f} to {100 * high:.1f}"


def test_groups_and_classes_have_the_names_of_their_variables(by_hand, page_facts):
    names = ["F, A", "F, ", "M, A"]
    found = by_hand.results(groups=tuple(names))
    variables = ["deny", "sex", "race"]
    found.spec = replace(found.spec, variables=variables, groups=names, classes=[0, 1])
    facts = page_facts(found.to_html)
    readable = ["sex “F”, race “A”", "sex “F”, race “(missing)”", "sex “M”, race “A”"]
    assert facts["groups"] == readable
    assert dict(facts["data"])["classes"] == "deny “0”, deny “1”"
    assert readable[-1] in str(found)


def test_data_are_counted(swept, two_groups, page_facts):
    facts = page_facts(swept[0].to_html)
    counts = pd.crosstab(two_groups.sensitive_features, two_groups.target)
    sums = counts.sum(axis=1)
    shares = 100 * counts[1] / sums
    rows = {f"group “{g}”": (f"{sums[g]:,}", f"{shares[g]:.1f}") for g in counts.index}
    assert facts["base_rates"] == ("target “1”", rows)
    data, share = dict(facts["data"]), 100 * counts[1].sum() / sums.sum()
    assert data["features"] == f"{two_groups.data.shape[1]}"
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", data["trained on"])
    assert f"target “1” ({share:.1f} %)" in data["classes, share of the records"]
    assert data["test records of a run"].startswith("120: 20 %")


def test_intervals_of_a_sweep_allow_for_shared_test_records(swept, page_facts):
    """By the formula of Nadeau and Bengio: estimates, print, page and store."""
    found, folder = swept
    assert set(found.frame["n_train"]) == {480}
    assert TradeoffResults.from_store(folder).overlap == 0.2
    runs = found.by_run().xs(("global", 10.0), level=["method", "epsilon"])["log_loss"]
    reach = student.ppf(0.975, 1) * runs.std(ddof=1) * (1 / 2 + 120 / 480) ** 0.5
    row = found.estimates().loc[("global", 10.0), "log_loss"]
    assert [row["low"], row["high"]] == pytest.approx([row["mean"] - reach, row["mean"] + reach])
    ends = f"{row['low']:.3f} to {row['high']:.3f}"
    facts = page_facts(found.to_html, measures=["log_loss"])
    assert table_of(facts, "measures", "log_loss")[1]["global", "10"][0][1] == ends
    assert ends in found.as_text(["log_loss"])


def test_card_of_results_has_tiles_a_table_and_a_chart(by_hand, parsed, monkeypatch):
    found = by_hand.results()
    card = found._repr_html_()
    page = parsed(card)
    assert {"svg", "table"} < set(page.tags) and page.texts.count("recommended model") == 1
    assert card.count('class="tile"') == 4 and "5 models, 2 runs of each" in page.text
    monkeypatch.setattr(_sweep_page, "render", _without_jinja2)
    assert found._repr_html_() is None  # IPython shows the text then
    monkeypatch.undo()
    one = by_hand.scored({("a", 1.0): [0.8]})
    assert "none" in parsed(one._repr_html_()).texts  # a single run recommends nothing


def _without_jinja2(*_):
    raise ImportError
