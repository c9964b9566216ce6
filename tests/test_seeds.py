"""A seed is mixed with all that a fit reads, so that no two fits that differ share their noise."""

from dataclasses import fields, replace
from types import SimpleNamespace

import numpy as np
import pytest
from torch import nn

from skdpfair import DPFairClassifier, get_method
from skdpfair.inputs.groups import GroupCodes
from skdpfair.inputs.table import Table
from skdpfair.privacy import Release
from skdpfair.privacy.ledger import Ledger
from skdpfair.training.seeds import streams_of
from skdpfair.training.spec import FitSpec

NO_MATTER = {"verbose", "device", "distributed", "random_state"}
NO_MATTER |= {"keep_reference", "score_share"}
NO_MATTER |= {"classes", "has_groups"}  # which act by what the table makes of them
SPEC = FitSpec.of(DPFairClassifier(random_state=0))


@pytest.fixture
def table():
    x, y = np.eye(6, 3, dtype=np.float32), np.arange(6) % 2
    return Table(x, y, np.unique(y), GroupCodes(np.arange(6) % 3, list("abc"), False), [])


def entropy(spec, table, before=None):
    return streams_of(spec, table, before)[0].entropy


@pytest.mark.parametrize(
    "name", [f.name for f in fields(FitSpec) if f.name not in ("random_state", "groups")]
)
def test_fits_whose_parameters_differ_share_no_noise(name, table):
    same = entropy(replace(SPEC, **{name: "another value"}), table) == entropy(SPEC, table)
    assert same == (name in NO_MATTER)


def test_fits_on_records_that_differ_share_no_noise(table):
    x, y, code = table.x.copy(), table.y.copy(), table.groups.code.copy()
    x[3, 1], y[0], code[0] = 1e-9, 1, 2
    others = [replace(table, x=x), replace(table, y=y)]
    others += [replace(table, groups=replace(table.groups, code=code))]
    others += [replace(table, groups=replace(table.groups, levels=list("abcd")))]  # one is empty
    others += [replace(table, classes=np.arange(3))]
    found = [entropy(SPEC, other) for other in (table, *others)]
    assert len(set(found)) == 6 and found[0] == entropy(replace(SPEC), replace(table))


def test_fits_whose_past_differs_share_no_noise(table):
    def after(n_fits=1, spent=1, method="dpsgd", module=None):
        ledger = Ledger()
        ledger.record(Release("gradient sum", 0.1, (1.0,), spent))
        past = {"n_fits": n_fits, "privacy": SimpleNamespace(ledger=ledger)}
        past |= {"module": module or first, "method": get_method(method)}
        return entropy(SPEC, table, SimpleNamespace(**past))

    first, second = nn.Linear(2, 1), nn.Linear(2, 1)
    pasts = [after(), after(n_fits=2), after(spent=2), after(method="bam")]
    pasts += [after(module=second), entropy(SPEC, table)]
    assert len(set(pasts)) == len(pasts) and after() == pasts[0]
