"""A function of one record, traced once and carried out on each record of a batch.

Under `torch.func.vmap` the traced operations act on every record alone.  No line of the function's
code sees a record of the data, the number of records or another record.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import partial
from operator import itemgetter
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.func import vmap
from torch.fx import GraphModule

from skdpfair._utils.torch_internals import OpOverload, dispatch_functionalize, make_fx, tree_map
from skdpfair.engine.memory import is_out_of_memory
from skdpfair.engine.per_sample.proof.decompositions import DECOMPOSED
from skdpfair.engine.per_sample.proof.graphs import (
    SIZES,
    first_input,
    guard_divisions,
    n_numbers,
    of_any_size,
    output_gradient_as_input,
    simplify,
    take_generator,
)
from skdpfair.engine.per_sample.proof.operations import TraceError, explained
from skdpfair.engine.per_sample.proof.rounding import steady
from skdpfair.engine.per_sample.proof.trace_checks import VmapRuleCheck
from skdpfair.engine.per_sample.proof.tracing import trace, traceable

N_ROWS = 128  # of batches where operations depend on the size

OutputGradients: TypeAlias = Callable[[Tensor, slice], Tensor]


class RecordTrace:
    """The operations of a function of one record, carried out on each record of a batch.

    ``function(*shared, *record)``, which may be a trace, returns a tensor, or a tuple of tensors
    and lists of them, of what all records share, such as parameters, and what each has of its own,
    without an axis for the batch.  The values are made up.  With ``output_gradient``, the last
    tensor of a record is a function of the first result, see `__call__`.  Where operations depend
    on the size of a batch by more than sizes of tensors, they are carried out on 128 records
    at a time; in parts of one size, too, where rounding decides, see `steady`.  ``draws`` is
    whether they draw random numbers, ``n_numbers`` how many they make of a record.  A `TraceError`
    says which operation is not known to act on each record alone.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        shared: Sequence[Tensor],
        record: Sequence[Tensor],
        *,
        output_gradient: bool = False,
    ) -> None:
        if not isinstance(function, GraphModule):
            function = trace(function, (*shared, *record))
        self.one = GraphModule(function, copy.deepcopy(function.graph))
        VmapRuleCheck(self.one, len(shared)).check(*shared, *record)
        simplify(self.one)
        self._made_up = [column[None].clone() for column in record]
        # the size of the batches that the operations run on; None for any
        self._n_rows = None if steady(self.one, len(shared)) else N_ROWS
        guard_divisions(self.one)
        try:
            batched, other = (_batched(self.one, shared, record, n) for n in SIZES)
            graph = of_any_size(batched, other)
        except TraceError:
            self._n_rows = N_ROWS
            batched = _batched(self.one, shared, record, N_ROWS)
            graph = batched.graph
            first_input(graph, "n")
        if output_gradient:
            output_gradient_as_input(graph)
        self.draws, self.n_numbers = take_generator(graph), n_numbers(self.one.graph)
        self._run = _kernels(GraphModule(batched, graph))

    def __call__(
        self,
        generator: torch.Generator | None,
        shared: Sequence[Tensor],
        *columns: Tensor,
        output_gradient: OutputGradients | None = None,
    ) -> Any:
        """Return the results of a batch, each with a row per record.

        ``columns`` (batch, ...) are what each record has of its own; ``output_gradient(outputs,
        rows)`` makes the last of them for some rows, a slice, of the first result.  The results of
        a record on which an operation fails, as where an embedding lacks its code, are NaN.
        """

        def run(columns: Sequence[Tensor], rows: slice, last: OutputGradients | None) -> Any:
            n = rows.stop - rows.start
            size = self._n_rows or n
            # of as many rows as were traced, and laid out as those
            pairs = zip(columns, self._made_up, strict=False)
            inputs: list[Any] = [_padded(column[rows], like, size) for column, like in pairs]
            if last is not None:
                like = self._made_up[-1]
                inputs.append(lambda outputs: _padded(last(outputs[:n], rows), like, size))
            results = self._run(generator, size, *shared, *inputs)
            return results if n == size else tree_map(itemgetter(slice(n)), results)

        def parts(start: int, stop: int) -> list[Any]:
            rows = slice(start, stop)
            try:
                return [run(columns, rows, output_gradient)]
            # neither raised nor shown: it would tell a record's values
            except (RuntimeError, LookupError, ValueError, ArithmeticError) as error:
                if is_out_of_memory(error):
                    raise
            if stop - start > 1:
                middle = (start + stop) // 2
                return parts(start, middle) + parts(middle, stop)
            last = None if output_gradient is None else lambda outputs, rows: self._made_up[-1]
            # made-up numbers fail only where the code does
            results = tree_map(_nan_like, run(self._made_up[: len(columns)], slice(0, 1), last))
            if output_gradient is not None:
                output_gradient(results[0], rows)
            return [results]

        n = len(columns[0])
        size = self._n_rows or n
        outputs = [p for start in range(0, n, size) for p in parts(start, min(start + size, n))]
        return outputs[0] if len(outputs) == 1 else tree_map(lambda *t: torch.cat(t), *outputs)


def _kernels(traced: GraphModule) -> Callable[..., Any]:
    """Return the operations as a function that calls kernels without a frame of Python for each."""
    code, kernels = traced.graph.python_code("self"), dict[str, Any]()
    source = code.src
    for operation in {n.target for n in traced.graph.nodes if isinstance(n.target, OpOverload)}:
        name = str(operation).replace(".", "_")
        source = source.replace(f"torch.ops.{operation}(", f"{name}(")
        kernels[name] = operation._op
    exec(source, scope := code.globals | kernels)  # as torch.fx does with its own
    return partial(scope["forward"], traced)


def _padded(column: Tensor, made_up: Tensor, size: int) -> Tensor:
    missing = size - len(column)
    if missing:
        column = torch.cat([column, made_up.expand(missing, *made_up.shape[1:])])
    return column.contiguous()


def _nan_like(result: Tensor) -> Tensor:
    has_nan = result.is_floating_point() or result.is_complex()
    return torch.full_like(result, torch.nan) if has_nan else result


def _batched(
    one: GraphModule, shared: Sequence[Tensor], record: Sequence[Tensor], n: int
) -> GraphModule:
    """Return the operations by which vmap carries out those of one record on ``n`` records."""
    axes = (*[None] * len(shared), *[0] * len(record))
    rows = [column.expand(n, *column.shape).clone() for column in record]
    with traceable(record):
        try:
            each = dispatch_functionalize(vmap(one, axes, randomness="different"))
            batched = make_fx(each, DECOMPOSED)(*shared, *rows)
        except Exception as error:
            raise TraceError(str(explained(error)).strip().partition("\n")[0]) from None
    simplify(batched)
    return batched
