"""Micro-batched vmap: per-record gradients of any module whose records do not mix."""

from functools import partial

import torch
from torch.func import functional_call, grad, vmap
from torch.nn.functional import cross_entropy

from skdpfair.engine.autograd import without_grad
from skdpfair.engine.per_sample.records import Records, Strategy, rng_state, set_rng_state

MICRO_BATCH = 32


class MicroVmap(Strategy):
    """Instantiate the gradients of a few records at a time, once for norms, once for the sum."""

    name = "vmap"

    def __init__(self, module, n_classes, class_weight=None, reason=""):
        super().__init__(module, n_classes, class_weight, reason)
        # every place that holds a parameter, once: functional_call's own tying does not put a
        # parameter back where a layer is reached under two names
        names = {p: name for name, p in module.named_parameters()}
        self._places = {
            f"{prefix}.{local}".lstrip("."): names[p]
            for prefix, layer in module.named_modules()
            for local, p in layer.named_parameters(recurse=False, remove_duplicate=False)
        }

    def records(self, x, y, slope=None):
        """Return the gradients of a batch that is not empty."""
        return self._records(x, y, slope, None)

    def _records(self, x, y, slope, scale):
        rng = rng_state(self, x.device)
        values = self._values()
        slope = x.new_zeros((len(x), self.n_classes)) if slope is None else slope
        rows = (x, y, slope) if scale is None else (x, y, slope, scale)
        function = grad(self._loss, has_aux=True) if scale is None else self._grad_ahead
        each = vmap(function, (None, None, *[0] * len(rows)), randomness="different")

        def micro_batches():
            # the same random stream in both passes, hence the same dropout masks
            set_rng_state(x.device, rng)
            for part in zip(*(r.split(MICRO_BATCH) for r in rows), strict=True):
                yield each(*values, *part)

        norm2, logits = [], []
        for gradients, out in micro_batches():
            norm2.append(sum(g.flatten(1).square().sum(1) for g in gradients.values()))
            logits.append(out)
        loss, probability, _ = self.loss_terms(torch.cat(logits), y)

        @without_grad
        def weighted_sum(weight, out, finite=None):
            views = self.views(out)
            weights = weight.split(MICRO_BATCH)
            for (gradients, _), w in zip(micro_batches(), weights, strict=True):
                for name, p in self._named(True).items():
                    rows = gradients[name].flatten(1)
                    if finite is not None:
                        rows = torch.where((w != 0)[:, None], rows, 0.0)
                    views[p].view(-1).addmv_(rows.t(), w)

        norm = torch.cat(norm2).sqrt()
        ahead = partial(self._records, x, y, slope)
        return Records(norm, loss, probability, weighted_sum, ahead)

    def _grad_ahead(self, trained, frozen, x, y, slope, scale):
        own, _ = grad(self._loss, has_aux=True)(trained, frozen, x, y, slope)
        moved = {name: value + scale * own[name] for name, value in trained.items()}
        return grad(self._loss, has_aux=True)(moved, frozen, x, y, slope)

    def _values(self):
        return tuple({k: p.detach() for k, p in self._named(t).items()} for t in (True, False))

    def _named(self, trained):
        return {k: p for k, p in self.module.named_parameters() if p.requires_grad == trained}

    def _loss(self, trained, frozen, x, y, slope):
        values = {**trained, **frozen}
        values = {place: values[name] for place, name in self._places.items()}
        logits = functional_call(self.module, values, (x[None],), tie_weights=False)
        loss = cross_entropy(logits, y[None], reduction="sum")
        if self.class_weight is not None:
            loss = loss * self.class_weight.gather(0, y[None])[0]
        return loss + (slope * logits[0]).sum(), logits[0].detach()
