"""Terms that some methods add to each record's gradient, from statistics released before."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from skdpfair.engine.batch import Batch
from skdpfair.engine.per_sample import Strategy
from skdpfair.engine.per_sample.materialised import GradientMatrix, materialised
from skdpfair.exceptions import PrivacyAccountingError
from skdpfair.mechanism import Extra, Mechanism, PerSample, PerSampleGradients


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
        plain = materialised(model, batch.dense_x).gradients(batch)
        finite = torch.isfinite(plain.norm)
        facts = plain.norm, plain.loss, batch.group, plain.probability
        sample = PerSampleGradients(*facts, plain.rows)
    else:
        chunks = batch.split(chunk_size or len(batch))
        logits = torch.cat([model.forward(chunk.dense_x).detach() for chunk in chunks])
        loss, probability, _ = model.loss_terms(logits, batch)
        finite = torch.isfinite(probability).all(1)
        sample = PerSample(torch.full_like(loss, torch.nan), loss, batch.group, probability)
    if finite.device.type == "cpu" and bool(finite.all()):
        return sample, None
    examples = batch.examples  # each counts with all its rows or not at all
    return sample, examples.spread(examples.sum((~finite).to(torch.int64)) == 0)


def changed_gradients(
    model: Strategy,
    batch: Batch,
    mechanism: Mechanism,
    sample: PerSample,
    finite: Tensor | None,
    extra: Extra,
) -> GradientMatrix | Batch:
    """Return the changed gradients, or the batch with their change in the logits."""
    batch = replace(batch, logit_gradient=extra.logit_gradient)
    if not isinstance(sample, PerSampleGradients):
        return batch
    if extra.averaged and mechanism.method.private:
        raise PrivacyAccountingError(
            f"{mechanism.method!r} adds a mean over the batch to every record's gradient, so one "
            "record moves all others; it cannot be private."
        )
    found = materialised(model, batch.dense_x).gradients(batch, extra.hvp_vectors)
    if extra.averaged:  # by methods that take no examples of several rows
        change = found.rows.sub_(sample.gradient)
        if finite is None:
            mean = change.mean(0)
        else:
            change = torch.where(finite[:, None], change, 0.0)
            mean = change.sum(0) / finite.sum().clamp(min=1)
        found.rows = sample.gradient + mean
    return found.of_examples(batch.examples)
