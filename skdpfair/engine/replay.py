"""CUDA graphs: steps recorded once per batch size and replayed in one launch."""

import logging
import threading
from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten

from skdpfair.engine.noise import Noise

_CAPTURE = threading.Lock()  # a process may capture one graph at a time
# by thread and device, made once: each stream holds workspaces of cuBLAS for good
_STREAMS: dict[tuple[int, torch.device], torch.cuda.Stream] = {}

log = logging.getLogger("skdpfair")


class ReplayError(RuntimeError):
    """A step cannot be recorded, for the reason given."""


class Recorder(Protocol):
    """Makes recordings of steps."""

    def warm_up(self, run: Callable[[], None]) -> None:
        """Call ``run()``."""

    def record(self, run: Callable[[], None]) -> Callable[[], None]:
        """Return what repeats the operations of ``run()`` without its Python."""


class Replay:
    """Takes steps, and records each batch size when it comes for the second time.

    Parameters
    ----------
    step : callable
        ``step(index)`` takes the step on the records at ``index``.  It must read and write
        tensors that stay where they are, decide nothing by their values, and not wait for them.
    recorder : object
        ``warm_up(run)`` calls ``run()``; ``record(run)`` returns what repeats the operations of
        ``run()`` without its Python, and does not carry them out.  See :class:`CudaGraphs`.
    most : int, default=16
        Sizes recorded at most, for each holds memory; the rest are taken operation by operation.

    Notes
    -----
    A step that cannot be recorded is taken operation by operation ever after, and ``refusal``
    tells why.
    """

    def __init__(self, step: Callable[[Tensor], None], recorder: Recorder, most: int = 16) -> None:
        self.step, self.recorder, self.most = step, recorder, most
        self.refusal: str | None = None
        self.is_recording = False
        self.forget()

    def forget(self) -> None:
        """Drop the recordings, since numbers that they hold have changed."""
        self._met: set[int] = set()
        self._recorded: dict[int, tuple[Tensor, Callable[[], None]]] = {}

    def __call__(self, index: Tensor) -> None:
        """Take one step."""
        size = len(index)
        if size in self._met and size not in self._recorded and self._has_room():
            self._record(index)
        if size in self._recorded:
            where, replay = self._recorded[size]
            where.copy_(index)
            replay()
        else:
            self._met.add(size)  # the first step of a size fills caches that recordings read
            self.recorder.warm_up(lambda: self.step(index))

    def keep(self, old: Any, new: Any) -> Any:
        """Return where the values of ``new`` are kept from now on: if possible, in ``old``."""
        kept = write_over(old, new)
        if kept is not old:
            if self.is_recording:
                raise ReplayError("the method's state changes its form from step to step")
            self.forget()
        return kept

    def _has_room(self) -> bool:
        return self.refusal is None and len(self._recorded) < self.most

    def _record(self, index: Tensor) -> None:
        where, self.is_recording = index.clone(), True
        try:
            self._recorded[len(index)] = where, self.recorder.record(lambda: self.step(where))
        except Exception as error:  # whatever a user's module or method raises while recorded
            self.refusal = f"{type(error).__name__}: {error}"
            log.info("steps are not replayed: %s", self.refusal)
            self.forget()  # others draw from the states that generators had before
        finally:
            self.is_recording = False


class CudaGraphs:
    """Records CUDA graphs, all in one pool of memory, with the generators that a step draws from.

    These are the noise's and ``others``, such as dropout's.
    """

    def __init__(self, noise: Noise, device: str | torch.device, *others: torch.Generator) -> None:
        self.noise, self.device, self.others = noise, torch.device(device), others
        self._pool = torch.cuda.graph_pool_handle()

    @property
    def _stream(self) -> torch.cuda.Stream:
        """The thread's stream beside the one that everything else is on."""
        key = threading.get_ident(), self.device
        if key not in _STREAMS:
            _STREAMS[key] = torch.cuda.Stream(self.device)
        return _STREAMS[key]

    def warm_up(self, run: Callable[[], None]) -> None:
        """Run beside the stream that everything else is on, as a recording would."""
        self._stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(self._stream):
            run()
        torch.cuda.current_stream(self.device).wait_stream(self._stream)

    def record(self, run: Callable[[], None]) -> Callable[[], None]:
        """Return the replay of a new graph."""
        graph = torch.cuda.CUDAGraph()
        for generator in (self.noise.generator, *self.others):
            graph.register_generator_state(generator)
        # other threads may use the device meanwhile; torch leaves the stream as it is on failure
        before = torch.cuda.stream(torch.cuda.current_stream(self.device))
        capture = torch.cuda.graph(
            graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"
        )
        try:
            with _CAPTURE, before, capture:
                run()
        except Exception:
            self._release_generators()
            raise
        return graph.replay

    def _release_generators(self) -> None:
        """Give generators that may be left in the middle of a recording new states."""
        self.noise.renew()
        for generator in (torch.cuda.default_generators[self.device.index], *self.others):
            generator.graphsafe_set_state(generator.clone_state())


def recorder(
    noise: Noise, device: str | torch.device, *others: torch.Generator
) -> CudaGraphs | None:
    """Return the recorder of steps on a device, or None where steps cannot be recorded."""
    able = torch.device(device).type == "cuda" and hasattr(
        torch.cuda.CUDAGraph, "register_generator_state"
    )
    return CudaGraphs(noise, device, *others) if able else None


def write_over(old: Any, new: Any) -> Any:
    """Write the tensors of ``new`` where those of ``old`` lie, and return ``old``.

    Where the two differ in anything but the tensors' values, ``new`` is returned, and ``old``
    is as it was.
    """
    if old is new:
        return old
    (before, shape), (after, new_shape) = tree_flatten(old), tree_flatten(new)
    if shape != new_shape or not all(map(_fits, before, after)):
        return new
    for a, b in zip(before, after, strict=True):
        if isinstance(a, Tensor) and a is not b:
            a.copy_(b)
    return old


def _fits(a: object, b: object) -> bool:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return a.shape == b.shape and a.dtype == b.dtype and a.device == b.device
    return type(a) is type(b) and a == b


def padded(indices: list[Tensor], expected: float) -> list[Tensor]:
    """Return index batches filled up by -1 to a few sizes.

    Sizes are multiples of two standard deviations of a Poisson batch of ``expected`` records,
    and at least one record long, so that an empty batch has a size, too.

    Examples
    --------
    >>> [len(i) for i in padded([torch.arange(n) for n in (0, 250, 256, 257)], 256.0)]
    [32, 256, 256, 288]
    """
    width = 16 * max(1, round(2 * expected**0.5 / 16))
    sizes = [width * max(1, -(-len(index) // width)) for index in indices]
    flat = torch.full((sum(sizes),), -1, dtype=torch.int64)
    batches = list(flat.split(sizes))
    for batch, index in zip(batches, indices, strict=True):
        batch[: len(index)] = index
    return batches
