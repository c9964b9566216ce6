"""Parameters of --set and --try are checked by name, and a model that was paid for is kept."""

import errno
import os
import re
from pathlib import Path

import pytest

from skdpfair import DPFairClassifier, load_release
from skdpfair.cli._fitting import parameters_of, space_of


def test_parameters_of_reads_json_or_texts():
    params = parameters_of(["lr=0.5", "module=mlp", "module__hidden_layer_sizes=[8, 4]"])
    assert params == {"lr": 0.5, "module": "mlp", "module__hidden_layer_sizes": [8, 4]}
    space = space_of(["method=dpsgd,global", "lr=1,2"], params)
    assert space == {"method": ["dpsgd", "global"], "lr": [1, 2]}


@pytest.mark.parametrize(
    ("option", "text", "named"),
    [
        ("--set", "lr", "'lr' must be NAME=VALUE"),
        ("--set", "max_step=9", "max_step: .*Did you mean 'max_steps'"),
        ("--set", "epsilon=7", "epsilon: it is set by another option"),
        ("--set", "batch_size=0", "batch_size: batch_size must"),
        ("--set", "max_steps=abc", "max_steps: max_steps must"),
        ("--set", "optimizer=adamm", "optimizer: optimizer must"),
        ("--set", "module__width=3", "module__width: there"),
        ("--try", "lr", "'lr' must be NAME=VALUE"),
        ("--try", "lrr=1,2", "lrr: .*Did you mean 'lr'"),
        ("--try", "method=dpsgd,sgd", "method: method must"),
        ("--try", "lr=1,fast", "lr: lr must"),
        ("--try", "epsilon=1,2", "epsilon: it is set by another option"),
    ],
)
def test_unusable_parameters_are_named(option, text, named, folder, refused, loans):
    ledger = ["--ledger", "e.jsonl", "--ledger-delta", 1e-5]
    printed = refused(*loans.fit, "--set", "module=mlp", option, text, *ledger)
    assert re.search(f"{option} {named}", printed)


def fill(monkeypatch, folder):
    """Let no file be written in a folder any more."""
    sync = os.fsync

    def fsync(descriptor):
        if Path(os.readlink(f"/proc/self/fd/{descriptor}")).parent == folder:
            raise OSError(errno.ENOSPC, "No space left on device")
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)


@pytest.fixture
def full(folder):
    if not Path("/proc/self/fd").exists():
        pytest.skip("needs the names of open files")
    (folder / "full").mkdir()
    return folder / "full"


def test_nothing_is_charged_where_no_model_can_be_written(full, monkeypatch, refused, loans):
    fill(monkeypatch, full)
    ledger = ["--ledger", "ledger.jsonl", "--ledger-epsilon", 3, "--ledger-delta", 1e-5]
    printed = refused(*loans.fit, *ledger, "-o", full / "model.safetensors")
    assert "cannot be written: No space left" in printed
    printed = refused(*loans.fit, "-o", "/proc/model.safetensors")
    assert "/proc/model.safetensors cannot be written" in printed


def test_model_that_was_charged_is_written_elsewhere(full, monkeypatch, run, loans):
    fit = DPFairClassifier.fit
    monkeypatch.setattr("tempfile.tempdir", str(full.parent))

    def fills(self, *args, **kwargs):
        fill(monkeypatch, full)
        return fit(self, *args, **kwargs)

    monkeypatch.setattr(DPFairClassifier, "fit", fills)
    done = run(*loans.fit, "-o", full / "model.safetensors", status=1)
    (path,) = full.parent.glob("model-*.safetensors")
    assert "No space left on device." in done.stderr and path.name in done.stderr
    assert load_release(path).privacy_.steps == 5 and not list(full.iterdir())
