"""scikit-learn's estimators by name, and the steps that the linter finds in a pipeline."""

from types import SimpleNamespace

from sklearn.utils import all_estimators

from skdpfair.preprocessing import lint_pipeline

sk = SimpleNamespace(**dict(all_estimators()))


def steps(pipe):
    return [finding.step for finding in lint_pipeline(pipe).findings]


def class_name(value):
    return type(value).__name__
