"""Audits: lower bounds of what a step or a fit spends, and what an artefact gives away."""

from skdpfair.audit._artifact import audit_artifact
from skdpfair.audit._findings import ArtifactFinding, ArtifactReport
from skdpfair.audit._fit_audit import FitAudit, audit_fit
from skdpfair.audit._step_audit import StepAudit, audit_step

__all__ = [
    "ArtifactFinding",
    "ArtifactReport",
    "FitAudit",
    "StepAudit",
    "audit_artifact",
    "audit_fit",
    "audit_step",
]
