"""Files that appear whole, on the disk, or not at all, and the digest of their content."""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

import numpy as np

from skdpfair._utils.validate import error_context, safe_repr

try:
    import fcntl

    def lock(file: BinaryIO) -> None:
        """Lock a file until it is closed, which the system does when its process dies."""
        fcntl.flock(file, fcntl.LOCK_EX)
except ImportError:  # Windows
    import msvcrt

    def lock(file: BinaryIO) -> None:
        """Lock a file until it is closed."""
        # a byte that is never written, so that readers are not kept out
        file.seek(2**40)
        msvcrt.locking(file.fileno(), msvcrt.LK_LOCK, 1)  # type: ignore[attr-defined]  # on Windows


_TRIED = 2**20  # bytes that a folder must have room for


def path_of(path: str | os.PathLike[str]) -> Path:
    """Return the Path of a file.

    Raises
    ------
    TypeError
        If ``path`` is neither a string nor a path.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(
            f"path must name a file, got {safe_repr(path)}: a string or a pathlib.Path."
        )
    with error_context("path", "cannot name a file"):
        return Path(path)


def replace_file(
    path: str | os.PathLike[str], content: bytes | Iterable[bytes], *, is_private: bool = False
) -> None:
    """Write a new file, whole or part by part, next to the old one, and then replace that.

    A missing folder is made, because the content may have cost budget.
    If ``is_private``, only the owner may read it.
    """
    path = path_of(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with _temporary_file(path, content, 0o600 if is_private else 0o666) as part:
        put_in_place(part, path)


def put_in_place(part: str | os.PathLike[str], path: Path) -> None:
    """Rename a file whose content is on the disk, so that it replaces another."""
    os.replace(part, path)
    if hasattr(os, "O_DIRECTORY"):  # Windows syncs no folders
        folder = os.open(path.parent, os.O_DIRECTORY)
        try:
            # without it, a power cut could undo the renaming
            os.fsync(folder)
        finally:
            os.close(folder)


def check_writable(path: str | os.PathLike[str]) -> None:
    """Raise OSError, before anything is spent, if no file can be written next to ``path``."""
    with _temporary_file(path_of(path), bytes(_TRIED)):
        pass


@contextmanager
def _temporary_file(
    path: Path, content: bytes | Iterable[bytes], mode: int = 0o666
) -> Iterator[Path]:
    part = path.with_name(f".{path.name[:100]}.{os.urandom(8).hex()}.part")
    try:
        with open(part, "wb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            file.writelines([content] if isinstance(content, bytes) else content)
            file.flush()
            os.fsync(file.fileno())
        yield part
    except OSError as error:
        if error.filename != str(part):
            raise
        raise OSError(error.errno, error.strerror, str(path)) from None  # a name that is known
    finally:
        with suppress(OSError):
            part.unlink()


def sha256_of(arrays: Mapping[str, np.ndarray], start: bytes = b"") -> str:
    """Return the SHA-256, in hex, of some bytes and of arrays: names, dtypes, shapes and bytes."""
    sha = hashlib.sha256(start)
    for name in sorted(arrays):
        a = arrays[name]
        form = [name, a.dtype.str, list(a.shape)]
        sha.update(json.dumps(form, separators=(",", ":")).encode())
        sha.update(np.ascontiguousarray(a).tobytes())
    return sha.hexdigest()
