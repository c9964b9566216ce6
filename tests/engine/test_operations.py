"""Every operation of the table acts on each record alone, or is refused where it would not."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from skdpfair.engine.per_sample.graph import record
from skdpfair.engine.per_sample.operations import _SEVERAL, _UNARY, OPERATIONS, RULES
from skdpfair.engine.per_sample.stand_ins import Coupling, NotRecorded

ROW, SEQUENCE, IMAGE, CUBE = (6,), (3, 4), (4, 6, 6), (2, 4, 4, 4)
CONSTANT = torch.linspace(0.1, 0.9, 6)
CONSTANTS = torch.zeros(4), torch.full((4,), 2.0)  # running statistics of channels


class Run(nn.Module):
    """A function as a module."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def whole(x):
    return (8 * x).long()


# name: a function of records of the given shape
SPECIAL = {
    "bfloat16": (lambda x: x.bfloat16().float(), ROW),
    "half": (lambda x: x.half().float(), ROW),
    "float": (lambda x: x.double().float(), ROW),
    "double": (lambda x: x.double(), ROW),
    "contiguous": (lambda x: x.transpose(1, 2).contiguous(), SEQUENCE),
    "bool": (lambda x: (x - 0.5).relu().bool().float(), ROW),
    "long": (lambda x: whole(x).float(), ROW),
    "int": (lambda x: (8 * x).int().float(), ROW),
    "bitwise_not": (lambda x: torch.bitwise_not(whole(x)).float(), ROW),
    "softshrink": (lambda x: F.softshrink(x, 0.3), ROW),
    "threshold": (lambda x: F.threshold(x, 0.5, 0.1), ROW),
    "clamp": (lambda x: x.clamp(0.2, 0.7), ROW),
    "clip": (lambda x: torch.clip(x, CONSTANT * 0.3, CONSTANT), ROW),
    "clamp_min": (lambda x: x.clamp_min(0.4), ROW),
    "clamp_max": (lambda x: x.clamp_max(0.4), ROW),
    "acosh": (lambda x: torch.acosh(x + 1.5), ROW),
    "full_like": (lambda x: x + torch.full_like(x, 2.0), ROW),
    "bucketize": (lambda x: torch.bucketize(x, torch.tensor([0.2, 0.5])).float(), ROW),
    "one_hot": (lambda x: F.one_hot(whole(x), 9).float(), ROW),
    "rsub": (lambda x: torch.rsub(x, 1.0), ROW),
    "where": (lambda x: torch.where(x > 0.5, x, -x), ROW),
    "lerp": (lambda x: torch.lerp(x, 2 * x, 0.3), ROW),
    "addcmul": (lambda x: torch.addcmul(x, x, CONSTANT), ROW),
    "addcdiv": (lambda x: torch.addcdiv(x, x, CONSTANT), ROW),
    "masked_fill": (lambda x: x.masked_fill(x > 0.5, 0.0), ROW),
    **{
        f"bitwise_{name}": (
            lambda x, name=name: getattr(torch, f"bitwise_{name}")(whole(x), 3).float(),
            ROW,
        )
        for name in ("and", "or", "xor")
    },
    **{
        name: (lambda x, name=name: getattr(whole(x), name)(3).float(), ROW)
        for name in ("__and__", "__or__", "__xor__")
    },
    "__rsub__": (lambda x: 2.0 - x, ROW),
    "__rpow__": (lambda x: 2.0**x, ROW),
    "__rdiv__": (lambda x: 2.0 / (x + 1), ROW),
    "__rmod__": (lambda x: torch.Tensor.__rmod__(x + 1, 2.0), ROW),
    "__rfloordiv__": (lambda x: 2.0 // (x + 0.1), ROW),
    "__floordiv__": (lambda x: x // 0.3, ROW),
    **{
        name: (lambda x, name=name: getattr(x, name)(dim=(1, 2)), IMAGE)
        for name in ("sum", "mean", "std", "var", "amax", "amin", "logsumexp")
    },
    **{
        name: (lambda x, name=name: getattr(x, name)(1).float(), SEQUENCE)
        for name in ("prod", "argmax", "argmin", "cumsum", "cumprod", "logcumsumexp", "softmax")
    },
    "any": (lambda x: (x > 0.5).any(1).float(), SEQUENCE),
    "all": (lambda x: (x > 0.1).all(-1).float(), SEQUENCE),
    "median": (lambda x: x.median(1)[0], SEQUENCE),
    "log_softmax": (lambda x: F.log_softmax(x, dim=-1), SEQUENCE),
    "softmin": (lambda x: F.softmin(x, dim=1), SEQUENCE),
    "select": (lambda x: x.select(1, 2), SEQUENCE),
    "narrow": (lambda x: x.narrow(2, 1, 2), SEQUENCE),
    "sort": (lambda x: x.sort(1).values, SEQUENCE),
    "argsort": (lambda x: x.argsort(-1).float(), SEQUENCE),
    "glu": (lambda x: F.glu(x, dim=2), SEQUENCE),
    "norm": (lambda x: x.norm(dim=1), SEQUENCE),
    "vector_norm": (lambda x: torch.linalg.vector_norm(x, dim=(1, 2)), SEQUENCE),
    "topk": (lambda x: x.topk(2, dim=1)[0], SEQUENCE),
    "normalize": (lambda x: F.normalize(x, dim=1), SEQUENCE),
    "roll": (lambda x: x.roll(1, 1), SEQUENCE),
    "chunk": (lambda x: x.chunk(2, 2)[1], SEQUENCE),
    "split": (lambda x: x.split([1, 2], dim=1)[1], SEQUENCE),
    "tensor_split": (lambda x: x.tensor_split(2, dim=1)[0], SEQUENCE),
    "unbind": (lambda x: x.unbind(1)[1], SEQUENCE),
    "diff": (lambda x: x.diff(dim=1), SEQUENCE),
    "flip": (lambda x: x.flip(1, 2), SEQUENCE),
    "max": (lambda x: x.max(1)[0] + torch.max(x, 2 * x).sum(1), SEQUENCE),
    "min": (lambda x: x.min(dim=1).values, SEQUENCE),
    "cosine_similarity": (lambda x: F.cosine_similarity(x, x + 1, dim=1), SEQUENCE),
    "cat": (lambda x: torch.cat([x, -x], 1), SEQUENCE),
    "concat": (lambda x: torch.concat([x, -x], -1), SEQUENCE),
    "stack": (lambda x: torch.stack([x, -x], -1), SEQUENCE),
    "view": (lambda x: x.view(x.shape[0], -1), SEQUENCE),
    "reshape": (lambda x: x.reshape(-1, 4, 3), SEQUENCE),
    "expand": (lambda x: x[:, None].expand(x.size(0), 2, -1, -1), SEQUENCE),
    "repeat": (lambda x: x.repeat(1, 2, 1), SEQUENCE),
    "flatten": (lambda x: x.flatten(1), SEQUENCE),
    "unsqueeze": (lambda x: x.unsqueeze(-1), SEQUENCE),
    "unflatten": (lambda x: x.unflatten(1, (2, 3)), ROW),
    "squeeze": (lambda x: x[:, :1].squeeze(1), SEQUENCE),
    "permute": (lambda x: x.permute(0, 2, 1), SEQUENCE),
    "transpose": (lambda x: x.transpose(1, 2) @ x + (x.mT @ x), SEQUENCE),
    "swapaxes": (lambda x: x.swapaxes(1, 2), SEQUENCE),
    "swapdims": (lambda x: x.swapdims(1, 2), SEQUENCE),
    "__getitem__": (lambda x: x[:, 1:, None] + x[..., -1:, :][:, :, None, [0, 2, 1, 3]], SEQUENCE),
    "gather": (lambda x: x.gather(1, x.argsort(1)), SEQUENCE),
    "take_along_dim": (lambda x: x.take_along_dim(x.argsort(1), dim=1), SEQUENCE),
    "index_select": (lambda x: x.index_select(1, torch.tensor([2, 0])), SEQUENCE),
    "matmul": (lambda x: torch.matmul(x, x.mT) + torch.ones(3, 3) @ x @ torch.ones(4, 3), SEQUENCE),
    "__matmul__": (lambda x: x @ torch.ones(6, 2), ROW),
    "bmm": (lambda x: torch.bmm(x, x.transpose(1, 2)), SEQUENCE),
    "einsum": (lambda x: torch.einsum("bij,jk,blj->bikl", x, torch.ones(4, 2), x), SEQUENCE),
    "linear": (lambda x: F.linear(x, torch.ones(2, 6)), ROW),
    "conv1d": (lambda x: F.conv1d(x, torch.ones(2, 3, 2)), SEQUENCE),
    "conv2d": (lambda x: F.conv2d(x, torch.ones(2, 4, 2, 2)), IMAGE),
    "conv3d": (lambda x: F.conv3d(x, torch.ones(2, 2, 2, 2, 2)), CUBE),
    **{
        f"{kind}_pool{k}d": (
            lambda x, kind=kind, k=k: getattr(F, f"{kind}_pool{k}d")(x, 2),
            {1: SEQUENCE, 2: IMAGE, 3: CUBE}[k],
        )
        for kind in ("max", "avg", "adaptive_max", "adaptive_avg")
        for k in (1, 2, 3)
    },
    **{
        f"lp_pool{k}d": (
            lambda x, k=k: getattr(F, f"lp_pool{k}d")(x, 2.0, 2),
            {1: SEQUENCE, 2: IMAGE, 3: CUBE}[k],
        )
        for k in (1, 2, 3)
    },
    "interpolate": (lambda x: F.interpolate(x, scale_factor=2), IMAGE),
    "unfold": (lambda x: F.unfold(x, 2), IMAGE),
    "fold": (lambda x: F.fold(F.unfold(x, 2), (6, 6), 2), IMAGE),
    "pixel_shuffle": (lambda x: F.pixel_shuffle(x, 2), IMAGE),
    "pixel_unshuffle": (lambda x: F.pixel_unshuffle(x, 2), IMAGE),
    "channel_shuffle": (lambda x: F.channel_shuffle(x, 2), IMAGE),
    "pad": (lambda x: F.pad(x, (1, 1)), SEQUENCE),
    "group_norm": (lambda x: F.group_norm(x, 2), IMAGE),
    "layer_norm": (lambda x: F.layer_norm(x, (4,)), SEQUENCE),
    "rms_norm": (lambda x: F.rms_norm(x, (4,)), SEQUENCE),
    "instance_norm": (
        lambda x: F.instance_norm(F.instance_norm(x, *CONSTANTS, use_input_stats=False)),
        IMAGE,
    ),
    "batch_norm": (lambda x: F.batch_norm(x, *CONSTANTS), IMAGE),
    "scaled_dot_product_attention": (
        lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True),
        SEQUENCE,
    ),
    "embedding": (lambda x: F.embedding(whole(x), torch.eye(9)), ROW),
    **{
        name: (lambda x, name=name: x + getattr(x, name)((x.shape[0], 6)), ROW)
        for name in ("new_zeros", "new_ones")
    },
    "new_full": (lambda x: x + x.new_full((x.shape[0], 6), 2.0), ROW),
    "to": (lambda x: x.to(torch.float64), ROW),
    "type": (lambda x: x.type(torch.float64), ROW),
    "type_as": (lambda x: x.double().type_as(x), ROW),
}
DRAWN = {
    "dropout": (lambda x: F.dropout(x, 0.4), ROW),
    "dropout1d": (lambda x: F.dropout1d(x, 0.4), SEQUENCE),
    "dropout2d": (lambda x: F.dropout2d(x, 0.4), IMAGE),
    "dropout3d": (lambda x: F.dropout3d(x, 0.4), CUBE),
    "rand_like": (lambda x: x + torch.rand_like(x), ROW),
    "randn_like": (lambda x: x + torch.randn_like(x), ROW),
    "bernoulli": (lambda x: torch.bernoulli(x), ROW),
}


def of(name):
    return next(
        getattr(s, name) for s in (torch, F, torch.special, torch.Tensor) if hasattr(s, name)
    )


def plain(name):
    if name in _UNARY.split():
        return lambda x: of(name)(x), ROW
    return lambda x: of(name)(x, CONSTANT), ROW


EXAMPLES = {n: plain(n) for n in (_UNARY + " " + _SEVERAL).split()} | SPECIAL


def made_up(n, shape):
    return torch.rand((n, *shape), generator=torch.Generator().manual_seed(n))


@pytest.mark.parametrize("name", sorted(set(RULES) - set(DRAWN)))
def test_an_operation_treats_each_record_alone(name):
    function, shape = EXAMPLES[name]
    graph = record(Run(function), made_up(5, shape))
    x = made_up(7, shape)
    found, expected = graph(x), function(x)
    torch.testing.assert_close(found, expected, equal_nan=True)
    for i in range(7):
        torch.testing.assert_close(graph(x[i : i + 1])[0], found[i], equal_nan=True)
    others = made_up(8, shape)[:7]
    others[3] = x[3]
    torch.testing.assert_close(graph(others)[3], found[3], equal_nan=True)


@pytest.mark.parametrize("name", sorted(DRAWN))
def test_random_operations_draw_from_the_given_generator(name):
    function, shape = DRAWN[name]
    graph, x = record(Run(function), made_up(5, shape)), made_up(40, shape)
    one, same = (graph(x, torch.Generator().manual_seed(3)) for _ in range(2))
    other = graph(x, torch.Generator().manual_seed(4))
    assert torch.equal(one, same) and not torch.equal(one, other)
    assert one.shape == function(x).shape
    scale = float(function(made_up(4000, shape)).mean())
    assert (
        abs(float(graph(made_up(4000, shape), torch.Generator().manual_seed(0)).mean()) - scale)
        < 0.05
    )


def test_the_table_has_an_example_of_every_operation():
    assert set(EXAMPLES) | set(DRAWN) == set(RULES)
    assert {op.name for op in OPERATIONS.values()} == set(RULES)


def in_place(x):
    x = x + 0
    x += 1.0
    x.mul_(2.0).tanh_()
    return F.relu(x, inplace=True)


def test_what_is_changed_in_place_is_followed():
    graph, x = record(Run(in_place), made_up(5, ROW)), made_up(7, ROW)
    torch.testing.assert_close(graph(x), in_place(x))


COUPLED = {
    "mean over the batch": lambda x: x - x.mean(0),
    "mean of everything": lambda x: x - x.mean(),
    "std with bool": lambda x: x / x.std(True),
    "max of everything": lambda x: x / x.max(),
    "value": lambda x: x / 2 if (x > 1).any() else x,
    "item": lambda x: x * x[:, 0].item(),
    "float": lambda x: x * float(x[0, 0]),
    "shape": lambda x: x * 2 if x.shape[0] > 8 else x,
    "parity of the batch": lambda x: x * 2 if x.shape[0] % 2 else x,
    "caught": lambda x: caught(x),
    "flip": lambda x: x + x.flip(0),
    "roll": lambda x: x + x.roll(1, 0),
    "roll flat": lambda x: x + x.roll(1),
    "sort": lambda x: x.sort(0)[0],
    "cumsum": lambda x: x.cumsum(0),
    "softmax": lambda x: x.softmax(0),
    "softmax of a last axis that is the first": lambda x: x[:, 0].softmax(-1)[:, None] * x,
    "normalize": lambda x: F.normalize(x, dim=0),
    "norm": lambda x: x / x.norm(),
    "pairs": lambda x: (x.unsqueeze(1) - x).sum(1),
    "first record": lambda x: x + x[0],
    "slice": lambda x: x + x[:1],
    "iteration": lambda x: torch.stack([row - 1 for row in x]),
    "unbind": lambda x: x.unbind()[0] + x,
    "mask": lambda x: x[x > 0.5],
    "mask of two axes": lambda x: x[..., torch.ones(5, 6, dtype=torch.bool)],
    "index of records": lambda x: x[:, x[0].long()],
    "gather": lambda x: x.gather(0, x.argsort(1)),
    "matmul": lambda x: torch.ones(5, 5) @ x,
    "product of records": lambda x: torch.einsum("bi,ci->bc", x, x),
    "einsum over the batch": lambda x: x - torch.einsum("bi->i", x),
    "places": lambda x: x * torch.arange(5.0)[:, None],
    "cat": lambda x: torch.cat([x, x])[:5],
    "cat without an axis": lambda x: torch.cat((x, x)),
    "repeat": lambda x: x.repeat(2, 1),
    "one hot of the batch's classes": lambda x: F.one_hot((8 * x).long()).float(),
    "layer norm over all": lambda x: F.layer_norm(x, (5, 6)),
    "batch norm": lambda x: F.batch_norm(x, None, None, training=True),
    "embedding that is renormalised": lambda x: F.embedding(
        (8 * x).long(), torch.ones(9, 2), max_norm=1.0
    ),
    "attention over the batch": lambda x: F.scaled_dot_product_attention(x, x, x),
    "set item": lambda x: assigned(x),
    "list of places": lambda x: torch.where(x[:, 0] > -1)[0],
    "in a condition of tensors": lambda x: torch.where(x > 7, x.mean(0), x),
}


class Lying(int):
    """An axis that says that it is another."""

    def __mod__(self, other):
        return 1


def caught(x):
    try:
        return x - x.mean(0) if x.max() > 1 else x
    except Exception:
        return x


def assigned(x):
    x = x.clone()
    x[1:] = x[:-1]
    return x


@pytest.mark.parametrize("name", COUPLED)
def test_what_brings_records_together_is_refused(name):
    with pytest.raises(Coupling):
        record(Run(COUPLED[name]), made_up(5, ROW))


UNKNOWN = {
    "axes moved": lambda x: x.t() @ x,
    "an axis by its name": lambda x: x[:, :5].transpose(1, dim1=0).cumsum(1).transpose(1, dim1=0),
    "dots for no axis": lambda x: torch.einsum("...i,...j->...ij", x[:, 0], x[:, 0]),
    "an axis that lies": lambda x: x.cumsum(Lying(0)),
    "memory that nobody wrote": lambda x: x + x.new_empty((x.shape[0], 6)),
    "another axis first": lambda x: x.unsqueeze(0).mean(1),
    "flat": lambda x: x.reshape(-1),
    "batch length": lambda x: x * 2 if len(x) > 8 else x,
    "length fixed": lambda x: x.view(5, -1),
    "rows of half records": lambda x: x.view(-1, 3),
    "pad": lambda x: F.pad(x, (0, 0, 1, 0)),
    "channels": lambda x: F.max_pool1d(x, 2),
    "into a buffer": lambda x: torch.zeros(5, 6).copy_(x),
    "out": lambda x: torch.add(x, 1, out=torch.zeros(5, 6)),
    "the input in place": lambda x: x.mul_(2.0),
    "a view of the input in place": lambda x: x[:, :3].mul_(2.0),
    "without autograd": torch.no_grad()(lambda x: x * 2),
    "shared draw": lambda x: x * torch.rand(6),
    "count": lambda x: x * x.shape[0],
    "not listed": lambda x: torch.cdist(x, x),
    "constant": lambda x: torch.ones(5, 6),
    "rows of a table": lambda x: torch.embedding(x, torch.tensor([1, 0, 2, 3, 4])),
    "statistics that are kept": lambda x: torch.instance_norm(
        x[:, None], None, None, torch.zeros(1), torch.ones(1), True, 0.1, 1e-5, False
    )[:, 0],
    "statistics that a layer keeps": lambda x: F.instance_norm(
        x[:, None], torch.zeros(1), torch.ones(1)
    )[:, 0],
    "windows of records": lambda x: x[:, None, None].unfold(0, 1, 1),
    "hidden in an object": lambda x: Run(lambda y: y.data)(x),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_may_bring_records_together_is_not_recorded(name):
    with pytest.raises(NotRecorded):
        record(Run(UNKNOWN[name]), made_up(5, ROW))


def test_a_refusal_names_the_line():
    with pytest.raises(Coupling, match=r"mean runs along .* \(in test_operations.py, line \d+: "):
        record(Run(COUPLED["mean over the batch"]), made_up(5, ROW))
