"""A fitted classifier as an ONNX graph: the module, then softmax, arg max and labels."""

import json

import numpy as np
import torch

from skdpfair.release._layers import Unknown, layers_of
from skdpfair.release._trace import traced

_IR = 8  # of graphs of plain layers; ONNX Runtime 1.12 and later read it


def content(estimator, statement, version) -> bytes:
    """Return the bytes of an ONNX file of an estimator whose net is an inference net."""
    onnx = _onnx()
    example = torch.zeros(2, *estimator.net_.module.in_shape)
    try:
        part = layers_of(onnx, estimator.net_.module_, example)
    except Unknown:
        part = traced(estimator.net_.module_, example)
    model = onnx.helper.make_model(
        _graph(onnx, part, estimator),
        opset_imports=[onnx.helper.make_opsetid("", part.opset)],
        ir_version=max(_IR, part.ir_version),
        producer_name="skdpfair",
        producer_version=version,
    )
    facts = {
        "privacy_statement": statement,
        "classes": estimator.classes_.tolist(),
        "feature_names": _feature_names(estimator),
    }
    onnx.helper.set_model_props(model, {k: json.dumps(v) for k, v in facts.items()})
    onnx.checker.check_model(model, full_check=True)
    return model.SerializeToString(deterministic=True)


def _graph(onnx, part, estimator):
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
    record = ["batch", *estimator.net_.module.in_shape]
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
        raise TypeError(f"ONNX labels are strings or numbers, got classes {labels!r}.")
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
