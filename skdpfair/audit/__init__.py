"""Audits: lower bounds of what a step or a fit spends, and what an artefact gives away."""

from skdpfair.audit._artifacts._artifact import audit_artifact
from skdpfair.audit._artifacts._findings import ArtifactReport, Finding
from skdpfair.audit._fit import FitAudit, audit_fit
from skdpfair.audit._step import StepAudit, audit_step

__all__ = [
    "ArtifactReport",
    "Finding",
    "FitAudit",
    "StepAudit",
    "audit_artifact",
    "audit_fit",
    "audit_step",
]
