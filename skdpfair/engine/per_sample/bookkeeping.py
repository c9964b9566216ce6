"""Book-keeping: one forward, one backward that stops before the products of gradients."""

from __future__ import annotations

from functools import partial
from typing import cast

from torch import Tensor, nn

from skdpfair.engine.batch import Batch
from skdpfair.engine.losses import Loss
from skdpfair.engine.per_sample.ascent import MAX_KEPT, gradients_at_ascent
from skdpfair.engine.per_sample.proof import ModuleCode, RecordTrace
from skdpfair.engine.per_sample.records import Gradients, OutputGradient, Strategy, in_two_passes
from skdpfair.engine.per_sample.terms import Term, terms_of
from skdpfair.engine.precision import without_grad

_MAX_MADE = 2**26  # gradients that are in memory at a time: 256 MiB in float32
_QUICKEST = 2**24  # numbers of a part of a batch, so that they fit the cache of a CPU


def factors_of(code: ModuleCode) -> tuple[list[Term], RecordTrace]:
    """Return the terms of a module's gradients, and the trace that makes their factors."""
    one, terms = terms_of(code.gradient_operations)
    return terms, code.trace(one, output_gradient=True)


class BookKeeping(Strategy):
    """Norms and weighted sums from the factors of the gradients (Bu et al. 2023).

    Plain weight gradients are never computed; the weighted sum then costs what they would have
    cost.  Gradients without factors are made for each record, by vmap.
    """

    name = "bookkeeping"

    def __init__(
        self, module: nn.Module, loss: Loss, code: ModuleCode, terms: list[Term], trace: RecordTrace
    ) -> None:
        names = [name for name, trains in code.trained.items() if trains]
        whose = ", ".join({names[term.parameter]: None for term in terms if term.n_made}) or "none"
        self._n_made = n = sum(term.n_made for term in terms)
        super().__init__(module, loss, code, f"vmap makes {n:,} gradients for each record: {whose}")
        self._terms = [(self.parameters[term.parameter], term) for term in terms]
        self._trace, self.draws = trace, trace.draws

    def __exit__(self, *exc: object) -> None:
        super().__exit__(*exc)
        del self._trace

    @without_grad
    def per_sample_gradients(self, batch: Batch) -> Gradients:
        n_rows = _MAX_MADE // max(self._n_made, 1)
        if not batch.y.is_cuda:
            n_rows = min(n_rows, _QUICKEST // self._trace.n_numbers)
        if len(batch) <= n_rows:
            return self._of_part(batch)
        parts = batch.split(max(n_rows, 1))
        is_kept = len(batch) * self._n_made <= _MAX_MADE
        kept = [self._of_part(part) for part in parts] if is_kept else []

        def of(i: int) -> Gradients:
            return kept[i] if kept else self._of_part(parts[i])

        def ahead(i: int, scale: Tensor) -> Gradients:
            state, gradients = self.rng_state(), of(i)
            self.set_rng_state(state)  # that of the masks of the gradients
            return cast("Gradients", gradients.at_ascent(scale))

        def at_ascent(scale: Tensor) -> Gradients:
            scales = scale.split([len(part.examples) for part in parts])
            are_few = len(batch) * self.n_parameters <= MAX_KEPT
            return in_two_passes(self, [*enumerate(scales)], ahead, is_kept=are_few)

        return in_two_passes(self, [*zip(range(len(parts)))], of, at_ascent, is_kept=is_kept)

    def _of_part(self, batch: Batch) -> Gradients:
        last, x = OutputGradient(self, batch), batch.dense_x
        _, factors = self._trace(self.generator, self.values(), x, output_gradient=last)
        rest = iter(factors)
        samplers = [term.sampler(p, [next(rest) for _ in term.factors]) for p, term in self._terms]
        at_ascent = partial(gradients_at_ascent, self, batch, samplers)
        return self.gradients_of(batch, samplers, None, *last.terms(), at_ascent)
