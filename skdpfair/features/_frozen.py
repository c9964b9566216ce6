"""A public network, frozen, as a transformer."""

from __future__ import annotations

import copy
import hashlib
import os
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from skdpfair._describe import state_of
from skdpfair._validate import error_context, safe_repr, visible
from skdpfair.engine.per_sample.closed_list import TraceError
from skdpfair.engine.per_sample.tracing import RecordTrace, fixed_draws
from skdpfair.exceptions import UnsupportedModuleError
from skdpfair.features._base import Extract, PublicFeatures

_N_PROBE = 4
_LONGEST = 300  # of a line of torch
_NEEDS_ONNX = "FrozenFeatures of an .onnx file needs: pip install 'skdpfair[onnx]'."
_NEEDS_SAFETENSORS = "weights in a .safetensors file need: pip install 'skdpfair[release]'."


class FrozenFeatures(PublicFeatures):
    """Features that a public network computes; nothing is learned from the records.

    The network must have been trained on PUBLIC records only: this is declared, not checked, and
    reports of fits on the features say so, with a digest of the weights.  It runs in evaluation
    mode, without gradients, so that batch normalisation uses its stored statistics.

    Parameters
    ----------
    module : torch.nn.Module, callable, str or path-like
        The network, which maps (batch, ...) to features (batch, ...): a module, a class or function
        that makes one, or a TorchScript (``.pt``) or ONNX (``.onnx``) file.  A module, and what a
        function makes, may have its weights already, and random ones count as public; a class
        with parameters needs ``weights``.
    weights : str, path-like or None, default=None
        A file with the state of the module: safetensors, or tensors only as ``torch.save`` writes
        them.  Entries that the module does not have, such as those of a removed last layer, are
        left out; none may be missing.
    module_params : dict or None, default=None
        Keyword arguments, where ``module`` is a class or function.
    image_shape : tuple of int or None, default=None
        Shape of the records, if the rows of X hold their numbers one after the other.
    cache_dir : path-like or None, default=None
        A folder for memory maps of features, see :class:`Scattering2D`.
    device : str, default="auto"
        Device of torch; "auto" is "cuda" if there is one, else "cpu".
    verbose : int, default=0
        1 shows a progress bar.

    Attributes
    ----------
    in_shape_ : tuple of int
        Shape of the records of ``fit``.

    Notes
    -----
    The features of a record follow from this record alone: the operations of a module are
    recorded on made-up records and repeated on the private ones, each by itself, so that no code
    of the module sees them.  The code of files gets one record at a time, and is tried on made-up
    records: only use files that you trust to keep nothing.  Records of uint8 are divided by 255,
    and other numbers are taken as they are: put any other scaling that the network expects into
    the module, as its first layer.  The private methods train best on features of mean 0 and
    variance 1: a last layer ``nn.LayerNorm(n_features, elementwise_affine=False)`` scales those of
    each record alone.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpfair.features import FrozenFeatures
    >>> layers = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(2)
    >>> frozen = FrozenFeatures(nn.Sequential(*layers))
    >>> frozen.fit_transform(np.zeros((5, 3, 32, 32), np.float32)).shape
    (5, 32)
    >>> frozen.described
    'FrozenFeatures(Sequential), sha256 ..., public by declaration'
    """

    def __init__(
        self,
        module: nn.Module | Callable[..., nn.Module] | str | os.PathLike[str],
        weights: str | os.PathLike[str] | None = None,
        *,
        module_params: Mapping[str, Any] | None = None,
        image_shape: tuple[int, ...] | None = None,
        cache_dir: str | os.PathLike[str] | None = None,
        device: str | torch.device = "auto",
        verbose: int = 0,
    ) -> None:
        self.module = module
        self.weights = weights
        self.module_params = module_params
        self.image_shape = image_shape
        self.cache_dir = cache_dir
        self.device = device
        self.verbose = verbose

    @property
    def digest(self) -> str:
        """SHA-256 of the network: of its file, or of its tensors by name."""
        if self._is_file:
            return hashlib.sha256(self._path.read_bytes()).hexdigest()
        return digest_of(self._network())

    @property
    def described(self) -> str:
        """What computes the features, and why that costs no privacy."""
        name = self._path.name if self._is_file else type(self._network()).__name__
        return f"FrozenFeatures({name}), sha256 {self.digest[:16]}, public by declaration"

    @property
    def _is_file(self) -> bool:
        return isinstance(self.module, (str, os.PathLike))

    @property
    def _path(self) -> Path:
        assert isinstance(self.module, (str, os.PathLike))
        path = Path(self.module)
        if not path.is_file():
            raise ValueError(f"module={str(path)!r} is not a file. Give a file or a module.")
        if self.weights is not None or self.module_params:
            raise ValueError(
                "weights and module_params belong to a module, but module is a file, which holds "
                "its own weights. Leave them out."
            )
        return path

    def _facts(self) -> dict[str, Any]:
        return {"sha256": self.digest, "code": "" if self._is_file else state_of(self._network())}

    def _extractor(self, shape: tuple[int, ...]) -> Extract:
        if self._is_file:
            is_onnx = self._path.suffix == ".onnx"
            run = _onnx_session(self._path) if is_onnx else _script(self._path, self.used_device)
            try:
                return _flat(_one_by_one(run, shape))
            except UnsupportedModuleError:
                raise
            except Exception as error:  # many lines of TorchScript, the last of which says why
                raise UnsupportedModuleError(
                    f"module={self._path.name!r} cannot run on records of shape {shape}: "
                    f"{_line(error, 0 if is_onnx else -1)}."
                ) from None
        module = self._network().to(self.used_device)
        return _flat(_record_by_record(module, shape, self.used_device))

    def _network(self) -> nn.Module:
        """Return a frozen copy of the module, with its weights."""
        module: Any = self.module
        if not isinstance(module, nn.Module):
            if not callable(module):
                raise TypeError(
                    "module must be a torch.nn.Module, a callable that makes one, or a file, got "
                    f"{safe_repr(module)}."
                )
            # the same weights in each call, where they are drawn at random
            with (
                error_context("module", "cannot be made with module_params"),
                fixed_draws(torch.device("cpu")),
            ):
                module = module(**(self.module_params or {}))
        if not isinstance(module, nn.Module):
            raise TypeError(f"module must make a torch.nn.Module, got {type(module).__name__}.")
        if any(isinstance(m, torch.jit.ScriptModule) for m in module.modules()):
            raise TypeError(
                "module holds a torch.jit.ScriptModule. Save it by torch.jit.save, and give the "
                "file as module."
            )
        module = copy.deepcopy(module)
        if self.weights is not None:
            _load(module, Path(self.weights))
        elif isinstance(self.module, type) and next(module.parameters(), None) is not None:
            raise ValueError(
                f"module={self.module.__name__} is a class, whose weights would be drawn at "
                "random. Give weights=, a module that has its weights, or a function that loads "
                "them."
            )
        return module.float().eval().requires_grad_(False)


def digest_of(module: nn.Module) -> str:
    """Return the SHA-256 of a module's tensors: names, types, shapes and bytes.

    Examples
    --------
    >>> one, other = nn.Linear(2, 2), nn.Linear(2, 2)
    >>> digest_of(one) == digest_of(copy.deepcopy(one)), digest_of(one) == digest_of(other)
    (True, False)
    """
    sha256 = hashlib.sha256()
    for name, tensor in sorted(module.state_dict().items()):
        array = tensor.detach().cpu().contiguous().numpy()
        sha256.update(repr((name, array.dtype.str, array.shape)).encode())
        sha256.update(array.tobytes())
    return sha256.hexdigest()


def _load(module: nn.Module, path: Path) -> None:
    """Load the state of a module from a file."""
    if not path.is_file():
        raise ValueError(f"weights={str(path)!r} is not a file. Give the path of one.")
    state = _state_in(path)
    try:
        missing = module.load_state_dict(state, strict=False).missing_keys
    except RuntimeError as error:
        raise ValueError(
            f"weights={path.name!r} does not fit the module: {_line(error, -1)}. Make the module "
            "with the sizes of the trained one."
        ) from None
    if missing:
        raise ValueError(
            f"weights={path.name!r} lacks {safe_repr(missing)} of the module. "
            f"{_where_else(state, missing[0])}"
        )


def _state_in(path: Path) -> Mapping[str, Any]:
    """Return the content of a file of weights."""
    try:
        if path.suffix == ".safetensors":
            state: Any = import_module("safetensors.torch").load_file(path)
        else:
            state = torch.load(path, map_location="cpu", weights_only=True)
    except ImportError:
        raise ImportError(_NEEDS_SAFETENSORS) from None
    except Exception as error:  # of torch or safetensors, in many lines
        state = type(error)
    if not isinstance(state, Mapping):
        raise ValueError(
            f"weights={path.name!r} cannot be read as tensors by name ({_kind(state)}). Write them "
            "by torch.save(module.state_dict(), FILE), or as safetensors."
        )
    return state


def _kind(state: Any) -> str:
    """Return the name of the type that a file holds, or of the error that it raised."""
    return state.__name__ if isinstance(state, type) else type(state).__name__


def _where_else(state: Mapping[str, Any], name: str) -> str:
    """Return where else in a file a tensor of the module may be, and the remedy."""
    for key, value in state.items():
        if isinstance(value, Mapping):
            return f"The file has other tensors under {key!r}: save these alone."
        if str(key).endswith(f".{name}"):
            prefix = key.removesuffix(name)
            return f"The file's names begin with {prefix!r}: save its tensors without this prefix."
    return "Give the weights of this module."


def _line(error: Exception, which: int) -> str:
    """Return one line of an error's message."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [""]
    return visible(lines[which]).rstrip(".")[:_LONGEST]


def _record_by_record(
    module: nn.Module, shape: tuple[int, ...], device: str | torch.device
) -> Extract:
    """Return the module as a function of a batch in which no record meets another.

    Its code sees made-up records only: what it did with them is repeated on the private ones.
    """
    values = dict(module.named_parameters()) | dict(module.named_buffers())
    called = copy.deepcopy(module)

    def one(*args: Tensor) -> Tensor:
        *tensors, x = args
        named = dict(zip(values, tensors, strict=True))
        features: Tensor = functional_call(called, named, (x[None].clone(),))  # changed in place
        return features[0]

    try:
        trace = RecordTrace(one, list(values.values()), [torch.full(shape, 0.5, device=device)])
        if trace.draws:
            raise TraceError("it draws random numbers")
    except TraceError as error:
        raise UnsupportedModuleError(
            f"module cannot run on one record at a time: {error}. Use tensor operations such as "
            "torch.where instead of branches on values, keep no state between calls, and draw no "
            "random numbers."
        ) from None
    probe = torch.rand((_N_PROBE, *shape), generator=torch.Generator().manual_seed(0)).to(device)
    alone = trace(None, list(values.values()), probe)
    together = module(probe)
    if together.shape != alone.shape or not torch.allclose(together, alone, 1e-3, 1e-5, True):
        raise UnsupportedModuleError(
            "module mixes the records of a batch. Make each output row a function of its own input "
            "row only."
        )
    return lambda x: trace(None, list(values.values()), x)


def _one_by_one(run: Extract, shape: tuple[int, ...]) -> Extract:
    """Return a function that gives the code of a file one record at a time."""
    first, second = torch.rand((2, 1, *shape), generator=torch.Generator().manual_seed(0))
    if not torch.equal(run(first), (run(second), run(first))[1]):
        raise UnsupportedModuleError(
            "module remembers the records before, or draws random numbers: equal records have "
            "different features. Use a network whose output follows from its input."
        )
    return lambda x: torch.cat([run(one) for one in x.split(1)])


def _script(path: Path, device: str | torch.device) -> Extract:
    try:
        loaded: Any = torch.jit.load(str(path), map_location=device).eval()
    except Exception:  # torch speaks of archives
        raise ValueError(
            f"module={path.name!r} is not a TorchScript file. If it holds weights, pass it as "
            "weights=, and the class of the network as module=."
        ) from None

    def run(x: Tensor) -> Tensor:
        features: Tensor = copy.deepcopy(loaded)(x.to(device))  # forgets what the copy keeps
        return features

    return run


def _onnx_session(path: Path) -> Extract:
    try:
        runtime = import_module("onnxruntime")
    except ImportError:
        raise ImportError(_NEEDS_ONNX) from None
    try:
        session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    except Exception as error:
        raise ValueError(
            f"module={path.name!r} is not an ONNX file: {_line(error, 0)}. Export it again."
        ) from None
    (name,) = (argument.name for argument in session.get_inputs())

    def run(x: Tensor) -> Tensor:
        features: np.ndarray = session.run(None, {name: x.cpu().numpy()})[0]
        return torch.from_numpy(features)

    return run


def _flat(run: Extract) -> Extract:
    def flat(x: Tensor) -> Tensor:
        features = run(x)
        if not isinstance(features, Tensor) or features.ndim < 2 or len(features) != len(x):
            raise UnsupportedModuleError(
                f"module must return features (batch, ...), one row per record, got "
                f"{tuple(getattr(features, 'shape', ())) or type(features).__name__} for {len(x)}."
            )
        return features.flatten(1)

    return flat
