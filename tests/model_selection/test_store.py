"""A sweep's folder: cells outlive a killed sweep, and foreign or damaged files are named."""

import errno
import json
import multiprocessing
import os
import shutil
import signal
import warnings

import numpy as np
import pandas as pd
import pytest

from skdpfair.model_selection import TradeoffResults, _cells, _sweep
from skdpfair.model_selection._store import Store, digest_of
from skdpfair.training.net import PrivateNet


@pytest.fixture(scope="session")
def run(small_sweep):
    """Return a function that finishes six cells in a folder."""
    methods = ["dpsgd", "dpsgd_f"]
    return lambda store, **params: small_sweep(methods=methods, seeds=2, store=store, **params)


def run_until_killed(run, folder, when, count):
    """Die when `count` cells are kept: before the rename that makes the last visible, or after."""
    rename, kept = os.replace, []

    def replace(part, path):
        if "manifest" not in str(path):
            kept.append(path)
        if len(kept) == count and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        rename(part, path)
        if len(kept) == count:
            os.kill(os.getpid(), signal.SIGKILL)

    os.replace = replace
    warnings.simplefilter("ignore")
    run(folder)


def without_clock(results):
    return results.frame.drop(columns="fit_seconds")


def cell_files(folder):
    return {p.name: (p.stat().st_mtime_ns, p.read_text()) for p in folder.glob("[0-9a-f]*.json")}


@pytest.mark.parametrize(("when", "count"), [("before", 2), ("after", 3)])
def test_store_of_a_killed_sweep_is_continued_with_the_same_result(run, tmp_path, when, count):
    whole, folder = run(None), tmp_path / "store"
    child = multiprocessing.get_context("fork").Process(
        target=run_until_killed, args=(run, folder, when, count)
    )
    child.start()
    child.join()
    assert child.exitcode == -signal.SIGKILL
    before = cell_files(folder)
    assert len(before) == (count - 1 if when == "before" else count)
    assert all(json.loads(text)["n"] for _, text in before.values())
    resumed = run(folder)
    pd.testing.assert_frame_equal(without_clock(resumed), without_clock(whole))
    after = cell_files(folder)
    assert len(after) == 6
    assert {name: after[name] for name in before} == before  # not computed again
    again = run(folder)
    pd.testing.assert_frame_equal(again.frame, resumed.frame)  # seconds too: all from the folder
    assert cell_files(folder) == after


def test_store_names_what_differs_from_its_configuration(run, tmp_path, monkeypatch):
    run(tmp_path)
    with pytest.raises(ValueError, match=r'params lr: "0.5" .*"0.6"'):
        run(tmp_path, lr=0.6)
    monkeypatch.setattr(_sweep.skdpfair, "__version__", "9.9")
    with pytest.raises(ValueError, match=r'skdpfair: "1.* there, "9.9" now'):
        run(tmp_path)


def test_store_without_a_cell_takes_another_configuration(run, tmp_path):
    Store.open(tmp_path, {"lr": 0.7}).begin()
    assert not cell_files(tmp_path)
    corrected = run(tmp_path)
    assert len(cell_files(tmp_path)) == 6
    pd.testing.assert_frame_equal(run(tmp_path).frame, corrected.frame)


def test_store_refuses_foreign_folders_and_files(run, tmp_path):
    with pytest.raises(TypeError, match=r"store .*True"):
        run(True)
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(ValueError, match=r"'thesis\.tex'"):
        run(tmp_path)
    with pytest.raises(ValueError, match=r"thesis\.tex.* is a file"):
        run(tmp_path / "thesis.tex")


@pytest.mark.parametrize("is_stored", [True, False])
def test_sweep_that_is_interrupted_returns_what_is_finished(run, tmp_path, monkeypatch, is_stored):
    fits, fit = [], _cells._fit_and_test

    def interrupted(*args):
        if len(fits) == 2:
            raise KeyboardInterrupt
        fits.append(fit(*args))
        return fits[-1]

    monkeypatch.setattr(_cells, "_fit_and_test", interrupted)
    with pytest.warns(UserWarning, match="2 of 6 cells") as caught:
        results = run(tmp_path if is_stored else None)
    assert any("resume" in str(w.message) for w in caught) == is_stored
    assert list(results.frame["method"].unique()) == ["reference", "dpsgd"]
    assert results.table().shape[0] == 2


def test_sweep_keeps_no_cell_whose_fit_was_interrupted(run, tmp_path, monkeypatch):
    def interrupted(net, *args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(PrivateNet, "run_single_epoch", interrupted)
    with (
        pytest.warns(UserWarning, match="0 of 6"),
        pytest.raises(ValueError, match="no finished cell"),
    ):
        run(tmp_path)
    assert not cell_files(tmp_path)


def test_digest_of_differs_between_tables():
    frame = pd.DataFrame({"a": [1.0, 2.0], "b": ["x", "y"]})
    assert digest_of(frame) == digest_of(frame.copy())
    others = [frame[["b", "a"]], frame[::-1], frame.astype({"a": "float32"}), frame["b"]]
    arrays = [np.array([1, 2]), np.array([[1, 2]]), np.array(["1", "2"], object)]
    assert len({digest_of(v) for v in [frame, *others, *arrays]}) == 8


DAMAGED = {
    "wrong bytes": lambda path: path.write_bytes(b"\xff\xfe\x00cell"),
    "half": lambda path: path.write_text('{"n":'),
    "a list": lambda path: path.write_text("[]"),
    "no entries": lambda path: path.write_text("{}"),
    "too few entries": lambda path: path.write_text('{"seed": 0}'),
    "nothing": lambda path: path.write_text(""),
    "too deep": lambda path: path.write_text("[" * 100_000),
    "a folder": lambda path: (path.unlink(), path.mkdir()),
}


@pytest.fixture(scope="module")
def finished(run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished") / "store"
    run(folder)
    return folder


@pytest.mark.parametrize("file", ["cell", "manifest"])
@pytest.mark.parametrize("damage", DAMAGED)
def test_store_names_a_damaged_file(run, finished, tmp_path, damage, file):
    folder = tmp_path / "store"
    shutil.copytree(finished, folder)
    cell = min(p for p in folder.glob("*.json") if p.name != "manifest.json")
    path = cell if file == "cell" else folder / "manifest.json"
    DAMAGED[damage](path)
    name = "" if (damage, file) == ("too few entries", "manifest") else path.name
    for read in (run, TradeoffResults.from_store):
        with pytest.raises(ValueError, match=f"(?s){folder}.*{name}"):
            read(folder)


def test_store_on_a_full_disk_holds_no_part_of_a_cell(tmp_path, monkeypatch):
    store = Store.open(tmp_path / "store", {"a": 1}).begin()

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        store.save("ab", {"a": 1})
    assert [p.name for p in store.folder.iterdir()] == ["manifest.json"]
    with pytest.raises(OSError, match="No space left"):  # before a fit is charged
        Store.open(tmp_path / "store", {"a": 1})
