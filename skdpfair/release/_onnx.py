"""ONNX files of fitted estimators: torch's exporter, without its notes on this machine."""

import io
import json
import logging
import warnings
from contextlib import contextmanager
from inspect import signature
from typing import Any

import numpy as np
import torch
from sklearn.base import is_regressor
from torch import nn

from skdpfair._utils.validate import safe_repr
from skdpfair.engine.precision import full_precision
from skdpfair.features._wavelets import RealScattering

# the latter for torch before 2.5
_OPSET, _OPSET_BEFORE = 18, 17
_OUTPUTS = ["logits", "probabilities", "label_code"]


class _Classifier(nn.Module):
    """A module with the outputs of a classifier; the code of a label is its position."""

    def __init__(self, module, scale):
        super().__init__()
        self.module, self.scale = module, scale

    def forward(self, features):
        logits = self.module(features).float() * self.scale
        return logits, logits.softmax(1), logits.argmax(1)


class _Regressor(nn.Module):
    """A module with the output of a regressor, inside the range of the target."""

    def __init__(self, module, y_range):
        super().__init__()
        self.module, (low, high) = module, y_range
        scale, centre = np.float32(high / 2 - low / 2), np.float32(low / 2 + high / 2)
        if not np.isfinite([scale, centre]).all():
            raise ValueError(f"ONNX predicts in float32, which cannot hold y_range={(low, high)}.")
        self.scale, self.centre = float(scale), float(centre)

    def forward(self, features):
        return self.module(features).float().clamp(-1, 1)[:, 0] * self.scale + self.centre


@full_precision()
def content(estimator, statement, version) -> bytes:
    """Return the bytes of an ONNX file of an estimator whose net is an inference net."""
    onnx = _onnx()
    module, shape = estimator.net_.module_, estimator.net_.module.in_shape
    if (features := estimator.features_) is not None:
        shape = features.in_shape_
        module = nn.Sequential(features.network(shape, RealScattering), module)
    facts = {"privacy_statement": statement, "feature_names": _feature_names(estimator)}
    if is_regressor(estimator):
        facts["y_range"] = estimator.y_range_
        graph, opset = _exported(_Regressor(module, estimator.y_range_), shape, ["prediction"])
    else:
        facts["classes"] = estimator.classes_.tolist()
        labels = _labels(onnx, estimator.classes_)
        graph, opset = _exported(_Classifier(module, estimator.logit_scale_), shape, _OUTPUTS)
        graph.initializer.append(labels)
        inputs = ["classes", graph.output.pop().name]
        graph.node.append(onnx.helper.make_node("Gather", inputs, ["label"], axis=0))
        graph.output.append(
            onnx.helper.make_tensor_value_info("label", labels.data_type, ["batch"])
        )
    _scrub(graph)
    # made anew: what the exporter notes of this machine does not come along
    model = onnx.helper.make_model(
        onnx.helper.make_graph(
            graph.node, "estimator", graph.input, graph.output, graph.initializer
        ),
        opset_imports=[onnx.helper.make_opsetid("", opset)],
        ir_version=10,  # ONNX Runtime 1.18 and later read it
        producer_name="skdpfair",
        producer_version=version,
    )
    onnx.helper.set_model_props(model, {k: json.dumps(v) for k, v in facts.items()})
    onnx.checker.check_model(model, full_check=True)
    return model.SerializeToString(deterministic=True)


def _labels(onnx, classes):
    labels = classes.tolist()
    if all(isinstance(label, str) for label in labels):
        text = [label.encode() for label in labels]
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
        import onnxscript  # noqa: F401  (the exporter of torch needs it)
    except ImportError:
        raise ImportError("ONNX files need: pip install 'skdpfair[onnx]'.") from None
    return onnx


def _exported(module, shape, outputs):
    """Return the graph of a module in eval mode, for any number of records, and its opset."""
    from onnx import inliner

    label = type(module.module).__name__
    try:
        with _quiet():
            model = inliner.inline_local_functions(
                _by_exporter(module.eval(), torch.zeros(2, *shape), outputs)
            )
    except Exception as error:
        raise ValueError(
            f"torch cannot export the module {label} to ONNX for batches of any size: "
            f"{str(error)[:300]}"
        ) from error
    foreign = sorted({node.domain for node in model.graph.node} - {"", "ai.onnx"})
    if foreign:
        raise ValueError(f"The module {label} needs non-portable ONNX operators of {foreign}.")
    return model.graph, next(o.version for o in model.opset_import if o.domain in ("", "ai.onnx"))


def _by_exporter(module, example, outputs):
    export: Any = torch.onnx.export  # its parameters and what it returns depend on the version
    names = {"input_names": ["features"], "output_names": outputs}
    if "dynamic_shapes" in signature(export).parameters:  # torch 2.5 and later
        options = {"dynamic_shapes": ({0: torch.export.Dim("batch")},), "opset_version": _OPSET}
        return export(
            module, (example,), dynamo=True, verbose=False, **options, **names
        ).model_proto
    from onnx import load_from_string

    axes = {name: {0: "batch"} for name in ("features", *outputs)}
    options = {"opset_version": _OPSET_BEFORE, "dynamic_axes": axes}
    export(module, (example,), file := io.BytesIO(), **options, **names)
    return load_from_string(file.getvalue())


@contextmanager
def _quiet():
    """Keep the exporter's warnings about its own parts, and about packages it lacks, to itself."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


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
    for value in (*graph.initializer, *graph.input, *graph.output):
        value.ClearField("doc_string")
        value.ClearField("metadata_props")
    for field in ("doc_string", "metadata_props", "value_info"):
        graph.ClearField(field)
