"""What book-keeping knows of each layer type: norms and weighted sums of its gradients.

``a`` is the layer's input and ``b`` the gradient of the summed loss in its output, both with
the batch first.  A layer returns its records' squared gradient norms and a function that adds
their weighted sum to views of the gradient; no per-record weight gradient of a Linear is ever
made.  A parameter that is frozen, or absent, takes no part.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.grad import conv2d_weight

from skdpfair.engine.per_sample.records import Records

Views = dict[Tensor, Tensor]


@dataclass(frozen=True)
class Layer:
    """How to keep books for one layer type.

    ``fits(module)`` tells whether the formulas cover this configuration of the layer;
    ``books(module, a, b)`` returns (squared norms (batch,), add(weight, views)).
    """

    fits: Callable[[nn.Module], bool]
    books: Callable[[nn.Module, Tensor, Tensor], tuple[Tensor, Callable[[Tensor, Views], None]]]


LAYERS: dict[type[nn.Module], Layer] = {}


def register(layer_type, fits=lambda module: True):
    """Register the decorated ``books`` function for a layer type."""

    def decorate(books):
        LAYERS[layer_type] = Layer(fits, books)
        return books

    return decorate


def find(module: nn.Module) -> Layer | None:
    """Return the entry of exactly this layer type, if it covers the configuration."""
    layer = LAYERS.get(type(module))
    return layer if layer is not None and layer.fits(module) else None


def close(books, views_of, loss, probability) -> Records:
    """Return the records of a batch from its (layer, a, b) triples."""
    norm2, adders = 0.0, []
    for module, a, b in books:
        part, add = find(module).books(module, a, b)
        norm2 = norm2 + part
        adders.append(add)

    def weighted_sum(weight, out, finite=None):
        views = views_of(out)
        if finite is None:
            for add in adders:
                add(weight, views)
            return
        for module, a, b in books:
            a, b = masked(a, finite), masked(b, finite)
            find(module).books(module, a, b)[1](weight, views)

    return Records(norm2.sqrt(), loss, probability, weighted_sum)


def masked(rows, finite):
    """Return the rows with those of records that are not finite set to zero."""
    return torch.where(finite.view(-1, *[1] * (rows.dim() - 1)), rows, 0.0)


def trains(parameter) -> bool:
    """Tell whether the parameter exists and is not frozen."""
    return parameter is not None and parameter.requires_grad


@register(nn.Linear)
def linear(module, a, b):
    """Books of a Linear on vectors; sequences go to :func:`sequence_linear`."""
    if a.dim() > 2:
        return sequence_linear(module, a, b)
    norm2 = torch.linalg.vecdot(b, b)
    if trains(module.weight):
        a2 = torch.linalg.vecdot(a, a)
        norm2.mul_(a2.add_(1.0) if trains(module.bias) else a2)

    return norm2, partial(add_linear, module, a, b)


def add_linear(module, a, b, weight, views):
    """Add the weighted sum of the gradients of a Linear on vectors."""
    if trains(module.weight):
        # weigh the narrower side
        if a.shape[1] < b.shape[1]:
            views[module.weight].addmm_(b.t(), a * weight[:, None])
        else:
            views[module.weight].addmm_((b * weight[:, None]).t(), a)
    if trains(module.bias):
        views[module.bias].addmv_(b.t(), weight)


def sequence_linear(module, a, b):
    """Books of a Linear applied along further axes: Gram matrices if short, else instantiated."""
    a, b = a.flatten(1, -2), b.flatten(1, -2)
    length, size = a.shape[1], a.shape[2] * b.shape[2]
    norm2 = b.new_zeros(len(b))
    if trains(module.bias):
        norm2 = norm2 + b.sum(1).square().sum(1)
    if trains(module.weight):
        if 2 * length**2 <= size:
            gram = torch.bmm(a, a.transpose(1, 2)) * torch.bmm(b, b.transpose(1, 2))
            norm2 = norm2 + gram.sum((1, 2)).clamp(min=0.0)
        else:
            norm2 = norm2 + torch.bmm(b.transpose(1, 2), a).square().sum((1, 2))

    def add(weight, views):
        weighted = (b * weight[:, None, None]).flatten(0, 1)
        if trains(module.weight):
            views[module.weight].addmm_(weighted.t(), a.flatten(0, 1))
        if trains(module.bias):
            views[module.bias].add_(weighted.sum(0))

    return norm2, add


def _plain_conv(module):
    return (
        module.groups == 1
        and module.padding_mode == "zeros"
        and not isinstance(module.padding, str)
    )


@register(nn.Conv2d, fits=_plain_conv)
def conv2d(module, a, b):
    """Books of a Conv2d: its small per-record gradients, by one grouped convolution."""
    n, norm2 = len(b), b.new_zeros(len(b))
    bias_rows = b.sum((2, 3)) if trains(module.bias) else None
    rows = None
    if trains(module.weight):
        rows = conv2d_weight(
            a.reshape(1, -1, *a.shape[2:]),
            (n * module.out_channels, module.in_channels, *module.kernel_size),
            b.reshape(1, -1, *b.shape[2:]),
            stride=module.stride,
            padding=module.padding,
            dilation=module.dilation,
            groups=n,
        ).view(n, -1)
        norm2 = norm2 + torch.linalg.vector_norm(rows, dim=1).square_()
    if bias_rows is not None:
        norm2 = norm2 + torch.linalg.vector_norm(bias_rows, dim=1).square_()

    def add(weight, views):
        if rows is not None:
            views[module.weight].view(-1).addmv_(rows.t(), weight)
        if bias_rows is not None:
            views[module.bias].addmv_(bias_rows.t(), weight)

    return norm2, add
