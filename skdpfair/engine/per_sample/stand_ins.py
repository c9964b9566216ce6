"""Stand-ins for tensors, and for the number of records, while a forward pass is recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NoReturn

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from skdpfair.engine.per_sample.graph import Tape


class NotRecorded(Exception):
    """The forward pass cannot be recorded, for the reason given."""


class Coupling(NotRecorded):
    """An operation lets one record act on another's row."""


class NoAttribute(NotRecorded, AttributeError):
    """A recorded tensor lacks an attribute."""


class BatchSize:
    """The number of records: a size to give to `view` or `expand`, and no number to decide by."""

    def __init__(self, tape: Tape) -> None:
        self.tape = tape

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BatchSize) or self._decides()

    __hash__ = object.__hash__

    def _decides(self, *args: Any) -> NoReturn:
        raise self.tape.refused(Coupling("it decides by the number of records of the batch"))

    __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __bool__ = __mod__ = __rmod__ = _decides

    def _unknown(self, *args: Any) -> NoReturn:
        raise NotRecorded("it computes with the number of records")

    __int__ = __index__ = __float__ = __add__ = __radd__ = __sub__ = __rsub__ = _unknown
    __mul__ = __rmul__ = __floordiv__ = __rfloordiv__ = __truediv__ = __rtruediv__ = _unknown

    def __repr__(self) -> str:
        return "n_records"


class Recorded:
    """Stands for a tensor with a row per record while a forward pass is recorded.

    ``value`` is what made-up records give; ``slot`` names the tensor in the recording.
    """

    def __init__(self, tape: Tape, slot: int, value: Tensor) -> None:
        self.tape, self.slot, self.value = tape, slot, value

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        return _tape_of((args, kwargs)).apply(func, args, kwargs or {})

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(torch.Tensor, name, None)
        if name.startswith("__") or not callable(method):
            raise NoAttribute(f"it asks for the attribute {name!r} of a tensor")
        return lambda *args, **kwargs: self.tape.apply(method, (self, *args), kwargs)

    @property
    def shape(self) -> tuple[Any, ...]:
        """The shape, of which the first number is not known."""
        return (BatchSize(self.tape), *self.value.shape[1:])

    def size(self, dim: int | None = None) -> Any:
        """Return the shape, or one number of it."""
        return self.shape if dim is None else self.shape[dim]

    def dim(self) -> int:
        """Return the number of axes."""
        return self.value.dim()

    ndim = property(dim)
    mT = property(lambda self: self.transpose(-2, -1))
    dtype = property(lambda self: self.value.dtype)
    device = property(lambda self: self.value.device)
    is_cuda = property(lambda self: self.value.is_cuda)
    is_nested = is_sparse = is_quantized = False
    requires_grad = True

    def is_floating_point(self) -> bool:
        """Tell whether the numbers are floating."""
        return self.value.is_floating_point()

    def _coupled(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise self.tape.refused(Coupling("it decides by values, or takes records one from another"))

    def __len__(self) -> NoReturn:
        # an int would leave no trace of what the code does with it
        raise self.tape.refused(NotRecorded("it asks for the number of records by len()"))

    __bool__ = __iter__ = __int__ = __float__ = __index__ = __contains__ = _coupled
    item = tolist = numpy = __array__ = __setitem__ = _coupled
    __hash__ = object.__hash__


def _tape_of(nested: Any) -> Tape:
    for leaf in leaves(nested):
        if isinstance(leaf, Recorded):
            return leaf.tape
    raise NotRecorded("it hides a tensor where it cannot be found")


def leaves(nested: Any) -> Iterator[Any]:
    """Yield the leaves of nested tuples, lists, slices and dicts."""
    if isinstance(nested, (tuple, list)):
        for part in nested:
            yield from leaves(part)
    elif isinstance(nested, dict):
        yield from leaves(list(nested.values()))
    elif isinstance(nested, slice):
        yield from (nested.start, nested.stop, nested.step)
    else:
        yield nested


_PLAIN = {int, float, bool, complex, str, type(None), type(Ellipsis), Tensor, nn.Parameter}
_PLAIN |= {Recorded, BatchSize, torch.dtype, torch.device, torch.memory_format, torch.layout}


def is_plain(nested: Any) -> bool:
    """Tell whether arguments are of types that have no operations of their own."""
    if type(nested) in (tuple, list, torch.Size):
        return all(map(is_plain, nested))
    if type(nested) is dict:
        return all(map(is_plain, nested.values()))
    if type(nested) is slice:
        return all(map(is_plain, (nested.start, nested.stop, nested.step)))
    return type(nested) in _PLAIN or type(nested) is getattr(nn, "Buffer", None)


def _operator(name: str) -> Callable[..., Any]:
    method = getattr(torch.Tensor, name)

    def operator(self: Recorded, *args: Any) -> Any:
        return self.tape.apply(method, (self, *args), {})

    return operator


_OWN = """__add__ __radd__ __iadd__ __sub__ __rsub__ __isub__ __mul__ __rmul__ __imul__ __truediv__
__rtruediv__ __itruediv__ __floordiv__ __rfloordiv__ __mod__ __pow__ __rpow__ __neg__ __abs__
__eq__ __ne__ __lt__ __le__ __gt__ __ge__ __and__ __or__ __xor__ __invert__ __matmul__
__getitem__"""
for _name in _OWN.split():
    setattr(Recorded, _name, _operator(_name))
