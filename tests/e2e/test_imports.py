"""Commands and the package start without the libraries that they do not need."""

import json
import re
import subprocess
import sys

import pytest

import skdpfair
from skdpfair import DPFairClassifier
from skdpfair.cli import COMMANDS

HEAVY = {"torch", "numpy", "sklearn", "scipy", "pandas", "skorch", "opacus", "dp_accounting"}
HEAVY |= {"cryptography"}
PROCESS = """
import json, sys, warnings


def report(name, fact=None):
    imported = sorted({name.partition(".")[0] for name in sys.modules})
    print("\\nFACT " + json.dumps([name, imported, fact]))


from skdpfair.cli import COMMANDS, main
for command in ["--help"], ["--version"], *([name, "--help"] for name in COMMANDS):
    main(command, standalone_mode=False)
    report(" ".join(command))
import skdpfair
skdpfair.exceptions.PrivacyLeakWarning
report("package")
from skdpfair.release._read_statement import read_statement
report("statement", read_statement(sys.argv[1])["epsilon"])
import skdpfair.cli._study, skdpfair.datasets, skdpfair.metrics
import skdpfair.preprocessing
report("tables")
from skdpfair.budget import PrivacyLedger
from sklearn.dummy import DummyClassifier
warnings.simplefilter("ignore")
with PrivacyLedger(sys.argv[2], delta=1e-5) as ledger:
    ledger.fit(DummyClassifier(), [[0.0], [1.0]], [0, 1])
report("ledger", list(ledger.report().reasons))
import numpy as np
skdpfair.DPFairClassifier()
report("estimators")
X = np.random.default_rng(0).normal(size=(300, 4))
for module in ("auto", "logistic", "mlp"):
    clf = skdpfair.DPFairClassifier(module=module, max_steps=2).fit(X, X[:, 0] > 0)
    assert isinstance(clf.predict(X[:3]), np.ndarray)
report("fits", "torch._dynamo" in sys.modules)
"""


def test_commands_and_package_import_what_they_need(two_groups, tmp_path):
    """One process, as each takes seconds to import torch; from the lightest to the heaviest."""
    clf = DPFairClassifier("dpsgd", epsilon=8.0, module="logistic", max_steps=2)
    clf.fit(two_groups.data, two_groups.target).save_release(tmp_path / "model.safetensors")
    call = [sys.executable, "-c", PROCESS, str(tmp_path / "model.safetensors")]
    call += [str(tmp_path / "ledger.jsonl")]
    printed = subprocess.run(call, capture_output=True, text=True, check=True).stdout
    parts = re.split(r"\nFACT (.*)\n", printed)
    facts = {name: (set(imported), fact) for name, imported, fact in map(json.loads, parts[1::2])}
    outputs = dict(zip(facts, parts[::2], strict=False))
    for name in ("--help", "--version", *(f"{name} --help" for name in COMMANDS), "package"):
        assert not facts[name][0] & HEAVY, name
        assert name == "package" or len(outputs[name].strip()) > 5
    assert facts["statement"][1] == clf.privacy_.epsilon and "torch" not in facts["statement"][0]
    assert "torch" not in facts["tables"][0]
    assert facts["ledger"][1] == []
    assert facts["fits"][1] is False
    # milliseconds that only those wait for who draw
    drawing = [name for name, (imported, _) in facts.items() if "cryptography" in imported]
    assert drawing == ["fits"]


def test_package_lists_its_names():
    assert {"DPFairClassifier", "get_method"} <= set(dir(skdpfair))
    for name in skdpfair.__all__:
        assert getattr(skdpfair, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = skdpfair.nothing
