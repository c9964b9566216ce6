"""All per-record gradients of a batch as a matrix, for methods that look at them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from skdpfair.engine.batch import Batch, Examples
from skdpfair.engine.flat import split
from skdpfair.engine.per_sample.layers.grad_sampler import sum_of
from skdpfair.engine.per_sample.module_code import ModuleCode
from skdpfair.engine.per_sample.records import Slope, Strategy
from skdpfair.engine.per_sample.tracing import RecordTrace
from skdpfair.engine.per_sample.vmap import MicroVmap, Traced
from skdpfair.engine.precision import without_grad
from skdpfair.exceptions import UnsupportedModuleError


@dataclass
class GradientMatrix:
    """Per-record gradients ``rows`` (batch, n_parameters), loss and probability of the records."""

    rows: Tensor
    loss: Tensor
    probability: Tensor

    @property
    def norm(self) -> Tensor:
        """L2 norm of each row, (batch,)."""
        norm: Tensor = torch.linalg.vecdot(self.rows, self.rows).sqrt()
        return norm

    def of_examples(self, examples: Examples) -> GradientMatrix:
        """Return the means of each example's rows, losses and probabilities."""
        return GradientMatrix(*map(examples.mean, (self.rows, self.loss, self.probability)))

    @without_grad
    def weighted_sum(self, weight: Tensor, out: Tensor, finite: Tensor | None = None) -> None:
        """Add the weighted sum of the rows, of those that are finite, to ``out``."""
        rows = self.rows if finite is None else torch.where(finite[:, None], self.rows, 0.0)
        out.addmv_(rows.t(), weight)


def materialised(model: Strategy, example: Tensor) -> Materialised:
    """Return the strategy that makes gradient matrices of the module of ``model``, made once."""
    if model.matrices is None:
        model.matrices = Materialised(model, example)
    return model.matrices


class Materialised(MicroVmap):
    """Per-record gradients and Hessian-vector products as matrices; memory batch x parameters.

    Parameters
    ----------
    model : Strategy
        The same module and loss are used.
    example : Tensor of shape (batch, ...)
        Only its shape, dtype and device are used.

    Raises
    ------
    UnsupportedModuleError
        If the module draws random numbers.
    """

    name = "materialised"

    def __init__(self, model: Strategy, example: Tensor) -> None:
        reason = "the method looks at each record's gradient"
        known = model.code if isinstance(model, Traced) else None
        code = known or ModuleCode(model.module, example, model.loss.n_outputs)
        super().__init__(model.module, model.loss, code, reason)
        if code.gradients.draws:
            raise UnsupportedModuleError(
                "The method looks at each record's gradient twice, which a module that draws "
                "random numbers, as for dropout, does not allow. Leave out such layers, or use a "
                "method that does not look (fairlens_dp with gamma1=0)."
            )

    def gradients(self, batch: Batch, hvp_vectors: Tensor | None = None) -> GradientMatrix:
        """Return the gradient of each row, changed as `mechanism.Extra` says."""
        x, y, slope = batch.dense_x, batch.y, Slope(self, batch)
        _, gradients = self.code.gradients(self.generator, self._values(), x, slope=slope)
        rows = _matrix(gradients)
        if hvp_vectors is not None:
            factor = self.loss.factor(y, batch.weight)
            columns = x, y, slope.loss.new_ones(len(x)) if factor is None else factor, hvp_vectors
            rows += _matrix(self._hessian_products(None, self._values(), *columns))
        return GradientMatrix(rows, slope.loss, slope.probability)

    @cached_property
    def _hessian_products(self) -> RecordTrace:
        like, target = self.parameters[0], self.loss.made_up(1, self.parameters[0].device)[0]
        columns = target, like.new_ones(()), like.new_ones(self.n_parameters)
        return self.code.trace(self._hessian_product, *columns)

    def _hessian_product(self, *args: Tensor) -> list[Tensor]:
        """Return the Hessian of a record's own loss times its own vector."""
        *values, x, y, factor, vector = args
        leaves, trained = self.code.leaves(values)
        loss = factor * self.loss.each(self.code.outputs(leaves, x)[None], y[None]).sum()
        gradients = torch.autograd.grad(loss, trained, create_graph=True, materialize_grads=True)
        parts = zip(gradients, split(vector, self.parameters), strict=True)
        along = sum_of((g * part).sum() for g, part in parts)
        return list(torch.autograd.grad(along, trained, materialize_grads=True))


def _matrix(gradients: Sequence[Tensor]) -> Tensor:
    """Return the gradients in all parameters as rows."""
    return torch.cat([g.flatten(1) for g in gradients], dim=1)
