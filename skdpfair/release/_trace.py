"""Modules of any kind as ONNX nodes, by torch's exporter, without what it tells of this machine."""

import io
import warnings
from inspect import signature

import torch

from skdpfair.release._layers import Part

_NAMES = {"input_names": ["features"], "output_names": ["module_output"]}
_OPSET = 18


def traced(module, example) -> Part:
    """Return the nodes of a module in eval mode, for any number of records.

    Raises
    ------
    ImportError
        Without onnxscript, which torch's exporter needs.
    ValueError
        If the exporter cannot express the module.
    """
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
        raise ValueError(f"The module {label} needs ONNX operators of {foreign}: not portable.")
    # the module's own names must not meet those of the classifier's outputs
    model = compose.add_prefix(model, "module/", rename_inputs=False, rename_outputs=False)
    _scrub(model.graph)
    opset = next(o.version for o in model.opset_import if o.domain in ("", "ai.onnx"))
    nodes, constants = list(model.graph.node), list(model.graph.initializer)
    return Part(nodes, constants, model.graph.output[0].name, opset, model.ir_version)


def _exported(module, example):
    if "dynamic_shapes" in signature(torch.onnx.export).parameters:  # torch 2.5 and later
        shapes = ({0: torch.export.Dim("batch")},)
        options = {"dynamo": True, "dynamic_shapes": shapes, "opset_version": _OPSET}
        return torch.onnx.export(module, (example,), verbose=False, **options, **_NAMES).model_proto
    from onnx import load_from_string

    axes = {name: {0: "batch"} for names in _NAMES.values() for name in names}
    torch.onnx.export(
        module, (example,), file := io.BytesIO(), opset_version=17, dynamic_axes=axes, **_NAMES
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
