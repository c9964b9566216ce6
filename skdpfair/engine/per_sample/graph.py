"""A module's forward pass as a recorded list of operations, each on every record alone.

The module's Python runs while it is recorded, on made-up records, and never again: training carries
out the list.  So nothing that the code would decide by values, by the number of records, by random
numbers or by what it remembers can bring two records together, and no line of it sees a record.
"""

from __future__ import annotations

import pickle
import random
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import torch
from sklearn.utils import check_random_state
from torch import Tensor, nn

from skdpfair.engine.per_sample import layers
from skdpfair.engine.per_sample.operations import OPERATIONS, SIZED, Call, Operation
from skdpfair.engine.per_sample.stand_ins import (
    BatchSize,
    Coupling,
    NotRecorded,
    Recorded,
    is_plain,
    leaves,
)

_OWN = Path(__file__).parent
_TORCH = Path(torch.__file__).parent


@dataclass(frozen=True)
class _Slot:
    """The place of a recorded tensor among the arguments of a step."""

    number: int


Called: TypeAlias = Callable[[nn.Module, Tensor, Tensor], Tensor]

_N_RECORDS = object()  # the place of their number


@dataclass(frozen=True)
class _Step:
    """One operation: what to call with what, where its results go, what is not needed after it."""

    call: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    out: int | tuple[int, ...]
    layer: nn.Module | None = None
    is_drawn: bool = False
    dead: tuple[int, ...] = ()


class Tape:
    """Records the operations on ``value``, a made-up batch."""

    def __init__(self, value: Tensor) -> None:
        self.n, self.n_slots = len(value), 0
        self.steps: list[_Step] = []
        self.refusal: NotRecorded | None = None
        self.x = self._new(value)

    def _new(self, value: Tensor) -> Recorded:
        self.n_slots += 1
        return Recorded(self, self.n_slots - 1, value)

    def refused(self, error: NotRecorded) -> NotRecorded:
        """Note a refusal, which stands even if the module's code catches it."""
        if self.refusal is None or isinstance(error, Coupling):
            self.refusal = error
        return error

    def apply(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Record one call and return its recorded result."""
        try:
            return self._applied(func, args, kwargs)
        except NotRecorded as error:
            raise self.refused(error) from None

    def _applied(
        self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        operation = OPERATIONS.get(func)
        if operation is None:
            raise NotRecorded(f"{getattr(func, '__name__', func)} is not a listed operation")
        call = Call(operation.name, args, kwargs, self.n)
        self._check(operation, call)
        run = func if operation.drawn is None else operation.drawn
        value = self._run(run, args, kwargs, operation.drawn)
        return self._enter(run, args, kwargs, value, is_drawn=operation.drawn is not None)

    def _check(self, operation: Operation, call: Call) -> None:
        if not is_plain(call.args) or not is_plain(call.kwargs):
            raise NotRecorded(f"{call.name} takes an argument of a type of its own")
        recorded, constants = call.tensors()
        if any(r.tape is not self for r in recorded):
            raise NotRecorded("it uses a tensor of an earlier call")
        if any(c.requires_grad for c in constants):  # the rest may still bring records together
            self.refused(
                NotRecorded("a parameter is used outside of a layer that book-keeping covers")
            )
        if not torch.is_grad_enabled() or call.kwargs.get("out") is not None:
            raise NotRecorded("it turns autograd off, or writes into a given tensor")
        if operation.rule not in SIZED and any(
            isinstance(leaf, BatchSize) for leaf in leaves((call.args, call.kwargs))
        ):
            raise Coupling(f"{call.name} computes with the number of records of the batch")
        operation.rule(call)
        if operation.in_place or call.kwargs.get("inplace"):
            place = call.first().value.untyped_storage().data_ptr()
            if place == self.x.value.untyped_storage().data_ptr():
                raise NotRecorded("it changes its input in place")

    def _run(
        self,
        run: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        drawn: Callable[..., Any] | None,
    ) -> Any:
        options = {"generator": torch.Generator(self.x.device).manual_seed(0)} if drawn else {}
        args, kwargs = _map((args, kwargs), lambda a: a.value if isinstance(a, Recorded) else a)
        sized = _map((args, kwargs), lambda a: self.n if isinstance(a, BatchSize) else a)
        return run(*sized[0], **sized[1], **options)

    def _enter(
        self,
        run: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        value: Any,
        **facts: Any,
    ) -> Any:
        several = isinstance(value, (tuple, list))
        values = tuple(value) if several else (value,)
        if any(not isinstance(v, Tensor) or v.dim() == 0 or len(v) != self.n for v in values):
            raise NotRecorded("an operation does not keep a row for each record")
        found = tuple(self._new(v) for v in values)
        out = tuple(f.slot for f in found) if several else found[0].slot
        args, kwargs = _map((args, kwargs), _stored)
        self.steps.append(_Step(run, args, kwargs, out, **facts))
        if not several:
            return found[0]
        try:  # named tuples, as of max
            return type(value)(found)
        except TypeError:
            return found

    def layer(self, module: nn.Module, run: Callable[..., Any], x: Any) -> Any:
        """Record the call of a layer that has parameters."""
        if not isinstance(x, Recorded) or x.tape is not self:
            raise self.refused(NotRecorded(f"{type(module).__name__} is called without a record"))
        if not torch.is_grad_enabled():
            raise self.refused(NotRecorded("it turns autograd off"))
        if not layers.takes_rows(module, x.value):
            raise self.refused(
                NotRecorded(f"{type(module).__name__} on {x.dim()} axes may take records for more")
            )
        return self._enter(run, (x,), {}, run(x.value), layer=module)


def _stored(leaf: Any) -> Any:
    if isinstance(leaf, Recorded):
        return _Slot(leaf.slot)
    return _N_RECORDS if isinstance(leaf, BatchSize) else leaf


def _map(nested: Any, change: Callable[[Any], Any]) -> Any:
    """Return tuples, lists, dicts and slices with ``change`` applied to what they hold."""
    if isinstance(nested, (tuple, list)):
        return type(nested)([_map(part, change) for part in nested])
    if isinstance(nested, dict):
        return {key: _map(part, change) for key, part in nested.items()}
    return change(nested)


class Graph:
    """A recorded forward pass: carries it out on any number of records.

    Parameters
    ----------
    steps : list
        The operations, in order.
    out : int
        Slot of the result.
    n_slots : int
        Number of tensors on the way.
    """

    def __init__(self, steps: list[_Step], out: int, n_slots: int) -> None:
        self.out, self.n_slots = out, n_slots
        self.steps = _freed(steps, out)
        self.layers = [step.layer for step in steps if step.layer is not None]
        self.draws = any(step.is_drawn for step in steps)

    def __call__(
        self, x: Tensor, generator: torch.Generator | None = None, called: Called | None = None
    ) -> Tensor:
        """Return the logits of ``x``; ``called(layer, a, out)`` may change what a layer returns."""
        slots: list[Any] = [None] * self.n_slots
        slots[0], n = x, len(x)

        def fill(leaf: Any) -> Any:
            if isinstance(leaf, _Slot):
                return slots[leaf.number]
            return n if leaf is _N_RECORDS else leaf

        for step in self.steps:
            args, kwargs = _map(step.args, fill), _map(step.kwargs, fill)
            if step.is_drawn:
                kwargs["generator"] = generator
            found = step.call(*args, **kwargs)
            if step.layer is not None and called is not None:
                found = called(step.layer, args[0], found)
            if isinstance(step.out, int):
                slots[step.out] = found
            else:
                for slot, value in zip(step.out, found, strict=True):
                    slots[slot] = value
            del args, kwargs, found
            for slot in step.dead:
                slots[slot] = None
        logits: Tensor = slots[self.out]
        return logits

    @property
    def names(self) -> list[str]:
        """Names of the functions called, step by step."""
        return [getattr(step.call, "__name__", type(step.layer).__name__) for step in self.steps]

    def on(self, module: nn.Module, recorded: nn.Module) -> Graph:
        """Return the graph of ``module``, an equal of the module that was ``recorded``."""
        same = dict(zip(recorded.modules(), module.modules(), strict=True))
        tensors: dict[int, Tensor] = {}
        for kind in (nn.Module.parameters, nn.Module.buffers):
            tensors |= {id(a): b for a, b in zip(kind(recorded), kind(module), strict=True)}

        def moved(leaf: Any) -> Any:
            return tensors.get(id(leaf), leaf) if isinstance(leaf, Tensor) else leaf

        steps = []
        for step in self.steps:
            layer = None if step.layer is None else same[step.layer]
            call = step.call if layer is None else _own_forward(layer)
            args, kwargs = _map(step.args, moved), _map(step.kwargs, moved)
            steps.append(_Step(call, args, kwargs, step.out, layer, step.is_drawn))
        return Graph(steps, self.out, self.n_slots)


def _freed(steps: list[_Step], out: int) -> list[_Step]:
    """Return the steps with the slots that none of the later ones needs."""
    last = {}
    for i, step in enumerate(steps):
        used = [leaf.number for leaf in leaves((step.args, step.kwargs)) if isinstance(leaf, _Slot)]
        made = [step.out] if isinstance(step.out, int) else step.out
        last.update(dict.fromkeys((*used, *made), i))
    last.pop(out, None)
    dead = [tuple(slot for slot, at in last.items() if at == i) for i in range(len(steps))]
    return [
        _Step(s.call, s.args, s.kwargs, s.out, s.layer, s.is_drawn, d)
        for s, d in zip(steps, dead, strict=True)
    ]


def _own_forward(layer: nn.Module) -> Callable[[Tensor], Tensor]:
    """Return the forward of the layer's class: no hook, no patch."""
    bound: Callable[[Tensor], Tensor] = type(layer).forward.__get__(layer)
    return bound


def record(module: nn.Module, x: Tensor) -> Graph:
    """Return the forward pass of ``module`` as a graph.

    Parameters
    ----------
    module : torch.nn.Module
        Its code runs once.  Use a copy, for the code may change it.
    x : Tensor of shape (batch, ...)
        Made-up records.

    Returns
    -------
    Graph
        Carries out the same operations on any number of records.

    Raises
    ------
    Coupling
        If the forward pass lets records act on each other.
    NotRecorded
        If it cannot be told.
    """
    tape = Tape(x)
    covered = [m for m in module.modules() if _is_leaf(m)]
    chance = _chance(x.device)
    for layer in covered:
        layer.forward = _recorder(tape, layer)
    try:
        with torch.enable_grad():
            out = module(tape.x)
    except Exception as error:
        raise with_place(tape.refusal or error, error) from None
    finally:
        for layer in covered:
            del layer.forward
    if tape.refusal is not None:
        raise tape.refusal
    if not isinstance(out, Recorded) or out.tape is not tape:
        raise NotRecorded("it returns no tensor made of its input")
    if _chance(x.device) != chance:
        raise NotRecorded("it draws random numbers that all records of a batch share")
    return Graph(tape.steps, out.slot, tape.n_slots)


def _is_leaf(module: nn.Module) -> bool:
    own = [p for p in module.parameters(recurse=False) if p.requires_grad]
    return bool(own) and layers.find(module) is not None and "forward" not in vars(module)


def _recorder(tape: Tape, layer: nn.Module) -> Callable[[Any], Any]:
    run = _own_forward(layer)
    return lambda x: tape.layer(layer, run, x)


def shared_draws() -> tuple[object, ...]:
    """Return the states of Python's and numpy's global generators."""
    return random.getstate(), pickle.dumps(check_random_state(None).get_state(legacy=False))


@contextmanager
def fixed_draws(device: torch.device, seed: int = 0) -> Iterator[None]:
    """Let torch's global generators of the device start anew, and leave them as they were."""
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.default_generator.manual_seed(seed)
        if device.type == "cuda":
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed)
        yield


def _chance(device: torch.device) -> list[object]:
    states: list[object] = [torch.get_rng_state().numpy().tobytes(), shared_draws()]
    if device.type == "cuda":
        states.append(torch.cuda.get_rng_state(device).numpy().tobytes())
    return states


def with_place(refusal: Exception, error: Exception) -> NotRecorded:
    """Return the refusal with the last line of the module's own code that led to ``error``."""
    kind = Coupling if isinstance(refusal, Coupling) else NotRecorded
    said = str(refusal).strip().partition("\n")[0]
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename)
        if path.is_relative_to(_TORCH) or path.is_relative_to(_OWN.parents[1]):
            continue
        line = f": {frame.line}" if frame.line else ""
        return kind(f"{said} (in {path.name}, line {frame.lineno}{line})")
    return kind(said)
