"""State of the previous fit, for ``warm_start=True``."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from torch import nn

from skdpfair._networks import curves
from skdpfair.engine.mechanism import Method
from skdpfair.features import Scattering2D
from skdpfair.inputs.rows import refuse_other_scale
from skdpfair.inputs.table import Table
from skdpfair.methods._registry import get_method
from skdpfair.privacy.privacy_report import PROTECTS, PrivacyReport


@dataclass(frozen=True)
class PreviousFit:
    """Module, method and report of the fit before this one."""

    module: nn.Module  # with its trained weights
    method: Method  # with the bounds that were set
    lr: float | None  # None if it was never set, or belongs to another method
    privacy: PrivacyReport  # what was spent so far
    n_fits: int
    n_steps: int
    ledger_fits: tuple[str | None, ...]  # names in ledgers; None for a fit that none recorded
    persons: str | None = None  # name of the column of the persons, if one had it
    # of `Curves`
    fine: tuple[int, ...] = ()
    pairs: tuple[tuple[int, ...], ...] = ()


def previous_fit(
    estimator: BaseEstimator,
    fresh: BaseEstimator,
    table: Table,
    features: Scattering2D | None = None,
) -> PreviousFit | None:
    """Return the fit that ``estimator`` holds, or None if it was never fitted.

    ``fresh`` is its copy that has read the new ``table``.  Raises ValueError if classes, groups or
    features changed, or if the model keeps no releases to compose with.
    """
    if not hasattr(estimator, "net_"):
        return None
    report: PrivacyReport = estimator.privacy_
    if report.is_private and not report.releases:
        raise ValueError(
            "warm_start=True composes with the releases before, but this model comes from a "
            f"{report.method}, which keeps none to compose with. Fit a clone of it."
        )
    _check_same_form(estimator, fresh, table, features)
    is_same_method = type(get_method(estimator.method)) is type(estimator.method_)
    factory = estimator.net_.module
    n_steps = getattr(estimator.net_, "steps_before_", 0) + estimator.n_steps_
    return PreviousFit(
        module=estimator.net_.module_,
        method=estimator.method_,
        lr=estimator.lr_ if is_same_method and estimator._has_scale else None,
        privacy=report,
        n_fits=estimator._n_fits,
        n_steps=report.steps if report.releases else n_steps,
        ledger_fits=getattr(estimator, "_ledger_fits", (None,) * estimator._n_fits),
        persons=getattr(estimator, "_persons", None),
        fine=factory.params["fine"] if factory.make is curves else (),
        pairs=factory.params.get("pairs", ()) if factory.make is curves else (),
    )


def _check_same_form(
    estimator: BaseEstimator, fresh: BaseEstimator, table: Table, features: Scattering2D | None
) -> None:
    before = getattr(estimator, "_persons", None)
    same: dict[str, tuple[Any, ...]] = {
        "features of pictures": tuple(f and f.described for f in (estimator.features_, features)),
        "what the guarantee protects": (estimator.privacy_.protects, PROTECTS[table.adjacency]),
        "column of the persons": (before or table.persons, table.persons or before),
        "classes": (getattr(estimator, "classes_", None), table.classes),
        "range of the target": (vars(estimator).get("y_range_"), vars(fresh).get("y_range_")),
        "groups": (estimator.levels_, table.groups.levels),
        "number of features": (estimator.n_features_in_, fresh.n_features_in_),
    }
    if hasattr(estimator, "feature_names_in_") and hasattr(fresh, "feature_names_in_"):
        same["names of the features"] = estimator.feature_names_in_, fresh.feature_names_in_
    for what, (old, new) in same.items():
        if not np.array_equal(np.asarray(old), np.asarray(new)):
            raise ValueError(
                f"warm_start=True continues with a fitted model, but the {what} changed. Use "
                "warm_start=False, or data of the same form."
            )
    refuse_other_scale(getattr(estimator, "_scale", None), fresh._scale, table.x)
