"""Files that are replaced as a whole, or not at all."""

import os
from pathlib import Path

import numpy as np
import pytest

from skdpfair._utils.files import check_writable, path_of, replace_file, sha256_of


def test_replace_file_writes_all_or_nothing(tmp_path):
    def interrupted():
        yield b"half"
        raise KeyboardInterrupt

    path = tmp_path / "folder" / "file"
    replace_file(path, [b"one", b" two"], is_private=True)
    check_writable(path)
    with pytest.raises(KeyboardInterrupt):
        replace_file(path, interrupted())
    assert path.read_bytes() == b"one two" and os.listdir(path.parent) == ["file"]
    with pytest.raises(TypeError, match="path must name a file, got 3"):
        path_of(3)


def test_errors_of_replace_file_name_the_file_and_not_the_temporary_one(tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match=r"folder'$"):
        replace_file(tmp_path / "folder", b"")  # no file replaces a folder
    with pytest.raises(OSError, match=r"no folder/file'$"):
        check_writable(tmp_path / "no folder" / "file")


def test_replace_file_syncs_the_folder(tmp_path, monkeypatch):
    synced, sync = [], os.fsync

    def fsync(descriptor):
        synced.append(Path(f"/proc/self/fd/{descriptor}").resolve())
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    replace_file(tmp_path / "a", b"a")
    assert synced[-1] == tmp_path.resolve() if hasattr(os, "O_DIRECTORY") else len(synced) == 1


def test_sha256_of_depends_on_names_types_shapes_and_bytes():
    one = np.zeros(2)
    others = {"b": one}, {"a": one.astype("f")}, {"a": one[None]}, {"a": one + 1}
    assert len({sha256_of(arrays) for arrays in ({"a": one}, *others)}) == 5
