"""Hessian products of a chain of Linear layers by formulas: Pearlmutter's R operator."""

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, softmax

from skdpfair.engine.flat import split
from skdpfair.engine.per_sample.closed_form import ACTIVATIONS, chain_of

# f'' over f', from the activation's output
_CURVE = {
    ACTIVATIONS[nn.Tanh]: lambda out: -2.0 * out,
    ACTIVATIONS[nn.Sigmoid]: lambda out: 1.0 - 2.0 * out,
    ACTIVATIONS[nn.ReLU]: torch.zeros_like,
}


class ChainCurvature:
    """H_k v of softmax cross-entropy on Linear layers with activations whose f'' is known.

    Parameters
    ----------
    chain : list of (Linear, Activation or None)
        Of :func:`skdpfair.engine.per_sample.closed_form.chain_of`.
    curves : list of callable
        f'' over f' of each activation.
    parameters : list of Parameter
        Those that train, in the order of the flat vectors.
    n_classes : int
        Number of outputs.
    class_weight : Tensor or None
        Factors of the loss.
    """

    def __init__(self, chain, curves, parameters, n_classes, class_weight):
        self.chain, self.curves, self.parameters = chain, curves, parameters
        self.identity = torch.eye(n_classes, dtype=parameters[0].dtype, device=parameters[0].device)
        self.class_weight = class_weight

    @torch.no_grad()
    def add(self, x: Tensor, y: Tensor, ranges, vectors: Tensor, total: Tensor) -> None:
        """Add sums over ranges of records to ``total`` (n_groups, n_vectors, n_parameters).

        ``ranges`` are (group, slice of records, factor of their sum).
        """
        inputs, logits = self._forward(x.flatten(1))
        p, s = self._slope(logits, y)
        slopes = self._backward(inputs, logits, s)
        for j, vector in enumerate(vectors):
            part = dict(zip(self.parameters, split(vector, self.parameters), strict=True))
            tangents = self._tangents(inputs, part)
            moved = p * tangents[-1][1]
            moved -= p * moved.sum(1, keepdim=True)
            if self.class_weight is not None:
                moved *= self.class_weight[y][:, None]
            for k, rows, factor in ranges:
                views = dict(zip(self.parameters, split(total[k, j], self.parameters), strict=True))
                self._add_rows(inputs, slopes, tangents, moved, part, rows, factor, views)

    def _forward(self, a):
        inputs = [a]
        for layer, activation in self.chain:
            z = linear(inputs[-1], layer.weight, layer.bias)
            inputs.append(z if activation is None else activation.forward(z))
        return inputs, inputs[-1]

    def _slope(self, logits, y):
        p = softmax(logits, dim=1)
        s = p - self.identity.index_select(0, y)
        return p, s if self.class_weight is None else s * self.class_weight[y][:, None]

    def _backward(self, inputs, out, s):
        """Return, for each layer, the gradient in its output and, after its activation, in z."""
        found = []
        for i in range(len(self.chain) - 1, -1, -1):
            layer, activation = self.chain[i]
            b = s if activation is None else activation.backward(s, inputs[i + 1])
            found.append((s, b))
            s = b @ layer.weight if i else None
        return found[::-1]

    def _tangents(self, inputs, part):
        """Return, for each layer, how its z and its output move along the vector."""
        found, moving = [], None
        for i, (layer, activation) in enumerate(self.chain):
            weight, bias = part.get(layer.weight), part.get(layer.bias)
            rz = None
            if weight is not None:
                rz = linear(inputs[i], weight, bias)
            elif bias is not None:
                rz = bias.expand(len(inputs[i]), -1)
            if moving is not None:
                rz = (
                    moving @ layer.weight.T
                    if rz is None
                    else torch.addmm(rz, moving, layer.weight.T)
                )
            if rz is None:
                rz = torch.zeros_like(inputs[i + 1])
            moving = rz if activation is None else activation.backward(rz, inputs[i + 1])
            found.append((rz, moving))
        return found

    def _add_rows(self, inputs, slopes, tangents, rs, part, rows, factor, views):
        """Go back through the layers with the records ``rows``, and add what they come to."""
        rs = rs[rows]
        for i in range(len(self.chain) - 1, -1, -1):
            layer, activation = self.chain[i]
            s, b = (value[rows] for value in slopes[i])
            a = inputs[i][rows]
            if activation is None:
                rb = rs
            else:
                out = inputs[i + 1][rows]
                rb = activation.backward(rs + self.curves[i](out) * tangents[i][0][rows] * s, out)
            if layer.weight in views:
                views[layer.weight].addmm_(rb.T, a, alpha=factor)
                if i:
                    views[layer.weight].addmm_(b.T, tangents[i - 1][1][rows], alpha=factor)
            if layer.bias in views:
                views[layer.bias].add_(rb.sum(0), alpha=factor)
            if i:
                rs = rb @ layer.weight
                if layer.weight in part:
                    rs = torch.addmm(rs, b, part[layer.weight])


def chain_curvature(problem) -> ChainCurvature | None:
    """Return the formulas for a problem's module, or None if it is no such chain."""
    chain = chain_of(problem.module, problem.batch.x[:1])
    if isinstance(chain, str):
        return None
    curves = [None if activation is None else _CURVE[activation] for _, activation in chain]
    return ChainCurvature(
        chain, curves, problem.parameters, problem.n_classes, problem.class_weight
    )
