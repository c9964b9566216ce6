"""Common modules stay on the fast path; modules that bring records together never train."""

from collections import deque

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from skdpfair import DPFairClassifier
from skdpfair._networks import small_cnn
from skdpfair.augmentations import record_by_record
from skdpfair.engine import Batch, select_strategy
from skdpfair.engine.memory import affordable_batch
from skdpfair.engine.per_sample.proof import RecordTrace, TraceError, trace
from skdpfair.engine.per_sample.proof.graphs import of_any_size
from skdpfair.exceptions import UnsupportedModuleError
from skdpfair.testing import check_engine


class Net(nn.Module):
    """Named layers, linear ones by (in, out), put together by a function."""

    def __init__(self, forward, **layers):
        super().__init__()
        self.run = forward
        for name, layer in layers.items():
            setattr(self, name, nn.Linear(*layer) if isinstance(layer, tuple) else layer)

    def forward(self, x):
        return self.run(self, x)


def seq(*layers):
    return nn.Sequential(*layers)


def words(x):
    return (10 * x).long().abs() % 7


def rms(x):
    return x * x.square().mean(-1, keepdim=True).add(1e-6).rsqrt()


class Step(torch.autograd.Function):
    """A step forward, straight through backward."""

    @staticmethod
    def forward(x):
        return (x > 0).to(x.dtype)

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, grad):
        return grad


class Reverse(torch.autograd.Function):
    """The same forward, the opposite backward."""

    @staticmethod
    def forward(ctx, x, scale):
        ctx.scale = scale
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return -ctx.scale * grad, None


class Block(nn.Module):
    """A pre-norm transformer block, its attention written by hand."""

    def __init__(self, width=8, heads=2):
        super().__init__()
        self.heads, self.norm, self.last = heads, nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        n, length, width = x.shape
        parts = self.qkv(self.norm(x)).view(n, length, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(0, 2, 3, 1, 4).unbind(1)
        found = F.scaled_dot_product_attention(q, k, v)
        x = x + self.out(found.transpose(1, 2).reshape(n, length, width))
        return x + self.down(F.gelu(self.up(self.last(x))))


def attention(x, q, k, v, width):
    weights = torch.softmax(q(x) @ k(x).transpose(-2, -1) / width**0.5, dim=-1)
    return weights @ v(x)


ROW, SEQUENCE, IMAGE = (6,), (5, 8), (2, 8, 8)
LAYERS, VMAP = "bookkeeping", "vmap"
ROWS = {
    "activations": lambda: seq(
        *[
            part
            for activation in (
                *(nn.SiLU(), nn.LeakyReLU(), nn.ELU(inplace=True), nn.GELU(), nn.Softplus()),
                *(nn.Mish(), nn.Hardswish()),
            )
            for part in (nn.Linear(6, 6), activation)
        ],
        nn.Linear(6, 3),
    ),
    "glu": lambda: seq(nn.Linear(6, 16), nn.GLU(), nn.Linear(8, 3)),
    "scaled logits": lambda: Net(lambda m, x: m.a(x) / 8**0.5 - 1.0, a=(6, 3)),
    "features of a buffer": lambda: fourier(),
    "bag of words": lambda: Net(
        lambda m, x: m.c(m.e(words(x)).mean(1)), e=nn.Embedding(7, 4), c=(4, 3)
    ),
    "masked words": lambda: Net(
        lambda m, x: m.c(
            (m.e(words(x)) * (words(x) > 0)[..., None]).sum(1)
            / (words(x) > 0).sum(1, keepdim=True).clamp(min=1)
        ),
        e=nn.Embedding(7, 4, padding_idx=0),
        c=(4, 3),
    ),
    "rms norm by hand": lambda: Net(lambda m, x: m.c(rms(m.a(x))), a=(6, 4), c=(4, 3)),
    "frozen backbone": lambda: frozen(),
    "straight-through": lambda: Net(lambda m, x: m.c(Step.apply(m.a(x))), a=(6, 4), c=(4, 3)),
    "reversed gradient": lambda: Net(
        lambda m, x: m.c(Reverse.apply(m.a(x), 0.5)), a=(6, 4), c=(4, 3)
    ),
}
SEQUENCES = {
    "signals": lambda: seq(
        *(nn.Conv1d(5, 4, 3), nn.ReLU(), nn.MaxPool1d(2), nn.Conv1d(4, 2, 2)),
        *(nn.Flatten(), nn.Linear(4, 3)),
    ),
    "mixer": lambda: Net(
        lambda m, x: m.c((x + m.a(x.transpose(1, 2)).permute(0, 2, 1) + m.b(x)).amax(dim=1)),
        a=(5, 5),
        b=(8, 8),
        c=(8, 3),
    ),
    "attention by hand": lambda: Net(
        lambda m, x: m.c(attention(x, m.q, m.k, m.v, 8).mean(1)),
        **dict.fromkeys("qkv", (8, 8)),
        c=(8, 3),
    ),
    "transformer blocks": lambda: Net(
        lambda m, x: m.c(m.b(m.a(x)).mean(1)), a=Block(), b=Block(), c=(8, 3)
    ),
    "einsum": lambda: Net(
        lambda m, x: m.c(torch.einsum("bti,btj->bij", m.a(x), x).flatten(1)), a=(8, 2), c=(16, 3)
    ),
}
IMAGES = {
    "pooled cnn": lambda: seq(
        *(
            nn.Conv2d(2, 4, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
            nn.AvgPool2d(2, 1),
        ),
        *(nn.Conv2d(4, 6, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 3)),
    ),
    "squeeze and excite": lambda: Net(
        lambda m, x: m.c(
            (m.a(x) * torch.sigmoid(m.s(m.b(x).mean((2, 3))))[:, :, None, None]).flatten(1)
        ),
        a=nn.Conv2d(2, 4, 3),
        b=nn.Conv2d(2, 4, 3),
        s=(4, 4),
        c=(144, 3),
    ),
    "skip with interpolation": lambda: Net(
        lambda m, x: m.c(
            (F.interpolate(m.b(F.max_pool2d(x, 2)), scale_factor=2) + m.a(x)).flatten(1)
        ),
        a=nn.Conv2d(2, 2, 1),
        b=nn.Conv2d(2, 2, 1),
        c=(128, 3),
    ),
    "reflection and shuffle": lambda: seq(
        *(nn.ReflectionPad2d(1), nn.Conv2d(2, 4, 3), nn.PixelShuffle(2)),
        *(nn.Flatten(), nn.Linear(256, 3)),
    ),
    "volumes": lambda: seq(
        *(nn.Unflatten(1, (1, 2)), nn.Conv3d(1, 2, 2), nn.ReLU(), nn.AdaptiveMaxPool3d(2)),
        *(nn.Flatten(), nn.Linear(16, 3)),
    ),
}
ROWS_BY_VMAP = {
    "parametrised": lambda: seq(
        nn.utils.parametrizations.weight_norm(nn.Linear(6, 4)), nn.Tanh(), nn.Linear(4, 3)
    ),
}
SEQUENCES_BY_VMAP = {
    "learned positions": lambda: Net(
        lambda m, x: m.c((x + m.p(torch.arange(5))).mean(1)), p=nn.Embedding(5, 8), c=(8, 3)
    ),
    "torch's encoder": lambda: Net(
        lambda m, x: m.c(m.a(x).mean(1)),
        a=nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True),
        c=(8, 3),
    ),
    "recurrent": lambda: Net(
        lambda m, x: m.c(m.a(x)[0][:, -1]), a=nn.GRU(8, 4, batch_first=True), c=(4, 3)
    ),
}
MODULES = {
    name: (make, shape, strategy)
    for modules, shape, strategy in (
        (ROWS, ROW, LAYERS),
        (SEQUENCES, SEQUENCE, LAYERS),
        (IMAGES, IMAGE, LAYERS),
        ({"papers' cnn": lambda: small_cnn((8, 8), 3, channels=(4, 2))}, (8, 8), LAYERS),
        ({"channels last": lambda: small_cnn((8, 8, 3), 3, channels=(4, 2))}, (8, 8, 3), LAYERS),
        (ROWS_BY_VMAP, ROW, VMAP),
        (SEQUENCES_BY_VMAP, SEQUENCE, VMAP),
    )
    for name, make in modules.items()
}


def fourier():
    net = Net(
        lambda m, x: m.c(torch.cat([(x @ m.waves).sin(), (x @ m.waves).cos()], -1)),
        c=nn.Linear(8, 3),
    )
    net.register_buffer("waves", torch.linspace(-1, 1, 24).view(6, 4))
    return net


def frozen():
    backbone = seq(nn.Linear(6, 8), nn.ReLU(), nn.LayerNorm(8)).requires_grad_(False)
    return seq(backbone, nn.Linear(8, 3))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MODULES)
def test_common_modules_get_their_strategy(name):
    make, shape, expected = MODULES[name]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = make().eval()  # without dropout
    assert check_engine(module, torch.zeros(1, *shape), 3) == expected


# ---- modules that bring records together sometimes, or remember them ----------------------------


class Hidden(nn.Module):
    """A network with an operation between its layers."""

    def __init__(self, between):
        super().__init__()
        self.a, self.c, self.between = nn.Linear(6, 8), nn.Linear(8, 3), between
        self.bank, self.log = deque(maxlen=64), []
        self.register_buffer("mean", torch.zeros(8))
        self.register_buffer("largest", torch.zeros(8))

    def forward(self, x):
        return self.c(self.between(self, torch.tanh(self.a(x))))


def centred(h):
    return h - h.mean(0, keepdim=True)


def running(m, h):
    with torch.no_grad():
        m.mean.mul_(0.9).add_(0.1 * h.detach().mean(0))
    return h - m.mean


def largest(m, h):
    m.largest = torch.maximum(m.largest, h.detach().amax(0))
    return h / (1 + m.largest)


def from_bank(m, h):
    past = list(m.bank)
    m.bank.append(h.detach())
    return h + 0.1 * past[-1].mean(0) if past else h


def keeping(m, h):
    m.log.append(h)
    return h


class Straight(torch.autograd.Function):
    """Forward by record, backward over the batch."""

    @staticmethod
    def forward(ctx, x):
        return x * 1.0

    @staticmethod
    def backward(ctx, grad):
        return grad + grad.mean(0)


HOSTILE = {  # test_fuzz_modules plants what couples by value, size, mode, count and chance
    "longest of the batch": lambda m, h: h[:, : int((h > 0).sum(1).max())].sum(1, keepdim=True) + h,
    "running mean": running,
    "running maximum": largest,
    "memory bank": from_bank,
    "activations kept in a list": keeping,
    "own backward": lambda m, h: Straight.apply(h),
    "parameters changed": lambda m, h: shrunk(m, h),
}


def caught(h):
    try:
        return centred(h) if h.abs().max() > 2 else h
    except Exception:
        return h


def shrunk(m, h):
    m.a.weight.data.mul_(1 - 1e-3 * float(h.detach().mean()))
    return h


@pytest.mark.parametrize("name", HOSTILE)
def test_modules_that_bring_records_together_are_refused(name):
    with pytest.raises(UnsupportedModuleError):
        select_strategy(Hidden(HOSTILE[name]), torch.zeros(1, 6), 3)


@pytest.mark.parametrize(
    "between", [caught, lambda h: torch.where(torch.rand_like(h) < 0.1, h.mean(0), h)]
)
def test_what_rarely_brings_records_together_never_does_in_training(between):
    x, y = torch.linspace(-9, 9, 60).view(10, 6), torch.arange(10) % 3
    module = Hidden(lambda m, h: between(h))
    with select_strategy(module, x[:1], 3) as strategy:
        batch = Batch(x, y)
        alone = [strategy.per_sample_gradients(one).norm for one in batch.split(1)]
        torch.testing.assert_close(strategy.per_sample_gradients(batch).norm, torch.cat(alone))


def reshaped(*shape):
    return torch.fx.symbolic_trace(lambda x: x.reshape(*shape))


@pytest.mark.parametrize("other", [(8, 6), (7, 12), (7, 6.0), (7, 6, 1)])
def test_only_sizes_follow_the_number_of_records(other):
    small = reshaped(5, 6)
    graph = torch.fx.GraphModule(small, of_any_size(small, reshaped(7, 6)))
    assert graph(3, torch.zeros(18)).shape == (3, 6)
    with pytest.raises(TraceError, match="the number of records"):
        of_any_size(reshaped(5, 6), reshaped(*other))


COUNTS = {
    "ones": lambda x: x.new_ones(x.shape[0], x.shape[0]).sum(1, keepdim=True),
    "fill": lambda x: x.new_full((x.shape[0], 1), x.shape[0]),
    "fill by name": lambda x: x.new_full(size=(x.size(0), 1), fill_value=x.size(0)),
    "pad": lambda x: F.pad(x.new_zeros(x.shape[0], 1), (0, x.shape[0]), value=1.0).sum(1)[:, None],
    "repeat": lambda x: torch.ones(1, 1).repeat(1, x.shape[0]).sum(),
    "expand": lambda x: torch.ones(1).expand(x.shape[0]).sum(),
    "range": lambda x: torch.arange(x.shape[0]).max() + 1,
    "steps": lambda x: torch.linspace(1, 1, len(x)).sum(),
    "eye": lambda x: torch.eye(len(x)).sum(),
    "number": lambda x: torch.tensor(float(len(x))),
    "rest": lambda x: 400.0 * (len(x) % 400 == 0),
    "numbers": lambda x: x.numel() / 6,
    "stride": lambda x: x.t().contiguous().stride(0),
    "bytes": lambda x: x.untyped_storage().nbytes() / 24,
    "ones like": lambda x: torch.ones_like(x).cumsum(0)[-1:, :1],
}


@pytest.mark.parametrize("name", COUNTS)
def test_the_number_of_records_changes_no_gradient(name):
    module = Net(
        lambda m, x: m.c(
            torch.tanh(m.a(x)) * (1 - 2 * torch.relu(COUNTS[name](x) - 399.0 + 0 * x[:, :1]))
        ),
        a=nn.Linear(6, 8),
        c=nn.Linear(8, 3),
    )
    try:
        strategy = select_strategy(module, torch.zeros(1, 6), 3)
    except UnsupportedModuleError:
        return
    x, y = torch.linspace(0, 1, 2400).sin().view(400, 6), torch.arange(400) % 3
    with strategy:
        whole, alone = (
            strategy.per_sample_gradients(Batch(x[:n], y[:n])).norm for n in (len(x), 1)
        )
        torch.testing.assert_close(whole[:1], alone)


@torch.library.custom_op("skdpfair_tests::own", mutates_args=())
def own(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


own.register_fake(torch.empty_like)
own.register_autograd(lambda ctx, grad: grad)
own.register_vmap(lambda info, axes, x: (x - x.mean(axes[0], keepdim=True), axes[0]))
KEPT = torch.zeros(8)


UNLISTED = {  # what reads memory by its layout, or runs code of its own, where one record is seen
    "skdpfair_tests.own": own,
    "aten.as_strided": lambda h: torch.as_strided(h, (1, 8), (8, 1)),
    "aten.view.dtype": lambda h: h.view(torch.int8).view(torch.float32),
    "aten._cdist_backward": lambda h: h + torch.cdist(h, h + 1).sum(),
    "aten._linalg_det": lambda h: torch.linalg.det(h[0, :4].view(2, 2)),
    "aten._embedding_bag": lambda h: h + F.embedding_bag(torch.zeros(1, 2).long(), 2 * h),
    "aten.index_fill.int_Tensor": lambda h: h.index_fill(1, torch.tensor([0]), h.sum()),
    "aten._foreach_add": lambda h: torch._foreach_add([h], 1.0)[0],
    "aten.masked_scatter": lambda h: h.masked_scatter(h > 0, h),
    "kept from call to call": lambda h: h * KEPT.add_(1).clone(),
    "cond": lambda h: torch.cond(h.sum() > 0, torch.sin, torch.cos, (h,)),
}


@pytest.mark.parametrize("name", UNLISTED)
def test_operations_outside_the_closed_list_are_refused_by_name(name):
    with pytest.raises(TraceError, match=name.replace(".", r"\.")):
        trace(with_gradient(UNLISTED[name]), (torch.ones(1, 8),))


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


@pytest.mark.parametrize("name", ALIASES)
@pytest.mark.parametrize("changed", [lambda t: t.add_(1.0), lambda t: t.copy_(t + 1), torch.sin_])
def test_nothing_that_is_kept_is_changed_through_any_alias(name, changed):
    def counting(h):
        return h * changed(ALIASES[name](KEPT)).sum()

    with pytest.raises(TraceError, match="kept from call to call"):
        trace(counting, (torch.ones(8),))
    with pytest.raises(ValueError, match="kept from call to call"):
        record_by_record(
            lambda module, x, y: torch.where(x > 1e3, counting(x), x),
            select_strategy(nn.Linear(8, 2), torch.zeros(1, 8), 2),
            torch.zeros(1, 8),
            2,
        )


def test_what_a_call_makes_of_it_may_be_changed():
    def honest(h):
        made = (
            torch.stack([KEPT[0], KEPT[1]]).mul_(2).sum() + (KEPT * 2).add_(1) + KEPT.clone().sin_()
        )
        return h * made + torch.zeros(8).fill_(3.0)

    traced = trace(honest, (torch.ones(8),))
    expected = honest(torch.ones(8))
    with torch.no_grad():
        KEPT.add_(1)  # by whoever holds it: the trace has its own
    torch.testing.assert_close(traced(torch.ones(8)), expected)
    KEPT.zero_()


@pytest.mark.parametrize("name", list(UNLISTED)[:3])
def test_modules_are_refused_by_what_they_do_with_one_record(name):
    def between(m, h):
        return h if len(h) != 1 else UNLISTED[name](h)

    with pytest.raises(UnsupportedModuleError, match=name.replace(".", r"\.")):
        select_strategy(Hidden(between), torch.zeros(1, 6), 3)


BEYOND = {  # torch's own kernels of these do not ask where an index or a size ends
    "embedding": lambda x, i: F.embedding(i, x.view(6, 1)),
    "embedding_dense_backward": lambda x, i: ATEN.embedding_dense_backward(
        x.view(6, 1), i, 6, -1, False
    ),
    "_embedding_bag_dense_backward": lambda x, i: ATEN._embedding_bag_dense_backward(
        x.view(6, 1), 0 * i, i, 1 + 0 * i, i, 6, False, 0, None
    ),
    "max_pool2d_with_indices_backward": lambda x, i: ATEN.max_pool2d_with_indices_backward(
        *x.view(1, 1, 1, 6).expand(2, -1, -1, -1), *ONES, False, i.view(1, 1, 6)
    ),
    "adaptive_max_pool2d_backward": lambda x, i: ATEN.adaptive_max_pool2d_backward(
        *x.view(1, 1, 1, 6).expand(2, -1, -1, -1), i.view(1, 1, 6)
    ),
    "native_layer_norm_backward": lambda x, i: ATEN.native_layer_norm_backward(
        *x.view(1, 6, 1).expand(2, -1, -1), [1], *x[:2].view(2, 1, 1), None, None, [True] * 3
    )[0],
}
ATEN, ONES = torch.ops.aten, ([1, 1], [1, 1], [0, 0], [1, 1])


@pytest.mark.parametrize("name", BEYOND)
def test_no_index_or_size_reaches_beyond_a_record(name):
    """A record with an index out of bounds may have no result, and changes no other's."""
    x, inside = torch.linspace(0.1, 0.9, 6), torch.arange(6)
    one = RecordTrace(BEYOND[name], (), (x, inside))

    def results(a, b):
        return one(None, (), torch.stack([a, b]), torch.stack([inside + 6, inside]))

    first, second = results(x, x)
    others = results(x, -x)[0], results(-x, x)[1]
    torch.testing.assert_close(others, (first, second), equal_nan=True)
    assert second.isfinite().all()


@pytest.mark.filterwarnings("ignore")
def test_kernels_that_python_code_replaces_are_noticed():
    with torch.library._scoped_library("aten", "IMPL") as library:
        library.impl("erfinv", lambda x: x * 2, "CPU")
        with pytest.raises(TraceError, match=r"aten\.erfinv.*code of its own"):
            trace(torch.erfinv, (torch.ones(1, 8),))


def with_gradient(function):
    def run(x):
        x = x.detach().requires_grad_()
        found = function(x)
        return (found, torch.autograd.grad(found.sum(), x)) if found.requires_grad else found

    return run


def packed(m, x):
    lengths = torch.full((len(x),), 5)
    found, _ = m.r(nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True))
    return m.c(nn.utils.rnn.pad_packed_sequence(found, batch_first=True)[0][:, -1])


def rounded(m, x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = m.c(torch.tanh(m.a(x)))
    return found.float()


REMEDIES = {
    "mask": (lambda: Net(packed, r=nn.LSTM(8, 4, batch_first=True), c=nn.Linear(4, 3)), SEQUENCE),
    "autocast": (lambda: Net(rounded, a=nn.Linear(6, 64), c=nn.Linear(64, 3)), ROW),
    "_ex": (
        lambda: Net(
            lambda m, x: m.c(torch.linalg.inv(x[:, :, None] * x[:, None] + torch.eye(6)).sum(1)),
            c=nn.Linear(6, 3),
        ),
        ROW,
    ),
    "x.long": (lambda: seq(nn.EmbeddingBag(10, 4), nn.Linear(4, 3)), ROW),
    "nn.Sequential": (lambda: torch.jit.script(seq(nn.Linear(6, 3), nn.PReLU())), ROW),
    "global variable": (
        lambda: Net(
            lambda m, x: m.f(m.c(x)),
            c=nn.Linear(6, 3),
            f=torch.jit.trace(torch.tanh, torch.ones(1)),
        ),
        ROW,
    ),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("remedy", REMEDIES)
def test_honest_modules_that_cannot_be_traced_are_refused_with_a_remedy(remedy):
    make, shape = REMEDIES[remedy]
    with pytest.raises(UnsupportedModuleError, match=remedy):
        select_strategy(make(), torch.zeros(1, *shape), 3)


@pytest.mark.filterwarnings("ignore")
def test_scripted_parts_are_traced():
    module, x = (
        seq(torch.jit.script(seq(nn.Linear(6, 4), nn.Tanh())), nn.Linear(4, 3)),
        torch.ones(1, 6),
    )
    assert affordable_batch(module, x) > 0
    with select_strategy(module, x, 3) as strategy:
        assert strategy.name == VMAP


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_of_codes_are_summed_by_record(mode):
    module = seq(nn.EmbeddingBag(10, 4, mode=mode, padding_idx=0), nn.Linear(4, 3))
    x, y = torch.arange(30).view(5, 6) % 10, torch.arange(5) % 3
    with select_strategy(module, x[:1], 3) as strategy:
        norm = strategy.per_sample_gradients(Batch(x, y)).norm
    for i in range(5):
        loss = F.cross_entropy(module(x[i : i + 1]), y[i : i + 1])
        parts = torch.autograd.grad(loss, tuple(module.parameters()))
        torch.testing.assert_close(norm[i], torch.cat([g.flatten() for g in parts]).norm())


class WithExtraState(Hidden):
    """State that is no tensor."""

    def get_extra_state(self):
        return {"rows": [1.0, 2.0]}


class OwnTensor(torch.Tensor):
    """A tensor whose operations are its own."""


def test_state_beyond_plain_tensors_is_refused():
    with pytest.raises(UnsupportedModuleError, match="extra state"):
        select_strategy(WithExtraState(lambda m, h: h), torch.zeros(1, 6), 3)
    module = nn.Linear(6, 3)
    module.weight = nn.Parameter(torch.ones(3, 6).as_subclass(OwnTensor))
    with pytest.raises(UnsupportedModuleError, match="operations are its own"):
        select_strategy(module, torch.zeros(1, 6), 3)


class Watching(nn.Module):
    """Keeps what it sees wherever code can keep it, but for where it is refused."""

    seen: list = []

    def __init__(self, in_features=3):
        super().__init__()
        self.layer, self.last = nn.Linear(in_features, 2), None

    def forward(self, x):
        if isinstance(x, torch.Tensor):
            Watching.seen.append(x.detach().clone())
        self.last = x
        return self.layer(x)


def test_no_line_of_a_module_sees_a_training_row():
    rng = np.random.default_rng(0)
    X, y = 100 + rng.random((400, 3)), rng.integers(0, 2, 400)
    Watching.seen.clear()
    model = DPFairClassifier(
        "dpsgd", epsilon=None, noise_multiplier=1.0, module=Watching, max_steps=3
    )
    try:
        model.fit(X, y)
    except UnsupportedModuleError:
        return
    assert Watching.seen and not any(bool((x > 50).any()) for x in Watching.seen)
    model.predict(X)
    assert not torch.is_tensor(model.net_.module_.last) or model.net_.module_.last.max() < 50
