"""Traces of functions of one record: the operations of torch that their code carries out.

A function of ONE record is traced once, on a made-up record.  Each of its operations must stand in
a closed list.
"""

from __future__ import annotations

import pickle
import random
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from textwrap import shorten
from typing import Any

import torch
from sklearn.utils import check_random_state
from torch import Tensor
from torch.fx import GraphModule
from torch.nn.attention import SDPBackend, sdpa_kernel

from skdpfair._utils.torch_internals import (
    FakeTensorMode,
    TorchDispatchMode,
    TracingContext,
    dispatch_functionalize,
    get_cudnn_enabled,
    make_fx,
    set_cudnn_enabled,
    tracing,
    was_changed_in_place,
)
from skdpfair.engine.per_sample.proof.decompositions import DECOMPOSED
from skdpfair.engine.per_sample.proof.operations import (
    PLAIN_TENSORS,
    TraceError,
    explained,
    reason_to_refuse,
)
from skdpfair.engine.per_sample.proof.trace_checks import InPlaceCheck

_OWN = Path(__file__).parents[3]
_TORCH = Path(torch.__file__).parent
# torch's tracer keeps a state of the whole process
_TRACING = threading.Lock()


def trace(function: Callable[..., Any], args: Sequence[Tensor]) -> GraphModule:
    """Return the operations that a function carries out on tensors, none of them in place.

    Its Python runs once, on copies of the made-up ``args``.  A `TraceError` names the line where an
    operation is not in the closed list, or where the function decides by values, by Python's or
    numpy's random numbers, changes its arguments or reads parameters from elsewhere.
    """

    def run(*args: Tensor) -> Any:
        with _WithoutErrors():  # type: ignore[no-untyped-call]  # torch states no types
            results = function(*args)
        if any(map(was_changed_in_place, args)):
            raise TraceError("it changes its input or its parameters in place")
        return results

    copies = [a.clone() for a in args]
    draws = _global_states()
    with traceable(args):
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
        for name in {node.target for node in traced.graph.nodes if node.op == "get_attr"}:
            constant = getattr(traced, name)
            if type(constant) not in PLAIN_TENSORS or constant.requires_grad:
                raise TraceError(_FOREIGN)
            # of the trace alone, so that nobody changes it while a fit lasts
            setattr(traced, name, constant.detach().clone())
        InPlaceCheck(traced).check(*copies)
    return traced


class _WithoutErrors(TorchDispatchMode):
    """No check of torch.linalg whether it fails: one record would end the fit of all others."""

    def __torch_dispatch__(self, operation: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:
        is_check = operation is torch.ops.aten._linalg_check_errors.default
        return None if is_check else operation(*args, **kwargs or {})


_FOREIGN = (
    "it reads a parameter that is not its own, as a patched method may, or torch.utils.checkpoint "
    "with use_reentrant=False: call the layers without checkpoint"
)


@contextmanager
def traceable(args: Sequence[Tensor]) -> Iterator[None]:
    """Let torch trace: global generators stay as they are, and operations are such as vmap knows.

    It knows neither mkldnn's and cuDNN's recurrences nor fused attention.
    """
    with (
        _TRACING,  # first: filters of warnings, too, are those of the whole process
        warnings.catch_warnings(action="ignore"),  # of operations that vmap takes one by one
        torch.random.fork_rng({a.device for a in args if a.is_cuda}),
        torch.enable_grad(),
        torch.backends.mkldnn.flags(enabled=False),
        sdpa_kernel(SDPBackend.MATH),
        # one fake mode notes all shapes; the tracer would make another for each tensor
        tracing(TracingContext(FakeTensorMode(allow_fallback_kernels=True))),
    ):
        # cudnn.flags reads a switch of TF32 that full precision leaves undefined, and cudnn.enabled
        # cannot be set after torch.backends.disable_global_flags()
        is_on = get_cudnn_enabled()
        set_cudnn_enabled(False)
        try:
            yield
        finally:
            set_cudnn_enabled(is_on)


def _global_states() -> tuple[object, ...]:
    """Return the states of Python's and numpy's global generators."""
    return random.getstate(), pickle.dumps(check_random_state(None).get_state(legacy=False))


def _with_place(refusal: Exception, error: Exception) -> TraceError:
    """Return the refusal with the last line of the module's own code that led to ``error``."""
    reason = str(refusal).strip().partition("\n")[0]
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename)
        if not (path.is_relative_to(_TORCH) or path.is_relative_to(_OWN)):
            line = f": {shorten(frame.line, 80)}" if frame.line else ""
            return TraceError(f"{reason} (in {path.name}, line {frame.lineno}{line})")
    return TraceError(reason)
