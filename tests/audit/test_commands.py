"""Audits from the command line: what they refuse, print and return."""

import json

import pytest
from click.testing import CliRunner

from skdpfair.cli import main


def invoke(*arguments):
    return CliRunner().invoke(main, [str(a) for a in arguments])


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        (["audit", "run", "--seed", -1], "--seed"),
        (["audit", "run", "--records", -5], "--records"),
        (["audit", "run", "--canaries", 2], "--canaries"),
        (["audit", "run", "--records", 500], "--canaries=1000 is more than half"),
        (["audit", "run", "--epsilon", "nan", "--records", 100, "--canaries", 10], "--epsilon"),
        (["audit", "run", "--method", "sgd"], "--method"),
        (["audit", "run", "--attack", "grey_box"], "--attack"),
        (
            ["audit", "run", "--method", "fairlens_dp", "--attack", "white_box"],
            "--attack='white_box' cannot plant gradients",
        ),
        (["audit", "step", "--method", "sgd"], "--method"),
        (["audit", "step", "--seed", -1], "--seed"),
        (["audit", "step", "--draws", 10], "--draws"),
        (["audit", "step", "--noise-multiplier", "1e308"], "--noise-multiplier"),
        (["audit", "step", "--noise-multiplier", "1e-320"], "--noise-multiplier"),
        (["audit", "step", "--noise-multiplier", "nan"], "--noise-multiplier"),
        (["audit", "step", "--records-per-person", 0], "--records-per-person"),
        (["demo", "--output", "/nowhere\0"], "--output"),
        (["demo", "--output", "/" + "n" * 300], "--output"),
    ],
)
def test_wrong_options_are_named_and_end_with_status_2(arguments, option):
    result = invoke(*arguments)
    assert isinstance(result.exception, SystemExit) and result.exit_code == 2
    assert option in result.output
    assert not any(name in result.output for name in ("n_draws", "n_canaries", "noise_multiplier"))


def test_a_step_is_told_in_short_lines_and_quietly():
    result = invoke("audit", "step", "--draws", 200, "--seed", 0)
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert max(map(len, lines)) <= 100 and lines[0].startswith("dpsgd: ")
    assert "Steps" not in result.output
    assert "minutes" in invoke("audit", "step", "--help").output


def test_a_fit_is_watched_as_asked():
    size = ["--records", 400, "--canaries", 100, "--epsilon", 16, "--seed", 0, "--json"]
    result = invoke("audit", "run", *size, "--attack", "white_box")
    found = json.loads(result.stdout)
    assert found["n_guesses"] == 100 and found["epsilon_lower"] > 0
    # a bound that holds in 95 of 100 audits may be above the claim
    assert found["passed"] == (found["epsilon_lower"] <= found["epsilon_claimed"])
    assert result.exit_code == (not found["passed"])
