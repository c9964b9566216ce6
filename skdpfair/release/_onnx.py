"""ONNX graphs of fitted estimators: the module, and labels or the prediction.

Plain stacks of layers are written node by node: small, and the same with every version of torch.
Other modules go through torch's exporter, without its notes on this machine.
"""

import io
import json
import math
import warnings
from dataclasses import dataclass
from inspect import signature
from typing import Any

import numpy as np
import torch
from sklearn.base import is_regressor
from torch import nn

from skdpfair._validate import safe_repr
from skdpfair.engine.precision import full_precision
from skdpfair.features._wavelets import RealScattering
from skdpfair.networks import ChannelsFirst

_IR = 8  # of graphs of plain layers; ONNX Runtime 1.12 and later read it
_OPSET = 17
_OPSET_TRACED = 18
_NAMES = {"input_names": ["features"], "output_names": ["module_output"]}
_NOTHING = (nn.Dropout, nn.Dropout2d, nn.Identity)  # in prediction
_UNARY = {nn.Tanh: "Tanh", nn.ReLU: "Relu", nn.Sigmoid: "Sigmoid"}
_HOOKS = ("_forward_hooks", "_forward_pre_hooks")


class _Unknown(Exception):
    """A layer that has no form here."""


@dataclass
class _Part:
    """Nodes from the input ``features`` to ``output``, and the constants that they read."""

    nodes: list
    constants: list
    output: str
    opset: int = _OPSET
    ir_version: int = 0


@full_precision()
def content(estimator, statement, version) -> bytes:
    """Return the bytes of an ONNX file of an estimator whose net is an inference net."""
    onnx = _onnx()
    module, shape = estimator.net_.module_, estimator.net_.module.in_shape
    if (features := estimator.features_) is not None:
        shape = features.in_shape_
        module = nn.Sequential(features.network(shape, RealScattering), module)
    example = torch.zeros(2, *shape)
    try:
        part = _layers_of(onnx, module, example)
    except _Unknown:
        part = _traced(module, example)
    model = onnx.helper.make_model(
        (_regression if is_regressor(estimator) else _graph)(onnx, part, estimator, shape),
        opset_imports=[onnx.helper.make_opsetid("", part.opset)],
        ir_version=max(_IR, part.ir_version),
        producer_name="skdpfair",
        producer_version=version,
    )
    facts = {"privacy_statement": statement}
    if is_regressor(estimator):
        facts["y_range"] = estimator.y_range_
    else:
        facts["classes"] = estimator.classes_.tolist()
    facts["feature_names"] = _feature_names(estimator)
    onnx.helper.set_model_props(model, {k: json.dumps(v) for k, v in facts.items()})
    onnx.checker.check_model(model, full_check=True)
    return model.SerializeToString(deterministic=True)


def _graph(onnx, part, estimator, shape):
    make, classes = onnx.helper, estimator.classes_
    labels = _labels(onnx, classes)
    nodes = [
        *part.nodes,
        make.make_node("Cast", [part.output], ["logits"], to=onnx.TensorProto.FLOAT),
        make.make_node("Softmax", ["logits"], ["probabilities"], axis=1),
        make.make_node("ArgMax", ["logits"], ["label_code"], axis=1, keepdims=0),
        make.make_node("Gather", ["classes", "label_code"], ["label"], axis=0),
    ]
    number, table = onnx.TensorProto.FLOAT, ["batch", len(classes)]
    record = ["batch", *shape]
    return make.make_graph(
        nodes,
        "classifier",
        [make.make_tensor_value_info("features", number, record)],
        [
            make.make_tensor_value_info("logits", number, table),
            make.make_tensor_value_info("probabilities", number, table),
            make.make_tensor_value_info("label", labels.data_type, ["batch"]),
        ],
        [*part.constants, labels],
    )


def _regression(onnx, part, estimator, shape):
    """Return the graph of a regressor, whose prediction is inside the range of the target."""
    make, number = onnx.helper, onnx.TensorProto.FLOAT
    low, high = estimator.y_range_
    values = {"lowest": -1, "highest": 1, "half": high / 2 - low / 2, "middle": low / 2 + high / 2}
    constants = {k: np.asarray(v, np.float32) for k, v in values.items()}
    constants["axis"] = np.array([1])
    if not all(np.isfinite(v) for v in constants.values()):
        raise ValueError(f"ONNX predicts in float32, which cannot hold y_range={(low, high)}.")
    nodes = [
        *part.nodes,
        make.make_node("Cast", [part.output], ["output"], to=number),
        make.make_node("Clip", ["output", "lowest", "highest"], ["inside"]),
        make.make_node("Mul", ["inside", "half"], ["distance"]),
        make.make_node("Add", ["distance", "middle"], ["predictions"]),
        make.make_node("Squeeze", ["predictions", "axis"], ["prediction"]),
    ]
    return make.make_graph(
        nodes,
        "regressor",
        [make.make_tensor_value_info("features", number, ["batch", *shape])],
        [make.make_tensor_value_info("prediction", number, ["batch"])],
        [*part.constants, *(onnx.numpy_helper.from_array(v, k) for k, v in constants.items())],
    )


def _labels(onnx, classes):
    labels = classes.tolist()
    if all(isinstance(label, str) for label in labels):
        try:
            text = [label.encode() for label in labels]
        except UnicodeEncodeError as error:
            raise ValueError(f"ONNX cannot hold the class {error.object!r}: {error}.") from None
        return onnx.helper.make_tensor("classes", onnx.TensorProto.STRING, [len(text)], text)
    numbers = np.array(labels)
    if numbers.dtype.kind not in "biuf":
        raise TypeError(f"ONNX labels are strings or numbers, got classes {safe_repr(labels)}.")
    with np.errstate(invalid="ignore"):
        whole = numbers.astype(np.int64)
    whole = whole if (whole == numbers).all() else numbers
    return onnx.numpy_helper.from_array(whole, "classes")


def _feature_names(estimator):
    names = getattr(estimator, "feature_names_in_", None)
    return None if names is None else np.delete(names, estimator._group_positions).tolist()


def _onnx():
    try:
        import onnx
    except ImportError:
        raise ImportError("ONNX files need: pip install 'skdpfair[onnx]'.") from None
    return onnx


def _layers_of(onnx, module, example) -> _Part:
    """Return the nodes of a module in eval mode; raise _Unknown if a layer is not plain."""
    builder = _Builder(onnx)
    builder.add(module, example)
    return _Part(builder.nodes, builder.constants, builder.output)


class _Builder:
    def __init__(self, onnx):
        self.onnx, self.nodes, self.constants, self.output = onnx, [], [], "features"

    def add(self, module, x):
        """Append a module that gets ``x``, and return what it makes of it."""
        if any(getattr(module, hooks) for hooks in _HOOKS):
            raise _Unknown
        if type(module) is nn.Sequential:
            for layer in module:
                x = self.add(layer, x)
            return x
        make = _MAKERS.get(type(module))
        if make is None:
            raise _Unknown
        y = module(x)
        if len(y) != len(x):
            raise _Unknown
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
            raise _Unknown
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

    def _channels_first(self, layer, y):
        self.output = self._node("Transpose", self.output, perm=(0, 3, 1, 2))

    def _gelu(self, layer, y):
        if layer.approximate != "none":
            raise _Unknown
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
    ChannelsFirst: _Builder._channels_first,
}


def _traced(module, example) -> _Part:
    """Return the nodes of a module in eval mode, for any number of records, by torch's exporter."""
    from onnx import compose, inliner

    label = type(module).__name__
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the exporter's own parts
            model = _exported(module, example)
        model = inliner.inline_local_functions(model)
    except ImportError as error:
        raise ImportError(f"{error}. To export {label}: pip install 'skdpfair[onnx]'.") from None
    except Exception as error:
        raise ValueError(
            f"torch cannot export the module {label} to ONNX for batches of any size: "
            f"{str(error)[:300]}"
        ) from error
    foreign = sorted({node.domain for node in model.graph.node} - {"", "ai.onnx"})
    if foreign:
        raise ValueError(f"The module {label} needs non-portable ONNX operators of {foreign}.")
    # the module's own names must not meet those of the classifier's outputs
    model = compose.add_prefix(model, "module/", rename_inputs=False, rename_outputs=False)
    _scrub(model.graph)
    opset = next(o.version for o in model.opset_import if o.domain in ("", "ai.onnx"))
    nodes, constants = list(model.graph.node), list(model.graph.initializer)
    return _Part(nodes, constants, model.graph.output[0].name, opset, model.ir_version)


def _exported(module, example):
    export: Any = torch.onnx.export  # its parameters and what it returns depend on the version
    if "dynamic_shapes" in signature(export).parameters:  # torch 2.5 and later
        shapes = ({0: torch.export.Dim("batch")},)
        options = {"dynamo": True, "dynamic_shapes": shapes, "opset_version": _OPSET_TRACED}
        return export(module, (example,), verbose=False, **options, **_NAMES).model_proto
    from onnx import load_from_string

    axes = {name: {0: "batch"} for names in _NAMES.values() for name in names}
    export(
        module, (example,), file := io.BytesIO(), opset_version=_OPSET, dynamic_axes=axes, **_NAMES
    )
    return load_from_string(file.getvalue())


def _scrub(graph):
    """Drop what the exporter noted beside the numbers: source lines and paths."""
    for node in graph.node:
        node.ClearField("doc_string")
        node.ClearField("metadata_props")
        for attribute in node.attribute:
            attribute.ClearField("doc_string")
            inner = [attribute.g] if attribute.HasField("g") else attribute.graphs
            for part in inner:
                _scrub(part)
    for tensor in graph.initializer:
        tensor.ClearField("doc_string")
        tensor.ClearField("metadata_props")
    for field in ("doc_string", "metadata_props", "value_info"):
        graph.ClearField(field)
