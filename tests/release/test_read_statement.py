"""read_statement states the report of the fit without torch; contradictions are refused."""

import json
import math
from dataclasses import replace

import pytest

from skdpfair import load_release
from skdpfair.privacy import NoisyRelease, accounting
from skdpfair.privacy.privacy_report import PrivacyReport
from skdpfair.privacy.renyi import ORDERS
from skdpfair.release._file import decode, encode
from skdpfair.release._read_statement import check_report, read_statement
from skdpfair.testing import verify_release

pytestmark = pytest.mark.filterwarnings("ignore::skdpfair.exceptions.LowSignalWarning")


@pytest.fixture
def check_refused(changed):
    """``check_refused(name, change, match)``: all readers refuse a file that is changed."""

    def check(name, change, match):
        path = changed(name, lambda facts, weights: change(facts))
        for read in (load_release, read_statement, verify_release):
            with pytest.raises(ValueError, match=match):
                read(path)

    return check


def test_read_statement_is_that_of_the_fit_with_facts_of_the_file(fits, path):
    for model, _, weights in fits.values():
        model.save_release(path)
        stated = read_statement(path)
        release = stated.pop("release")
        assert stated == model.privacy_statement()
        assert release["n_weights"] == sum(w.size for w in weights.values())
        assert release["estimator"] == type(model).__name__ and release["format_version"] == 1
        assert len(release["sha256"]) == 64
        json.dumps(stated | release, allow_nan=False)


def half(values):
    return {name: value / 2 for name, value in values.items()}


def fewer(releases):
    *first, last = releases
    return (*first, replace(last, steps=1))


def changed(**changes):
    """Return a function that changes fields; those that are functions take the old value."""
    return lambda report: {
        name: change(getattr(report, name)) if callable(change) else change
        for name, change in changes.items()
    }


REPORTS = {
    "a smaller epsilon": changed(epsilon=0.1),
    "an epsilon that is a little smaller": changed(epsilon=lambda value: 0.99 * value),
    "a larger epsilon": changed(epsilon=lambda value: 2 * value),
    "no number as epsilon": changed(epsilon=math.nan),
    "a negative epsilon": changed(epsilon=-1.0),
    "a text as epsilon": changed(epsilon="1"),
    "not private": changed(is_private=False),
    "private at any price": changed(epsilon=math.inf),
    "delta of 0": changed(delta=0.0),
    "delta of 1": changed(delta=1.0),
    "another delta": changed(delta=lambda value: value / 100),
    "no number as delta": changed(delta=math.nan),
    "no number as noise": changed(noise_multiplier=math.nan),
    "more noise": changed(noise_multiplier=lambda value: 2 * value),
    "a batch beyond all records": changed(n_samples=10),
    "a rate above 1": changed(sample_rate=1.5),
    "a lower rate": changed(sample_rate=lambda value: value / 2),
    "negative steps": changed(steps=-4),
    "fewer steps": changed(steps=1),
    "fewer steps in the releases": changed(releases=fewer),
    "fewer steps in both": changed(releases=fewer, steps=lambda value: value - 3),
    "no releases": changed(releases=()),
    "no releases, no steps": changed(releases=(), steps=0),
    "no tuple as releases": changed(releases=[]),
    "another unit": changed(adjacency="zero_out_person"),
    "records of persons": changed(max_records=2),
    "another relation": changed(adjacency="swap"),
    "another accountant": changed(accountant="pld"),
    "no accountant": changed(accountant="none"),
    "smaller epsilons of groups": changed(group_epsilons=half),
    "no epsilons of groups": changed(group_epsilons=None),
    "a curve beside a ledger": changed(selection_curve=(0.01,) * len(ORDERS)),
    "a curve alone": changed(selection_curve=(0.01,) * len(ORDERS), releases=()),
    "a short curve": changed(selection_curve=(0.01,), releases=()),
    "no flag": changed(seeded="no"),
    "numbers as assumptions": changed(assumptions=(1,)),
}


@pytest.mark.parametrize("name", REPORTS)
def test_check_report_refuses_contradictions(name, check_refused):
    def change(facts):
        report = decode(facts["fitted"]["privacy_"])
        changes = REPORTS[name](report)
        facts["fitted"]["privacy_"] = encode(replace(report, **changes))
        stated = {name: encode(value) for name, value in changes.items()}
        facts["privacy_statement"] |= stated

    check_refused("groups", change, r"model\.safetensors")


STATED = {"epsilon": 0.1, "mu": 0.01, "steps": 1, "sample_rate": 0.001, "n_samples": 10**6}
STATED |= {"seeded": True}


@pytest.mark.parametrize("name", STATED)
def test_check_statement_refuses_numbers_of_another_report(name, check_refused):
    def change(facts):
        facts["privacy_statement"][name] = STATED[name]

    check_refused("persons", change, name)


@pytest.mark.parametrize(
    "report", [{"optimizer": "SGD"}, {"report": [1]}, {"os.system": "true"}, [], None]
)
def test_read_statement_refuses_other_values_as_report(report, check_refused):
    def change(facts):
        facts["fitted"]["privacy_"] = report

    check_refused("persons", change, r"model\.safetensors .*(Error|in place of a)")


@pytest.mark.parametrize(
    ("name", "value"), [("_day", "2026-11-25 0.5"), ("_ledger_fits", {"tuple": ["Alice"]})]
)
def test_readers_refuse_another_day_and_other_names_of_fits(name, value, check_refused):
    check_refused("persons", lambda facts: facts["fitted"].update({name: value}), "model.safetens")


def step(i=0, **changes):
    fields = {"what": "gradient sum", "sample_rate": 0.5, "noise_multipliers": (3.0 + i,)}
    return NoisyRelease(**fields | changes)


WORK = {
    "many kinds": [step(i / 1000) for i in range(2000)],
    "many strata": [step(strata=tuple((0.5, 1 / (i + 1)) for i in range(2000)))],
    "many steps": [step(steps=10**9)],
    "wide losses": [step(i, noise_multipliers=(0.1 + i / 100,), steps=10**4) for i in range(64)],
}


@pytest.mark.parametrize("releases", WORK.values(), ids=WORK)
def test_check_report_refuses_releases_that_take_minutes_at_once(releases, monkeypatch):
    monkeypatch.setattr(accounting, "epsilon_of_runs", lambda *_: pytest.fail("accounted for"))
    first = releases[0]
    report = PrivacyReport(
        method="dpsgd",
        epsilon=1.0,
        delta=1e-5,
        accountant="pld",
        noise_multiplier=first.noise_multipliers[0],
        sample_rate=first.sample_rate,
        steps=sum(release.steps for release in releases),
        expected_batch_size=10.0,
        is_private=True,
        seeded=False,
        releases=tuple(releases),
    )
    with pytest.raises(ValueError, match="minutes"):
        check_report(report)
