"""A seed is mixed with all that a fit reads, so that no two fits that differ share their noise."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from torch import nn

from skdpfair import DPFairClassifier, get_method
from skdpfair.inputs.groups import Groups
from skdpfair.inputs.table import Table
from skdpfair.privacy import Ledger, Release
from skdpfair.training.seeds import streams_of

NO_MATTER = {"verbose", "device", "distributed", "random_state"}
NO_MATTER |= {"keep_reference", "diagnostics"}
NO_MATTER |= {"classes", "groups"}  # which act by what the table makes of them
PARAMS = DPFairClassifier(random_state=0).get_params(deep=False)


@pytest.fixture
def table():
    x, y = np.eye(6, 3, dtype=np.float32), np.arange(6) % 2
    return Table(x, y, np.unique(y), Groups(np.arange(6) % 3, list("abc"), False), [])


def entropy(params, table, before=None):
    return streams_of(params, table, before)[0].entropy


@pytest.mark.parametrize("name", sorted(set(PARAMS) - {"random_state"}))
def test_fits_whose_parameters_differ_share_no_noise(name, table):
    same = entropy(PARAMS | {name: "another value"}, table) == entropy(PARAMS, table)
    assert same == (name in NO_MATTER)


def test_fits_on_records_that_differ_share_no_noise(table):
    x, y, code = table.x.copy(), table.y.copy(), table.groups.code.copy()
    x[3, 1], y[0], code[0] = 1e-9, 1, 2
    others = [replace(table, x=x), replace(table, y=y)]
    others += [replace(table, groups=replace(table.groups, code=code))]
    others += [replace(table, groups=replace(table.groups, levels=list("abcd")))]  # one is empty
    others += [replace(table, classes=np.arange(3))]
    found = [entropy(PARAMS, other) for other in (table, *others)]
    assert len(set(found)) == 6 and found[0] == entropy(dict(PARAMS), replace(table))


def test_fits_whose_past_differs_share_no_noise(table):
    def after(n_fits=1, spent=1, method="dpsgd", module=None):
        ledger = Ledger()
        ledger.record(Release("gradient sum", 0.1, (1.0,), spent))
        past = {"n_fits": n_fits, "privacy": SimpleNamespace(ledger=ledger)}
        past |= {"module": module or first, "method": get_method(method)}
        return entropy(PARAMS, table, SimpleNamespace(**past))

    first, second = nn.Linear(2, 1), nn.Linear(2, 1)
    pasts = [after(), after(n_fits=2), after(spent=2), after(method="bam")]
    pasts += [after(module=second), entropy(PARAMS, table)]
    assert len(set(pasts)) == len(pasts) and after() == pasts[0]
