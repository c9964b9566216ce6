"""A public network, frozen, as a transformer."""

import copy
from dataclasses import KW_ONLY, dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call

from skdpfair._networks import has_channels_last, plain_copy
from skdpfair._utils.files import sha256_of
from skdpfair._utils.validate import safe_repr
from skdpfair.engine.per_sample.proof import RecordTrace, TraceError
from skdpfair.exceptions import UnsupportedModuleError
from skdpfair.features._public_features import Extract, PublicFeatures

_N_PROBE = 4  # made-up records that must not meet


@dataclass(repr=False, eq=False)
class FrozenFeatures(PublicFeatures):
    """Features that a public network computes; nothing is learned from the records.

    The network must have been trained on PUBLIC records only: this is declared, not checked, and
    reports of fits on the features say so, with a digest of the weights.  It runs in evaluation
    mode, without gradients, so that batch normalisation uses its stored statistics.

    Parameters
    ----------
    module : torch.nn.Module
        The network with its weights, which maps (batch, ...) to features (batch, ...).
    image_shape : tuple of int or None, default=None
        Shape of a record, if X holds flat rows of its numbers.
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
    of the module sees them.  Records of uint8 are divided by 255; any other scaling that the
    network expects must be its first layer.  The private methods train best on features of mean 0
    and variance 1, as a last ``nn.LayerNorm(n_features, elementwise_affine=False)`` makes them.

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

    module: nn.Module
    _: KW_ONLY
    image_shape: tuple[int, ...] | None = None
    device: str | torch.device = "auto"
    verbose: int = 0

    @property
    def digest(self) -> str:
        """SHA-256 of the network's tensors: names, types, shapes and bytes."""
        return sha256_of({k: t.numpy(force=True) for k, t in self._network().state_dict().items()})

    @property
    def described(self) -> str:
        """Description of the network, and why it costs no privacy."""
        name, sha256 = type(self._network()).__name__, self.digest[:16]
        return f"FrozenFeatures({name}), sha256 {sha256}, public by declaration"

    def _extractor(self, shape: tuple[int, ...]) -> Extract:
        """Return the module as a function of a batch in which no record meets another.

        Its code sees made-up records only: what it did with them is repeated on the private ones.
        """
        device = torch.device(self.used_device)
        probe = torch.rand((_N_PROBE, *shape), generator=torch.Generator().manual_seed(0))
        self._check_takes(probe.to(device))
        # stored statistics and weights are inputs of the trace, so that they are no constants of it
        module = self._network().to(device)
        tensor_of = dict(module.named_parameters()) | dict(module.named_buffers())
        names, tensors, traced = list(tensor_of), list(tensor_of.values()), copy.deepcopy(module)

        def one(*args: Tensor) -> Tensor:
            *values, x = args
            state = dict(zip(names, values, strict=True))
            return functional_call(traced, state, (x[None].clone(),))[0]

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
        # a batch must give what each record gives alone, or the features would not be the network's
        alone, together = trace(None, tensors, probe.to(device)), module(probe.to(device))
        alike = isinstance(together, Tensor) and together.shape == alone.shape and together.ndim > 1
        if not alike or not torch.allclose(together, alone, 1e-3, 1e-5, True):
            raise UnsupportedModuleError(
                "module mixes the records of a batch. Make it return features (batch, ...), each "
                "row a function of its own input row only."
            )
        return lambda x: trace(None, tensors, x).flatten(1)

    def _check_takes(self, probe: Tensor) -> None:
        """Raise ValueError, which names the wrong axis, if the module fails on made-up records."""
        shape = tuple(probe.shape[1:])
        remedy = {
            1: " Flat rows need image_shape=.",
            2: " Where it takes a channel, give X[:, None].",
            3: " Their channels are last: X.transpose(0, 3, 1, 2)." * has_channels_last(shape),
        }
        try:
            self._network().to(probe.device)(probe)
        except (RuntimeError, ValueError, IndexError) as error:
            raise ValueError(
                f"module fails on records of shape {shape}: {error}.{remedy.get(len(shape), '')}"
            ) from error

    def _network(self) -> nn.Module:
        """Return a frozen copy of the module."""
        if not isinstance(self.module, nn.Module):
            raise TypeError(
                "module must be a torch.nn.Module that has its weights, got "
                f"{safe_repr(self.module)}."
            )
        # its compiled code has no operations that a trace could record
        if any(isinstance(m, torch.jit.ScriptModule) for m in self.module.modules()):
            raise TypeError(
                "module holds a torch.jit.ScriptModule, which cannot be traced. Give the module "
                "that it was made from, or one from torch.export."
            )
        return plain_copy(self.module).float().eval().requires_grad_(False)
