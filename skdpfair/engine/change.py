"""Terms that some methods add to each record's gradient, from statistics released before."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from skdpfair.engine.per_sample import Strategy
from skdpfair.engine.per_sample.materialised import Gradients, materialised
from skdpfair.exceptions import PrivacyAccountingError
from skdpfair.mechanism import Extra, Mechanism, PerSample, PerSampleGradients

if TYPE_CHECKING:
    from skdpfair.engine.step import Batch


def early_sample(
    model: Strategy, batch: Batch, mechanism: Mechanism, chunk_size: int | None
) -> tuple[PerSample, Tensor | None]:
    """Return the sample that early queries may see, and which records count (None for all)."""
    seen = mechanism.method.sees_gradients()
    if len(batch) == 0:
        none = model.parameters[0].new_zeros(0)
        facts = none, none, batch.group, none.new_zeros((0, model.loss.n_outputs))
        nobody = none.bool()
        if not seen:
            return PerSample(*facts), nobody
        return PerSampleGradients(*facts, none.new_zeros((0, model.n_parameters))), nobody
    sample: PerSample
    if seen:
        x = batch.dense_x
        plain = materialised(model, x).gradients(x, batch.y, weight=batch.weight)
        finite = torch.isfinite(plain.norm)
        facts = plain.norm, plain.loss, batch.group, plain.probability
        sample = PerSampleGradients(*facts, plain.rows)
    else:
        chunks = batch.split(chunk_size or len(batch))
        logits = torch.cat([model.forward(chunk.dense_x).detach() for chunk in chunks])
        loss, probability, _ = model.loss_terms(logits, batch.y, None, batch.weight)
        finite = torch.isfinite(probability).all(1)
        sample = PerSample(torch.full_like(loss, torch.nan), loss, batch.group, probability)
    if finite.device.type == "cpu" and bool(finite.all()):
        return sample, None
    if batch.units is not None:  # a person counts with all her records or not at all
        finite = batch.units.spread(batch.units.whole(finite))
    return sample, finite


def changed_gradients(
    model: Strategy,
    batch: Batch,
    mechanism: Mechanism,
    sample: PerSample,
    finite: Tensor | None,
    extra: Extra,
) -> Gradients | Tensor:
    """Return the changed gradients, or their change in the logits where that is all."""
    if not isinstance(sample, PerSampleGradients):
        return extra.logit_gradient
    if extra.averaged and mechanism.method.private:
        raise PrivacyAccountingError(
            f"{mechanism.method!r} adds a mean over the batch to every record's gradient, so one "
            "record moves all others; it cannot be private."
        )
    found = materialised(model, batch.dense_x).gradients(
        batch.dense_x, batch.y, extra.logit_gradient, extra.hvp_vectors, batch.weight
    )
    if batch.units is not None:
        return found.by_unit(batch.units)
    if extra.averaged:
        change = found.rows.sub_(sample.gradient)
        if finite is None:
            mean = change.mean(0)
        else:
            change = torch.where(finite[:, None], change, 0.0)
            mean = change.sum(0) / finite.sum().clamp(min=1)
        found.rows = sample.gradient + mean
    return found
