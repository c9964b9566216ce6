"""Gradients of examples at parameters that each moves along its own gradient."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from torch import Tensor

from skdpfair.engine.batch import Batch
from skdpfair.engine.per_sample.records import Gradients, OutputGradient, Strategy, in_two_passes
from skdpfair.engine.per_sample.samplers import GradSampler, RowsGradSampler
from skdpfair.engine.precision import without_grad

MAX_KEPT = 2**25  # numbers: 128 MiB in float32, as of 256 records and 130,000 parameters
_MICRO_BATCH = 32  # rows at a time where more are not kept; all of an example that has more


@without_grad
def gradients_at_ascent(
    model: Strategy, batch: Batch, samplers: Sequence[GradSampler], scale: Tensor
) -> Gradients:
    """Return the gradients of ``batch`` at parameters moved by ``scale`` times an example's own.

    These are made of ``samplers`` where they take little memory, else by another pass.
    """
    # a batch that draws is taken as a whole, as ``model`` takes it: the masks are the same
    parts = batch.split(len(batch) if model.draws else _MICRO_BATCH)
    known, is_kept = dict[Tensor, Tensor](), len(batch) * model.n_parameters <= MAX_KEPT
    for sampler in samplers if is_kept else ():
        known |= sampler.rows()
    own: list[Sequence[Tensor] | None] = [None] * len(parts)
    if len(known) == len(model.parameters):
        columns = (known[p].split([len(part) for part in parts]) for p in model.parameters)
        own = [*zip(*columns, strict=True)]
    scales = scale.split([len(part.examples) for part in parts])
    chunks = [*zip(parts, scales, own, strict=True)]
    return in_two_passes(model, chunks, partial(_of_part, model), is_kept=is_kept)


def _of_part(
    model: Strategy, part: Batch, scale: Tensor, own: Sequence[Tensor] | None
) -> Gradients:
    x, code, values = part.dense_x, model.code(part.dense_x), model.values()
    if own is None:
        rng_state, terms = model.rng_state(), OutputGradient(model, part)
        _, own = code.gradients(model.generator, values, x, output_gradient=terms)
        model.set_rng_state(rng_state)
    examples = part.examples
    rows = (examples.mean(g.reshape(len(x), g[0].numel())) * scale[:, None] for g in own)
    steps = map(examples.spread, rows)
    moved = [
        v + next(steps).view(len(x), *v.shape) if trains else v.expand(len(x), *v.shape)
        for v, trains in zip(values, code.trained.values(), strict=True)
    ]
    trace, terms = code.gradients_by_record, OutputGradient(model, part)
    _, gradients = trace(model.generator, [], *moved, x, output_gradient=terms)
    samplers = [RowsGradSampler(g, p) for p, g in zip(model.parameters, gradients, strict=True)]
    return model.gradients_of(part, samplers, None, *terms.terms())
