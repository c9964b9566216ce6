"""A resumable run: parallel tasks whose results are kept in a folder, one JSON file each.

A file is named by a hash of all that determines its content.
"""

import json
import os
import threading
from dataclasses import dataclass
from pathlib import Path

import joblib
import numpy as np
import pandas as pd
import torch

from skdpfair._utils.describe import digest
from skdpfair._utils.files import check_writable, replace_file
from skdpfair._utils.validate import safe_repr

MANIFEST = "manifest.json"
_WORDS = {"data X": "the features", "data y": "the labels", "data groups": "the groups"}
# torch's number of threads and warning filters belong to a process
_ALONE = threading.Lock()


@dataclass(frozen=True)
class Store:
    """A folder that keeps finished cells.

    A cell's file appears whole or not at all: it is written under another name, then renamed. So
    any number of processes may write, and any of them may be killed. ``needs`` names the entries
    without which a cell is damaged; ``configuration`` is what the manifest holds.
    """

    folder: Path
    needs: frozenset = frozenset()
    configuration: dict | None = None

    @classmethod
    def open(cls, folder, configuration, *, needs=()):
        """Return the store of ``folder``, which `begin` makes, or must hold this configuration.

        A folder without a finished cell takes any: the call that made it may have failed at once.
        """
        path = _path_of(folder)
        configuration = json.loads(json.dumps(configuration))  # as it will be read
        store = cls(path, frozenset(needs), configuration)
        existing_part = next(part for part in (path, *path.absolute().parents) if part.exists())
        if not existing_part.is_dir():
            raise ValueError(f"store={str(existing_part)!r} is a file. Name a folder.")
        check_writable(existing_part / MANIFEST)
        if not (path / MANIFEST).exists():
            foreign = sorted(p.name for p in path.glob("[!.]*"))
            if foreign:
                raise ValueError(
                    f"store={str(folder)!r} holds other files, such as {foreign[0]!r}. Name a new "
                    "or empty folder."
                )
        content = _read(path / MANIFEST) if store._has_cells else configuration
        if content != configuration:
            raise ValueError(
                f"store={str(folder)!r} was written by another call:\n"
                + "\n".join(_differences(content, configuration))
                + "\nName another folder, or repeat that call."
            )
        return store

    def begin(self):
        """Make the folder and its manifest, if it has no cell yet, and return the store."""
        if not self._has_cells:
            replace_file(self.folder / MANIFEST, json.dumps(self.configuration).encode())
        return self

    @property
    def _has_cells(self):
        return any(self.folder.glob("[0-9a-f]*.json"))

    @classmethod
    def existing(cls, folder, *, needs=()):
        """Return the store in a folder that holds one, and its configuration."""
        store = cls(_path_of(folder), frozenset(needs))
        content = _read(store.folder / MANIFEST)
        if content is None:
            raise ValueError(
                f"store={str(folder)!r} holds no sweep: it has no {MANIFEST}. Name the folder of "
                "a finished or interrupted sweep."
            )
        return store, content

    def cells(self):
        return [self.load(path.stem) for path in sorted(self.folder.glob("[0-9a-f]*.json"))]

    def finished(self, keys):
        return {key: cell for key in keys if (cell := self.load(key)) is not None}

    def load(self, key):
        return _read(self.folder / f"{key}.json", self.needs)

    def save(self, key, cell):
        replace_file(self.folder / f"{key}.json", json.dumps(cell).encode())


def _path_of(folder):
    if not isinstance(folder, (str, os.PathLike)):
        raise TypeError(f"store must be the path of a folder, got {safe_repr(folder)}.")
    return Path(folder).expanduser()


def delta_in(folder):
    """Return the delta of the sweep in a folder; None if there is none."""
    content = _read(_path_of(folder) / MANIFEST)
    return None if content is None else content.get("delta")


def _read(path, needs=frozenset()):
    """Return the dict that a file holds, or None if there is no file."""
    try:
        content = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, RecursionError) as error:
        why = f"{type(error).__name__}: {error}"
    else:
        if isinstance(content, dict) and content and needs <= content.keys():
            return content
        why = "its content has changed"
    remedy = "Delete the folder" if path.name == MANIFEST else "Delete it"
    raise ValueError(f"{path} is damaged ({why}). {remedy}, and run again.")


def run_missing(tasks, done, store=None, *, n_jobs=None, on_result=None) -> bool:
    """Run tasks in parallel, each on one thread of torch, and add their results to ``done``.

    ``tasks`` are calls as `joblib.delayed` makes them, by key; those whose key is in ``done`` are
    left out.  ``store`` keeps each result once it is there, in the process that made it.  Returns
    False if Ctrl-C ended it; ``done`` then holds all that the store has of ``tasks``.
    """
    todo = [(key, task) for key, task in tasks.items() if key not in done]
    parallel = joblib.Parallel(n_jobs=n_jobs, return_as="generator")
    try:
        for key, result in parallel(joblib.delayed(_run_and_keep)(*item, store) for item in todo):
            done[key] = result
            if on_result is not None:
                on_result(result)
    except KeyboardInterrupt:
        # processes may have finished more than was handed over
        if store is not None:
            done |= store.finished(tasks)
        return False
    return True


def _run_and_keep(key, task, store):
    function, args, kwargs = task
    with _ALONE:
        threads = torch.get_num_threads()
        # tasks are parallel, and small ones gain nothing from threads
        torch.set_num_threads(1)
        try:
            result = function(*args, **kwargs)
        finally:
            torch.set_num_threads(threads)
    if store is not None:
        store.save(key, result)
    return key, result


def key_of(*parts) -> str:
    """Return a name for all that these parts determine: arrays, or values with a stable repr."""
    return digest(*parts).hex()[:40]


def digest_of(values) -> str:
    """Return a digest of a table, the same in every process."""
    if hasattr(values, "iloc"):
        frame = values.to_frame() if isinstance(values, pd.Series) else values
        names = [(str(name), str(dtype)) for name, dtype in frame.dtypes.items()]
        return key_of(names, pd.util.hash_pandas_object(frame, index=False).to_numpy())
    values = np.asarray(values)
    if values.dtype == object:
        return key_of(values.shape, pd.util.hash_array(values.reshape(-1), categorize=False))
    return key_of(values)


def _differences(content, wanted):
    """Return one line for each entry that differs, also within a dict."""
    stored, now = map(_entries, (content, wanted))
    return [
        f"  {_WORDS.get(name, name)}: {stored.get(name)!s:.120} there, {now.get(name)!s:.120} now"
        for name in sorted(stored.keys() | now.keys())
        if stored.get(name) != now.get(name)
    ]


def _entries(nested):
    entries = {}
    for name, value in nested.items():
        parts = value.items() if isinstance(value, dict) else [("", value)]
        entries |= {f"{name} {part}".strip(): json.dumps(v) for part, v in parts}
    return entries
