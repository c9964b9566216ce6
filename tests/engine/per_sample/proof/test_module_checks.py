"""Modules that training would not follow as they are written are refused."""

import warnings

import pytest
import torch
from torch import nn

from skdpfair.engine import select_strategy
from skdpfair.exceptions import UnsupportedModuleError
from tests.engine.per_sample.modules import Net, chain, linears, seeded


def remembering():
    norm = nn.InstanceNorm1d(2, track_running_stats=True)
    return chain(nn.Unflatten(1, (2, 3)), norm, nn.Flatten(), (6, 3))


def weight_normed():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return chain(nn.utils.weight_norm(nn.Linear(6, 4)), nn.GELU(), (4, 3))


def own_forward():
    module = chain((6, 3))
    module[0].forward = lambda x: 2.0 * nn.functional.linear(x, module[0].weight)
    return module


def embedding(**options):
    table = nn.Embedding(4, 5, **options)
    return Net(lambda m, x: m.out(m.table(x.long().abs() % 4).mean(1)), table=table, out=(5, 3))


class WithExtraState(nn.Linear):
    """State that is no tensor."""

    def get_extra_state(self):
        return {"rows": [1.0, 2.0]}


class OwnTensor(torch.Tensor):
    """A tensor whose operations are its own."""


def with_own_tensor():
    module = nn.Linear(6, 3)
    module.weight = nn.Parameter(torch.ones(3, 6).as_subclass(OwnTensor))
    return module


REFUSED = {
    "batch norm": (lambda: chain((6, 4), nn.BatchNorm1d(4), (4, 3)), "BatchNorm1d.*GroupNorm"),
    "statistics": (remembering, "InstanceNorm1d.*GroupNorm"),
    "max_norm": (lambda: embedding(max_norm=1.0), "max_norm"),
    "weight_norm": (weight_normed, "parametrizations"),
    "flipped": (lambda: linears(lambda m, x: m.out(x.flip(0))), "mixes.*batch of 4"),
    "opposite": (lambda: linears(lambda m, x: m.out(torch.cat([x, -x]))[:4]), "mixes.*batch of 2"),
    "own forward": (own_forward, "parameter.*not its own"),
    "two outputs": (lambda: nn.Linear(6, 2), r"\(batch, 3\)"),
    "one output": (lambda: linears(lambda m, x: m.out(x).sum()), r"\(batch, 3\)"),
    "softmax": (lambda: chain((6, 3), nn.Softmax(1)), "softmax.*Leave that layer out"),
    "sigmoid": (lambda: chain((6, 3), nn.Sigmoid()), "Leave that layer out"),
    "nothing trains": (lambda: nn.Linear(6, 3).requires_grad_(False), "no trainable"),
    "float16": (lambda: nn.Linear(6, 3).half(), "float16.*float32"),
    "bfloat16": (lambda: nn.Linear(6, 3).bfloat16(), "bfloat16.*float32"),
    "complex": (lambda: Net(lambda m, x: m.w, w=nn.Parameter(torch.ones(2) * 1j)), "view_as"),
    "other type": (lambda: Net(lambda m, x: m.c(x).double(), c=(6, 3)), "of torch.float32.*64"),
    "old spectral norm": (
        lambda: chain(nn.utils.spectral_norm(nn.Linear(6, 4)), (4, 3)),
        "module remembers",
    ),
    "extra state": (lambda: WithExtraState(6, 3), "extra state"),
    "own tensor": (with_own_tensor, "OwnTensor"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_check_module_refuses_what_training_would_not_follow(name):
    make, match = REFUSED[name]
    module = seeded(make)
    x = torch.zeros(4, 6, dtype=next(module.parameters()).dtype)
    with pytest.raises(UnsupportedModuleError, match=match):
        select_strategy(module, x, 3)


class Narrow(nn.Module):
    """Its weights have many numbers for each of the first axis, and its outputs no limit."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.ones(1, 3, 400, 6) / 40)

    def forward(self, x):
        return (x @ self.w[0].mT).square().mean(-1).T


@pytest.mark.parametrize(
    ("module", "n"),
    [
        (chain((6, 3), nn.LogSoftmax(1)), 21),
        (chain((6, 3), nn.Tanh()), 21),
        (chain((6, 3), nn.ReLU()), 21),
        (Narrow(), 7200),
    ],
)
def test_check_module_takes_outputs_of_some_range(module, n):
    with select_strategy(module, torch.zeros(4, 6), 3) as strategy:
        assert strategy.n_parameters == n


def test_refuse_mixing_has_the_layer_that_lacks_batch_first():
    module = Net(lambda m, x: m.out(m.gru(x)[0].mean(1)), gru=nn.GRU(6, 6), out=(6, 3))
    with pytest.raises(UnsupportedModuleError, match="batch_first=True of 'gru'"):
        select_strategy(module, torch.zeros(4, 5, 6), 3)
