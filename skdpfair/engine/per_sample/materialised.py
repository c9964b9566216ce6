"""All per-record gradients of a batch as a matrix, for methods that look at them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from skdpfair.engine.flat import split
from skdpfair.engine.per_sample.layers.grad_sampler import sum_of
from skdpfair.engine.per_sample.records import Strategy
from skdpfair.engine.per_sample.vmap import MicroVmap, Tensors, gradient_of
from skdpfair.engine.precision import without_grad
from skdpfair.engine.units import Units
from skdpfair.exceptions import UnsupportedModuleError


@dataclass
class Gradients:
    """Per-record gradients ``rows`` (batch, n_parameters), loss and probability of the records."""

    rows: Tensor
    loss: Tensor
    probability: Tensor

    @property
    def norm(self) -> Tensor:
        """L2 norm of each row, (batch,)."""
        norm: Tensor = torch.linalg.vecdot(self.rows, self.rows).sqrt()
        return norm

    def by_unit(self, units: Units) -> Gradients:
        """Return the means of the rows, losses and probabilities of each person."""
        return Gradients(*map(units.mean, (self.rows, self.loss, self.probability)))

    @without_grad
    def weighted_sum(self, weight: Tensor, out: Tensor, finite: Tensor | None = None) -> None:
        """Add the weighted sum of the rows, of those that are finite, to ``out``."""
        rows = self.rows if finite is None else torch.where(finite[:, None], self.rows, 0.0)
        out.addmv_(rows.t(), weight)


def materialised(model: Strategy) -> Materialised:
    """Return the strategy that makes gradient matrices of the module of ``model``, made once."""
    if model.matrices is None:
        model.matrices = Materialised(model)
    return model.matrices


class Materialised(MicroVmap):
    """Per-record gradients and Hessian-vector products as matrices; memory batch x parameters.

    Parameters
    ----------
    model : Strategy
        The same module and loss are used.
    """

    name = "materialised"

    def __init__(self, model: Strategy) -> None:
        reason = "the method looks at each record's gradient"
        super().__init__(model.module, model.loss, reason)

    def check(self, example: Tensor) -> None:
        """Refuse modules that draw random numbers; only the shape of ``example`` is used."""
        target = self.loss.made_up(1, example.device)
        self.gradients(torch.zeros_like(example), target)
        if self.draws:
            raise UnsupportedModuleError(
                "The method looks at each record's gradient twice, which a module that draws "
                "random numbers, as for dropout, does not allow. Leave out such layers, or use a "
                "method that does not look (fairlens_dp with gamma1=0)."
            )

    def gradients(
        self,
        x: Tensor,
        y: Tensor,
        logit_gradient: Tensor | None = None,
        hvp_vectors: Tensor | None = None,
        weight: Tensor | None = None,
    ) -> Gradients:
        """Return the gradients of each record, changed as `mechanism.Extra` says."""
        columns = self._columns(x, y, logit_gradient, weight)
        found = list(self._each(self._gradient, columns))
        rows = self._rows(gradients for gradients, _ in found)
        if hvp_vectors is not None:
            own = columns[-1], hvp_vectors
            rows += self._rows(self._each(self._hessian_product, (x, y, *own)))
        logits = torch.cat([logits for _, logits in found])
        loss, probability, _ = self.loss_terms(logits, y, None, weight)
        return Gradients(rows, loss, probability)

    def _hessian_product(
        self,
        trained: Tensors,
        frozen: Tensors,
        x: Tensor,
        y: Tensor,
        factor: Tensor,
        vector: Tensor,
    ) -> Tensors:
        """Return the Hessian of a record's own loss times its own vector."""
        parts, nothing = split(vector, self.parameters), x.new_zeros(self.loss.n_outputs)

        def along(values: Tensors) -> tuple[Tensor, Tensor]:
            found, out = self._gradient(values, frozen, x, y, nothing, factor)
            return sum_of((g * v).sum() for g, v in zip(found.values(), parts, strict=True)), out

        return gradient_of(along, trained)[0]

    def _rows(self, parts: Iterable[Tensors]) -> Tensor:
        rows = [
            torch.cat([part[name].flatten(1) for name in self._named(True)], dim=1)
            for part in parts
        ]
        return rows[0] if len(rows) == 1 else torch.cat(rows)
