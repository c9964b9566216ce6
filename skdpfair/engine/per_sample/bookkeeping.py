"""Book-keeping: one forward, one backward to the layers' outputs, no per-record gradients."""

from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.autograd.graph import get_gradient_edge

from skdpfair.engine.autograd import without_grad
from skdpfair.engine.per_sample import layers
from skdpfair.engine.per_sample.records import Records, Strategy


@dataclass
class _Call:
    """One call of a captured layer: its input, and the edge of its output in the graph."""

    module: nn.Module
    a: Tensor
    version: int
    edge: object


class BookKeeping(Strategy):
    """Norms and weighted sums from layer inputs and output gradients (Bu et al. 2023).

    The first backward stops at the layers' outputs, so plain weight gradients are never
    computed; the weighted sum then costs what they would have cost.
    """

    name = "bookkeeping"

    def __init__(self, module, n_classes, class_weight=None):
        reason = "every trainable layer has book-keeping formulas and is called once"
        super().__init__(module, n_classes, class_weight, reason)
        self._calls: list[_Call] = []
        self._handles = []
        self._shifts: dict = {}
        self._rests = False

    @contextmanager
    def resting(self):
        """Capture nothing for the time of a ``with`` block."""
        self._rests = True
        try:
            yield
        finally:
            self._rests = False

    def __enter__(self):
        for module in self.module.modules():
            if any(p.requires_grad for p in module.parameters(recurse=False)):
                self._handles.append(module.register_forward_hook(self._capture))
        return self

    def __exit__(self, *exc):
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._calls.clear()
        self._shifts = {}
        super().__exit__(*exc)

    def _capture(self, module, inputs, output):
        if self._rests or not torch.is_grad_enabled() or not output.requires_grad:
            return None
        a = inputs[0].detach()
        if self._shifts:
            book, scale = self._shifts[module]
            output = output + book.shift(scale, inputs[0])
        # the edge, not the tensor: an activation may overwrite the output in place
        self._calls.append(_Call(module, a, a._version, get_gradient_edge(output)))
        return output

    def records(self, x, y, slope=None):
        """Return the gradients of a batch that is not empty."""
        return self._records(x, y, slope, {})

    def _records(self, x, y, slope, shifts):
        self._calls.clear()
        self._shifts = shifts
        with torch.enable_grad():
            logits = self.module(x)
        self._shifts = {}
        loss, probability, total = self.loss_terms(logits, y, slope)
        edges = [call.edge for call in self._calls]
        grads = torch.autograd.grad(logits, edges, total)
        calls, self._calls = self._calls, []
        self._refuse_surprises(calls, len(y))
        with torch.no_grad():
            books = [self._book(call, b) for call, b in zip(calls, grads, strict=True)]
            norm2 = sum(book.norm2() for book in books)
        return Records(
            norm2.sqrt(),
            loss,
            probability,
            partial(self._weighted_sum, books),
            lambda s: self._records(x, y, slope, {book.module: (book, s) for book in books}),
        )

    def _refuse_surprises(self, calls, n):
        """Refuse what the probe did not show: a forward that depends on the data."""
        if len({call.module for call in calls}) != len(calls):
            raise RuntimeError("A layer was called more than once in a forward pass.")
        if any(len(call.a) != n for call in calls):
            raise RuntimeError("A layer was called on rows that are not the records of the batch.")

    def _book(self, call, b):
        if call.a._version != call.version:
            raise RuntimeError(
                f"The input of layer {call.module} was changed in place after the layer used it; "
                "write the operation out of place."
            )
        return layers.find(call.module)(call.module, call.a, b)

    @without_grad
    def _weighted_sum(self, books, weight, out, finite=None):
        views = self.views(out)
        for book in books:
            (book if finite is None else book.masked(finite)).add(weight, views)
