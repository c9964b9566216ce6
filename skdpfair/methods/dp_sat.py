"""DP-SAT: take gradients uphill along the last noisy gradient, for flatter minima."""

from dataclasses import dataclass

from torch import Tensor
from torch.linalg import vector_norm

from skdpfair.engine.mechanism import NoisySums
from skdpfair.methods._clipping import NOT_NEGATIVE, ClippedMethod


@dataclass(kw_only=True, repr=False, eq=False)
class DPSAT(ClippedMethod, name="dp_sat", reference="park2023differentially"):
    r"""Clip :math:`\nabla \ell_i(\theta + \rho \tilde g / \lVert \tilde g \rVert)` to C.

    :math:`\tilde g` is the noisy gradient released one step before, so the ascent is
    post-processing and costs nothing; the first step has no ascent.  Released each step: the
    gradient sum, of sensitivity C, with noise ``noise_multiplier`` C.

    Parameters
    ----------
    perturbation_radius : float >= 0, default=0.05
        :math:`\rho`, how far uphill; 0 is DP-SGD.

    References
    ----------
    Park et al., "Differentially Private Sharpness-Aware Training", ICML 2023; Knolle et al.,
    "Bias-Aware Minimisation", 2023.

    Examples
    --------
    >>> import torch
    >>> method = DPSAT(perturbation_radius=0.5)
    >>> state = method.update(None, {"gradient": torch.tensor([3.0, 4.0])})
    >>> method.parameter_perturbation(None), method.parameter_perturbation(state)
    (None, tensor([0.3000, 0.4000]))
    """

    perturbation_radius: float = 0.05

    _parameter_constraints = {"perturbation_radius": NOT_NEGATIVE}

    def parameter_perturbation(self, state: Tensor | None) -> Tensor | None:
        """Return rho times the direction of the last released gradient."""
        return None if state is None else self.perturbation_radius * state

    def update(self, state: Tensor | None, release: NoisySums) -> Tensor:
        """Keep the direction of the released gradient; none where it is zero."""
        gradient = release["gradient"]
        direction: Tensor = gradient / vector_norm(gradient)
        return direction.nan_to_num(0.0, posinf=0.0, neginf=0.0)
