"""What commands share: options of ledgers, outputs that replace nothing, and printing as text."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.shell_completion import ShellComplete

import skdpfair.cli
from skdpfair.budget import PrivacyLedger
from skdpfair.cli import COMMANDS, main
from skdpfair.cli._shell import OPTIONS, Unusable, in_options

ODD = "\x1b[31mf\x1b[0m\x07\u202e[bold]"  # red, a bell, and turned around
SHOWN = r"\u001b[31mf\u001b[0m\u0007\u202e[bold]"
STUDY = """
data = "loans.csv"
target = "paid"
classes = ["no", "yes"]
[groups]
"s\\u001bex" = ["\\u001b[31mf\\u001b[0m\\u0007\\u202e[bold]", "m"]
[bounds]
income = [0, 100]
[sweep]
methods = ["dpsgd"]
epsilons = [2.0]
seeds = 1
[sweep.params]
max_steps = 1
module = "logistic"
"""


def test_names_from_a_file_do_not_steer_the_terminal(tmp_path, monkeypatch, run, refused):
    monkeypatch.chdir(tmp_path)
    rng, n = np.random.default_rng(0), 400
    income = rng.uniform(0, 100, n)
    table = pd.DataFrame({"income": income, "paid": np.where(income > 50, "yes", "no")})
    table.assign(**{"s\x1bex": rng.choice([ODD, "m"], n)}).to_csv("loans.csv")
    table.assign(**{"s\x1bex": ODD + "x"}).to_csv("other.csv")
    Path("study.toml").write_text(STUDY)
    check = ["schema", "other.csv", "--check", "study.toml"]
    for printed, shown in (
        (run("sweep", "study.toml", "--jobs", "1").output, SHOWN),
        (run(*check).output, SHOWN + "x"),
        (run(*check, "--json").output, r"s\u001bex"),
        (refused("sweep", "study.toml", "--data", "other.csv", "-o", "new"), "x1b[31mf"),
        (refused("schema", "loans.csv", "--group", "s\x1bx"), r"no column 's\x1bx'"),
    ):
        assert shown in printed
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", printed)
    Path("deep.toml").write_text(STUDY + "class_weight." + "a." * 5000 + "b = 1")
    assert refused("sweep", "deep.toml", "--jobs", "1").startswith("Error: ")


def test_commands_print_in_one_place():
    for path in Path(skdpfair.cli.__file__).parent.glob("*.py"):
        raw = re.findall(r"click\.(?:echo|prompt|secho)\(", path.read_text())
        assert len(raw) == {"__init__.py": 1, "_shell.py": 2}.get(path.name, 0), path.name


@pytest.mark.parametrize("name", COMMANDS)
def test_commands_are_those_of_the_list(name, run):
    assert main.get_command(None, name).name == name
    assert name in run("--help").output


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ValueError("epsilon must be positive."), "--epsilon: epsilon must be positive."),
        (TypeError("random_state=a is wrong."), "--seed: random_state=a is wrong."),
        (OSError("delta.csv has no store='x'"), "delta.csv has no store='x'"),
        (RecursionError(), "An input is nested too deeply."),
    ],
)
def test_in_options_names_the_option_of_a_parameter(error, message):
    with pytest.raises(Unusable) as found, in_options(OPTIONS):
        raise error
    assert (found.value.format_message(), found.value.exit_code) == (message, 2)


MODEL = "model.safetensors"
REFUSED = [  # commands, and what they print
    (["fit", "loans.csv", "--schema", "schema.toml", "-o", "loans.csv"], "would replace"),
    (["fit", "loans.csv", "--schema", "schema.toml"], "already exists"),
    (["predict", MODEL, "loans.csv", "-o", "loans.csv"], "would replace"),
    (["report", MODEL, "-o", MODEL], "would replace"),
    (["report", MODEL, "-o", "x.html", "--card", "x.html"], "would replace"),
    (["schema", "loans.csv", "--target", "x", "-o", "loans.csv"], "would replace"),
    (["schema", "loans.csv", "-o", "schema.toml"], "already exists"),
    (["statement", MODEL, "--export", "nist", "-o", MODEL], "would replace"),
    (
        ["fit", "loans.csv", "--schema", "schema.toml", "--ledger-delta", 1, "-o", "n"],
        "--ledger, or",
    ),
    (["ftt", "loans.csv"], "'ftt'. Did you mean 'fit'?"),
    (["xyzzy"], "No such command 'xyzzy'."),
]


@pytest.mark.parametrize(("arguments", "printed"), REFUSED)
def test_refused_commands_replace_no_file(arguments, printed, model, refused):
    assert printed in refused(*arguments)


FREE, LIMITED = ["--ledger-delta", 1e-5], ["--ledger-delta", 1e-5, "--ledger-epsilon", 3]


@pytest.mark.parametrize("command", ["sweep", "fit"])
@pytest.mark.parametrize(
    ("stored", "options", "named"),
    [
        ({"epsilon": 3, "delta": 1e-5}, FREE, "--ledger-delta alone"),
        ({"delta": 1e-6}, FREE, "--ledger-delta: delta=1e-05 differs from delta=1e-06"),
        ({"delta": 1e-5}, LIMITED, "--ledger-epsilon: epsilon=3.0 differs from epsilon=None"),
        ({}, FREE, "--ledger-delta: delta=1e-05 differs from delta=None"),
        (None, [], "is empty"),
        (None, ["--ledger", "other.jsonl"], "does not exist"),
        (None, ["--ledger", "other.jsonl", "--ledger-epsilon", 1.5], "does not exist"),
    ],
)
def test_ledger_options_that_contradict_a_ledger_are_named(
    command, stored, options, named, folder, refused, loans
):
    path = Path("ledger.jsonl")
    path.touch() if stored is None else PrivacyLedger(path, **stored)
    arguments = loans.fit if command == "fit" else ["sweep", "study.toml", "--jobs", 1]
    assert named in refused(*arguments, "--ledger", path, *options)


def test_a_shell_completes_after_a_misspelt_command():
    completion = ShellComplete(main, {}, "skdpfair", "_SKDPFAIR_COMPLETE")
    assert [item.value for item in completion.get_completions(["ftt"], "pre")] == ["predict"]
