"""Reports: frames -> dict -> template -> one self-contained page."""

from skdpfair.report._results import results_page

__all__ = ["results_page"]
