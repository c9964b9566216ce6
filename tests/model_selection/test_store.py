import errno
import importlib.util
import json
import multiprocessing
import os
import shutil
import signal
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from skdpfair.model_selection import TradeoffResults, _cells, _sweep
from skdpfair.model_selection._store import Store, digest_of
from skdpfair.training.net import PrivateNet

SCRIPT = Path(__file__).with_name("killed.py")
pytestmark = pytest.mark.filterwarnings("ignore::skdpfair.exceptions.LowSignalWarning")


def _load():
    spec = importlib.util.spec_from_file_location("killed", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


killed = _load()
run_small = killed.run


def _forked(target, *args, **kwargs):
    child = multiprocessing.get_context("fork").Process(target=target, args=args, kwargs=kwargs)
    child.start()
    return child


def without_clock(results):
    return results.frame.drop(columns="fit_seconds")


def cell_files(folder):
    return {p.name: (p.stat().st_mtime_ns, p.read_text()) for p in folder.glob("[0-9a-f]*.json")}


@pytest.mark.parametrize(("when", "count"), [("before", 2), ("after", 3)])
def test_a_killed_sweep_goes_on_with_the_same_result(tmp_path, when, count):
    whole = run_small(None)
    folder = tmp_path / "store"
    child = _forked(killed.main, folder, when, count)
    child.join()
    assert child.exitcode == -signal.SIGKILL
    kept = cell_files(folder)
    assert len(kept) == (count - 1 if when == "before" else count)
    assert all(json.loads(text)["n"] for _, text in kept.values())
    resumed = run_small(folder)
    pd.testing.assert_frame_equal(without_clock(resumed), without_clock(whole))
    after = cell_files(folder)
    assert len(after) == 6
    assert {name: after[name] for name in kept} == kept  # not computed again
    again = run_small(folder)
    pd.testing.assert_frame_equal(again.frame, resumed.frame)  # seconds too: all from the folder
    assert cell_files(folder) == after


def test_no_finished_cell_is_run_again(tmp_path, monkeypatch):
    ran, fit = [], _cells._fit_and_test

    def counting(cell, *args):
        ran.append(cell.key)
        return fit(cell, *args)

    monkeypatch.setattr(_cells, "_fit_and_test", counting)
    run_small(tmp_path)
    assert len(ran) == len(set(ran)) == 6
    (tmp_path / f"{ran[4]}.json").unlink()
    run_small(tmp_path)
    assert ran[6:] == [ran[4]]


def test_another_configuration_is_refused_by_name(tmp_path, monkeypatch):
    run_small(tmp_path)
    with pytest.raises(
        ValueError, match=r"(?s)another call:.*params lr: .*there.*now.*Name another"
    ):
        run_small(tmp_path, lr=0.6)
    monkeypatch.setattr(_sweep.skdpfair, "__version__", "9.9")
    with pytest.raises(ValueError, match=r'skdpfair: "1.* there, "9.9" now'):
        run_small(tmp_path)


def test_a_call_that_is_refused_makes_no_folder(tmp_path):
    with pytest.raises(ValueError, match="lr must be"):
        run_small(tmp_path / "s", lr=-1.0)
    assert not (tmp_path / "s").exists()


def test_a_store_without_a_cell_takes_the_corrected_call(tmp_path):
    Store.open(tmp_path, {"lr": 0.7}).begin()
    assert not cell_files(tmp_path)
    corrected = run_small(tmp_path)
    assert len(cell_files(tmp_path)) == 6
    pd.testing.assert_frame_equal(run_small(tmp_path).frame, corrected.frame)


def test_foreign_folders_and_files_are_refused(tmp_path):
    with pytest.raises(TypeError, match="store must be the path of a folder, got True"):
        run_small(True)
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(ValueError, match=r"'thesis.tex'. Name a new or empty folder"):
        run_small(tmp_path)
    with pytest.raises(ValueError, match=r"is a file\. Name a folder"):
        run_small(tmp_path / "thesis.tex")
    store = Store.open(tmp_path / "new", {"a": 1}).begin()
    (store.folder / "f.json").write_text('{"n":')
    with pytest.raises(ValueError, match=r"damaged .* Delete it"):
        store.load("f")


@pytest.mark.parametrize("stored", [True, False])
def test_an_interrupt_returns_what_is_finished(tmp_path, monkeypatch, stored):
    ran, fit = [], _cells._fit_and_test

    def interrupted(cell, *args):
        if len(ran) == 2:
            raise KeyboardInterrupt
        ran.append(cell)
        return fit(cell, *args)

    monkeypatch.setattr(_cells, "_fit_and_test", interrupted)
    folder = tmp_path if stored else None
    with pytest.warns(UserWarning, match="interrupted after 2 of 6 cells") as said:
        results = run_small(folder)
    assert any("resume from" in str(w.message) for w in said) == stored
    assert list(results.frame["method"].unique()) == ["reference", "dpsgd"]
    assert results.table().shape[0] == 2


def test_an_interrupt_inside_a_fit_is_not_taken_for_its_end(tmp_path, monkeypatch):
    def interrupted(net, *args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(PrivateNet, "run_single_epoch", interrupted)
    with (
        pytest.warns(UserWarning, match="interrupted after 0 of 6"),
        pytest.raises(ValueError, match="no finished cell"),
    ):
        run_small(tmp_path)
    assert not cell_files(tmp_path)


def test_digests_tell_tables_apart():
    frame = pd.DataFrame({"a": [1.0, 2.0], "b": ["x", "y"]})
    same = pd.DataFrame({"a": [1.0, 2.0], "b": ["x", "y"]})
    assert digest_of(frame) == digest_of(same)
    others = [frame[["b", "a"]], frame[::-1], frame.astype({"a": "float32"}), frame["b"]]
    arrays = [np.array([1, 2]), np.array([[1, 2]]), np.array(["1", "2"], object)]
    assert len({digest_of(v) for v in [frame, *others, *arrays]}) == 8


DAMAGED = {
    "wrong bytes": lambda path: path.write_bytes(b"\xff\xfe\x00cell"),
    "a list": lambda path: path.write_text("[]"),
    "no entries": lambda path: path.write_text("{}"),
    "too few entries": lambda path: path.write_text('{"seed": 0}'),
    "nothing": lambda path: path.write_text(""),
    "too deep": lambda path: path.write_text("[" * 100_000),
    "a folder": lambda path: (path.unlink(), path.mkdir()),
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished") / "store"
    run_small(folder)
    return folder


@pytest.mark.parametrize("file", ["cell", "manifest"])
@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_file_is_named(finished, tmp_path, damage, file):
    folder = tmp_path / "store"
    shutil.copytree(finished, folder)
    cell = sorted(p for p in folder.glob("*.json") if p.name != "manifest.json")[0]
    path = cell if file == "cell" else folder / "manifest.json"
    DAMAGED[damage](path)
    for read in (run_small, TradeoffResults.from_store):
        with pytest.raises(ValueError) as caught:
            read(folder)
        said = str(caught.value)
        assert path.name in said or (damage, file) == ("too few entries", "manifest"), said
        assert str(folder) in said


def test_a_full_disk_leaves_no_part_of_a_cell(tmp_path, monkeypatch):
    store = Store.open(tmp_path / "store", {"a": 1}).begin()

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        store.save("ab", {"a": 1})
    assert [p.name for p in store.folder.iterdir()] == ["manifest.json"]
    with pytest.raises(OSError, match="No space left"):  # before a fit is charged
        Store.open(tmp_path / "store", {"a": 1})
