"""Seeds of a fit: entropy of the operating system, or random_state and a digest of the data."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import torch

from skdpfair._utils.describe import describe, digest
from skdpfair.engine import Streams
from skdpfair.inputs.rows import SparseRows
from skdpfair.inputs.table import Table
from skdpfair.training.callbacks import without_names
from skdpfair.training.spec import FitSpec
from skdpfair.training.warm_start import PreviousFit

# what cannot change the weights of a fit, has no stable description, or follows from the records
_NOT_IN_DIGEST = {
    *("verbose", "device", "distributed", "random_state", "keep_reference", "has_groups"),
    *("groups", "classes", "score_budget_fraction", "estimator"),
}


def streams_of(spec: FitSpec, table: Table, previous: PreviousFit | None) -> tuple[Streams, bool]:
    """Return the streams of a fit, and whether they are seeded."""
    state = spec.random_state
    if state is None:
        return Streams.fresh(), False
    if isinstance(state, np.random.RandomState):
        state = state.randint(2**31 - 1)
    elif isinstance(state, np.random.Generator):
        state = state.integers(2**63 - 1)
    # what is not chosen is left out, so that a parameter that is added moves no seeded fit
    plain = described(spec.without_choices())
    facts = {name: text for name, text in described(spec).items() if text != plain.get(name)}
    # declared or discovered, they act by the codes of the records, and by those that no record has
    known = {"groups": (table.groups.n_groups, table.groups.code)}
    if table.classes is not None:
        known["classes"] = table.n_outputs, table.y
    facts |= {k: str(None if n == len(np.unique(c)) else n) for k, (n, c) in known.items()}
    x = table.x.numpy(force=True) if torch.is_tensor(table.x) else table.x
    if isinstance(x, SparseRows):
        rows = [x.shape, x.matrix.indptr, x.matrix.indices, x.matrix.data]
    else:
        rows = [np.asarray(x)]
    # no two fits in a row share their noise
    past = () if previous is None else _past(previous)
    more = [column for column in (table.weight, table.person) if column is not None]
    mixed = digest(*rows, table.y, table.groups.code, sorted(facts.items()), *more, *past)
    return Streams.seeded(int(state), digest=mixed), True


def described(spec: FitSpec) -> dict[str, str]:
    """Return descriptions of what acts on the weights of a fit, besides its records."""
    acting = {f.name: getattr(spec, f.name) for f in fields(spec) if f.name not in _NOT_IN_DIGEST}
    acting |= {"callbacks": _acting(spec.callbacks), "as_feature": spec.groups.as_feature}
    acting |= {"columns": spec.groups.columns}
    return {name: describe(value) for name, value in acting.items()}


def _acting(callbacks: Sequence[Any] | None) -> list[Any] | None:
    """Return the callbacks that may change a fit: all but recorders; None if none is left."""
    kinds = zip(callbacks or (), map(type, without_names(callbacks)), strict=True)
    return [c for c, kind in kinds if not vars(kind).get("leaves_fits_unchanged", False)] or None


def _past(previous: PreviousFit) -> tuple[object, ...]:
    weights = [w.numpy(force=True) for w in previous.module.state_dict().values()]
    return (*weights, describe((previous.n_fits, previous.method, previous.privacy.releases)))
