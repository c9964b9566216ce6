import numpy as np
import pandas as pd
import pytest

from skdpfair.datasets import load_adult, make_adult_panel


@pytest.fixture(scope="module")
def panel():
    return make_adult_panel(random_state=0)


def test_only_the_persons_are_simulated(panel):
    adult = load_adult(dropna=True)
    for name in ("data", "target", "frame", "sensitive_features"):
        assert panel[name].equals(adult[name])
    assert panel.DESCR.endswith(adult.DESCR)


def test_every_row_has_a_person(panel):
    units = panel.units
    assert units.name == "person"
    assert units.index.equals(panel.data.index)
    assert sorted(units.unique()) == list(range(units.nunique()))


def test_persons_keep_what_does_not_change(panel):
    persons = panel.data.groupby(panel.units)
    assert (persons[["sex", "race", "native_country"]].nunique() == 1).all(axis=None)


def test_persons_have_one_to_eight_records(panel):
    n_records = panel.units.value_counts()
    assert set(n_records) == set(range(1, 9))
    # the mean of 1, ..., 8 is 4.5; groups that end early make it smaller
    assert 4.2 < n_records.mean() < 4.5


def both_incomes(persistence):
    panel = make_adult_panel(persistence=persistence, random_state=0)
    return (panel.target.groupby(panel.units).nunique() == 2).mean()


def test_persistence_decides_how_much_incomes_agree():
    assert both_incomes(0) > both_incomes(0.7) > both_incomes(0.9) > both_incomes(1) == 0


def test_at_persistence_0_the_income_of_a_person_is_that_of_people_alike():
    panel = make_adult_panel(max_records=2, persistence=0, random_state=0)
    sizes = panel.units.map(panel.units.value_counts())
    pairs = panel.frame[sizes == 2].assign(person=panel.units, rich=panel.target == ">50K")
    pairs = pairs.sort_values("person")
    first, second = pairs["rich"].to_numpy().reshape(-1, 2).T
    # chance that two rows of these features agree, if incomes are drawn anew in each cell
    cells = panel.frame.assign(rich=panel.target == ">50K").groupby(
        ["sex", "education_num", "marital_status"], observed=True
    )["rich"]
    p = cells.transform("mean")[pairs.index]
    expected = (p**2 + (1 - p) ** 2).mean()
    assert (first == second).mean() == pytest.approx(expected, abs=0.02)


def test_one_record_each():
    assert make_adult_panel(max_records=1, random_state=0).units.is_unique


def test_the_number_of_a_person_does_not_tell_the_income(panel):
    assert abs(np.corrcoef(panel.units, panel.target == ">50K")[0, 1]) < 0.02


@pytest.mark.parametrize("make", [int, np.random.default_rng, np.random.RandomState])
def test_the_same_seed_gives_the_same_persons(make):
    first, second = (make_adult_panel(random_state=make(3)).units for _ in range(2))
    pd.testing.assert_series_equal(first, second)


@pytest.mark.parametrize(
    ("name", "value"),
    [("max_records", 0), ("max_records", 101), ("persistence", -0.1), ("persistence", 1.1),
     ("random_state", -1)],
)  # fmt: skip
def test_parameters_are_checked(name, value):
    with pytest.raises(ValueError, match=name):
        make_adult_panel(**{name: value})
