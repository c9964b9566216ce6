"""Files that are broken, packed, or made to harm: nothing runs, nothing takes for ever."""

import bz2
import gzip
import io
import json
import lzma
import os
import pickle
import struct
import zipfile

import numpy as np
import pandas as pd
import pytest
import torch

from skdpfair.audit import audit_artifact
from skdpfair.audit._read_files import Exhausted, Limits, Reader

X = np.random.default_rng(0).normal(size=(50, 6)).astype(np.float32)
CLEAN = {"lr": 0.1, "names": ["a", "b"], "weights": {"w.weight": 1}}


class Touch:
    """Its pickle writes a file when it is loaded."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


def kinds(thing, **more):
    return {f.kind for f in audit_artifact(thing, **more).findings}


@pytest.mark.parametrize("protocol", range(6))
def test_nothing_is_executed(tmp_path, protocol):
    path = tmp_path / "touched"
    content = pickle.dumps({"model": Touch(path)}, protocol=protocol)
    assert "executable" in kinds(content)
    assert "executable" in kinds(gzip.compress(content))
    assert not path.exists()
    pickle.loads(content)["model"].close()
    assert path.exists()  # so it would have


def test_nothing_is_executed_in_torch_files(tmp_path):
    file = io.BytesIO()
    torch.save([Touch(tmp_path / "touched")], file)
    assert "executable" in kinds(file.getvalue())
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", [b"os\nsystem", b"builtins\neval", b"subprocess\nPopen"])
def test_names_that_run_things_are_found_even_unused(name):
    assert kinds(b"\x80\x02c" + name + b"\n0N.") == {"executable"}


def zipped(**members):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return file.getvalue()


def test_paths_lead_through_folders_and_compression(tmp_path):
    inner = gzip.compress(pickle.dumps({"callbacks": [{"batch": X}]}))
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "model.pkl").write_bytes(inner)
    report = audit_artifact(tmp_path)
    assert [f.where for f in report.findings] == ["model/model.pkl!['callbacks'][0]['batch']"]


@pytest.mark.parametrize(
    "pack", [gzip.compress, bz2.compress, lzma.compress, lambda b: zipped(a=b)]
)
def test_packed_twice_in_a_pickle(pack):
    assert kinds(pickle.dumps({"icon": pack(pack(pickle.dumps(X)))})) == {"unexplained bytes"}
    assert kinds(pack(pack(pickle.dumps({"lr": 0.1})))) == {"not judged"}


@pytest.mark.parametrize(
    "content",
    [
        pickle.dumps(CLEAN) + pickle.dumps(X),
        pickle.dumps(CLEAN) + X.tobytes(),
        gzip.compress(pickle.dumps(CLEAN)) + pickle.dumps(X),
        b"\x80\x04" + pickle.dumps(X.tobytes())[2:-1] + b"0N.",  # popped, yet in the file
        zipped(a=pickle.dumps(CLEAN)).replace(b"PK\x01\x02", X.tobytes() + b"PK\x01\x02", 1),
    ],
)
def test_what_lies_behind_or_between_is_found(content):
    assert audit_artifact(content).findings


def test_every_truncation_is_noticed():
    content = pickle.dumps({"model": CLEAN, "more": list("abc")})
    assert audit_artifact(content).is_clean
    for end in range(len(content)):
        assert "unreadable" in kinds(content[:end]) or end == 1, end


def test_what_comes_before_the_break_is_reported():
    content = pickle.dumps([X, "x" * 100])
    assert {"unreadable", "unexplained array"} <= kinds(content[:-50])


def test_random_damage_raises_nothing():
    file = io.BytesIO()
    torch.save({"a": torch.zeros(3), "b": CLEAN}, file)
    rng = np.random.default_rng(0)
    layers = pickle.dumps(torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.LSTM(2, 2)))
    for content in (pickle.dumps(CLEAN), pickle.dumps([X[:2]]), file.getvalue(), layers):
        for at in rng.integers(0, len(content), 60):
            damaged = content[:at] + bytes(rng.integers(0, 256, 2).tolist()) + content[at + 1 :]
            audit_artifact(damaged)


def _memo_bomb():
    levels = b"".join(b"]\x94(h" + bytes([i]) + b"h" + bytes([i]) + b"e" for i in range(1, 200))
    return b"\x80\x04]\x94N\x94a]\x94(h\x00h\x00e" + levels + b"."


@pytest.mark.parametrize(
    "content",
    [
        b"\x80\x04" + b"]" * 20_000 + b"a" * 19_999 + b".",
        b"\x80\x04N" + b"\x85" * 20_000 + b".",
        _memo_bomb(),
        pickle.dumps((lambda loop: (loop.append(loop), loop)[1])([])),
        b"\x80\x04ctorch._utils\n_rebuild_parameter\n" * 1 + b"N" + b"\x85R" + b".",
        b"\x80\x02]r\xff\xff\xff\xff.",
    ],
)
def test_depth_cycles_and_memos_do_no_harm(content):
    audit_artifact(content)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x80\x04\x8e" + b"\xff" * 7 + b"\x7fabc.",
        b"\x80\x04ctorch._utils\n_rebuild_parameter\n" * 3000 + b"N" + b"\x85R" * 3000 + b".",
        struct.pack("<Q", 40) + b'{"a": {"dtype": "F32", "shape": [9], "d"}'.ljust(40),
        b"PK\x03\x04 and so on",
    ],
)
def test_lies_are_unreadable(content):
    assert "unreadable" in kinds(content)


def test_bombs_are_bounded():
    reader = Reader(Limits(n_bytes=1 << 20))
    assert reader.open(gzip.compress(bytes(1 << 24)), "") == []
    assert [f.kind for f in reader.findings] == ["unreadable"]
    with pytest.raises(Exhausted):
        Limits(n_bytes=10).read(io.BytesIO(bytes(11)))
    packed = b"x"
    for _ in range(30):
        packed = gzip.compress(packed)
    assert kinds(packed) == {"not judged"}


@pytest.mark.parametrize(
    "content",
    [
        b"\x89PNG\r\n\x1a\n" + bytes(range(200)),
        b"PAR1" + bytes(50),
        b"\x93NUMPY\x01\x00v\x00",
        zipped(a=pickle.dumps(CLEAN)),
        b"\x04\x22\x4d\x18" + bytes(50),
        pd.DataFrame(X).to_csv().encode(),
        json.dumps(X.tolist()).encode(),
        b"# A model\n\nTrained in 2 runs, 3 epochs each.\n",
        b"<svg>" + b"<circle/>" * 200 + b"</svg>",
        b"<html><strong>This page holds no figure.</strong></html>",
    ],
)
def test_files_of_other_kinds_are_not_judged_and_never_clean(content):
    assert kinds(content) == {"not judged"}


def test_links_are_not_followed(tmp_path):
    os.symlink(tmp_path, tmp_path / "link")
    assert audit_artifact(tmp_path).findings == [] or kinds(tmp_path) == {"unreadable"}


def test_findings_never_hold_values():
    secret = 12345.678
    report = audit_artifact({"a": np.full(50, secret), "b": [secret] * 50, f"{secret}": "x" * 30})
    assert report.findings and str(secret) not in repr(report) + str(report.to_frame())


ENCODINGS = {
    "float16": lambda rows: rows.astype("<f2").tobytes(),
    "float32, big-endian": lambda rows: rows.astype(">f4").tobytes(),
    "float64": lambda rows: rows.astype("<f8").tobytes(),
    "packed": lambda rows: gzip.compress(pickle.dumps({"a": rows})),
    "lists": lambda rows: pickle.dumps(rows.tolist()),
    "columns": lambda rows: pickle.dumps(np.asfortranarray(rows)),
}


@pytest.mark.parametrize("name", ENCODINGS)
def test_known_rows_are_found(name):
    content = ENCODINGS[name](X[10:15])
    found = [f for f in audit_artifact(content, rows=X).findings if f.kind == "rows"]
    assert found and all(f.shape == (5,) for f in found)
    assert "rows" not in kinds(content, rows=X + 1)


def test_known_rows_must_be_a_table():
    with pytest.raises(ValueError, match=r"rows must have the shape"):
        audit_artifact(b"", rows=[1.0, 2.0])
    with pytest.raises(ValueError, match="rows must hold numbers"):
        audit_artifact(b"", rows=[["a", "b"]])
    with pytest.raises(FileNotFoundError, match="path_or_object"):
        audit_artifact("no such file")
