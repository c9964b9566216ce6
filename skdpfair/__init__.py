"""Private, group-aware classifiers and regressors for scikit-learn."""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skdpfair._networks import MLP, Factory
    from skdpfair.estimators.classifier import DPFairClassifier
    from skdpfair.estimators.regressor import DPFairRegressor
    from skdpfair.inputs.groups import Groups
    from skdpfair.inputs.persons import Persons
    from skdpfair.methods._registry import get_method
    from skdpfair.release._release import load_release
    from skdpfair.training.dask import fit_on_dask

__version__ = "1.0.0"  # which pyproject.toml reads

__all__ = [
    "MLP",
    "DPFairClassifier",
    "DPFairRegressor",
    "Factory",
    "Groups",
    "Persons",
    "__version__",
    "fit_on_dask",
    "get_method",
    "load_release",
]

# imported when they are asked for, so that the command line need not wait for torch
_HOMES = {
    "MLP": "skdpfair._networks",
    "DPFairClassifier": "skdpfair.estimators.classifier",
    "DPFairRegressor": "skdpfair.estimators.regressor",
    "Factory": "skdpfair._networks",
    "Groups": "skdpfair.inputs.groups",
    "Persons": "skdpfair.inputs.persons",
    "fit_on_dask": "skdpfair.training.dask",
    "get_method": "skdpfair.methods._registry",
    "load_release": "skdpfair.release._release",
}


def __getattr__(name):
    if name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
    elif not name.startswith("_") and find_spec(f"{__name__}.{name}") is not None:
        value = import_module(f"{__name__}.{name}")
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__():
    return sorted({*globals(), *__all__})
