"""What a model page shows of a fit beside its privacy report."""

from skdpfair.privacy.statement import percent
from skdpfair.report._charts import tradeoff

FEATURES, THRESHOLD = "public features", "threshold of the probability"
POSITIVE = "positive class"
FILE, SIZE, DAY = "SHA-256 of the file", "size of the file", "day of training"
SELECTION = (
    "The best of a random number of trials was released. The costliest trial has {} steps with "
    "sampling rate {} and noise {}. The number of trials and their scores are secret."
)
_FALSE_ALARMS = (0.0, 0.1, 0.5, 1.0, 2.0, 5.0, *range(10, 101, 10))  # per cent


def attacker(privacy):
    """Return a chart of what a private fit lets an attacker find, rounded up."""
    curve = [(a, float(percent(privacy.detection_rate(a / 100)))) for a in _FALSE_ALARMS]
    return tradeoff(curve, protects=privacy.protects)
