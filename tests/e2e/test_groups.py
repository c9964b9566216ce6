"""Groups and classes that fits, searches, sweeps and tables read from the rows."""

import numpy as np
import pandas as pd
import pytest

from skdpfair import DPFairClassifier, DPFairRegressor, Groups
from skdpfair.budget import PrivacyLedger
from skdpfair.inputs.groups import MAX_READ
from skdpfair.metrics import release_group_table
from skdpfair.model_selection import DPRandomizedSearch, DPThresholdClassifier
from tests.entrances import ENTRANCES

MANY = np.array([f"employer {k % (MAX_READ + 1)}" for k in range(400)])
FAST = {"epsilon": 5.0, "module": "logistic", "max_steps": 1}
X, Y = np.random.default_rng(0).random((400, 2)), np.resize(["no", "yes"], 400)
TABLE = pd.DataFrame(X, columns=["a", "b"]).assign(job=MANY)
PAIRS = pd.DataFrame({"a": MANY, "b": Y}).replace(MANY[0], MANY[1])


def fast(**params):
    return DPFairClassifier("dpsgd", **FAST, **params)


REGRESSOR = DPFairRegressor("dpsgd", y_range=(0, 1), **FAST)
READERS = {  # entrance, model, records, groups
    **{place: (place, fast(), (X, Y), MANY) for place in ENTRANCES if place != "pipeline"},
    "columns": ("fit", fast(), (X, Y), PAIRS),
    "a column of X": ("fit", fast(group_col="job"), (TABLE, Y), None),
    "Groups": ("fit", fast(group_col=Groups("job")), (TABLE, Y), None),
    "classes": ("fit", fast(), (X, MANY), None),
    "the target": ("fit", fast(group_col="target"), (X, MANY), None),
    "a regressor": ("fit", REGRESSOR, (X, X[:, 0]), MANY),
    "classes of a search": ("search", fast(), (X, MANY), None),
    "classes of a sweep": ("sweep", fast(), (X, MANY), Y),
}


@pytest.mark.parametrize("reader", READERS)
def test_many_undeclared_values_are_refused_before_anything_is_spent(reader, tmp_path):
    ledger = PrivacyLedger(tmp_path / "spent.jsonl", delta=1e-5)
    place, model, records, groups = READERS[reader]
    given = {} if groups is None else {"sensitive_features": groups}
    with ledger, pytest.raises(ValueError, match=f"more than {MAX_READ}.*declare") as error:
        ENTRANCES[place](model, *records, **given)
    remedies = ("classes=",) if "classes" in str(error.value) else ("levels=", "persons=")
    assert all(remedy in str(error.value) for remedy in remedies)
    assert "employer" not in str(error.value) and ledger.frame().empty


def test_declared_groups_and_classes_may_be_many():
    levels = sorted(set(MANY))
    declared = fast(group_col=Groups("job", levels=levels)).fit(TABLE, Y)
    by_class = fast(group_col="target", classes=levels).fit(X, MANY)
    for model, read in ((declared, (("classes", ("no", "yes")),)), (by_class, ())):
        assert list(model.levels_) == levels and model.privacy_.read_from_rows == read


def test_reports_name_the_values_that_were_read():
    sex, area = np.resize(["F", "M", "M"], 400), np.resize(["A, B", "C"], 400)
    named, y = pd.DataFrame({"sex": sex, "area": area}), pd.Series(Y, name="deny")
    read = (("deny", ("no", "yes")), ("sex", ("F", "M")), ("area", ("A, B", "C")))
    search = DPRandomizedSearch(fast(), {"lr": [0.1, 0.2]}, mean_trials=2, trials="geometric")
    warm, groups = fast(warm_start=True), {"sensitive_features": named}
    fits = [
        fast().fit(X, y, **groups),
        fast(group_col=["sex", "area"]).fit(TABLE[["a", "b"]].join(named), y),
        DPThresholdClassifier(fast()).fit(X, y, **groups),
        search.fit(X, y, **groups),
        warm.fit(X, y, **groups).fit(X, y, **groups),
    ]
    for report in (model.privacy_ for model in fits):
        assert report.read_from_rows == read
        for text in ("deny: no, yes", "sex: F, M", "area: “A, B”, C"):
            assert text in report.statement and text in " ".join(report.details().split())
        assert "deny, sex, area" in str(report)
    unnamed = fast(classes=["no", "yes"]).fit(X, Y, sensitive_features=named.to_numpy())
    assert unnamed.privacy_.read_from_rows == (("groups", ("F", "M")), ("groups", ("A, B", "C")))
    table = release_group_table(Y, Y, sensitive_features=named["sex"], epsilon=1.0)
    assert "sex: F, M" in table.attrs["privacy"]["statement"]


@pytest.mark.filterwarnings("ignore::skdpfair.exceptions.InsecureSeedWarning")
def test_trials_of_a_search_take_the_groups_of_all_records():
    rare = np.where(np.arange(400) == 7, "rare", np.resize(["F", "M"], 400))
    search = DPRandomizedSearch(
        fast(group_col="job"), {"lr": [0.1]}, mean_trials=2, trials="geometric"
    )
    for seed in range(6):  # the half that is held out has the rare one in some
        fitted = search.set_params(random_state=seed, holdout=0.5).fit(TABLE.assign(job=rare), Y)
        assert list(fitted.best_estimator_.levels_) == ["F", "M", "rare"]
        assert fitted.privacy_.read_from_rows[1:] == (("job", ("F", "M", "rare")),)
