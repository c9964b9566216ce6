"""Audits and diagnostics on your own data: what a fit spends, and why it costs one group more."""

from skdpfair.analysis._fit_audit import audit_fit
from skdpfair.analysis._recorder import GroupRecorder
from skdpfair.analysis._step_audit import audit_step
from skdpfair.analysis._verify_release import verify_release

__all__ = ["GroupRecorder", "audit_fit", "audit_step", "verify_release"]
