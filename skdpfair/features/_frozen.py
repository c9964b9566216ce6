"""A public network, frozen, as a transformer."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from skdpfair._describe import state_of
from skdpfair._files import sha256_of
from skdpfair._validate import safe_repr, visible
from skdpfair.engine.per_sample.closed_list import TraceError
from skdpfair.engine.per_sample.tracing import RecordTrace, fixed_draws
from skdpfair.exceptions import UnsupportedModuleError
from skdpfair.features._base import Extract, PublicFeatures
from skdpfair.networks import Factory, ModuleFactory

_N_PROBE = 4  # made-up records that must not meet


class FrozenFeatures(PublicFeatures):
    """Features that a public network computes; nothing is learned from the records.

    The network must have been trained on PUBLIC records only: this is declared, not checked, and
    reports of fits on the features say so, with a digest of the weights.  It runs in evaluation
    mode, without gradients, so that batch normalisation uses its stored statistics.

    Parameters
    ----------
    module : torch.nn.Module, Factory, class or function
        The network, which maps (batch, ...) to features (batch, ...): a module, or what makes one,
        with its arguments in a :class:`skdpfair.Factory`.  A module, and what a function makes, may
        have its weights already, and random ones count as public; a class with parameters needs
        ``weights``.
    weights : str, path-like or None, default=None
        A file with the state of the module: safetensors, or tensors only as ``torch.save`` writes
        them.  Entries that the module does not have, such as those of a removed last layer, are
        left out; none may be missing.
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
    The features of a record follow from this record alone: the operations of the module are
    recorded on made-up records and repeated on the private ones, each by itself, so that no code
    of the module sees them.  Records of uint8 are divided by 255, and other numbers are taken as
    they are: put any other scaling that the network expects into the module, as its first layer.
    The private methods train best on features of mean 0 and variance 1: a last layer
    ``nn.LayerNorm(n_features, elementwise_affine=False)`` scales those of each record alone.

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
        module: nn.Module | Factory | Callable[..., nn.Module],
        weights: str | os.PathLike[str] | None = None,
        *,
        image_shape: tuple[int, ...] | None = None,
        cache_dir: str | os.PathLike[str] | None = None,
        device: str | torch.device = "auto",
        verbose: int = 0,
    ) -> None:
        self.module = module
        self.weights = weights
        self.image_shape = image_shape
        self.cache_dir = cache_dir
        self.device = device
        self.verbose = verbose

    @property
    def digest(self) -> str:
        """SHA-256 of the network's tensors: names, types, shapes and bytes."""
        return sha256_of({k: t.numpy(force=True) for k, t in self._network().state_dict().items()})

    @property
    def described(self) -> str:
        """What computes the features, and why that costs no privacy."""
        name, sha256 = type(self._network()).__name__, self.digest[:16]
        return f"FrozenFeatures({name}), sha256 {sha256}, public by declaration"

    def _facts(self) -> dict[str, Any]:
        return {"sha256": self.digest, "code": state_of(self._network())}

    def _extractor(self, shape: tuple[int, ...]) -> Extract:
        """Return the module as a function of a batch in which no record meets another.

        Its code sees made-up records only: what it did with them is repeated on the private ones.
        """
        device = torch.device(self.used_device)
        module = self._network().to(device)
        named = dict(module.named_parameters()) | dict(module.named_buffers())
        names, tensors, traced = list(named), list(named.values()), copy.deepcopy(module)

        def one(*args: Tensor) -> Tensor:
            *values, x = args
            state = dict(zip(names, values, strict=True))
            features: Tensor = functional_call(traced, state, (x[None].clone(),))[0]
            return features

        try:
            trace = RecordTrace(one, tensors, [torch.full(shape, 0.5, device=device)])
            if trace.draws:
                raise TraceError("it draws random numbers")
        except TraceError as error:
            raise UnsupportedModuleError(
                f"module cannot run on one record at a time: {error}. Use tensor operations such "
                "as torch.where instead of branches on values, keep no state between calls, and "
                "draw no random numbers."
            ) from None
        probe = torch.rand((_N_PROBE, *shape), generator=torch.Generator().manual_seed(0))
        alone, together = trace(None, tensors, probe.to(device)), module(probe.to(device))
        is_same = (
            isinstance(together, Tensor) and together.shape == alone.shape and together.ndim > 1
        )
        if not is_same or not torch.allclose(together, alone, 1e-3, 1e-5, True):
            raise UnsupportedModuleError(
                "module mixes the records of a batch. Make it return features (batch, ...), each "
                "row a function of its own input row only."
            )
        return lambda x: trace(None, tensors, x).flatten(1)

    def _network(self) -> nn.Module:
        """Return a frozen copy of the module, with its weights."""
        module = self.module
        if not isinstance(module, nn.Module):
            if not callable(module) and not isinstance(module, Factory):
                raise TypeError(
                    "module must be a torch.nn.Module, or a class, function or Factory that makes "
                    f"one, got {safe_repr(module)}."
                )
            factory = module if isinstance(module, Factory) else Factory(module)
            # the same weights in each call, where they are drawn at random
            with fixed_draws(torch.device("cpu")):
                module = ModuleFactory(factory.make, factory.params, ())()
            is_drawn = isinstance(factory.make, type) and any(True for _ in module.parameters())
            if is_drawn and self.weights is None:
                raise ValueError(
                    f"module={factory.make.__name__} is a class, whose weights would be drawn at "
                    "random. Give weights=, a module that has its weights, or a function that "
                    "loads them."
                )
        if any(isinstance(m, torch.jit.ScriptModule) for m in module.modules()):
            raise TypeError(
                "module holds a torch.jit.ScriptModule, which cannot be traced. Give the module "
                "that it was made from, or one from torch.export."
            )
        module = copy.deepcopy(module)
        if self.weights is not None:
            _load(module, Path(self.weights))
        return module.float().eval().requires_grad_(False)


def _load(module: nn.Module, path: Path) -> None:
    """Load the state of a module from a file."""
    if not path.is_file():
        raise ValueError(f"weights={str(path)!r} is not a file. Give the path of one.")
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            state: Any = load_file(path)
        else:
            state = torch.load(path, map_location="cpu", weights_only=True)
    except ImportError:
        raise ImportError(
            "weights in a .safetensors file need: pip install 'skdpfair[release]'."
        ) from None
    except Exception as error:  # of torch or safetensors, in many lines
        state = error
    if not isinstance(state, Mapping):
        raise ValueError(
            f"weights={path.name!r} cannot be read as tensors by name ({type(state).__name__}). "
            "Write them by torch.save(module.state_dict(), FILE), or as safetensors."
        )
    try:
        missing = module.load_state_dict(state, strict=False).missing_keys
    except RuntimeError as error:
        reason = visible(str(error).strip().splitlines()[-1].strip()).rstrip(".")
        raise ValueError(
            f"weights={path.name!r} does not fit the module: {reason}. Make the module with the "
            "sizes of the trained one."
        ) from None
    if missing:
        raise ValueError(
            f"weights={path.name!r} lacks {safe_repr(missing)} of the module, and has "
            f"{safe_repr(list(state))}. Save the module's own tensors, by the names that it has."
        )
