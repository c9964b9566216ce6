"""Audits: lower bounds of what a step or a fit spends, and what a released file holds."""

from skdpfair.audit._fit_audit import audit_fit
from skdpfair.audit._step_audit import audit_step
from skdpfair.audit._verify_release import verify_release

__all__ = ["audit_fit", "audit_step", "verify_release"]
