"""The file of a release is read by anyone, whole or refused, and holds values without code."""

import json
import os
import pickle

import numpy as np
import pandas as pd
import pytest
from torch import nn

from skdpfair import load_release
from skdpfair._utils.files import replace_file
from skdpfair.release import _file
from skdpfair.release._file import NotPlain, decode, encode

pytestmark = pytest.mark.filterwarnings("ignore::skdpfair.exceptions.LowSignalWarning")


def test_save_release_writes_safetensors_that_others_read(table, path, fitted):
    safetensors = pytest.importorskip("safetensors")
    model = fitted(table, "dpsgd_f")
    model.save_release(path)
    with safetensors.safe_open(path, "np") as file:
        facts = json.loads(file.metadata()["skdpfair"])
        weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    assert facts["privacy_statement"] == model.privacy_statement()
    assert facts["format_version"] == 1 and facts["skdpfair_version"]
    for name, weight in model.net_.module_.state_dict().items():
        np.testing.assert_array_equal(weights[name], weight.numpy())


def test_load_release_refuses_a_newer_format(table, path, monkeypatch, fitted):
    model = fitted(table)
    with monkeypatch.context() as patch:
        patch.setattr(_file, "FORMAT_VERSION", 7)
        model.save_release(path)
    with pytest.raises(ValueError, match=r"version 7.* up to 1"):
        load_release(path)


def test_load_release_refuses_damage_at_every_byte(table, path, fitted):
    fitted(table).save_release(path)
    content = path.read_bytes()
    rng = np.random.default_rng(0)
    for position in range(0, len(content), 41):
        spoilt = bytearray(content)
        spoilt[position] ^= 1 << rng.integers(8)
        path.write_bytes(spoilt)
        with pytest.raises(ValueError, match=r"model\.safetensors"):
            load_release(path)
    for length in (0, 5, 8, 200, len(content) - 1):
        path.write_bytes(content[:length])
        with pytest.raises(ValueError, match=r"model\.safetensors .*truncated"):
            load_release(path)


def test_load_release_refuses_other_files(path):
    numpy_format = pytest.importorskip("safetensors.numpy")
    path.write_bytes(numpy_format.save({"w": np.ones(2)}))
    with pytest.raises(ValueError, match="lacks the entry 'skdpfair'"):
        load_release(path)
    path.write_bytes(pickle.dumps({"w": 1}))
    with pytest.raises(ValueError, match=r"no|not a safetensors"):
        load_release(path)
    with pytest.raises(FileNotFoundError):
        load_release(path.with_name("none"))


def test_failed_save_release_leaves_the_old_file(table, path, monkeypatch, fitted):
    model = fitted(table)
    model.save_release(path)
    before = path.read_bytes()

    def full(_):
        raise OSError("no space left")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space"):
        fitted(table, "naive").save_release(path)
    assert path.read_bytes() == before and os.listdir(path.parent) == [path.name]


def test_decode_returns_what_encode_takes():
    values = [None, True, 3, -0.0, 0.1, float("inf"), "é\ud800\0", b"\1", (1, (2,)), [(), []]]
    values += [{1: "a", ("b", None): (2,)}, pd.Interval(-np.inf, 0), pd.Timestamp("2020-02-03")]
    values += [pd.NA, pd.NaT, 2**70]
    for value in values:
        back = decode(json.loads(json.dumps(encode(value), allow_nan=False)))
        assert repr(back) == repr(value) and type(back) is type(value)
    for array in (np.array([["a", "bc"]]), np.arange(3.0, dtype="f4"), np.zeros((0, 2), bool)):
        back = decode(json.loads(json.dumps(encode(array))))
        np.testing.assert_array_equal(back, array)
        assert back.dtype == array.dtype
    for code in (print, nn.Linear, nn.Linear(1, 1), np.random.default_rng(), object()):
        with pytest.raises(NotPlain):
            encode(code)


def test_texts_in_decoded_arrays_are_as_wide_as_they_are_long():
    short = decode({"array": ["<U100000000", [2], ["a", "bcd"]]})
    assert short.dtype == "<U3" and encode(short)["array"][0] == "<U3"
    assert encode(np.array(["a"], "<U50")) == encode(np.array(["a"]))
    for forged in (
        ["<U1", [1000], ["a"] * 999 + ["b" * 10_000]],
        ["<U1", [10**15, 0], []],
        ["<U1", [1], [3]],
        ["V100000000", [1], [""]],
    ):
        with pytest.raises((TypeError, ValueError)):
            decode({"array": forged})


@pytest.mark.parametrize("path", [None, 1, b"x"])
def test_path_must_name_a_file(path):
    for touch in (load_release, lambda p: replace_file(p, b"")):
        with pytest.raises(TypeError, match=f"^path .*{path!r}"):
            touch(path)
