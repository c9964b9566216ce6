"""The command that trades budget, noise and steps."""

import json

import pytest
from click.testing import CliRunner
from opacus.accountants import RDPAccountant

from skdpfair.cli import main

DATA = ["budget", "--records", "10000", "--batch-size", "100", "--delta", "1e-5"]


def invoke(*arguments):
    return CliRunner().invoke(main, [*DATA, *arguments])


def facts(*arguments):
    done = invoke(*arguments, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.output)


def test_epsilon_is_that_of_opacus():
    """Golden: Opacus' accountant on the same run, from its own curve of divergences."""
    found = facts("--steps", "1000", "--noise-multiplier", "1.0", "--accountant", "rdp")
    accountant = RDPAccountant()
    accountant.history = [(1.0, 0.01, 1000)]
    assert found["epsilon"] == pytest.approx(accountant.get_epsilon(1e-5), rel=0.02)
    assert found["epochs"] == pytest.approx(10.0) and found["sample_rate"] == 0.01


def test_the_three_ways_agree():
    noisy = facts("--epochs", "10", "--epsilon", "1")
    assert noisy["steps"] == 1000 and noisy["epsilon"] <= 1.0
    noise = str(noisy["noise_multiplier"])
    back = facts("--steps", "1000", "--noise-multiplier", noise)
    assert back["epsilon"] == pytest.approx(noisy["epsilon"])
    longest = facts("--epsilon", "1", "--noise-multiplier", noise)
    assert longest["steps"] >= 1000 and longest["epsilon"] <= 1.0
    more = facts("--steps", str(longest["steps"] + 1), "--noise-multiplier", noise)
    assert more["epsilon"] > 1.0


def test_a_person_with_several_records_pays_more_or_takes_more_noise():
    """Golden: noise for epsilon 1 about 5 records of a person is 7.24, and costs a record 0.172."""
    run = ["budget", "--records", "30000", "--batch-size", "512", "--delta", "1e-5", "--json"]
    run += ["--records-per-person", "5"]

    def found(*arguments):
        return json.loads(CliRunner().invoke(main, [*run, *arguments]).output)

    noisy = found("--steps", "500", "--epsilon", "1")
    assert noisy["noise_multiplier"] == pytest.approx(7.24, rel=5e-3)
    assert 0.999 <= noisy["epsilon_of_person"] <= 1 and noisy["epsilon"] < 0.2
    noise = str(noisy["noise_multiplier"])
    back = found("--steps", "500", "--noise-multiplier", noise)
    assert back["epsilon_of_person"] == pytest.approx(noisy["epsilon_of_person"])
    longest = found("--epsilon", "1", "--noise-multiplier", noise)
    assert longest["steps"] >= 500 and longest["epsilon_of_person"] <= 1
    alone = facts("--steps", "1000", "--noise-multiplier", "1.0")
    assert alone["epsilon_of_person"] == alone["epsilon"] and alone["records_per_person"] == 1


def test_a_search_costs_what_a_record_meets():
    one = facts("--steps", "200", "--noise-multiplier", "1", "--accountant", "rdp")
    found = facts(
        *("--steps", "200", "--noise-multiplier", "1", "--accountant", "rdp"),
        *("--candidates", "3", "--folds", "4"),
    )["search"]
    assert found["fits"] == 3 * 4 + 1 and found["fits_that_read_a_record"] == 3 * 3 + 1
    ten = facts("--steps", "2000", "--noise-multiplier", "1", "--accountant", "rdp")
    assert found["epsilon"] > ten["epsilon"] > one["epsilon"]  # folds have a larger rate


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--steps", "10"], "Give two of --epsilon, --noise-multiplier, --steps"),
        (["--steps", "10", "--epsilon", "1", "--noise-multiplier", "1"], "Give two of"),
        (["--steps", "10", "--epochs", "1", "--epsilon", "1"], "--epochs"),
        (["--epsilon", "0", "--steps", "10"], "--epsilon"),
        (["--epsilon", "1e-6", "--noise-multiplier", "1"], "One step costs more"),
        (["--epsilon", "1", "--steps", "5", "--batch-size", "20000"], "--batch-size 20000"),
        (["--epsilon", "1", "--steps", "5", "--delta", "2"], "delta"),
        (["--epsilon", "1", "--steps", "5", "--records-per-person", "0"], "--records-per-person"),
        (
            ["--epsilon", "1", "--steps", "5", "--records-per-person", "2", "--candidates", "2"],
            "leave --records-per-person out",
        ),
    ],
)
def test_what_cannot_be_used_is_named(arguments, named):
    done = invoke(*arguments)
    assert done.exit_code == 2 and named in done.output
    assert "Traceback" not in done.output


def test_it_reads_well():
    done = invoke("--steps", "1000", "--epsilon", "1", "--candidates", "2")
    assert "noise multiplier" in done.output and "not private" in done.output
    assert max(map(len, done.output.splitlines())) <= 100 and "person" not in done.output
    done = invoke("--steps", "1000", "--epsilon", "1", "--records-per-person", "2")
    assert "epsilon of a person with 2 records" in done.output
    assert "skdpfair budget --records" in CliRunner().invoke(main, ["budget", "--help"]).output


def test_the_signal_is_that_of_the_defaults():
    from skdpfair import DPFairClassifier
    from skdpfair.training import defaults
    from skdpfair.training.spec import FitSpec

    found = facts("--epochs", "10", "--epsilon", "1")
    spec = FitSpec.of(DPFairClassifier("dpsgd", epsilon=found["epsilon"]))
    known = defaults.resolve(spec, 10_000, delta=1e-5)
    assert found["signal"] == pytest.approx(known.signal_to_noise, rel=1e-6)
