"""The command line starts without the libraries that a command does not need."""

import json
import subprocess
import sys

import pytest
from click.testing import CliRunner

import skdpfair
from skdpfair.cli import COMMANDS, main, methods_command
from skdpfair.cli.methods_command import _KEPT, _digest
from skdpfair.methods import methods_table

HEAVY = {"torch", "sklearn", "scipy", "pandas", "skorch", "opacus", "dp_accounting", "matplotlib"}
IMPORTED = """
import json, sys
{code}
print("\\n" + json.dumps(sorted({{name.partition(".")[0] for name in sys.modules}})))
"""


def imported(code):
    """The libraries that a process imports which runs ``code``."""
    call = [sys.executable, "-c", IMPORTED.format(code=code)]
    done = subprocess.run(call, capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout.splitlines()[-1])), done.stdout


def call(*arguments):
    return f"from skdpfair.cli import main; main({list(arguments)!r}, standalone_mode=False)"


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["methods"]], ids=str)
def test_these_need_no_heavy_library(arguments):
    imported(call("methods"))  # if a method was changed, its row is made now
    libraries, printed = imported(call(*arguments))
    assert not libraries & HEAVY and len(printed) > 20


def test_the_package_imports_what_is_asked_for():
    assert not imported("import skdpfair")[0] & HEAVY
    assert "torch" not in imported("import skdpfair; skdpfair.exceptions.PrivacyLeakWarning")[0]
    assert "torch" in imported("import skdpfair; skdpfair.DPFairClassifier")[0]
    assert {"DPFairClassifier", "METHODS"} <= set(dir(skdpfair))
    for name in skdpfair.__all__:
        assert getattr(skdpfair, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = skdpfair.nothing


def test_a_ledger_that_was_imported_alone_finds_the_linter(tmp_path):
    _, printed = imported(f"""
import warnings
from sklearn.dummy import DummyClassifier
from skdpfair.budget import PrivacyLedger
warnings.simplefilter("ignore")
with PrivacyLedger({str(tmp_path / "ledger.jsonl")!r}, delta=1e-5) as ledger:
    ledger.fit(DummyClassifier(), [[0.0], [1.0]], [0, 1])
print(*ledger.report().reasons)
""")
    assert "DummyClassifier learns" in printed


def test_the_methods_are_those_of_the_registry(tmp_path, monkeypatch):
    rows = json.loads(methods_table().reset_index().to_json(orient="records"))
    assert json.loads(CliRunner().invoke(main, ["methods", "--json"]).stdout) == rows
    _, printed = imported(call("methods", "--json"))
    assert json.loads(printed.splitlines()[0]) == rows
    kept = json.loads(_KEPT.read_text("utf-8"))
    assert (kept["rows"], kept["sources"]) == (rows, _digest())


def test_the_rows_are_kept_in_a_clone_and_in_no_installed_package(tmp_path, monkeypatch):
    package = tmp_path / "skdpfair"
    package.mkdir()
    monkeypatch.setattr(methods_command, "_PACKAGE", package)
    monkeypatch.setattr(methods_command, "_KEPT", package / "methods.json")
    methods_command._keep({"rows": []})
    assert list(package.iterdir()) == []
    (tmp_path / "pyproject.toml").touch()
    methods_command._keep({"rows": []})
    assert json.loads((package / "methods.json").read_text("utf-8")) == {"rows": []}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_where_the_list_says(name):
    assert main.get_command(None, name).name == name
    assert name in CliRunner().invoke(main, ["--help"]).output
