"""Book-keeping: one forward, one backward that stops before the products of gradients."""

from __future__ import annotations

from functools import partial

from torch import nn

from skdpfair.engine.batch import Batch
from skdpfair.engine.losses import Loss
from skdpfair.engine.per_sample.ascent import gradients_at_ascent
from skdpfair.engine.per_sample.proof import ModuleCode, RecordTrace
from skdpfair.engine.per_sample.records import Gradients, OutputGradient, Strategy, in_two_passes
from skdpfair.engine.per_sample.terms import Term, terms_of
from skdpfair.engine.precision import without_grad

_MAX_MADE = 2**26  # gradients that are in memory at a time: 256 MiB in float32
_N_ROWS = 128  # records at a time where rounding decides


def factors_of(code: ModuleCode) -> tuple[list[Term], RecordTrace]:
    """Return the terms of a module's gradients, and the trace that makes their factors."""
    one, terms = terms_of(code.gradient_operations)
    return terms, code.trace(one, output_gradient=True, n_rows=_N_ROWS)


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
        made = ", ".join({names[term.parameter]: None for term in terms if term.n_made}) or "none"
        super().__init__(module, loss, code, f"gradients that vmap makes for each record: {made}")
        self._terms = [(self.parameters[term.parameter], term) for term in terms]
        self._n_made = sum(term.n_made for term in terms)
        self._trace, self.draws = trace, trace.draws

    def __exit__(self, *exc: object) -> None:
        super().__exit__(*exc)
        del self._trace

    @without_grad
    def per_sample_gradients(self, batch: Batch) -> Gradients:
        n_rows = max(1, _MAX_MADE // max(self._n_made, 1))
        parts = batch.split(n_rows)
        if len(parts) == 1:
            return self._of_part(batch)
        at_ascent = partial(gradients_at_ascent, self, batch, (), n_rows)
        return in_two_passes(self, [(part,) for part in parts], self._of_part, at_ascent)

    def _of_part(self, batch: Batch) -> Gradients:
        last, x = OutputGradient(self, batch), batch.dense_x
        _, factors = self._trace(self.generator, self.values(), x, output_gradient=last)
        rest = iter(factors)
        samplers = [
            term.sampler(parameter, [next(rest) for _ in term.factors])
            for parameter, term in self._terms
        ]
        at_ascent = partial(gradients_at_ascent, self, batch, samplers, len(batch))
        return self.gradients_of(batch, samplers, None, *last.terms(), at_ascent)
