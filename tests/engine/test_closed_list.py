"""The closed list of operations: each acts under vmap on every record alone."""

import itertools
import math
from operator import itemgetter

import pytest
import torch
from torch.func import vmap
from torch.fx import Interpreter
from torch.nn import functional as F
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

from skdpfair.engine.per_sample.proof import RecordTrace, trace
from skdpfair.engine.per_sample.proof.closed_list import CLOSED_LIST, TraceError

# torch warns of what vmap takes record by record, and of complex numbers
pytestmark = pytest.mark.filterwarnings("ignore")

BATCH = 3
UNTRIED = ("empty", "new_empty", "_fft")  # no numbers yet; crashes where torch.fft would raise
SHAPES = [(4, 4), (3,), (2, 4, 4), (1, 2, 6, 6), (1, 2, 4, 4, 4)]
NUMBERS = {"int": (1, 0, 2), "float": (0.5,), "number": (1.0, 2), "bool": (False, True)}
LISTS = {
    "int": ([4, 4], [4, 1], [1], [1, 1], [2, 2], [1, 1, 1], [2, 2, 2], [4]),
    "float": ([1.0, 1.0],),
}


def operations():
    for listed in sorted(n for n in CLOSED_LIST if not n.startswith(UNTRIED)):
        name, _, only = listed.partition(".")
        packet = getattr(torch.ops.aten, name)
        for overload in [only] if only else packet.overloads():
            found = getattr(packet, overload)
            schema = str(found._schema)
            drawn = torch.Tag.nondeterministic_seeded in found.tags
            if "Tensor" in schema.partition("->")[0] and not (found._schema.is_mutable or drawn):
                yield found


def choices(kind, shape, whole):
    """Return values for an argument of the type, as the schema writes it."""
    kind = kind.removeprefix("Optional[").removesuffix("]") if "Optional" in kind else kind
    if kind == "Tensor":
        numbers = torch.linspace(0.1, 0.9, math.prod(shape)).sin().view(shape)
        return [(3 * numbers).long() if whole else numbers]
    inner = kind.removeprefix("List[").removesuffix("]")
    if inner == "Tensor":
        return [[torch.ones(shape)] * 2]
    return list(LISTS.get(inner, ()) if "List" in kind else NUMBERS.get(inner, ()))


def samples(operation, most=3):
    """Yield arguments of one record that an operation takes."""
    arguments = [a for a in operation._schema.arguments if not a.has_default_value()]
    kinds = [str(a.type) for a in arguments]
    tensors = [i for i, kind in enumerate(kinds) if kind in ("Tensor", "Optional[Tensor]")]
    for shape, integers in itertools.product(SHAPES, ([], tensors[1:2], tensors[:1], tensors[2:3])):
        options = [choices(kind, shape, i in integers) for i, kind in enumerate(kinds)]
        for values in itertools.islice(itertools.product(*options), 40):
            named = {a.name: v for a, v in zip(arguments, values, strict=True) if a.kwarg_only}
            given = values[: len(values) - len(named)]
            try:
                operation(*given, **named)
            except Exception:  # other arguments, then
                continue
            most -= 1
            yield given, named
            break
        if not most:
            return


def layouts(records):
    """Yield a batch of records as it may lie in memory, and its axis of records."""
    yield torch.stack(records), 0
    yield torch.stack(records, -1), -1
    yield torch.stack(records, -1).movedim(-1, 0), 0


def equal(one, other):
    pairs = zip(tree_leaves(one), tree_leaves(other), strict=True)
    return all(torch.allclose(a, b, 1e-3, 1e-4, equal_nan=True) for a, b in pairs)


def couples(operation):
    """Return in how many layouts an operation was tried, and where it couples records."""
    n, wrong = 0, []
    for given, named in samples(operation):
        places = [i for i, value in enumerate(given) if isinstance(value, torch.Tensor)]
        for place in places:
            own = given[place]
            records = [own, own.flip(-1), own.flip(0)]

            def run(x, given=given, named=named, place=place):
                return operation(*given[:place], x, *given[place + 1 :], **named)

            alone = [run(record) for record in records]
            for batch, axis in layouts(records):
                try:
                    found = vmap(run, in_dims=axis)(batch)
                except Exception:  # what vmap does not know is refused
                    continue
                n += 1
                each = [tree_map(itemgetter(i), found) for i in range(BATCH)]
                if not all(map(equal, each, alone)):
                    wrong.append((operation, axis, [getattr(v, "shape", v) for v in given]))
    return n, wrong


# whose operations take arguments that belong together, on pictures (1, 2, 6, 6)
FUNCTIONS = [
    lambda x: F.conv2d(x, torch.ones(4, 2, 3, 3)),
    lambda x: F.conv_transpose2d(x, torch.ones(2, 3, 2, 2)),
    lambda x: F.group_norm(x, 2, torch.ones(2), torch.zeros(2)),
    lambda x: F.instance_norm(x) + F.layer_norm(x, (6,)) + F.rms_norm(x, (6,)),
    lambda x: F.batch_norm(x, torch.zeros(2), torch.ones(2)),
    lambda x: F.max_pool2d(x, 2) + F.avg_pool2d(x, 2) + F.adaptive_max_pool2d(x, 3),
    lambda x: F.max_pool3d(x[:, None], 2) + F.adaptive_max_pool3d(x[:, None], (1, 3, 3)),
    lambda x: F.adaptive_avg_pool2d(x, 5),
    lambda x: F.grid_sample(x, x.movedim(1, -1) - 0.5, align_corners=False),
    lambda x: F.affine_grid(x[:, :, :3, 0].reshape(-1, 2, 3), (1, 2, 4, 4)),
    *[lambda x, mode=mode: F.pad(x, (1, 1, 2, 2), mode=mode) for mode in ("reflect", "replicate")],
    *[
        lambda x, mode=mode: F.interpolate(x, size=(5, 9), mode=mode)
        for mode in ("nearest", "nearest-exact", "bilinear", "bicubic")
    ],
    lambda x: F.interpolate(x, size=(5, 9), mode="bilinear", antialias=True),
    lambda x: F.fold(F.unfold(x, 2), (6, 6), 2) + x.unfold(1, 2, 1).squeeze(1).sum(-1)[:, None],
    lambda x: F.channel_shuffle(x, 2) + F.pixel_shuffle(F.pixel_unshuffle(x, 2), 2),
    lambda x: F.cross_entropy(x.flatten(1), torch.tensor([3]), label_smoothing=0.1),
    lambda x: F.nll_loss(x, torch.zeros(1, 6, 6, dtype=torch.long)) + F.smooth_l1_loss(x, 0 * x),
    lambda x: F.embedding((x.flatten(1) * 3).long(), x.flatten()[:40].view(10, 4)),
    lambda x: torch._weight_norm(x.view(12, 6), x.view(12, 6)[:, :1] + 1.0, 0),
    lambda x: x.view(12, 6).index_put((torch.tensor([0, 1]),), x[0, 0, :2]),
    lambda x: x.view(12, 6)[(x.flatten()[:4] * 5).long()],
    lambda x: torch.linalg.solve_ex(x[0] + 3 * torch.eye(6), x[0])[0],
    lambda x: torch.linalg.eigvalsh(x[0] + x[0].mT) + torch.linalg.svdvals(x[0]),
    lambda x: torch.linalg.qr(x[0])[1] + torch.linalg.matrix_exp(0.1 * x[0]),
    lambda x: x.scatter_reduce(-1, (x * 5).long(), x, "amax") + x.cumprod(-1) + x.cummax(-1).values,
    lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True),
    lambda x: (
        torch.view_as_complex(x.reshape(1, 2, 6, 3, 2)).abs() + torch.fft.rfft(x).abs()[..., 1:]
    ),
    lambda x: F.gelu(x) + F.silu(x) + F.mish(x) + F.softplus(x) + F.logsigmoid(x) + x.logit(),
    lambda x: x.std(-1) + x.var(-1) + x.prod(-1) + x.quantile(0.3, -1) + x.logsumexp(-1),
]


class Couplings(Interpreter):
    """Runs a trace on one record, and each of its operations on several."""

    def run_node(self, node):
        if isinstance(node.target, torch._ops.OpOverload):
            args, kwargs = self.fetch_args_kwargs_from_env(node)
            self.check(node.target, *tree_flatten((args, kwargs)))
        return super().run_node(node)

    def check(self, operation, leaves, spec):
        def run(*tensors):
            own = iter(tensors)
            args, kwargs = tree_unflatten(
                [next(own) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves], spec
            )
            found = operation(*args, **kwargs)
            parts = found if isinstance(found, (tuple, list)) else [found]
            return [part for part in parts if part is not None]

        own = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        if not own or "empty" in str(operation):
            return
        records = [
            [t * (1 + i / 10) if t.is_floating_point() else t for t in own] for i in range(3)
        ]
        several = [list(layouts(same)) for same in zip(*records, strict=True)]
        for (k, batched), layout in itertools.product(
            [(len(own), range(len(own))), *((i, [i]) for i in range(len(own)))], range(3)
        ):
            batch = [several[i][layout] if i in batched else (t, None) for i, t in enumerate(own)]
            tensors, axes = zip(*batch, strict=True)
            try:
                found = vmap(run, in_dims=axes)(*tensors)
            except RuntimeError:  # what vmap does not know is refused
                continue
            for i, record in enumerate(records):
                alone = run(*(record[j] if j in batched else t for j, t in enumerate(own)))
                assert equal([part[i] for part in found], alone), (operation, k, axes)


@pytest.mark.parametrize("i", range(len(FUNCTIONS)))
def test_operations_act_on_each_record_alone_as_torch_calls_them(i):
    def with_gradient(x):
        x = x.detach().requires_grad_()
        found = FUNCTIONS[i](x)
        return found, torch.autograd.grad(found.square().sum(), x)[0]

    x = torch.rand(1, 2, 6, 6, generator=torch.Generator().manual_seed(0)) * 0.9 + 0.05
    Couplings(trace(with_gradient, (x,))).run(x)


ATEN = torch.ops.aten
MIXED = {  # where shapes do not belong together, torch's rules for batches bring records together
    "roll": lambda h: h.sum().roll([1]),
    "_linalg_solve_ex": lambda h: torch.linalg.solve_ex(h[:4].view(1, 1, 2, 2), h[:4].view(2, 2)),
    "_log_softmax_backward_data": lambda h: ATEN._log_softmax_backward_data(
        h[None, :3], h[:1], -1, torch.float32
    ),
    "_prelu_kernel_backward": lambda h: ATEN._prelu_kernel_backward(h[None], h[:1], h[None]),
    "size of tensor": lambda h: ATEN.smooth_l1_loss(h[0], h.view(1, 1, 2, 4), 1, 0.0),
    "_embedding_bag": lambda h: ATEN._embedding_bag(torch.ones(5, 8), 0 * h.long(), h[:1].long()),
}


@pytest.mark.parametrize("name", MIXED)
def test_operations_on_shapes_that_couple_records_are_refused(name):
    with pytest.raises(TraceError, match=name):
        RecordTrace(lambda h: 0.0 * tree_leaves(MIXED[name](h))[0], (), (torch.full((8,), 0.5),))


KERNEL = torch.ones(4)


@pytest.mark.parametrize("chance", [0.0, 1.0], ids=["any size", "parts of a batch"])
def test_a_copy_of_a_constant_is_changed_in_each_call_alone(chance):
    def flipped(x):
        kernel = KERNEL.clone()
        kernel.mul_(-2)
        return x * kernel + (0 * torch.randperm(4) if chance else 0)

    trace, x = RecordTrace(flipped, (), (torch.ones(4),)), torch.ones(70, 4)
    for _ in range(3):
        assert (trace(torch.Generator(), (), x) == -2).all()
    assert (KERNEL == 1).all()


def test_columns_may_lie_in_memory_in_any_order():
    trace = RecordTrace(lambda x: x.view(-1), (), (torch.ones(2, 3),))
    x = torch.rand(5, 3, 2).transpose(1, 2)
    assert torch.equal(trace(None, (), x), x.reshape(5, 6))


@pytest.mark.parametrize("index", [-1, 8])
def test_an_index_to_fill_stays_within_its_record(index):
    fill = RecordTrace(lambda h, i: h.index_fill(0, i, 9.0), (), (torch.ones(8), torch.tensor([0])))
    filled = fill(None, (), torch.ones(3, 8), torch.tensor([[0], [index], [0]]))
    assert filled[[0, 2]].eq(9.0).sum(1).tolist() == [1, 1]
    assert filled[1].isnan().all() or filled[1].eq(9.0).sum() == 1


def test_every_operation_of_the_list_acts_on_each_record_alone():
    tried, wrong = 0, []
    for operation in operations():
        n, found = couples(operation)
        tried, wrong = tried + (n > 0), wrong + found
    assert not wrong
    assert tried > 300


@pytest.mark.parametrize(
    "name", ["as_strided", "_cdist_backward", "_linalg_det", "_weight_norm_interface"]
)
def test_operations_that_read_the_layout_are_seen_to_do_so_and_are_not_on_the_list(name):
    assert couples(getattr(torch.ops.aten, name).default)[1]
    assert name not in CLOSED_LIST
