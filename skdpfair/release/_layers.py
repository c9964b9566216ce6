"""Plain stacks of layers as ONNX nodes, made by hand: small, clean, and the same in all versions.

What is not a plain stack is traced by torch's exporter, see _trace.
"""

import math
from dataclasses import dataclass

import numpy as np
from torch import nn

_OPSET = 17
_NOTHING = (nn.Dropout, nn.Dropout2d, nn.Identity)  # in prediction
_UNARY = {nn.Tanh: "Tanh", nn.ReLU: "Relu", nn.Sigmoid: "Sigmoid"}
_HOOKS = ("_forward_hooks", "_forward_pre_hooks")


class Unknown(Exception):
    """A layer that has no form here."""


@dataclass
class Part:
    """Nodes from the input ``features`` to ``output``, and the constants that they read."""

    nodes: list
    constants: list
    output: str
    opset: int = _OPSET
    ir_version: int = 0


def layers_of(onnx, module, example) -> Part:
    """Return the nodes of a module in eval mode.

    Raises
    ------
    Unknown
        If a layer is not plain.
    """
    builder = _Builder(onnx)
    builder.add(module, example)
    return Part(builder.nodes, builder.constants, builder.output)


class _Builder:
    def __init__(self, onnx):
        self.onnx, self.nodes, self.constants, self.output = onnx, [], [], "features"

    def add(self, module, x):
        """Append a module that gets ``x``, and return what it makes of it."""
        if any(getattr(module, hooks) for hooks in _HOOKS):
            raise Unknown
        if type(module) is nn.Sequential:
            for layer in module:
                x = self.add(layer, x)
            return x
        make = _MAKERS.get(type(module))
        if make is None:
            raise Unknown
        y = module(x)
        if len(y) != len(x):
            raise Unknown
        make(self, module, y)
        return y

    def _node(self, op, *inputs, **attributes):
        name = f"value_{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(op, inputs, [name], **attributes))
        return name

    def _constant(self, value):
        name = f"constant_{len(self.constants)}"
        self.constants.append(self.onnx.numpy_helper.from_array(np.asarray(value), name))
        return name

    def _nothing(self, layer, y):
        pass

    def _unary(self, layer, y):
        self.output = self._node(_UNARY[type(layer)], self.output)

    def _linear(self, layer, y):
        weight = layer.weight.detach().numpy()
        self.output = self._node("MatMul", self.output, self._constant(weight.T.copy()))
        if layer.bias is not None:
            bias = self._constant(layer.bias.detach().numpy())
            self.output = self._node("Add", self.output, bias)

    def _reshape(self, layer, y):
        shape = np.array([0, *y.shape[1:]])  # 0 keeps the number of records
        self.output = self._node("Reshape", self.output, self._constant(shape))

    def _convolution(self, layer, y):
        if layer.padding_mode != "zeros" or isinstance(layer.padding, str):
            raise Unknown
        inputs = [self._constant(p.detach().numpy()) for p in layer.parameters()]
        self.output = self._node(
            "Conv",
            self.output,
            *inputs,
            kernel_shape=layer.kernel_size,
            strides=layer.stride,
            pads=layer.padding * 2,
            dilations=layer.dilation,
            group=layer.groups,
        )

    def _gelu(self, layer, y):
        if layer.approximate != "none":
            raise Unknown
        scaled = self._node("Mul", self.output, self._constant(np.float32(math.sqrt(0.5))))
        above = self._node("Add", self._node("Erf", scaled), self._constant(np.float32(1)))
        half = self._node("Mul", self.output, self._constant(np.float32(0.5)))
        self.output = self._node("Mul", half, above)


_MAKERS = {
    **dict.fromkeys(_NOTHING, _Builder._nothing),
    **dict.fromkeys(_UNARY, _Builder._unary),
    **dict.fromkeys((nn.Flatten, nn.Unflatten), _Builder._reshape),
    nn.Linear: _Builder._linear,
    nn.Conv2d: _Builder._convolution,
    nn.GELU: _Builder._gelu,
}
