"""The interface between a step and the ways to compute per-record gradients."""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, Self

import torch
from torch import Tensor, nn

from skdpfair.engine.batch import Batch, Examples
from skdpfair.engine.flat import split
from skdpfair.engine.losses import MIN_OUTPUT_GRADIENT, Loss
from skdpfair.engine.per_sample.proof import ModuleCode, prove
from skdpfair.engine.per_sample.samplers import GradSampler, masked, vecdot
from skdpfair.engine.precision import without_grad
from skdpfair.exceptions import UnsupportedModuleError


@dataclass(frozen=True)
class Gradients:
    r"""The gradients of a batch's examples, known by their norms and weighted sums.

    Gradient, loss and probability of an example are the means of those of its rows.  ``norm`` and
    ``loss`` have shape (n_examples,), ``probability`` (n_examples, n_outputs);
    ``weighted_sum(weight, out, finite_mask=None)`` adds :math:`\sum_i w_i g_i` to the flat vector
    ``out``, over the examples that are finite; ``at_ascent(scale)`` returns the gradients where
    the parameters are moved, for example i alone, by ``scale[i]`` times its own gradient.
    """

    norm: Tensor
    loss: Tensor
    probability: Tensor
    weighted_sum: Callable[..., None]
    at_ascent: Any = None


def gradients_of_rows(examples: Examples, *columns: Tensor) -> Gradients:
    """Return the gradients of examples from what `gradient_matrix` returns of their rows."""
    gradients, loss, probability = map(examples.mean, columns)

    @without_grad
    def weighted_sum(weight: Tensor, out: Tensor, finite_mask: Tensor | None = None) -> None:
        finite = gradients if finite_mask is None else masked(gradients, finite_mask)
        out.addmv_(finite.t(), weight)

    return Gradients(norms(gradients), loss, probability, weighted_sum)


def norms(gradients: Tensor) -> Tensor:
    """Return the L2 norm of each row."""
    return vecdot(gradients, gradients).sqrt()


class Strategy(abc.ABC):
    """A way to compute per-record gradients of a loss for one module.

    Use it as a context manager: what it keeps of a batch is gone at the end.  ``proof`` says why
    no record acts on another's gradient, and ``reason`` why this strategy was selected.  Without
    ``code``, the module is traced when that is needed.
    """

    name: str
    proof = "per-record by vmap"
    draws = False  # whether a forward pass draws random numbers, as for dropout
    fixed: Tensor | None = None  # positions in the flat vector that no record can move

    def __init__(
        self, module: nn.Module, loss: Loss, code: ModuleCode | None = None, reason: str = ""
    ) -> None:
        self._code = code
        self.module, self.loss, self.reason = module, loss, reason
        self.parameters = [p for p in module.parameters() if p.requires_grad]
        self._numbers: dict[float, Tensor] = {}
        self._views: tuple[Tensor | None, dict[Tensor, Tensor]] = (None, {})
        self.n_parameters = sum(p.numel() for p in self.parameters)
        # dropout draws from here, and nobody else does
        self.generator = torch.Generator(self.parameters[0].device)
        self.generator.seed()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._views, self._code = (None, {}), None  # traces cannot be copied
        # the masks of the fit follow from its state
        del self.generator

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.reason})"

    @abc.abstractmethod
    def per_sample_gradients(self, batch: Batch) -> Gradients:
        """Return the gradients of the examples of a batch that is not empty."""

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of a batch, record by record; autograd may pass through to ``x``."""
        outputs: Tensor = self.code(x).forward(self.generator, self.values(), x)
        return outputs

    def logits(self, batch: Batch) -> Tensor:
        """Return the logits of a batch."""
        return self.forward(batch.dense_x)

    def code(self, x: Tensor) -> ModuleCode:
        """Return the traced code of the module for records like those of ``x``."""
        if self._code is None:
            self._code = prove(self.module, x, self.loss)
        return self._code

    def code_without_draws(self, x: Tensor) -> ModuleCode:
        """Return the code where `gradient_matrix` may be called, or refuse the module."""
        code = self.code(x)
        if code.gradients.draws:
            raise UnsupportedModuleError(
                "The method computes each record's gradient twice, so the module must not draw "
                "random numbers, as dropout does. Leave out such layers, or use a method that "
                "computes it once, such as fairlens_dp with gamma1=0."
            )
        return code

    def gradient_matrix(
        self, batch: Batch, hvp_vectors: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the gradient of each row, its loss and its prediction.

        The Hessian of a row's own loss, times its vector, is added.  Memory is batch times
        parameters.
        """
        x, last = batch.dense_x, OutputGradient(self, batch)
        code = self.code_without_draws(x)
        _, gradients = code.gradients(self.generator, self.values(), x, output_gradient=last)
        rows = torch.cat([g.reshape(len(x), -1) for g in gradients if g.numel()], dim=1)
        if hvp_vectors is not None:
            factor = batch.weight_in_example
            factor = rows.new_ones(len(x)) if factor is None else factor
            products = code.hessian_products(None, self.values(), x, batch.y, factor, hvp_vectors)
            rows += torch.cat([p.reshape(len(x), -1) for p in products if p.numel()], dim=1)
        return rows, *last.terms()

    def values(self) -> list[Tensor]:
        """Return all parameters, without autograd."""
        return [p.detach() for p in self.module.parameters()]

    def flat(self) -> Tensor:
        """Return a zero vector with one entry per trainable parameter."""
        return self.parameters[0].new_zeros(self.n_parameters)

    def rng_state(self) -> Tensor | None:
        """Return the state of the module's random numbers; None if it draws none.

        Two passes over a batch must draw the same numbers.
        """
        return self.generator.get_state() if self.draws else None

    def set_rng_state(self, state: Tensor | None) -> None:
        """Draw the random numbers again that followed a state."""
        if state is not None:
            self.generator.set_state(state)

    @contextmanager
    def perturbed_parameters(self, shift: Tensor) -> Iterator[None]:
        """Move the parameters by the flat vector ``shift`` for the time of a ``with`` block."""
        before = [p.detach().clone() for p in self.parameters]
        try:
            for p, part in zip(self.parameters, split(shift, self.parameters), strict=True):
                p.data.add_(part)
            yield
        finally:
            for p, value in zip(self.parameters, before, strict=True):
                p.data.copy_(value)

    def number(self, value: float) -> Tensor:
        """Return a number as a 0-d tensor, made once: torch takes it faster than a number."""
        if value not in self._numbers:
            self._numbers[value] = self.parameters[0].new_full((), value)
        return self._numbers[value]

    def views(self, flat: Tensor) -> dict[Tensor, Tensor]:
        """Return the part of ``flat`` that belongs to each trainable parameter."""
        if self._views[0] is not flat:
            parts = split(flat, self.parameters)
            self._views = flat, dict(zip(self.parameters, parts, strict=True))
        return self._views[1]

    def gradients_of(
        self,
        batch: Batch,
        samplers: Sequence[GradSampler],
        norm: Tensor | None,
        loss: Tensor,
        probability: Tensor,
        at_ascent: Callable[[Tensor], Gradients] | None = None,
    ) -> Gradients:
        """Return the gradients that grad samplers hold; ``norm`` is None if it is not known yet.

        The norm is that of the mean over an example's rows, which therefore all have the weight of
        their example over their number.
        """
        examples = batch.examples
        if norm is None:
            total = reduce(torch.add, (sampler.norm2(examples) for sampler in samplers)).sqrt()
            norm = examples.over_size(total).to(loss.dtype)
        loss, probability = examples.mean(loss), examples.mean(probability)
        return Gradients(norm, loss, probability, partial(self._add, samplers, examples), at_ascent)

    @without_grad
    def _add(
        self,
        samplers: Sequence[GradSampler],
        examples: Examples,
        weight: Tensor,
        out: Tensor,
        finite_mask: Tensor | None = None,
    ) -> None:
        """Add the weighted sum of the gradients that grad samplers hold to ``out``."""
        views, weight = self.views(out), examples.over_size(weight)
        for sampler in samplers:
            for parameter, sums in sampler.sums.items():  # fewer than the rows
                sums = sums if finite_mask is None else masked(sums, finite_mask)
                views[parameter].view(-1).addmv_(sums.t(), weight)
            if not sampler.sums:
                if finite_mask is not None:
                    sampler = sampler.masked(examples.spread(finite_mask))
                sampler.add(examples.spread(weight), views)

    def loss_terms(
        self, outputs: Tensor, batch: Batch, rows: slice | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return loss, predictions and the gradient in the outputs, of some rows of a batch."""
        y, weight, extra = batch.y, batch.weight_in_example, batch.logit_gradient
        if rows is not None:
            y = y[rows]
            weight, extra = (None if c is None else c[rows] for c in (weight, extra))
        loss, predicted, gradient = self.loss.terms(outputs, y)
        if weight is not None:
            # a small weight must not make the squares of gradients underflow
            least = torch.where(weight > 0, MIN_OUTPUT_GRADIENT, 0.0)
            # a row that counts for nothing may have a loss that overflows
            loss = torch.where(weight > 0, loss * weight, 0.0)
            gradient = gradient * weight[:, None] + least[:, None]
        return loss, predicted, gradient if extra is None else gradient + extra


class OutputGradient:
    """The gradient of a batch's loss in the outputs, as a function of these and of rows."""

    def __init__(self, model: Strategy, batch: Batch) -> None:
        self._model, self._batch = model, batch
        # by the first of the rows, as rows may be taken again
        self._terms: dict[int, tuple[Tensor, Tensor]] = {}

    def __call__(self, outputs: Tensor, rows: slice) -> Tensor:
        """Return the gradients (batch, n_outputs) of some rows."""
        loss, probability, gradient = self._model.loss_terms(outputs, self._batch, rows)
        self._terms[rows.start] = loss, probability
        return gradient

    def terms(self) -> tuple[Tensor, Tensor]:
        """Return losses (batch,) and predictions (batch, n_outputs) of the rows that were taken."""
        losses, predictions = zip(*(self._terms[i] for i in sorted(self._terms)), strict=True)
        return torch.cat(losses), torch.cat(predictions)


@without_grad
def in_two_passes(
    model: Strategy,
    chunks: Sequence[tuple[Any, ...]],
    of: Callable[..., Gradients],
    at_ascent: Callable[[Tensor], Gradients] | None = None,
    *,
    is_kept: bool = False,
) -> Gradients:
    """Return the gradients of chunks; only ``of(*chunk)`` of one chunk is in memory at a time.

    They are computed once for norms, and once for their weighted sum, unless all are kept.
    """
    rng_states, terms = [], list[tuple[Tensor, Tensor, Tensor]]()
    kept: list[Gradients | None] = []
    for chunk in chunks:
        rng_states.append(model.rng_state())
        gradients = of(*chunk)
        terms.append((gradients.norm, gradients.loss, gradients.probability))
        kept.append(gradients if is_kept else None)
        del gradients
    norms = [norm for norm, _, _ in terms]

    @without_grad
    def weighted_sum(weight: Tensor, out: Tensor, finite_mask: Tensor | None = None) -> None:
        weights = weight.split([len(norm) for norm in norms])
        for i, (chunk, w, first_norm) in enumerate(zip(chunks, weights, norms, strict=True)):
            if (gradients := kept[i]) is None:
                model.set_rng_state(rng_states[i])  # the dropout masks of the norms
                gradients = of(*chunk)
            # the first pass decided the weights: this one may only make them smaller
            w = capped(w, first_norm, gradients.norm)
            both = torch.isfinite(first_norm) & torch.isfinite(gradients.norm)
            gradients.weighted_sum(w, out, both)

    norm, loss, probability = (torch.cat(part) for part in zip(*terms, strict=True))
    return Gradients(norm, loss, probability, weighted_sum, at_ascent)


def capped(weight: Tensor, norm_before: Tensor, norm: Tensor) -> Tensor:
    """Return the weights, smaller where a norm measured again exceeds that which they were made of.

    A second pass over a batch can differ from the first, by rounding or for another reason.  The
    weighted gradients that it adds are then still no longer than those that were bounded.
    """
    longer = ~(norm <= norm_before)  # not finite, too
    return torch.where(longer, weight * (norm_before / norm).nan_to_num(nan=0.0), weight)
