"""Traces of functions of one record: the proof that the records of a batch do not meet.

A function of ONE record is traced once, on a made-up record, into operations of torch, each of
which must stand in a closed list.  Under `torch.func.vmap` these act on every record alone.  No
line of the function's code sees a record of the data, the number of records or another record.
"""

from __future__ import annotations

import pickle
import random
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from operator import itemgetter
from pathlib import Path
from typing import Any, TypeAlias

import torch
from sklearn.utils import check_random_state
from torch import Tensor
from torch._guards import TracingContext, tracing
from torch._subclasses.fake_tensor import FakeTensorMode
from torch._subclasses.functional_tensor import dispatch_functionalize
from torch.func import vmap
from torch.fx import GraphModule, Interpreter, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_map_only, tree_unflatten

from skdpfair.engine.memory import is_out_of_memory
from skdpfair.engine.per_sample.closed_list import (
    PLAIN_TENSORS,
    TraceError,
    explained,
    reason_to_refuse,
)
from skdpfair.engine.per_sample.decompositions import DECOMPOSED
from skdpfair.engine.per_sample.graphs import (
    SIZES,
    first_input,
    guard_divisions,
    of_any_size,
    simplify,
    take_generator,
    take_slope,
)
from skdpfair.engine.per_sample.rounding import steady


class Apart(Interpreter):
    """Runs operations of one record, and each of them on several, of made-up numbers, under vmap.

    The first ``n_shared`` inputs are the same for all records.
    """

    def __init__(self, operations: GraphModule, n_shared: int) -> None:
        super().__init__(operations)
        self.extra_traceback = False
        inputs = [n for n in self.graph.nodes if n.op == "placeholder"]
        self._by_record = set(inputs[n_shared:])
        self._tried: set[Any] = set()
        self._generator = torch.Generator().manual_seed(0)

    def check(self, *record: Any) -> None:
        """Refuse operations that give records of a batch other results than each alone."""
        try:
            with torch.no_grad():
                self.run(*record)
        except RuntimeError as error:
            raise TraceError(str(error).partition("\n")[0]) from None

    def run_node(self, n: Node) -> Any:
        """Try an operation, and run it on the one record."""
        if not self._by_record.isdisjoint(n.all_input_nodes):
            self._by_record.add(n)
            tags = getattr(n.target, "tags", None)  # of operations of torch alone
            drawn = tags is None or torch.Tag.nondeterministic_seeded in tags
            # drawn or empty numbers differ anyway
            if not (drawn or "empty" in str(n.target)):
                self._try(n, *tree_flatten((n.args, n.kwargs)))
        return super().run_node(n)

    def _try(self, node: Node, leaves: list[Any], spec: Any) -> None:
        places = [
            i for i, leaf in enumerate(leaves) if isinstance(leaf, Node) and leaf in self._by_record
        ]
        leaves = [self.env[leaf] if isinstance(leaf, Node) else leaf for leaf in leaves]
        kinds = tree_map_only(Tensor, lambda t: (t.shape, t.dtype), leaves)
        if (key := repr((node.target, places, kinds, spec))) in self._tried:
            return
        self._tried.add(key)

        def run(*values: Tensor) -> list[Tensor]:
            filled = dict(enumerate(leaves)) | dict(zip(places, values, strict=True))
            args, kwargs = tree_unflatten([*filled.values()], spec)
            results = node.target(*args, **kwargs)  # type: ignore[operator]  # an operation
            return [t for t in tree_leaves(results) if t is not None]

        records = [[self._random_like(leaves[i]) for i in places] for _ in range(3)]
        alone = [torch.stack(parts) for parts in zip(*(run(*r) for r in records), strict=True)]
        for axis in (0, -1):
            batch = [torch.stack(values, axis) for values in zip(*records, strict=True)]
            try:
                results = vmap(run, axis)(*batch)
            except RuntimeError:
                # some rules take records that come first only
                if axis:
                    continue
                raise
            if not all(map(_equal, results, alone)):
                shapes = ", ".join(str(tuple(leaves[i].shape)) for i in places)
                raise TraceError(f"{node.target} on {shapes} lets records act on each other")

    def _random_like(self, like: Tensor) -> Tensor:
        if not (like.is_floating_point() or like.is_complex()):
            return like
        numbers = torch.rand(like.shape, generator=self._generator).mul_(0.9).add_(0.05)
        return numbers.to(like)


def _equal(together: Tensor, alone: Tensor) -> bool:
    if together.shape != alone.shape or not (together.is_floating_point() or together.is_complex()):
        return torch.equal(together, alone)
    tolerance = torch.finfo(together.dtype).eps ** 0.4
    return torch.allclose(together, alone, tolerance, tolerance, equal_nan=True)


class InPlaceCheck(Interpreter):
    """Runs operations and refuses one in place on memory that was not made in the same run.

    Memory is what counts: schemas do not name all results that share it with an input.
    """

    def __init__(self, operations: GraphModule) -> None:
        super().__init__(operations)
        self.extra_traceback = False

    def check(self, *args: Any) -> None:
        """Run the operations, on copies of their arguments."""
        constants = [getattr(self.module, n.target) for n in self.graph.nodes if n.op == "get_attr"]
        self._kept = {*map(_memory, (*args, *constants))}
        self.run(*args)

    def run_node(self, n: Node) -> Any:
        """Run an operation, if what it changes is of this run."""
        schema = getattr(n.target, "_schema", None)
        if schema is not None and schema.is_mutable:
            values, _ = self.fetch_args_kwargs_from_env(n)
            changed = [a.alias_info is not None and a.alias_info.is_write for a in schema.arguments]
            for value in (v for v, is_changed in zip(values, changed, strict=False) if is_changed):
                if not self._kept.isdisjoint(map(_memory, tree_leaves(value))):
                    raise TraceError("it changes a tensor that is kept from call to call")
        return super().run_node(n)


def _memory(tensor: Tensor) -> int:
    address: int = tensor.untyped_storage()._cdata
    return address


_OWN = Path(__file__).parents[2]
_TORCH = Path(torch.__file__).parent
# torch's tracer keeps a state of the whole process
_TRACING = threading.Lock()
N_ROWS = 32  # of batches where operations depend on the size
N_ROWS_OF_LAYERS = 128  # where no gradients of single records take memory

Slope: TypeAlias = Callable[[Tensor, slice], Tensor]


class RecordTrace:
    """The operations of a function of one record, carried out on each record of a batch.

    ``function(*shared, *record)``, which may be a trace, returns a tensor, or a tuple of tensors
    and lists of them, of what all records share, such as parameters, and what each has of its own,
    without an axis for the batch.  The values are made up.  With ``slope``, the last tensor of a
    record is a function of the first result, see `__call__`.  Where operations depend on the size
    of a batch by more than sizes of tensors, they are carried out on 32 records at a time, or
    refused if ``any_size``; in parts of one size, too, where rounding decides, see `steady`.
    ``draws`` is whether they draw random numbers.  A `TraceError` says which operation is not known
    to act on each record alone.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        shared: Sequence[Tensor],
        record: Sequence[Tensor],
        *,
        any_size: bool = False,
        slope: bool = False,
    ) -> None:
        if not isinstance(function, GraphModule):
            function = trace(function, (*shared, *record))
        self.one = function
        Apart(self.one, len(shared)).check(*shared, *record)
        simplify(self.one)
        axes = (*[None] * len(shared), *[0] * len(record))
        self._made_up = [column[None].clone() for column in record]
        # the size of the batches that the operations run on; None for any
        rows = N_ROWS_OF_LAYERS if any_size else N_ROWS
        self._n_rows = None if steady(self.one, len(shared)) else rows
        guard_divisions(self.one)
        try:
            batched, other = (_batched(self.one, axes, shared, record, n) for n in SIZES)
            graph = of_any_size(batched, other)
        except TraceError:
            if any_size:
                raise
            self._n_rows = N_ROWS
            batched = _batched(self.one, axes, shared, record, N_ROWS)
            graph = batched.graph
            first_input(graph, "n")
        if slope:
            take_slope(graph)
        self.draws = take_generator(graph)
        self._run = GraphModule(batched, graph)

    def __call__(
        self,
        generator: torch.Generator | None,
        shared: Sequence[Tensor],
        *columns: Tensor,
        slope: Slope | None = None,
    ) -> Any:
        """Return the results of a batch, each with a row per record.

        ``columns`` (batch, ...) are what each record has of its own; ``slope(outputs, rows)`` makes
        the last of them for some rows, a slice, of the first result.  The results of a record on
        which an operation fails, as where an embedding lacks its code, are NaN.
        """
        run = partial(self._run_rows, generator, shared)
        n = len(columns[0])

        @cache
        def without_result() -> Any:
            # made-up numbers fail only where the code does
            made_up = None if slope is None else lambda outputs, rows: self._made_up[-1]
            results = run(self._made_up[: len(columns)], made_up, slice(0, 1))
            return tree_map(_nan_like, results)

        size = self._n_rows or n
        parts = [
            part
            for start in range(0, n, size)
            for part in self._parts(
                run, without_result, columns, slope, start, min(start + size, n)
            )
        ]
        return parts[0] if len(parts) == 1 else tree_map(lambda *t: torch.cat(t), *parts)

    def _parts(
        self,
        run: Callable[..., Any],
        without_result: Callable[[], Any],
        columns: Sequence[Tensor],
        slope: Slope | None,
        start: int,
        stop: int,
    ) -> list[Any]:
        """Return the results of some records, in parts that leave out those on which they fail.

        No error is raised or shown: it would tell a record's values.
        """
        rows = slice(start, stop)
        try:
            return [run([column[rows] for column in columns], slope, rows)]
        except (RuntimeError, LookupError, ValueError, ArithmeticError) as error:
            if is_out_of_memory(error):
                raise
        if stop - start > 1:
            middle = (start + stop) // 2
            args = run, without_result, columns, slope
            return [*self._parts(*args, start, middle), *self._parts(*args, middle, stop)]
        results = without_result()
        if slope is not None:
            slope(results[0], rows)
        return [results]

    def _run_rows(
        self,
        generator: torch.Generator | None,
        shared: Sequence[Tensor],
        columns: Sequence[Tensor],
        slope: Slope | None,
        rows: slice,
    ) -> Any:
        n = rows.stop - rows.start
        size = self._n_rows or n

        def last(outputs: Tensor) -> Tensor:
            assert slope is not None
            return _padded(slope(outputs[:n], rows), self._made_up[-1], size)

        inputs = [_padded(*pair, size) for pair in zip(columns, self._made_up, strict=False)]
        results = self._run(generator, size, *shared, *inputs, *([] if slope is None else [last]))
        return results if n == size else tree_map(itemgetter(slice(n)), results)


def _padded(column: Tensor, made_up: Tensor, size: int) -> Tensor:
    """Return a column of as many rows as were traced, and laid out as that one."""
    missing = size - len(column)
    if missing:
        column = torch.cat([column, made_up.expand(missing, *made_up.shape[1:])])
    return column.contiguous()


def _nan_like(result: Tensor) -> Tensor:
    has_nan = result.is_floating_point() or result.is_complex()
    return torch.full_like(result, torch.nan) if has_nan else result


def trace(function: Callable[..., Any], args: Sequence[Tensor]) -> GraphModule:
    """Return the operations that a function carries out on tensors, none of them in place.

    Its Python runs once, on copies of the made-up ``args``.  A `TraceError` names the line where an
    operation is not in the closed list, or where the function decides by values, by Python's or
    numpy's random numbers, changes its arguments or reads parameters from elsewhere.
    """

    def run(*args: Tensor) -> Any:
        results = function(*args)
        mutated: Any = torch._functionalize_has_data_mutation  # type: ignore[attr-defined]
        if any(mutated(a.elem) for a in args):  # type: ignore[attr-defined]
            raise TraceError("it changes its input or its parameters in place")
        return results

    copies = [a.clone() for a in args]
    draws = _global_states()
    with _tracing([a.device for a in args if a.is_cuda]):
        try:
            traced = make_fx(dispatch_functionalize(run), DECOMPOSED)(*copies)
        except Exception as error:
            raise _with_place(explained(error), error) from None
        if _global_states() != draws:
            raise TraceError("it draws random numbers that all records of a batch share")
        for node in traced.graph.nodes:
            if reason := reason_to_refuse(node):
                raise TraceError(reason)
            if node.kwargs.get("generator") is not None:
                raise TraceError("it draws random numbers from a generator of its own")
        names = {node.target for node in traced.graph.nodes if node.op == "get_attr"}
        for name in names:
            constant = getattr(traced, name)
            if type(constant) not in PLAIN_TENSORS or constant.requires_grad:
                raise TraceError(_FOREIGN)
            # of the trace alone, so that nobody changes it while a fit lasts
            setattr(traced, name, constant.detach().clone())
        InPlaceCheck(traced).check(*copies)
    return traced


_FOREIGN = (
    "it reads a parameter that is not its own, as a patched method may, or torch.utils.checkpoint "
    "with use_reentrant=False: call the layers without checkpoint"
)


@contextmanager
def _tracing(devices: Sequence[torch.device]) -> Iterator[None]:
    """Let torch trace: global generators stay as they are, and operations are such as vmap knows.

    It knows neither mkldnn's and cuDNN's recurrences nor fused attention.
    """
    with (
        warnings.catch_warnings(action="ignore"),  # of operations that vmap takes one by one
        _TRACING,
        torch.random.fork_rng(set(devices)),
        torch.enable_grad(),
        torch.backends.mkldnn.flags(enabled=False),
        sdpa_kernel(SDPBackend.MATH),
        # one fake mode notes all shapes; the tracer would make another for each tensor
        tracing(TracingContext(FakeTensorMode(allow_fallback_kernels=True))),
    ):
        # cudnn.flags reads a switch of TF32 that full precision leaves undefined, and cudnn.enabled
        # cannot be set after torch.backends.disable_global_flags()
        is_on = torch._C._get_cudnn_enabled()
        torch._C._set_cudnn_enabled(False)
        try:
            yield
        finally:
            torch._C._set_cudnn_enabled(is_on)


def _batched(
    one: GraphModule,
    axes: tuple[int | None, ...],
    shared: Sequence[Tensor],
    record: Sequence[Tensor],
    n: int,
) -> GraphModule:
    """Return the operations by which vmap carries out those of one record on ``n`` records."""
    rows = [column.expand(n, *column.shape).clone() for column in record]
    with _tracing([column.device for column in record if column.is_cuda]):
        try:
            each = dispatch_functionalize(vmap(one, axes, randomness="different"))
            batched = make_fx(each, DECOMPOSED)(*shared, *rows)
        except Exception as error:
            raise TraceError(str(error).strip().partition("\n")[0]) from None
    simplify(batched)
    return batched


def _global_states() -> tuple[object, ...]:
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


def _with_place(refusal: Exception, error: Exception) -> TraceError:
    """Return the refusal with the last line of the module's own code that led to ``error``."""
    reason = str(refusal).strip().partition("\n")[0]
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename)
        if path.is_relative_to(_TORCH) or path.is_relative_to(_OWN):
            continue
        line = f": {frame.line}" if frame.line else ""
        return TraceError(f"{reason} (in {path.name}, line {frame.lineno}{line})")
    return TraceError(reason)
