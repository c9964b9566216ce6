"""All private names of torch that this package imports, tried with torch 2.12 and 2.13.

These are the oldest and the newest version that the tests run with (requirements/lowest.txt and
constraints.txt).  A torch that lacks a name fails at this import.  If a name has another meaning, a
fit fails before its first step, where traces are compared with autograd.  Attributes of torch's
objects are private, too: ``_schema`` and ``_overloadname`` of operations, ``_version`` of tensors,
``_saved_*`` and ``_input_metadata`` of nodes of autograd's graph.
"""

from typing import Any

import torch
from torch._C._functorch import is_functorch_wrapped_tensor as is_functorch_wrapped_tensor
from torch._decomp import get_decompositions as get_decompositions
from torch._functorch.vmap import lazy_load_decompositions
from torch._guards import TracingContext as TracingContext
from torch._guards import tracing as tracing
from torch._ops import OpOverload as OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode as FakeTensorMode
from torch._subclasses.functional_tensor import FunctionalTensor as FunctionalTensor
from torch._subclasses.functional_tensor import dispatch_functionalize as dispatch_functionalize
from torch.fx.experimental.proxy_tensor import make_fx as make_fx
from torch.utils._python_dispatch import TorchDispatchMode as TorchDispatchMode
from torch.utils._pytree import tree_flatten as tree_flatten
from torch.utils._pytree import tree_leaves as tree_leaves
from torch.utils._pytree import tree_map as tree_map
from torch.utils._pytree import tree_map_only as tree_map_only
from torch.utils._pytree import tree_unflatten as tree_unflatten

BatchNorm = torch.nn.modules.batchnorm._BatchNorm
Convolution = torch.nn.modules.conv._ConvNd
InstanceNorm = torch.nn.modules.instancenorm._InstanceNorm
SpectralNorm = torch.nn.utils.parametrizations._SpectralNorm

get_cudnn_enabled: Any = torch._C._get_cudnn_enabled
set_cudnn_enabled: Any = torch._C._set_cudnn_enabled
# of one kind of product on one kind of device
get_fp32_precision: Any = torch._C._get_fp32_precision_getter
set_fp32_precision: Any = torch._C._set_fp32_precision_setter

# operations, and kernels of operations, that Python code has defined, by name
python_definitions: Any = torch.library._defs
python_kernels: Any = torch.library._impls
# torch's own rules in Python are such kernels, too: all are there before anybody looks
lazy_load_decompositions()


def was_changed_in_place(tensor: Any) -> bool:
    """Return whether a traced function changed a tensor that `dispatch_functionalize` gave it."""
    # torch states no types of what it defines in C++
    changed: Any = torch._functionalize_has_data_mutation  # type: ignore[attr-defined]
    return bool(changed(tensor.elem))


def memory_address(tensor: torch.Tensor) -> int:
    """Return a number that tensors in the same memory share, views and aliases."""
    return int(tensor.untyped_storage()._cdata)
