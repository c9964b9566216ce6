"""Contracts of methods and modules, and audits of fits and of files."""

from skdpfair.engine.contracts import (
    check_method,
    example_records,
    example_task,
    noiseless_releases,
)
from skdpfair.testing._check_engine import check_engine
from skdpfair.testing._fit_audit import audit_fit
from skdpfair.testing._verify_release import verify_release

__all__ = [
    "audit_fit",
    "check_engine",
    "check_method",
    "example_records",
    "example_task",
    "noiseless_releases",
    "verify_release",
]
