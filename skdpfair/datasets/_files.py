"""Find data files, and refuse those whose digest is not the recorded one."""

import hashlib
import os
from pathlib import Path

from skdpfair.exceptions import DataIntegrityError


def check_digest(path, content, expected, algorithm):
    """Raise DataIntegrityError unless the digest of ``content`` is ``expected``.

    Parameters
    ----------
    path : path-like
        Where the bytes come from; named in the error.
    content : bytes
        The bytes to check.
    expected : str
        The recorded digest, in hexadecimal.
    algorithm : {"md5", "sha256"}
        The digest's algorithm.

    Raises
    ------
    DataIntegrityError
        If the digests differ; the message names both, and the path.

    Examples
    --------
    >>> check_digest("a.txt", b"a", "0cc175b9c0f1b6a831c399e269772661", "md5")
    >>> check_digest("a.txt", b"b", "0cc175b9c0f1b6a831c399e269772661", "md5")
    Traceback (most recent call last):
    ...
    skdpfair.exceptions.DataIntegrityError: a.txt: its md5 is 92eb5ffee6ae2fec3ad71c777531578f, ...
    """
    # integrity, not security: FIPS builds of OpenSSL refuse md5 otherwise
    found = hashlib.new(algorithm, content, usedforsecurity=False).hexdigest()
    if found != expected:
        raise DataIntegrityError(
            f"{path}: its {algorithm} is {found}, expected {expected}. The file is damaged or "
            "another version: replace it by the original."
        )


def data_folder(data_home=None):
    """Return the folder to look in: ``data_home``, else ``SKDPFAIR_DATA``, else the cache.

    Parameters
    ----------
    data_home : path-like or None, default=None
        A folder chosen by the caller; ``~`` is expanded.

    Returns
    -------
    pathlib.Path
        The folder. It need not exist and is not created.

    Examples
    --------
    >>> data_folder("somewhere").name
    'somewhere'
    """
    chosen = data_home or os.environ.get("SKDPFAIR_DATA")
    if chosen:
        return Path(chosen).expanduser()
    # not sklearn's get_data_home(): it creates the folder, and looking must leave no trace
    cache = os.environ.get("SCIKIT_LEARN_DATA") or "~/scikit_learn_data"
    return Path(cache).expanduser() / "skdpfair"
