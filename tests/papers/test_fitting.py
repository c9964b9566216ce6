"""Losses and gradient norms by group in a fit, against autograd; the printed DPSGD-F."""

import numpy as np
import pytest
import torch

from benchmarks.papers import data, fitting
from benchmarks.papers.fitting import PrintedDPSGDF
from skdpfair import DPFairClassifier
from skdpfair.methods import METHODS
from tests.analysis.problems import gradient, loss_of

pytestmark = pytest.mark.filterwarnings(
    "ignore::skdpfair.exceptions.InsecureSeedWarning",
    "ignore::skdpfair.exceptions.LowSignalWarning",
)


def test_running_loss_is_the_mean_over_the_batches_of_the_last_epoch():
    """With next to no learning, each batch's group mean is an unbiased estimate of the group's."""
    split = data.adult(0)
    model, losses = fitting.fit("sgd", split, 0, sigma=None, epochs=2, module="logistic", lr=1e-6)
    for group in ("male", "female"):
        own = split.group == group
        loss, at = loss_of(model.net_.module_, split.x[own], split.y[own])
        assert losses[group] == pytest.approx(float(loss(at)), abs=1e-4)


def test_group_path_has_losses_and_norms_of_autograd(split):
    path = fitting.GroupPath(every=2)
    settings = {"module": "logistic", "lr": 1e-9, "batch_size": len(split.y), "callbacks": [path]}
    model, _ = fitting.fit("sgd", split, 0, sigma=None, epochs=3, **settings)
    assert [look[:2] for look in path.found_] == [(0, 0), (0, 1), (2, 0), (2, 1)]
    module = model.net_.module_.double()
    for _, code, *found in path.found_:
        rows = split.group == np.unique(split.group)[code]
        own = module, torch.tensor(split.x[rows]).double(), split.y[rows]
        loss, at = loss_of(*own)
        expected = float(loss(at)), float(gradient(*own).norm())
        assert found == pytest.approx(expected, rel=1e-5)


def test_printed_dpsgd_f_is_not_private_and_not_registered(two_groups):
    assert PrintedDPSGDF not in METHODS.values()
    method = PrintedDPSGDF(max_grad_norm=0.1, count_noise_multiplier=10.0)
    model = DPFairClassifier(method, epsilon=None, noise_multiplier=1.0, max_steps=5, lr=0.1)
    model.fit(two_groups.data, two_groups.target, sensitive_features=two_groups.sensitive_features)
    assert model.privacy_.epsilon == float("inf") and not model.privacy_.is_private
