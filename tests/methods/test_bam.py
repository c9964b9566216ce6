"""BAM: each gradient is taken uphill along itself, then clipped."""

from functools import partial

import torch

from benchmarks.papers.knolle import ExactBAM
from tests.methods.formula_steps import DPSGD, assert_steps, clip, releases


class BAM(DPSGD):
    params = {"max_grad_norm": 0.8, "perturbation_radius": 0.1}

    def step(self, theta, batch):
        slopes = self.gradients(theta, batch)
        ahead = [theta + 0.1 * g / g.norm() for g in slopes]
        rows = (self.p.gradient(at, i) for at, i in zip(ahead, batch, strict=True))
        return self.noisy_mean(clip(g, 0.8) for g in rows)


class Exact(BAM):
    """Equation 13, with the whole Hessian of each record's loss."""

    def step(self, theta, batch):
        rows = []
        for i in batch.tolist():
            g = self.p.gradient(theta, i)
            hessian = torch.autograd.functional.hessian(partial(self.p.loss, i=i), theta)
            rows.append(clip(g + 0.1 * hessian @ g / g.norm(), 0.8))
        return self.noisy_mean(rows)


def test_bam_steps_are_those_of_the_formula():
    assert_steps("bam", BAM)
    assert releases("bam", max_grad_norm=0.75) == {"gradient sum": (0.75, 2.0)}


def test_exact_bam_steps_are_those_of_the_hessian():
    assert_steps(ExactBAM, Exact)
