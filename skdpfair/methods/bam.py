"""BAM: clip each record's gradient taken one step ahead, where its loss is higher."""

from dataclasses import dataclass

from skdpfair.methods._clipping import NOT_NEGATIVE, ClippedMethod


@dataclass(kw_only=True, repr=False, eq=False)
class BAM(ClippedMethod, name="bam", reference="knolle2023bias"):
    r"""Clip :math:`g'_i = \nabla \ell_i(\theta + \lambda g_i / \lVert g_i \rVert)` to C.

    The sharpness of each record's own loss counts, so that training prefers weights where clipping
    biases the sum less.  Both gradients of a record depend on that record only.  Released each
    step: the gradient sum, of sensitivity C, with noise ``noise_multiplier`` C.

    :math:`g'_i` is equation 14, an approximation of the gradient at :math:`\theta` of
    :math:`\ell_i + \lambda \lVert g_i \rVert` (equations 10 and 13).  Line 3 of the printed
    Algorithm 2 takes the gradient of the sum at the point ahead, which would count the term twice.

    Parameters
    ----------
    perturbation_radius : float >= 0, default=0.02
        :math:`\lambda`, how far ahead; 0 is DP-SGD.

    References
    ----------
    Knolle et al., "Bias-Aware Minimisation: Understanding and Mitigating Estimator Bias in
    Private SGD", 2023, equations 10, 13, 14 and Algorithm 2.

    Examples
    --------
    >>> from skdpfair.testing import example_records
    >>> method = BAM(max_grad_norm=1.0, perturbation_radius=0.05)
    >>> method.per_sample_perturbation_radius()
    0.05
    >>> method.clip(example_records(norm=[4.0, 0.5]), None, {})  # norms are those of g'
    Clip(weight=tensor([0.2500, 1.0000]), bound=tensor(1.))
    """

    perturbation_radius: float = 0.02

    _parameter_constraints = {"perturbation_radius": NOT_NEGATIVE}

    def per_sample_perturbation_radius(self) -> float:
        return self.perturbation_radius
