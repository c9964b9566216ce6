"""Files that are replaced as a whole, or not at all."""

import os

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


def test_sha256_of_depends_on_names_types_shapes_and_bytes():
    one = np.zeros(2)
    others = {"b": one}, {"a": one.astype("f")}, {"a": one[None]}, {"a": one + 1}
    assert len({sha256_of(arrays) for arrays in ({"a": one}, *others)}) == 5
