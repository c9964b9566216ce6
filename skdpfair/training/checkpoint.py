"""Checkpoints of a running fit, from which ``fit`` continues after a crash."""

from __future__ import annotations

import glob
import io
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor

from skdpfair._validate import error_context
from skdpfair.budget.files import lock, path_of, replace_file
from skdpfair.engine import Noise, Streams
from skdpfair.privacy import LedgerEntry

FORMAT = "skdpfair checkpoint 1"
_WRITTEN = 100  # times in a fit

# what is drawn in a step, and in how many steps in a row
Draws: TypeAlias = list[tuple[int, list[tuple[int, str]]]]


class Checkpoint:
    """A file with the state of a running fit, all of which was released or is public.

    It holds the weights, the optimizer's and the method's state, the releases so far and how many
    numbers were drawn; neither records nor seeds of noise and batches.

    Parameters
    ----------
    path : str or path-like
        The file, which only its owner may read.
    facts : dict of str to str
        Public facts that a fit must share in order to continue from it.
    n_steps : int
        Planned number of steps.
    writes : bool, default=True
        Whether this process writes.

    Attributes
    ----------
    interval : int
        Number of steps between two writes.
    seen : bool
        Whether somebody's code sees the weights as they are trained.
    init_entropy : tuple of int
        Of the initial weights, if it does not follow from a seed.
    n_resumed : int
        How often the fit was continued.
    turns : tuple of int
        What the entropy of the noise was mixed with, where it did not continue a stream.
    charge : str or None
        Name of the fit in the ledger that was charged.
    earlier : tuple of LedgerEntry
        What was released before that.
    more : callable
        Returns what else is to be written.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        facts: dict[str, str],
        n_steps: int,
        writes: bool = True,
    ) -> None:
        self.path: Path = path_of(path).resolve()
        self.facts, self.writes = facts, writes
        self.interval = -(-n_steps // _WRITTEN)
        self.charge: str | None = None
        self.earlier: tuple[LedgerEntry, ...] = ()
        self.noise: CountedNoise | None = None
        self.seen, self.n_resumed = False, 0
        self.init_entropy: tuple[int, ...] = ()
        self.turns: tuple[int, ...] = ()
        self.more: Callable[[], dict[str, Any]] = dict

    def noise_of(
        self,
        streams: Streams,
        device: str | torch.device,
        kind: str,
        saved: dict[str, Any] | None,
    ) -> Noise:
        """Return the noise of a fit, where a saved state has brought it.

        It is that of an uninterrupted fit if the streams are seeded, on the CPU, unless somebody
        saw the steps that were lost: then they are drawn anew, by a stream of its own.
        """
        draws: Draws = []
        if saved is not None:
            self.n_resumed, self.turns = saved["n_resumed"] + 1, tuple(saved["turns"])
            is_elsewhere = bool(saved["taken"] and not saved["draws"])  # it began on a GPU
            if self.seen or is_elsewhere or torch.device(device).type != "cpu":
                self.turns += saved["taken"] + 1, self.n_resumed
            else:
                draws = saved["draws"]
        noise = replace(streams, entropy=(*streams.entropy, *self.turns)).noise(device, kind)
        if not noise.on_cpu:
            return noise
        self.noise = counted = CountedNoise(noise)
        counted.skip(draws)
        return counted

    def read(self) -> dict[str, Any] | None:
        """Return the state that the file holds, or None if there is no file.

        Raises
        ------
        ValueError
            If the file is no checkpoint, or one of another fit.
        """
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return None
        what = f"{str(self.path)!r} is not a checkpoint of a fit, or is damaged"
        with error_context("checkpoint", f"{what}. Name another file, or remove it"):
            state = _content(content)
            if state.get("format") != FORMAT:
                raise ValueError("it holds something else")
            facts = json.loads(state["facts"])
            steps = sum(n for _, _, _, n, is_one_time, _ in state["entries"] if not is_one_time)
            if state["entries"] and not 0 <= state["taken"] <= steps:
                raise ValueError("its releases are not those of its steps")
        for name, value in self.facts.items():
            if facts.get(name) != value:
                raise ValueError(
                    f"checkpoint={str(self.path)!r} is of a fit with {name} {facts.get(name)}, but "
                    f"this one has {value}. Continue with the parameters and records of that fit, "
                    "or remove the file."
                )
        return state

    def write(self, state: dict[str, Any]) -> None:
        """Put a new state in the place of the one before, at once."""
        if not self.writes:
            return
        content = io.BytesIO()
        about = {
            "format": FORMAT,
            "facts": json.dumps(self.facts),
            "charge": self.charge,
            "earlier": plain(self.earlier),
            "draws": [] if self.noise is None else self.noise.draws,
            "seen": self.seen,
            "init_entropy": self.init_entropy,
            "n_resumed": self.n_resumed,
            "turns": self.turns,
        }
        try:
            torch.save(about | self.more() | state, content)
            _content(content.getvalue())
        except Exception as error:
            raise TypeError(
                f"checkpoint={str(self.path)!r} cannot hold the state of this fit, of which "
                "a file could not be read again. Let the optimizer and the module keep tensors and "
                f"plain numbers only, or set checkpoint=None. {error}"
            ) from None
        replace_file(self.path, content.getvalue(), is_private=True)

    def ends_step(self, taken: int) -> bool:
        """Count the noise of a step, and tell whether the state after it is to be written."""
        if self.noise is not None:
            self.noise.end_step()
        return taken % self.interval == 0

    def remove(self) -> None:
        """Remove the file of a fit that has finished."""
        if self.writes:
            self.path.unlink(missing_ok=True)
            for part in self.path.parent.glob(f".{glob.escape(self.path.name[:100])}.*.part"):
                part.unlink(missing_ok=True)  # of a process that was killed as it wrote


@contextmanager
def claimed(path: str | os.PathLike[str] | None, writes: bool) -> Iterator[None]:
    """Keep other fits from the file of a checkpoint for the time of a block.

    Raises
    ------
    ValueError
        If another fit that runs has claimed it, or no file can be there.
    """
    if path is None or not writes:
        yield
        return
    path = path_of(path).resolve()
    if path.is_dir() or not path.parent.is_dir():
        what = "is a folder" if path.is_dir() else "lies in a folder that does not exist"
        raise ValueError(f"checkpoint={str(path)!r} {what}. Name a file in a folder that exists.")
    beside = path.with_name(f".{path.name}.lock")
    is_ours = False
    while not is_ours:
        with open(beside, "ab", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            try:
                lock(file, waits=False)
            except (BlockingIOError, PermissionError):
                raise ValueError(
                    f"checkpoint={str(path)!r} is the file of a fit that runs now, in this or in "
                    "another process. Wait until it ends, or give each fit a path of its own."
                ) from None
            with suppress(FileNotFoundError):  # whoever claimed it before has removed it
                is_ours = os.path.samestat(os.fstat(file.fileno()), beside.stat())
            if is_ours:
                try:
                    yield
                finally:
                    with suppress(OSError):  # Windows keeps a file that is open
                        beside.unlink()


class CountedNoise(Noise):
    """Noise that counts what it draws, so that an equal stream can be brought to its position."""

    def __init__(self, noise: Noise) -> None:
        self._noise = noise
        self._step: list[tuple[int, str]] = []
        self.draws: Draws = []

    def fill_(
        self, out: Tensor, sensitivity: float | Tensor, noise_multiplier: float = 1.0
    ) -> Tensor:
        """Overwrite a tensor with Gaussian noise."""
        self._step.append((out.numel(), str(out.dtype).removeprefix("torch.")))
        return self._noise.fill_(out, sensitivity, noise_multiplier)

    def end_step(self) -> None:
        """Count the draws since the last call as those of a step."""
        if self.draws and self.draws[-1][1] == self._step:
            self.draws[-1] = self.draws[-1][0] + 1, self._step
        else:
            self.draws.append((1, self._step))
        self._step = []

    def skip(self, draws: Draws) -> None:
        """Draw what an equal stream has drawn, and drop it."""
        for n_steps, sizes in draws:
            for _ in range(n_steps):
                for size, dtype in sizes:
                    self.fill_(torch.empty(size, dtype=getattr(torch, dtype)), 1.0)
                self.end_step()


def _content(content: bytes) -> dict[str, Any]:
    """Return what a file holds, read without running any code."""
    found: dict[str, Any] = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    return found


def plain(entries: Sequence[LedgerEntry]) -> list[tuple[Any, ...]]:
    """Return ledger entries as tuples of plain values."""
    return [astuple(entry) for entry in entries]
