"""The operations that a recorded forward pass may consist of: each acts on every record alone.

A recorded tensor has one row per record, in its first axis.  A rule looks at the arguments of one
call and raises :class:`Coupling` if a row of the result would depend on several records, and
:class:`NotRecorded` if it cannot tell.  What has no rule is not recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional as F

from skdpfair.engine.per_sample.random_operations import DRAWN
from skdpfair.engine.per_sample.stand_ins import (
    BatchSize,
    Coupling,
    NotRecorded,
    Recorded,
    leaves,
)


@dataclass(frozen=True)
class Call:
    """One call of an operation, for its rule; ``n`` records are in the made-up batch."""

    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    n: int

    def get(self, position: int, *names: str, default: Any = None) -> Any:
        """Return an argument by its position or one of its names."""
        if position < len(self.args):
            return self.args[position]
        return next((self.kwargs[name] for name in names if name in self.kwargs), default)

    def first(self) -> Recorded:
        """Return the first argument, which must be a recorded tensor."""
        x = self.get(0, "input", "self", "tensor")
        if not isinstance(x, Recorded):
            raise NotRecorded(f"{self.name} changes or reads a tensor that is no record's")
        return x

    def axis(self, dim: Any, like: Recorded | None = None) -> int:
        """Return an axis counted from 0, which must not be that of the records."""
        n_axes = (like or self.first()).dim()
        if not isinstance(dim, int) or isinstance(dim, bool):  # std(True) runs over all numbers
            raise Coupling(f"the axis of {self.name} is not a whole number")
        if dim % n_axes == 0:
            raise Coupling(f"{self.name} runs along the axis of the records")
        return dim % n_axes

    def tensors(self) -> tuple[list[Recorded], list[Tensor]]:
        """Return recorded and constant tensors among all arguments."""
        found = list(leaves((self.args, self.kwargs)))
        constants = [a for a in found if isinstance(a, Tensor)]
        return [a for a in found if isinstance(a, Recorded)], constants

    def only(self, *allowed: int | str) -> None:
        """Refuse recorded tensors in other places than ``allowed``."""
        places = [*enumerate(self.args), *self.kwargs.items()]
        if any(
            isinstance(leaf, Recorded)
            for place, value in places
            if place not in allowed
            for leaf in leaves(value)
        ):
            raise NotRecorded(f"{self.name} takes a record where a public number is expected")


Rule: TypeAlias = Callable[[Call], None]


def elementwise(call: Call) -> None:
    """Each number of the result comes from numbers at the same place, constants broadcast."""
    recorded, constants = call.tensors()
    (n_axes, *others) = {r.dim() for r in recorded}
    if others:
        raise Coupling(f"{call.name} lays records beside each other: numbers of axes differ")
    for constant in constants:
        if constant.dim() > n_axes or (constant.dim() == n_axes and constant.shape[0] != 1):
            raise Coupling(f"{call.name} gives each place in the batch a number of its own")


def one_tensor(call: Call) -> None:
    """Only the first argument is recorded, and is treated number by number."""
    call.first()
    call.only(0, "input", "self")


def along(position: int, *, default: Any = None, many: bool = False) -> Rule:
    """Return the rule of operations along one axis, or several, of the first argument."""

    def rule(call: Call) -> None:
        call.first()
        dims = call.get(position, "dim", "axis", "dims", default=default)
        if many and isinstance(dims, (tuple, list)):
            if not dims:
                raise Coupling(f"{call.name} runs along all axes, that of the records among them")
            for dim in dims:
                call.axis(dim)
        elif dims is None:
            raise Coupling(f"{call.name} runs along all axes, that of the records among them")
        else:
            call.axis(dims)
        call.only(0, "input", "self")

    return rule


def two_along(call: Call) -> None:
    """Two tensors of equal numbers of axes, compared along one that is not the records'."""
    elementwise(call)
    call.axis(call.get(2, "dim", default=1))


def varargs_dims(call: Call) -> None:
    """`flip`: axes as a tuple or one by one."""
    dims = call.args[1:] if len(call.args) > 1 else (call.kwargs["dims"],)
    for dim in leaves(dims):
        call.axis(dim)


def chosen(call: Call) -> None:
    """`where`: of two tensors or numbers; of a condition alone it counts the batch."""
    if len(call.args) + len(call.kwargs) < 3:
        raise Coupling("where of a condition alone lists the records for which it holds")
    elementwise(call)


def extremum(call: Call) -> None:
    """`max` and `min`: of two tensors, or along an axis."""
    other = call.get(1, "other", "dim", "axis")
    (elementwise if isinstance(other, (Recorded, Tensor)) else along(1))(call)


def joined(call: Call) -> None:
    """`cat` and `stack`: along any axis but the records'."""
    tensors = call.get(0, "tensors")
    recorded = [t for t in tensors if isinstance(t, Recorded)]
    if len(recorded) < len(tensors):
        raise NotRecorded(f"{call.name} joins records with a constant")
    if len({t.dim() for t in recorded}) > 1:
        raise Coupling(f"{call.name} joins tensors of different numbers of axes")
    dim = call.get(1, "dim", "axis", default=0)
    n_axes = recorded[0].dim() + (call.name == "stack")
    if not isinstance(dim, int) or dim % n_axes == 0:
        raise Coupling(f"{call.name} joins along the axis of the records")


def _sizes(call: Call, start: int = 1) -> tuple[Any, ...]:
    sizes = call.args[start:] or (call.kwargs.get("size", call.kwargs.get("shape")),)
    return tuple(leaves(sizes))


def reshaped(call: Call) -> None:
    """`view`, `reshape`: the first size is the number of records, whatever it is."""
    x, sizes = call.first(), _sizes(call)
    if not sizes or isinstance(sizes[0], torch.dtype):
        raise NotRecorded(f"{call.name} reads the numbers as another type")
    rest = [s for s in sizes[1:] if isinstance(s, int)]
    if len(rest) < len(sizes) - 1:
        raise NotRecorded(f"{call.name} moves the axis of the records")
    inner = prod(x.value.shape[1:])
    known = isinstance(sizes[0], BatchSize)
    found = isinstance(sizes[0], int) and sizes[0] == -1 and prod(rest) == inner
    if not (known or found):
        raise NotRecorded(f"{call.name} moves the axis of the records, or fixes its length")


def resized(call: Call) -> None:
    """`expand` and `repeat`: the axis of the records stays as it is."""
    x, sizes = call.first(), _sizes(call)
    keeps = {"repeat": (1,)}.get(call.name, (-1,))
    first = sizes[0]
    if len(sizes) != x.dim():
        raise NotRecorded(f"{call.name} moves the axis of the records")
    if not (isinstance(first, BatchSize) and call.name == "expand") and first not in keeps:
        raise Coupling(f"{call.name} repeats the records")
    if not all(isinstance(size, int) for size in sizes[1:]):
        raise NotRecorded(f"{call.name} moves the axis of the records")


def flattened(call: Call) -> None:
    """`flatten`: from the second axis on, at least."""
    x = call.first()
    if call.get(1, "start_dim", default=0) % x.dim() == 0 and x.dim() > 1:
        raise NotRecorded("flatten moves the axis of the records; flatten(1) keeps it")


def inserted(call: Call) -> None:
    """`unsqueeze` and `unflatten`: behind the axis of the records."""
    x, dim = call.first(), call.get(1, "dim")
    n_axes = x.dim() + (call.name == "unsqueeze")
    if not isinstance(dim, int) or dim % n_axes == 0:
        raise NotRecorded(f"{call.name} moves the axis of the records")


def squeezed(call: Call) -> None:
    """`squeeze`: axes by number, that of the records not among them."""
    x, dims = call.first(), call.get(1, "dim")
    if dims is None or any(d % x.dim() == 0 for d in leaves(dims)):
        raise NotRecorded("squeeze may drop the axis of the records; squeeze(1) keeps it")


def permuted(call: Call) -> None:
    """`permute`, `transpose`, `swapaxes`: the records stay first."""
    x = call.first()
    dims = tuple(leaves((*call.args[1:], *call.kwargs.values())))
    if not all(isinstance(dim, int) for dim in dims) or len(dims) < 2:
        raise NotRecorded(f"the axes of {call.name} are no whole numbers")
    dims = tuple(dim % x.dim() for dim in dims)
    if (dims[0] != 0) if call.name == "permute" else 0 in dims:
        raise NotRecorded(f"{call.name} moves the axis of the records")


def indexed(call: Call) -> None:
    """`x[:, ...]`: all records, then whole numbers, slices, None, or one constant index."""
    x, index = call.first(), call.get(1, "key")
    index = index if isinstance(index, tuple) else (index,)
    if any(isinstance(leaf, (Recorded, BatchSize)) for leaf in leaves(index)):
        raise Coupling("an index is made of the records, or of their number")
    first, lists = index[0], [i for i in index if isinstance(i, (Tensor, list))]
    if not all(_is_plain(i) for i in index):
        raise NotRecorded("an index is neither whole numbers nor slices")
    named = sum(_n_axes_named(i) for i in index)
    every = isinstance(first, slice) and first == slice(None)
    if not every and not (first is Ellipsis and named < x.dim()):
        if first is None:
            raise NotRecorded("an index moves the axis of the records")
        raise Coupling("an index takes some of the records")
    if len(lists) > 1 or (lists and any(isinstance(i, int) for i in index)):
        raise NotRecorded("two lists in one index may move the axis of the records")


def _is_plain(index: Any) -> bool:
    if isinstance(index, list):
        return all(isinstance(i, int) and not isinstance(i, bool) for i in index)
    known = index is None or index is Ellipsis or isinstance(index, (int, slice, Tensor))
    return known and not isinstance(index, bool)


def _n_axes_named(index: Any) -> int:
    if isinstance(index, Tensor) and index.dtype in (torch.bool, torch.uint8):
        return index.dim()
    return index is not None and index is not Ellipsis


def gathered(call: Call) -> None:
    """`gather`, `take_along_dim`, `index_select`: along another axis than the records'."""
    x = call.first()
    where = {"take_along_dim": (2, 1)}.get(call.name, (1, 2))
    call.axis(call.get(where[0], "dim"))
    index = call.get(where[1], "index", "indices")
    own = isinstance(index, Recorded)
    if own and (call.name == "index_select" or index.dim() != x.dim()):
        raise Coupling(f"{call.name} takes numbers where other records say")
    if not own and call.name != "index_select":
        raise NotRecorded(f"{call.name} by constants that have an axis of records")


def multiplied(call: Call) -> None:
    """`matmul`: a matrix of every record with a constant one, or with another of its own."""
    a, b = call.get(0, "input"), call.get(1, "other", "mat2")
    both = isinstance(a, Recorded) and isinstance(b, Recorded)
    if both and (a.dim() != b.dim() or a.dim() < 3):
        raise Coupling(f"{call.name} multiplies records with each other")
    if both:
        return
    if isinstance(a, Recorded):
        wrong = b.dim() not in (1, 2) or a.dim() < 2
    else:
        wrong = a.dim() not in (1, 2) or b.dim() < 3
    if wrong:
        raise Coupling(f"{call.name} weighs the records by their place in the batch")


def summed_by_letters(call: Call) -> None:
    """`einsum`: one letter, the first of every recorded tensor and of the result, is theirs."""
    equation: str = call.args[0]
    operands: Sequence[Any] = call.args[1:]
    if len(operands) == 1 and isinstance(operands[0], (tuple, list)):
        operands = operands[0]
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if not arrow or len(terms) != len(operands):
        raise NotRecorded("einsum without '->'")
    terms = [t.replace("...", ".") for t in (*terms, right)]  # whatever axes, as one letter
    pairs = list(zip(terms, operands, strict=False))
    own = [t for t, o in pairs if isinstance(o, Recorded)]
    others = [t for t, o in pairs if not isinstance(o, Recorded)]
    letter, right = own[0][:1], terms[-1]
    if not right.startswith(letter) or any(not t.startswith(letter) for t in own):
        raise Coupling("einsum sums over the records, or moves their axis")
    if any(t.count(letter) > 1 for t in (*own, right)) or any(letter in t for t in others):
        raise Coupling("einsum uses the letter of the records twice")
    hidden = {1 + o.dim() - len(t) for t, o in pairs if isinstance(o, Recorded) and "." in t}
    if len(hidden) > 1 or hidden & {0} or any("." in t for t in others):
        raise NotRecorded("einsum with '...' of several lengths, or of none")


def layer(n_axes: int | None = None, *, least: int | None = None) -> Rule:
    """Return the rule of a layer without parameters of its own that train.

    ``n_axes`` is what the input must have, or ``least`` as many.
    """

    def rule(call: Call) -> None:
        x = call.first()
        call.only(0, "input", "self")
        if (n_axes is not None and x.dim() != n_axes) or (least is not None and x.dim() < least):
            raise NotRecorded(f"{call.name} on {x.dim()} axes may take the records for channels")

    return rule


def normalised(call: Call) -> None:
    """`layer_norm`, `rms_norm`: over the last axes, the records' not among them."""
    x = call.first()
    call.only(0, "input")
    if len(call.get(1, "normalized_shape")) >= x.dim():
        raise Coupling(f"{call.name} runs along the axis of the records")


def with_statistics(call: Call) -> None:
    """`instance_norm` and `batch_norm`: by a record's own statistics, or by constant ones."""
    x = call.first()
    call.only(0, "input")
    if call.name == "batch_norm":
        if call.get(5, "training", default=False):
            raise Coupling("batch_norm normalises by statistics of the batch")
    elif x.dim() < 3 or (
        call.get(1, "running_mean") is not None and call.get(5, "use_input_stats", default=True)
    ):
        raise NotRecorded("instance_norm keeps statistics of the records")


def padded(call: Call) -> None:
    """`pad`: all axes but the records'."""
    if len(call.get(1, "pad")) > 2 * (call.first().dim() - 1):
        raise NotRecorded("pad adds records")


def attended(call: Call) -> None:
    """`scaled_dot_product_attention`: queries, keys and values of each record; no dropout."""
    q, k, v = (call.get(i, name) for i, name in enumerate(("query", "key", "value")))
    if not all(isinstance(t, Recorded) and t.dim() == q.dim() >= 3 for t in (q, k, v)):
        raise Coupling(f"{call.name} may attend from one record to another")
    mask = call.get(3, "attn_mask")
    if isinstance(mask, Recorded) or (mask is not None and mask.dim() >= q.dim()):
        raise NotRecorded(f"{call.name} with a mask for each record")
    if call.get(4, "dropout_p", default=0.0) > 0:
        raise NotRecorded(f"{call.name} with dropout")


def embedded(call: Call) -> None:
    """`embedding`: of whole numbers, without renormalisation."""
    call.first()
    call.only(0, "input")
    if call.get(3, "max_norm") is not None:
        raise Coupling("embedding with max_norm changes its table by the records")


def in_classes(call: Call) -> None:
    """`one_hot`: into a given number of classes, not into as many as the batch shows."""
    call.first()
    if not call.get(1, "num_classes", default=-1) > 0:
        raise Coupling("one_hot counts the classes of the batch; give num_classes")


def made_new(call: Call) -> None:
    """`new_zeros` and its like: with as many rows as there are records."""
    call.first()
    if not isinstance(_sizes(call)[0], BatchSize):
        raise NotRecorded(f"{call.name} makes a tensor that has no row for each record")
    if sum(isinstance(leaf, BatchSize) for leaf in leaves((call.args, call.kwargs))) > 1:
        raise Coupling(f"{call.name} computes with the number of records of the batch")


def converted(call: Call) -> None:
    """`to`, `type_as`: another type of number."""
    call.first()


SIZED = (reshaped, resized, made_new)  # what the number of records may be given to


_NAMESPACES = (torch, torch.Tensor, F, torch.special, torch.linalg)
# by these names torch and its tensors have other functions than torch.nn.functional
_LAYERS = {"embedding", "instance_norm", "batch_norm", "fold", "unfold", "normalize", "pad"}
_UNARY = """abs absolute neg negative positive exp exp2 expm1 log log1p log2 log10 sqrt rsqrt square
sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh sinc sigmoid expit logit relu relu6
leaky_relu elu selu celu gelu silu mish softplus softsign hardtanh hardsigmoid hardswish logsigmoid
tanhshrink softshrink hardshrink threshold erf erfc erfinv sign sgn floor ceil round trunc frac
reciprocal clamp clip clamp_min clamp_max nan_to_num logical_not bitwise_not isnan isfinite isinf
clone contiguous detach float double half bfloat16 long int bool deg2rad rad2deg
zeros_like ones_like full_like bucketize"""
_SEVERAL = """add sub subtract rsub mul multiply div divide true_divide floor_divide remainder fmod
pow maximum minimum where lerp addcmul addcdiv atan2 hypot logaddexp xlogy eq ne lt le gt ge
logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor masked_fill
__rsub__ __rpow__ __rdiv__ __rmod__ __rfloordiv__ __and__ __or__ __xor__ __floordiv__"""

_BY_RULE: tuple[tuple[Rule, str], ...] = (  # where a name occurs twice, the later rule holds
    (one_tensor, _UNARY),
    (one_tensor, " ".join(DRAWN)),
    (elementwise, _SEVERAL),
    (elementwise, "clamp clip clamp_min clamp_max"),
    (chosen, "where"),
    (along(1, many=True), "sum mean std var amax amin logsumexp"),
    (along(1), "prod any all argmax argmin median cumsum cumprod logcumsumexp"),
    (along(1), "softmax log_softmax softmin select narrow"),
    (along(1, default=-1), "sort argsort glu"),
    (along(1, default=0), "unbind"),
    (along(2, many=True), "norm vector_norm roll"),
    (along(2, default=-1), "topk diff"),
    (along(2, default=0), "chunk split tensor_split"),
    (along(2, default=1, many=True), "normalize"),
    (varargs_dims, "flip"),
    (extremum, "max min"),
    (two_along, "cosine_similarity"),
    (joined, "cat concat stack"),
    (reshaped, "view reshape"),
    (resized, "expand repeat"),
    (flattened, "flatten"),
    (inserted, "unsqueeze unflatten"),
    (squeezed, "squeeze"),
    (permuted, "permute transpose swapaxes swapdims"),
    (indexed, "__getitem__"),
    (gathered, "gather take_along_dim index_select"),
    (multiplied, "matmul bmm __matmul__"),
    (summed_by_letters, "einsum"),
    (layer(least=2), "linear group_norm"),
    (layer(least=3), "interpolate"),
    (layer(least=4), "pixel_shuffle pixel_unshuffle channel_shuffle"),
    (layer(3), "conv1d max_pool1d avg_pool1d lp_pool1d fold"),
    (layer(3), "adaptive_max_pool1d adaptive_avg_pool1d"),
    (layer(4), "conv2d max_pool2d avg_pool2d lp_pool2d unfold"),
    (layer(4), "adaptive_max_pool2d adaptive_avg_pool2d"),
    (layer(5), "conv3d max_pool3d avg_pool3d lp_pool3d"),
    (layer(5), "adaptive_max_pool3d adaptive_avg_pool3d"),
    (padded, "pad"),
    (normalised, "layer_norm rms_norm"),
    (with_statistics, "instance_norm batch_norm"),
    (attended, "scaled_dot_product_attention"),
    (embedded, "embedding"),
    (in_classes, "one_hot"),
    (made_new, "new_zeros new_ones new_full"),
    (converted, "to type_as type"),
)
RULES: dict[str, Rule] = {name: rule for rule, names in _BY_RULE for name in names.split()}
# as Python writes them, where torch's own method has another name
_WRITTEN = {f"__{a}{op}__": op for op in ("add", "sub", "mul", "pow") for a in ("", "i")}
_WRITTEN |= {f"__r{op}__": op for op in ("add", "mul")}
_WRITTEN |= {"__truediv__": "div", "__itruediv__": "div", "__rtruediv__": "__rdiv__"}
_WRITTEN |= {f"__{op}__": op for op in ("eq", "ne", "lt", "le", "gt", "ge", "neg", "abs")}
_WRITTEN |= {"__invert__": "bitwise_not", "__mod__": "remainder"}


@dataclass(frozen=True)
class Operation:
    """A rule, whether the first argument is overwritten, and what draws random numbers."""

    name: str
    rule: Rule
    in_place: bool = False
    drawn: Callable[..., Any] | None = None


def _table() -> dict[Callable[..., Any], Operation]:
    """Return the operations by torch's functions and methods themselves, never by their names."""
    table, elementwise_rules = {}, (one_tensor, elementwise)

    def enter(spelling: str, name: str, in_place: bool = False) -> None:
        for space in (F,) if name in _LAYERS else _NAMESPACES:
            function = vars(space).get(spelling, getattr(space, spelling, None))
            if callable(function):
                drawn = DRAWN.get(name)
                table[function] = Operation(name, RULES[name], in_place, drawn)

    for name, rule in RULES.items():
        enter(name, name)
        if rule in elementwise_rules and name not in DRAWN and not name.startswith("__"):
            enter(f"{name}_", name, in_place=True)
    for spelling, name in _WRITTEN.items():
        enter(spelling, name, in_place=spelling.startswith("__i") and spelling != "__invert__")
    return table


OPERATIONS = _table()
