"""A seed is mixed with all that a fit reads, so that no two fits that differ share their noise."""

import os
from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np
import pytest
from torch import nn

from skdpfair import DPFairClassifier, get_method
from skdpfair.inputs.groups import GroupCodes
from skdpfair.inputs.table import Table
from skdpfair.privacy import NoisyRelease
from skdpfair.training.run import Run, seeded_streams
from skdpfair.training.spec import FitSpec
from tests.quick_fits import QUIET, X, Y, quick, weights

pytestmark = QUIET

NO_MATTER = {"verbose", "device", "distributed", "random_state", "keep_reference", "pos_label"}
NO_MATTER |= {"classes"}  # which act by what the table makes of them
SPEC = FitSpec.of(DPFairClassifier(random_state=0))


@pytest.fixture
def table():
    x, y = np.eye(6, 3, dtype=np.float32), np.arange(6) % 2
    return Table(x, y, np.unique(y), GroupCodes(np.arange(6) % 3, list("abc"), False), [])


def entropy(spec, table, before=None):
    return seeded_streams(spec, table, before).entropy


@pytest.mark.parametrize("name", [p for p in SPEC.params if p not in ("random_state", "groups")])
def test_seeded_streams_differ_where_a_parameter_does(name, table):
    same = entropy(SPEC.with_params(**{name: "another value"}), table) == entropy(SPEC, table)
    assert same == (name in NO_MATTER)


@dataclass(repr=False, eq=False)
class Longer(DPFairClassifier):
    """The classifier, with one more parameter."""

    new: int = 3


@dataclass(repr=False, eq=False)
class Stricter(DPFairClassifier):
    """The classifier, with another default."""

    epsilon: float | None = 0.5


def test_seeded_streams_stay_when_an_estimator_gets_a_parameter_until_it_is_set(table):
    def of(kind, **params):
        return entropy(FitSpec.of(kind(random_state=0, **params)), table)

    plain, strict = of(DPFairClassifier), of(DPFairClassifier, epsilon=0.5)
    assert plain == of(Longer) == of(Longer, new=3) != of(Longer, new=4)
    # what acts counts, whichever class sets it
    assert of(Stricter) == strict != of(Stricter, epsilon=1.0) == plain == entropy(SPEC, table)


def test_seeds_repeat_a_fit_and_none_never_does():
    first, second = (weights(quick().fit(X, Y)) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    states = [1, 2**32, None, None, np.random.RandomState(0), np.random.default_rng(0)]
    others = [quick(epsilon=4.0), *(quick(random_state=state) for state in states)]
    runs = [first, *(weights(model.fit(X, Y)) for model in others)]
    assert all((a != b).any() for i, a in enumerate(runs) for b in runs[:i])


def test_seeded_streams_differ_where_records_do(table):
    x, y, code = table.x.copy(), table.y.copy(), table.groups.code.copy()
    x[3, 1], y[0], code[0] = 1e-9, 1, 2
    groups = [{"code": code}, {"levels": list("abcd")}]  # one of which is empty
    changes = [{"x": x}, {"y": y}, {"classes": np.arange(3)}]
    changes += [{"groups": replace(table.groups, **change)} for change in groups]
    found = [entropy(SPEC, replace(table, **change)) for change in ({}, *changes)]
    assert len(set(found)) == 6 and found[0] == entropy(replace(SPEC), replace(table))


def test_seeded_streams_differ_where_the_fit_before_does(table):
    def after(n_fits=1, spent=1, method="dpsgd", module=None):
        releases = (NoisyRelease("gradient sum", 0.1, (1.0,), spent),)
        past = {"n_fits": n_fits, "privacy": SimpleNamespace(releases=releases)}
        past |= {"module": module or first, "method": get_method(method)}
        return entropy(SPEC, table, SimpleNamespace(**past))

    first, second = nn.Linear(2, 1), nn.Linear(2, 1)
    pasts = [after(), after(n_fits=2), after(spent=2), after(method="bam")]
    pasts += [after(module=second), entropy(SPEC, table)]
    assert len(set(pasts)) == len(pasts) and after() == pasts[0]


def test_check_process_refuses_a_copy_of_the_process(monkeypatch):
    run = SimpleNamespace(pid=os.getpid())
    Run.check_process(run)
    monkeypatch.setattr(os, "getpid", lambda: run.pid + 1)
    with pytest.raises(RuntimeError, match="forked"):
        Run.check_process(run)
