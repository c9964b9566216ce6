"""Local data files, checked against their recorded digests, and the Bunch of a table."""

import gzip
import hashlib
import os
import zlib
from pathlib import Path

from sklearn.utils import Bunch

from skdpfair.exceptions import DataIntegrityError


def fetch(digests, subfolder, data_home, source=""):
    """Return the checked contents of local files, by name.

    ``digests`` are the sha256 of the contents; a file may also end in ``.gz``. ``source`` says
    where they can be obtained; the rest is as in `fetch_dutch`.
    """
    chosen = data_home or os.environ.get("SKDPFAIR_DATA") or "~/scikit_learn_data/skdpfair"
    folder = Path(chosen).expanduser()
    contents = {}
    for name, sha256 in digests.items():
        spellings = (name, f"{name}.gz")
        paths = [place / each for place in (folder / subfolder, folder) for each in spellings]
        path = next((path for path in paths if path.is_file()), None)
        if path is None:
            raise DataIntegrityError(
                f"{name} is not in {folder} (nor in its subfolder {subfolder}); expected that file "
                f"or {name}.gz, of sha256 {sha256}.{source} Name its folder by data_home= or by "
                "the environment variable SKDPFAIR_DATA."
            )
        contents[name] = _checked(path, sha256)
    return contents


def _checked(path, expected):
    """Return the content of a file, unpacked if its name ends with ``.gz``, once it is checked."""
    content = path.read_bytes()
    try:
        content = gzip.decompress(content) if path.suffix == ".gz" else content
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataIntegrityError(f"{path} is not a whole gzip file: {error}.") from None
    digest = hashlib.sha256(content).hexdigest()
    if digest != expected:
        raise DataIntegrityError(
            f"{path}: its sha256 is {digest}, expected {expected}. The file is damaged or another "
            "version: replace it by the original."
        )
    return content


def table_bunch(frame, target, sensitive, target_names, description, as_frame, return_X_y):
    """Return a table as `load_adult` does; the columns ``sensitive`` stay among the features."""
    data = frame.drop(columns=target)
    parts = data, frame[target], data[sensitive]
    X, y, groups = parts if as_frame else (part.to_numpy(object) for part in parts)
    if return_X_y:
        return X, y
    return Bunch(
        data=X,
        target=y,
        frame=frame if as_frame else None,
        sensitive_features=groups,
        feature_names=list(data.columns),
        target_names=list(target_names),
        DESCR=description,
    )
