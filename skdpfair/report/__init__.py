"""Reports: frames -> dict -> template -> one self-contained page; and model cards."""

from skdpfair.report._model import model_card, model_page
from skdpfair.report._results import results_page

__all__ = ["model_card", "model_page", "results_page"]
