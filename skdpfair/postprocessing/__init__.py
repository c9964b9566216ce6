"""Thresholds, parity and calibration within the privacy budget."""

from skdpfair.postprocessing._threshold import DPThresholdClassifier

__all__ = ["DPThresholdClassifier"]
