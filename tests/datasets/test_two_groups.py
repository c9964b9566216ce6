"""The synthetic data set of a majority and a minority."""

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

from skdpfair.datasets import make_two_groups


def test_make_two_groups_has_the_documented_shape():
    bunch = make_two_groups(500, n_features=4, minority=0.2, random_state=0)
    assert bunch.data.shape == (500, 4) and bunch.data.abs().max(axis=None) <= 1
    assert set(bunch.target) == {0, 1} and (bunch.sensitive_features == "b").sum() == 100
    assert list(bunch.frame) == [*bunch.feature_names, "group", "target"]
    for minority in (1e-9, 1 - 1e-9):  # no group is empty
        assert {*make_two_groups(2, minority=minority).sensitive_features} == {"a", "b"}


@pytest.mark.parametrize("make", [int, np.random.default_rng, np.random.RandomState])
def test_equal_seeds_give_equal_rows(make):
    first, second = (make_two_groups(60, random_state=make(3)).frame for _ in range(2))
    pd.testing.assert_frame_equal(first, second)


def test_no_seed_gives_fresh_rows_and_leaves_the_global_generator_of_numpy():
    before = np.random.get_state()[1].copy()
    first, second = (make_two_groups(60).data for _ in range(2))
    assert not first.equals(second)
    np.testing.assert_array_equal(np.random.get_state()[1], before)


def test_without_noise_the_labels_follow_the_documented_boundaries():
    bunch = make_two_groups(400, noise=0, random_state=0)
    x, in_b = bunch.data.to_numpy(), (bunch.sensitive_features == "b").to_numpy()
    np.testing.assert_array_equal(bunch.target[~in_b], x[~in_b, 0] > 0)
    np.testing.assert_array_equal(bunch.target[in_b], x[in_b, 1] > 0.5)


def test_the_minority_has_another_label_rate_and_another_boundary():
    bunch = make_two_groups(4000, random_state=0)
    in_b = bunch.sensitive_features == "b"
    assert bunch.target[~in_b].mean() == pytest.approx(0.5, abs=0.03)
    assert bunch.target[in_b].mean() == pytest.approx(0.275, abs=0.04)
    model = LogisticRegression().fit(bunch.data[~in_b], bunch.target[~in_b])
    assert model.score(bunch.data[~in_b], bunch.target[~in_b]) > 0.9
    assert model.score(bunch.data[in_b], bunch.target[in_b]) < 0.65


@pytest.mark.parametrize(
    ("name", "value"),
    [("n_samples", 1), ("n_features", 2), ("minority", 0), ("minority", 1.0), ("noise", 0.6)],
)
def test_make_two_groups_refuses_parameters_outside_their_ranges(name, value):
    with pytest.raises(ValueError, match=name):
        make_two_groups(**{name: value})
