"""The hooks of a method that see records; those of a user's method act by their traces.

What a trace of one record does cannot weigh a record by others of its batch, by their number or by
what the method remembers, which code may do by mistake.  The methods of this package are proven by
its tests.
"""

from __future__ import annotations

import copy
import logging
import sys
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from numbers import Number
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule

from skdpfair._utils.torch_internals import tree_flatten, tree_unflatten
from skdpfair._utils.validate import without_text
from skdpfair.engine.per_sample.proof import RecordTrace, TraceError, trace
from skdpfair.exceptions import PrivacyAccountingError

log = logging.getLogger("skdpfair")

_MAX_TRACES = 4  # of one hook, each of which takes milliseconds
_SHARED = "bound"  # of a result, what all records share; all else has a row per record


class RecordHook:
    """A hook of a method, ``hook(sample, *shared)``, carried out on each record by itself.

    ``shared`` holds released values.  A record on which its operations fail counts for nothing.
    Without a trace, ``reason`` says why, and the hook gets a copy of the sample.
    """

    def __init__(self, hook: Callable[..., Any], method: Any) -> None:
        self._hook, self._method = hook, method
        self._runs: dict[str, Callable[..., Any]] = {}
        self._kept: list[Any] = []  # whose identities no other object may get
        self.reason: str | None = None

    def __call__(self, sample: Any, *shared: Any) -> Any:
        """Return what the hook returns."""
        columns = {field.name: getattr(sample, field.name) for field in fields(sample)}
        leaves, spec = tree_flatten(shared)
        kinds = [(v.shape, v.dtype) if isinstance(v, Tensor) else v for v in leaves]
        kinds += [(column.shape[1:], column.dtype) for column in columns.values()]
        # attributes that change from step to step are followed, too, within lists and dicts
        attributes, layout = tree_flatten(vars(self._method))
        kinds += map(_identity, attributes)
        key = repr((type(sample), spec, kinds, layout))
        if self.reason is None and key not in self._runs:
            try:
                self._runs[key] = self._trace(sample, columns, leaves, spec)
                self._kept.append(attributes)
            except TraceError as error:
                self.reason = str(error).partition("\n")[0]
                log.info("%s acts without a trace: %s", self._hook, self.reason)
        if self.reason is not None:
            copied = replace(sample, **{name: column.clone() for name, column in columns.items()})
            try:
                return self._hook(copied, *shared)
            except Exception as error:
                without_text(error)
                raise PrivacyAccountingError(
                    f"A hook of {type(self._method).__name__} that cannot be traced failed on the "
                    "records of a batch. Write it by tensor operations."
                ) from None
        return self._runs[key]([v for v in leaves if isinstance(v, Tensor)], [*columns.values()])

    def _trace(
        self, sample: Any, columns: dict[str, Tensor], leaves: list[Any], spec: Any
    ) -> Callable[[list[Tensor], list[Tensor]], Any]:
        """Return a function of the tensors among the leaves, and of the columns of a sample."""
        if len(self._runs) == _MAX_TRACES:
            raise TraceError(
                "its state, or an attribute, holds numbers of Python or shapes that change"
            )
        constants = [None if isinstance(leaf, Tensor) else leaf for leaf in leaves]
        if not all(leaf is None or isinstance(leaf, Number) for leaf in constants):
            raise TraceError("its state holds what is neither a tensor nor a number")
        places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
        kind, titles, result, names = type(sample), [*columns], None, list[str]()

        def parts(*args: Tensor) -> list[Tensor]:
            nonlocal result
            filled = dict(enumerate(constants)) | dict(zip(places, args, strict=False))
            row = zip(titles, args[len(places) :], strict=True)
            one = kind(**{title: column[None] for title, column in row})
            result = self._hook(one, *tree_unflatten([*filled.values()], spec))
            tensors = _tensors_of(result, one)
            names[:] = sorted(tensors, key=_SHARED.__eq__)
            if any(len(tensors[name]) != 1 for name in names if name != _SHARED):
                raise TraceError("it does not return one row for a record")
            return [tensors[name] if name == _SHARED else tensors[name][0] for name in names]

        shared = [leaves[i] for i in places]
        made_up = [_made_up(column) for column in columns.values()]
        operations = trace(parts, (*shared, *made_up))
        n_rows = sum(name != _SHARED for name in names)
        if n_rows == 0:
            return lambda shared, columns: result
        of_record = RecordTrace(_results(operations, slice(n_rows)), shared, made_up)
        # no record enters what all share
        of_all = _results(operations, slice(n_rows, None))

        def run(shared: list[Tensor], columns: list[Tensor]) -> Any:
            n = len(columns[0])
            rows = of_record(None, shared, *(columns if n else [row[None] for row in made_up]))
            values = [*(row[:n] for row in rows), *of_all(*shared, *made_up)]
            return _with_tensors(result, dict(zip(names, values, strict=True)))

        return run


def _identity(value: Any) -> Any:
    if isinstance(value, Tensor):
        return id(value), value._version
    return value if isinstance(value, Number) else id(value)


def _made_up(column: Tensor) -> Tensor:
    return column.new_full(column.shape[1:], 0.5 if column.is_floating_point() else 0)


def _tensors_of(result: Any, sample: Any) -> dict[str, Tensor]:
    """Return the tensors of what a hook returned, by name."""
    if isinstance(result, Tensor) or hasattr(result, "dense"):
        ones = torch.ones_like(sample.norm)
        rows = result if isinstance(result, Tensor) else result.dense(ones)
        return {"rows": rows.to(ones.dtype)}
    names = [field.name for field in fields(result)] if is_dataclass(result) else []
    return {name: v for name in names if isinstance(v := getattr(result, name), Tensor)}


def _with_tensors(result: Any, tensors: dict[str, Tensor]) -> Any:
    """Return a result with other tensors, which no class of a user's own gets to see."""
    if "rows" in tensors:
        return tensors["rows"]
    kind = next(c for c in type(result).__mro__ if c.__module__.startswith("skdpfair."))
    return kind(**{f.name: tensors.get(f.name, getattr(result, f.name)) for f in fields(kind)})


def _results(operations: GraphModule, which: slice) -> GraphModule:
    """Return the operations that lead to some of the results."""
    graph = copy.deepcopy(operations.graph)
    output = graph.output_node()
    output.args = (output.args[0][which],)  # type: ignore[index]  # a list of nodes
    graph.eliminate_dead_code()
    return GraphModule(operations, graph)


class RecordHooks:
    """Hooks of a mechanism that see records: ``clip``, ``gradient_term`` and rows of its queries.

    By a user's hooks, weighted gradients are no longer than the bound, and rows of a query no
    longer than its sensitivity, times the factor of a record's stratum.
    """

    def __init__(self, mechanism: Any) -> None:
        method = mechanism.method
        self.clip: Callable[..., Any] = method.clip
        self.gradient_term: Callable[..., Any] = method.gradient_term
        self.queries, self._hooks = mechanism.queries, dict[str, RecordHook]()
        if not method.private or is_shipped(method):
            return
        self._factors_at, self._method = mechanism.factors_at, method
        self.clip = self._clip
        self._hooks["clip"] = RecordHook(method.clip, method)
        owner = next(base for base in type(method).__mro__ if "gradient_term" in vars(base))
        # that of `Method` adds nothing
        if owner.__name__ != "Method" or not _is_in_its_module(owner):
            self.gradient_term = RecordHook(self.gradient_term, method)
            self._hooks["gradient_term"] = self.gradient_term
        self.queries = tuple(replace(q, rows=self._rows_of(q)) for q in mechanism.queries)

    @property
    def are_traced(self) -> bool:
        """Whether all hooks that were called act by their traces, or are this package's."""
        return all(hook.reason is None for hook in self._hooks.values())

    def _clip(self, sample: Any, state: Any, release: Any) -> Any:
        clip = self._hooks["clip"](sample, state, dict(release))
        limit = self._limits(clip.bound, sample, state) / sample.norm
        weight = clip.weight.to(sample.norm)
        weight = torch.where(weight.isfinite(), weight, 0.0).clamp(-limit, limit)
        return _with_tensors(clip, {"weight": weight})

    def _rows_of(self, query: Any) -> Callable[[Any, Any], Tensor]:
        hook = self._hooks[f"rows of query {query.name!r}"] = RecordHook(query.rows, self._method)

        def rows_of(sample: Any, state: Any) -> Tensor:
            rows = _tensors_of(hook(sample, state), sample)["rows"]
            lengths = torch.linalg.vector_norm(rows, dim=1)
            factors = (self._limits(query.sensitivity, sample, state) / lengths).clamp(max=1.0)
            return torch.where(lengths.isfinite()[:, None], rows * factors[:, None], 0.0)

        return rows_of

    def _limits(self, bound: Any, sample: Any, state: Any) -> Tensor:
        limits: Tensor = torch.ones_like(sample.norm) * bound
        if (factors := self._factors_at(state)) is not None:
            limits *= factors.to(limits).index_select(0, sample.group)
        return limits


def is_shipped(method: Any) -> bool:
    """Return whether all code of a method is this package's."""
    own = vars(method).keys() <= method.get_params(deep=False).keys()
    return own and all(map(_is_in_its_module, type(method).__mro__))


def _is_in_its_module(base: type) -> bool:
    """Return whether a class lies where it says, within this package and what it builds upon.

    What a class says alone is no proof: one that is made by a call says "abc".
    """
    package = base.__module__.partition(".")[0]
    home_class = vars(sys.modules.get(base.__module__, object)).get(base.__name__)
    return home_class is base and package in ("skdpfair", "sklearn", "abc", "builtins")
