"""Shares of the groups, public or counted, and rates that balance them."""

import numpy as np
import pytest
import torch

from skdpfair import DPFairClassifier, get_method
from skdpfair.methods._fractions import balancing_rates, declared
from skdpfair.testing import example_task


def test_balancing_rates_draw_groups_equally_often_up_to_the_cap():
    task = example_task(n_groups=3, sample_rate=0.1)
    shares = torch.tensor([0.6, 0.3, 0.1])
    assert balancing_rates(task, shares).tolist() == pytest.approx([0.1 / 1.8, 0.1 / 0.9, 1 / 3])
    assert balancing_rates(task, shares, 0.2)[2] == 0.2


@pytest.mark.parametrize(
    "shares", [(0.6, 0.3, 0.2), (0.6, 0.4), (0.6, 0.4, 0.0), (0.6, 0.4, np.nan), 0.5, "abc"]
)
def test_group_probabilities_are_one_positive_share_for_each_group(shares):
    with pytest.raises((TypeError, ValueError), match="group_probabilities"):
        declared(shares, 3)


def test_group_probabilities_are_refused_before_a_fit_begins():
    method = get_method("dp_is_sgd", group_probabilities=(0.6, 0.4))
    model = DPFairClassifier(method, epsilon=0.5, batch_size=90)
    X, y, groups = np.ones((300, 2)), np.arange(300) % 2, np.arange(300) % 3
    with pytest.raises(ValueError, match="3 groups"):
        model.fit(X, y, sensitive_features=groups)
    assert not hasattr(model, "net_")
