"""What a privacy report states: numbers of its releases, rounded up, and its words."""

import json
import math
import re
from dataclasses import replace
from html import unescape

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skdpfair.privacy import compute_epsilon
from skdpfair.privacy.privacy_report import PROTECTS, percent, rounded_up
from skdpfair.privacy.tradeoff import trade_off, trade_off_from_epsilon

from .builders import ADULT, report, run

ALARMS, SEARCH = [0.0, 0.01, 0.1, 1.0], trade_off_from_epsilon(3.1, 1e-6)


def adult(**changes):
    return report(**{"release": ADULT, "delta": 1e-6, "sample_rate": 1 / 92} | changes)


def numbers(report):
    rates = report.detection_rate(), *report.false_negative_rate(ALARMS)
    return report.mu, report.mu_from, report.dg_bound(), *rates


@pytest.mark.parametrize(
    "changes, curve",
    [
        *(({"adjacency": name}, trade_off([ADULT])) for name in PROTECTS),
        # of a search, whose releases are not listed
        *(({"release": None, "epsilon": 3.1, "adjacency": name}, SEARCH) for name in PROTECTS),
        ({"is_private": False, "epsilon": math.inf}, trade_off_from_epsilon(math.inf, 1e-6)),
    ],
)
def test_privacy_report_has_the_trade_off_of_its_releases(changes, curve):
    rates = float(curve.true_positive_rate(0.01)), *curve.false_negative_rate(ALARMS)
    assert numbers(adult(**changes)) == (curve.mu, curve.mu_from, curve.dg_bound, *rates)


def test_plain_statement_of_a_report_on_adult():
    privacy, curve = adult(), trade_off([ADULT])
    found, guess = percent(privacy.detection_rate()), percent(0.5 + curve.total_variation / 2)
    factor, delta = rounded_up(math.exp(privacy.epsilon), 3), rounded_up(1e-6, 3)
    assert privacy.plain_statement == (
        "Noise limits what the fitted weights reveal about one record, even to someone who knows "
        "all other records. An attacker who accepts 1 % false alarms finds at most "
        f"{found} % of the records that were used; guessing finds 1 %. A guess between two equally "
        f"likely cases, used or not used, is right with a probability of at most {guess} %, "
        "instead of 50 %. In terms of differential privacy, including or excluding one record "
        f"changes the probability of any outcome by a factor of at most {factor} "
        f"(e^{rounded_up(privacy.epsilon)}), except with a probability of about delta = {delta}."
    )
    assert privacy.plain_statement.split(".")[0] in privacy.details().replace("\n", " ")


@pytest.mark.parametrize(
    "changes, facts",
    [
        ({}, r"1,840 steps, every record .*probability of 0.01087, independently"),
        ({"adjacency": "zero_out_person"}, r"every person took part"),
        ({"release": None, "steps": 1840, "epsilon": 3.1}, r"costliest trial.*of at most 0.01087,"),
        (
            {"release": run(1.0, 2.0, strata=((0.5, 1.0), (1.0, 0.3))), "sample_rate": 1.0},
            r"every record .*probability of at most 1, independently",
        ),
    ],
)
def test_sampling_of_a_report(changes, facts):
    assert re.search(facts, adult(**changes).sampling)


def test_statement_and_epsilon_of_a_declared_number_of_records():
    plain, declared = report(), report(records_per_person=4)
    assert plain.epsilon_for(1) == plain.epsilon
    spent = compute_epsilon(plain.releases, 1e-5, records_per_person=4)
    assert plain.epsilon_for(4) == declared.epsilon_for(4) == spent
    assert report(records_per_person=1).statement == plain.statement
    added = declared.statement.removeprefix(plain.statement)
    assert added == (
        " For a person with at most 4 records, all of which are replaced, they are "
        f"({rounded_up(spent)}, 1e-05)-differentially private."
    )
    assert declared.facts()["records_per_person"] == 4


def test_epsilon_for_several_records_without_releases():
    assert report(is_private=False, epsilon=math.inf).epsilon_for(3) == math.inf
    assert report(adjacency="zero_out_person").epsilon_for(3) == report().epsilon
    search = report(None, epsilon=3.0)
    assert search.epsilon_for(1) == search.epsilon
    with pytest.raises(ValueError, match=r"^n_records .* 2\."):
        search.epsilon_for(2)


@pytest.mark.parametrize("n_records", [0, -1, 1001, 2.5, "2", None])
def test_epsilon_for_refuses_a_number_of_records(n_records):
    with pytest.raises((ValueError, TypeError), match=f"^n_records .*{n_records}"):
        report().epsilon_for(n_records)


def test_report_without_privacy_has_no_finite_number():
    none = adult(is_private=False, epsilon=math.inf, method="<b>", assumptions=("<script>",))
    assert not none.false_negative_rate(ALARMS).any()
    facts = json.loads(json.dumps(none.facts()))
    assert (none.detection_rate(), facts["epsilon"], facts["mu"]) == (1, "inf", "inf")
    assert "NOT differentially private" in repr(none)
    assert "not differentially private" in none.plain_statement
    html = none._repr_html_()  # names of users are escaped
    assert "<script>" not in html and "<b>&lt;b" not in html


def test_details_have_few_digits_and_never_less_than_the_guarantee():
    privacy = adult(epsilon=0.999612345678, sample_rate=0.11115432, noise_multiplier=1.23456789)
    texts = privacy.details(), unescape(privacy._repr_html_())
    for text in texts:
        assert not re.search(r"\d\.\d{7}", text)
        assert "epsilon: 0.9997" in text and "sample_rate: 0.1112" in text
        assert "0.1111" not in text  # one rounding of a value
    assert "1 fact to be public" in repr(adult(assumptions=("n is public",)))
    read = replace(privacy, read_from_rows=(("income", ("<=50K", ">50K")), ("sex", ("F", "M"))))
    assert read.values_read.endswith("public: income: “<=50K”, “>50K”; sex: F, M.")


@given(value=st.floats(1e-12, 1e6), digits=st.integers(2, 6))
def test_rounded_up_is_never_less_than_the_value(value, digits):
    printed = float(rounded_up(value, digits))
    assert value <= printed <= value * (1 + 10.0 ** (1 - digits))
    statement = report(epsilon=value, delta=value).statement
    stated = statement.split("(")[1].split(")")[0].split(", ")
    assert [float(t) >= value for t in stated] == [True, True]


@pytest.mark.parametrize(
    "release, changes",
    [
        (ADULT, {"assumptions": ("n",), "max_grad_norm": 1.0}),
        (ADULT, {"adjacency": "zero_out_person", "max_records": 3}),
        (run(0.1, 2.0), {"group_epsilons": {"F": 1.0, "M": np.inf}, "records_per_person": 2}),
        (None, {"epsilon": np.inf, "is_private": False, "holds": ("a", "b")}),
    ],
)
def test_facts_of_a_report_are_json_and_its_repr_has_twelve_lines(release, changes):
    own = report(release, n_samples=80, **changes)
    facts = own.facts()
    assert json.loads(json.dumps(facts, allow_nan=False)).keys() == facts.keys() >= vars(own).keys()
    assert facts["mu"] in (str(own.mu), float(rounded_up(own.mu)))
    assert facts["detection_rate"]["at_most"] >= own.detection_rate()
    assert facts["plain_statement"] == own.plain_statement
    assert len(repr(own).splitlines()) <= 12
    assert all(text in repr(own) for text in own.summary.values())
