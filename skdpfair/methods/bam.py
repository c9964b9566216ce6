"""BAM: clip gradients that each record takes a step ahead, where its loss is higher."""

from dataclasses import dataclass

import torch

from skdpfair.engine.mechanism import (
    EarlySample,
    GradientTerm,
    NoisySums,
    State,
)
from skdpfair.methods._clipping import NOT_NEGATIVE, ClippedMethod


@dataclass(kw_only=True, repr=False, eq=False)
class BAM(ClippedMethod, name="bam", reference="knolle2023bias"):
    r"""Clip :math:`g'_i = \nabla \ell_i(\theta + \lambda g_i / \lVert g_i \rVert)` to C.

    The sharpness of each record's own loss counts, so that training seeks places where clipping
    biases the sum less.  Both gradients of a record depend on that record only.  Released each
    step: the gradient sum, of sensitivity C, with noise ``noise_multiplier`` C.

    :math:`g'_i` is equation 14, an approximation of the gradient at :math:`\theta` of
    :math:`\ell_i + \lambda \lVert g_i \rVert` (equation 10).  ``exact=True`` takes that gradient
    itself, :math:`g_i + \lambda \nabla^2 \ell_i \, g_i / \lVert g_i \rVert` (equation 13).  Line 3
    of the printed Algorithm 2 takes the gradient of the sum at the point ahead, which would count
    the term twice.

    Parameters
    ----------
    perturbation_radius : float >= 0, default=0.02
        :math:`\lambda`, how far ahead; 0 is DP-SGD.
    exact : bool, default=False
        Whether to take equation 13 instead of equation 14.  It needs a Hessian-vector product per
        record, memory of batch size times parameters, and records that are no persons.

    References
    ----------
    Knolle et al., "Bias-Aware Minimisation: Understanding and Mitigating Estimator Bias in
    Private SGD", 2023, equations 10, 13, 14 and Algorithm 2.

    Examples
    --------
    >>> from skdpfair.testing import per_sample
    >>> method = BAM(max_grad_norm=1.0, perturbation_radius=0.05)
    >>> method.per_sample_perturbation_radius()
    0.05
    >>> method.clip(per_sample(norm=[4.0, 0.5]), None, {})  # norms are those of g'
    Clip(weight=tensor([0.2500, 1.0000]), bound=tensor(1.))
    """

    perturbation_radius: float = 0.02
    exact: bool = False

    _parameter_constraints = {"perturbation_radius": NOT_NEGATIVE, "exact": ["boolean"]}

    @property
    def takes_units(self) -> bool:  # type: ignore[override]  # follows from a parameter
        """Whether records may be persons with several records."""
        return not self.exact

    def per_sample_perturbation_radius(self) -> float:
        """Return lambda, or 0 where the gradient is exact."""
        return 0.0 if self.exact else self.perturbation_radius

    @property
    def sees_gradients(self) -> bool:  # type: ignore[override]
        """Whether the gradient is exact, which needs the one of the loss first."""
        return self.exact

    changes_gradients = sees_gradients

    def gradient_term(
        self, sample: EarlySample, state: State, release: NoisySums
    ) -> GradientTerm | None:
        r"""Add :math:`\lambda \nabla^2 \ell_i \, g_i / \lVert g_i \rVert` to each gradient."""
        if not self.exact:
            return None
        scale = torch.where(sample.norm > 0, self.perturbation_radius / sample.norm, 0.0)
        nothing = torch.zeros_like(sample.probability)
        return GradientTerm(nothing, hvp_vectors=sample.gradient * scale[:, None])
