"""The closed list of operations: each acts under vmap on every record alone."""

import itertools
import math

import pytest
import torch
from torch.func import vmap
from torch.fx import Interpreter
from torch.nn import functional as F
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from skdpfair.engine import select_strategy
from skdpfair.engine.per_sample.proof import trace
from skdpfair.engine.per_sample.proof.operations import CLOSED_LIST, TraceError
from skdpfair.exceptions import UnsupportedModuleError
from tests.engine.per_sample.modules import Net, own

# torch warns of what vmap takes record by record, and of complex numbers
pytestmark = pytest.mark.filterwarnings("ignore")
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


CHANGES = torch.Tensor.clone, *(lambda t, i=i: t.flip(i) if t.dim() else t for i in (-1, 0))
LAYOUTS = (  # the axis of records, and how a batch of them lies in memory
    (0, torch.stack),
    (-1, lambda records: torch.stack(records, -1)),
    (0, lambda records: torch.stack(records, -1).movedim(-1, 0)),
)


def equal(one, other):
    return all(
        torch.allclose(*pair, 1e-3, 1e-4, equal_nan=True) for pair in zip(one, other, strict=True)
    )


def couplings(operation, args, kwargs):
    """Return in how many layouts an operation was tried on records, and where it couples them.

    Records have each of the tensors, or all of them, of their own.
    """
    leaves, spec = tree_flatten((args, kwargs))
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    n, wrong = 0, []
    for batched in {tuple(places), *((i,) for i in places)}:

        def run(*values, batched=batched):
            filled = dict(enumerate(leaves)) | dict(zip(batched, values, strict=True))
            args, kwargs = tree_unflatten([*filled.values()], spec)
            return [t for t in tree_leaves(operation(*args, **kwargs)) if t is not None]

        records = [[change(leaves[i]) for i in batched] for change in CHANGES]
        try:
            alone = [run(*record) for record in records]
        except RuntimeError:  # tensors that do not belong together
            continue
        for axis, layout in LAYOUTS:
            try:
                together = vmap(run, axis)(*map(layout, zip(*records, strict=True)))
            except Exception:  # what vmap does not know is refused
                continue
            n += 1
            each = [[t[i] for t in together] for i in range(len(records))]
            if not all(map(equal, each, alone)):
                wrong.append((operation, axis, [getattr(leaf, "shape", leaf) for leaf in leaves]))
    return n, wrong


def couples(operation):
    """Return the sums of `couplings` over arguments that an operation takes."""
    results = [couplings(operation, *arguments) for arguments in samples(operation)]
    return sum(n for n, _ in results), [fault for _, wrong in results for fault in wrong]


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
        if isinstance(node.target, torch._ops.OpOverload) and "empty" not in str(node.target):
            assert not couplings(node.target, *self.fetch_args_kwargs_from_env(node))[1]
        return super().run_node(node)


def with_gradient(function):
    def run(x):
        x = x.detach().requires_grad_()
        y = function(x)
        return (y, torch.autograd.grad(y.square().sum(), x)) if y.requires_grad else y

    return run


@pytest.mark.parametrize("i", range(len(FUNCTIONS)))
def test_operations_of_common_functions_act_on_each_record_alone(i):
    x = torch.rand(1, 2, 6, 6, generator=torch.Generator().manual_seed(0)) * 0.9 + 0.05
    Couplings(trace(with_gradient(FUNCTIONS[i]), (x,))).run(x)


def test_closed_list_acts_on_each_record_alone():
    tried, wrong = 0, []
    for operation in operations():
        n, found = couples(operation)
        tried, wrong = tried + (n > 0), wrong + found
    assert not wrong
    assert tried > 300


@pytest.mark.parametrize(
    "name", ["as_strided", "_cdist_backward", "_linalg_det", "_weight_norm_interface"]
)
def test_operations_that_read_the_layout_are_not_on_the_closed_list(name):
    assert couples(getattr(torch.ops.aten, name).default)[1]
    assert name not in CLOSED_LIST


UNLISTED = {  # what reads memory by its layout, or runs code of its own, where one record is seen
    "skdpfair_tests.own": own,
    "aten.as_strided": lambda h: torch.as_strided(h, (1, 8), (8, 1)),
    "aten.view.dtype": lambda h: h.view(torch.int8).view(torch.float32),
    "aten._cdist_backward": lambda h: h + torch.cdist(h, h + 1).sum(),
    "aten._linalg_det": lambda h: torch.linalg.det(h[0, :4].view(2, 2)),
    "aten.index_fill.int_Tensor": lambda h: h.index_fill(1, torch.tensor([0]), h.sum()),
    "aten._foreach_add": lambda h: torch._foreach_add([h], 1.0)[0],
    "aten.masked_scatter": lambda h: h.masked_scatter(h > 0, h),
    "cond": lambda h: torch.cond(h.sum() > 0, torch.sin, torch.cos, (h,)),
}


@pytest.mark.parametrize("name", UNLISTED)
def test_trace_refuses_operations_outside_the_closed_list_by_name(name):
    with pytest.raises(TraceError, match=name.replace(".", r"\.")):
        trace(with_gradient(UNLISTED[name]), (torch.ones(1, 8),))


@pytest.mark.parametrize("name", list(UNLISTED)[:3])
def test_select_strategy_refuses_operations_on_one_record_alone(name):
    def forward(m, x):
        h = torch.tanh(m.a(x))
        return m.c(h if len(h) != 1 else UNLISTED[name](h))

    with pytest.raises(UnsupportedModuleError, match=name.replace(".", r"\.")):
        select_strategy(Net(forward, a=(6, 8), c=(8, 3)), torch.zeros(1, 6), 3)


def test_trace_refuses_kernels_that_python_code_replaces():
    with torch.library._scoped_library("aten", "IMPL") as library:
        library.impl("erfinv", lambda x: x * 2, "CPU")
        with pytest.raises(TraceError, match=r"aten\.erfinv.*own"):
            trace(torch.erfinv, (torch.ones(1, 8),))
