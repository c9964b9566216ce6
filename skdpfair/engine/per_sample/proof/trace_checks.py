"""Checks of traced operations on made-up numbers: rules for batches, and changes in place."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.func import vmap
from torch.fx import GraphModule, Interpreter, Node

from skdpfair._utils.torch_internals import (
    memory_address,
    tree_flatten,
    tree_leaves,
    tree_map_only,
    tree_unflatten,
)
from skdpfair.engine.per_sample.proof.alone import same_alone_and_together
from skdpfair.engine.per_sample.proof.operations import TraceError, explained


class VmapRuleCheck(Interpreter):
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
            raise TraceError(str(explained(error)).partition("\n")[0]) from None

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
        places = [i for i, n in enumerate(leaves) if isinstance(n, Node) and n in self._by_record]
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
        alone = [*zip(*(run(*r) for r in records), strict=True)]
        for axis in (0, -1):
            batch = [torch.stack(values, axis) for values in zip(*records, strict=True)]
            try:
                results = vmap(run, axis)(*batch)
            except RuntimeError:
                # some rules take records that come first only
                if axis:
                    continue
                raise
            if not all(map(_same, results, alone)):
                shapes = ", ".join(str(tuple(leaves[i].shape)) for i in places)
                raise TraceError(f"{node.target} on {shapes} lets records act on each other")

    def _random_like(self, like: Tensor) -> Tensor:
        if not (like.is_floating_point() or like.is_complex()):
            return like
        numbers = torch.rand(like.shape, generator=self._generator).mul_(0.9).add_(0.05)
        return numbers.to(like)


def _same(together: Tensor, alone: tuple[Tensor, ...]) -> bool:
    rounds = together.is_floating_point() or together.is_complex()
    # 0.002 in float32 and 5e-7 in float64, 10^4 and 10^9 times their rounding: well above that of
    # long sums, and below the numbers from 0.05 to 0.95 that one record would add to another's
    tolerance = torch.finfo(together.dtype).eps ** 0.4 if rounds else 0.0
    return same_alone_and_together(together, alone, tolerance, tolerance)


class InPlaceCheck(Interpreter):
    """Runs operations and refuses one in place on memory that was not made in the same run.

    Memory is what counts: schemas do not name all results that share it with an input.
    """

    def check(self, *args: Any) -> None:
        """Run the operations, on copies of their arguments."""
        self.extra_traceback = False
        constants = [getattr(self.module, n.target) for n in self.graph.nodes if n.op == "get_attr"]
        self._kept = {*map(memory_address, (*args, *constants))}
        self.run(*args)

    def run_node(self, n: Node) -> Any:
        """Run an operation, if what it changes is of this run."""
        schema = getattr(n.target, "_schema", None)
        if schema is not None and schema.is_mutable:
            values, _ = self.fetch_args_kwargs_from_env(n)
            changed = [a.alias_info is not None and a.alias_info.is_write for a in schema.arguments]
            for value in (v for v, is_changed in zip(values, changed, strict=False) if is_changed):
                if not self._kept.isdisjoint(map(memory_address, tree_leaves(value))):
                    raise TraceError("it changes a tensor that is kept from call to call")
        return super().run_node(n)
