"""Traced operations are tried on several records, and none changes what is kept."""

import pytest
import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from skdpfair.augmentations import record_by_record
from skdpfair.engine import select_strategy
from skdpfair.engine.per_sample.proof import RecordTrace, TraceError, trace

ATEN = torch.ops.aten
KEPT = torch.zeros(8)
ALIASES = {  # of one tensor, not all of which say so
    "view": lambda t: t.view(2, 4),
    "detach": torch.detach,
    "reshape": lambda t: t.reshape(4, 2),
    "contiguous": torch.Tensor.contiguous,
    "to": lambda t: t.to(torch.float32),
    "expand": lambda t: t.expand(8),
    "diagonal": lambda t: t.view(2, 4).diagonal(),
    "unsafe_split": lambda t: torch.unsafe_split(t, 8)[0],
    "unsafe_chunk": lambda t: torch.unsafe_chunk(t, 2)[1],
    "_unsafe_view": lambda t: ATEN._unsafe_view(t, [8]),
    "unbind": lambda t: t.unbind()[0],
}
CHANGES = {"add_": lambda t: t.add_(1.0), "copy_": lambda t: t.copy_(t + 1), "sin_": torch.sin_}


@pytest.mark.parametrize("name", ALIASES)
@pytest.mark.parametrize("changed", CHANGES.values(), ids=CHANGES)
def test_in_place_check_refuses_changes_through_any_alias(name, changed):
    def counting(h):
        return h * changed(ALIASES[name](KEPT)).sum()

    with pytest.raises(TraceError, match="kept"):
        trace(counting, (torch.ones(8),))
    with pytest.raises(ValueError, match="kept"):
        record_by_record(
            lambda module, x, y: torch.where(x > 1e3, counting(x), x),
            select_strategy(nn.Linear(8, 2), torch.zeros(1, 8), 2),
            torch.zeros(1, 8),
            2,
        )


MIXED = {  # where shapes do not belong together, torch's rules for batches bring records together
    "roll": lambda h: h.sum().roll([1]),
    "_linalg_solve_ex": lambda h: torch.linalg.solve_ex(h[:4].view(1, 1, 2, 2), h[:4].view(2, 2)),
    "_log_softmax_backward_data": lambda h: ATEN._log_softmax_backward_data(
        h[None, :3], h[:1], -1, torch.float32
    ),
    "_prelu_kernel_backward": lambda h: ATEN._prelu_kernel_backward(h[None], h[:1], h[None]),
    "size of tensor": lambda h: ATEN.smooth_l1_loss(h[0], h.view(1, 1, 2, 4), 1, 0.0),
}


@pytest.mark.parametrize("name", MIXED)
def test_vmap_rule_check_refuses_shapes_that_couple_records(name):
    with pytest.raises(TraceError, match=name):
        RecordTrace(lambda h: 0.0 * tree_leaves(MIXED[name](h))[0], (), (torch.full((8,), 0.5),))
