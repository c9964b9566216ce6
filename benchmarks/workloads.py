"""Workloads of the benchmarks: four models of the papers, on random data of the right shape."""

import numpy as np
import torch
from torch import nn

from skdpfair._networks import small_cnn
from skdpfair.engine import PoissonSampler

# name -> (records, shape of one, expected batch, classes, module)
WORKLOADS = {
    "Adult MLP": (22400, (98,), 256, 2, lambda: mlp(98, 256)),
    "Dutch logistic": (48000, (60,), 256, 2, lambda: nn.Linear(60, 2)),
    "MNIST CNN": (6000, (1, 28, 28), 256, 10, lambda: small_cnn((28, 28), 10)),
    "64x64 CNN": (1000, (3, 64, 64), 64, 2, lambda: small_cnn((3, 64, 64), 2)),
}


def mlp(features, width, classes=2):
    """Return the MLP of the papers; 91,650 parameters at their sizes."""
    return nn.Sequential(
        nn.Linear(features, width),
        nn.Tanh(),
        nn.Linear(width, width),
        nn.Tanh(),
        nn.Linear(width, classes),
    )


class Workload:
    """Random data, a module, and Poisson batches that all engines share."""

    def __init__(self, n, shape, batch, n_classes, module, n_groups=2, device="cpu"):
        rng = np.random.default_rng(0)
        self.n, self.batch, self.n_classes, self.n_groups = n, batch, n_classes, n_groups
        self.x = rng.standard_normal((n, *shape), dtype=np.float32)
        noise = rng.standard_normal(n)
        self.y = np.digitize(self.x.reshape(n, -1)[:, 0] + noise, np.linspace(-1, 1, n_classes - 1))
        self.group = rng.integers(0, n_groups, n)
        self.device = torch.device(device)
        self.make = module if len(shape) != 3 or shape[0] != 1 else unsqueezed(module)
        sampler = PoissonSampler(batch / n, n, np.random.default_rng(1))
        self.batches = sampler.draw(max(8, min(88, n // batch)))

    @classmethod
    def named(cls, name, **changes):
        """Return one of ``WORKLOADS``."""
        sizes = dict(
            zip(("n", "shape", "batch", "n_classes", "module"), WORKLOADS[name], strict=True)
        )
        return cls(**sizes | changes)

    def tensors(self):
        """Return features, labels and groups."""
        return [torch.from_numpy(a).to(self.device) for a in (self.x, self.y, self.group)]

    def module(self):
        """Return a fresh module on the device."""
        return self.make().to(self.device)

    @property
    def n_parameters(self):
        """Number of parameters of the module."""
        return sum(p.numel() for p in self.make().parameters())

    def turn(self):
        """Yield the batches over and over."""
        batches = [index.to(self.device) for index in self.batches]
        while True:
            yield from batches


def unsqueezed(module):
    """Return a factory whose module takes (batch, 1, height, width)."""
    return lambda: nn.Sequential(*[m for m in module() if not isinstance(m, nn.Unflatten)])
