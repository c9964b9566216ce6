"""Private, group-aware classifiers for scikit-learn."""

from skdpfair.estimator import DPFairClassifier
from skdpfair.methods import METHODS, get_method
from skdpfair.release import load_release

__version__ = "0.1.0.dev0"

__all__ = ["METHODS", "DPFairClassifier", "__version__", "get_method", "load_release"]
