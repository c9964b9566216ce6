"""Diagnostics on your own data: why private training costs one group more."""

from skdpfair.analysis._recorder import GroupRecorder

__all__ = ["GroupRecorder"]
