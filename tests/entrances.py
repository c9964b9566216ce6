"""The ways by which records reach a fit or a measure, as functions of a model and the records."""

from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from skdpfair.metrics import release_group_table
from skdpfair.model_selection import DPRandomizedSearch, DPThresholdClassifier, sweep
from skdpfair.testing import audit_fit

SWEEP = {"methods": ["dpsgd"], "epsilons": [3.0], "seeds": 1, "progress": False}


def fit_pipeline(model, X, y, **given):
    """Fit behind a step that keeps the index of the rows."""
    name = type(model).__name__.lower()
    pipeline = make_pipeline(FunctionTransformer(), model)
    return pipeline.fit(X, y, **{f"{name}__{key}": values for key, values in given.items()})


def fit_threshold(model, X, y, **given):
    return DPThresholdClassifier(model, objective="accuracy").fit(X, y, **given)


def fit_search(model, X, y, **given):
    name = f"{model.steps[-1][0]}__lr" if hasattr(model, "steps") else "lr"
    return DPRandomizedSearch(model, {name: [0.1]}, trials="geometric").fit(X, y, **given)


def run_sweep(model, X, y, **given):
    params = {"module": model.module, "max_steps": model.max_steps, **SWEEP}
    if "persons" in given:
        params["persons__max_records"] = 3
    return sweep(X, y, **given, **params)


ENTRANCES = {
    "fit": lambda model, X, y, **given: model.fit(X, y, **given),
    "pipeline": fit_pipeline,
    "threshold": fit_threshold,
    "search": fit_search,
    "sweep": run_sweep,
    "audit": lambda model, X, y, **given: audit_fit(model, X, y, 20, **given),
    "table": lambda model, X, y, **given: release_group_table(y, y, epsilon=1.0, **given),
}
