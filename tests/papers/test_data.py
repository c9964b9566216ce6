"""The papers' data sets have their printed sizes and columns."""

import numpy as np
import pytest

from benchmarks.papers import STUDIES, Options, data


def test_adult_is_that_of_the_papers():
    split = data.adult(0)
    x, groups = np.concatenate([split.x, split.x_test]), np.r_[split.group, split.group_test]
    assert x.shape[1] == 98 and abs(len(x) - 29_355) < 3 * 90  # binomial, sd 87
    assert len(split.y) == int(0.8 * len(x)) and (groups == "female").sum() == 14_695
    assert (x[:, -1] == (groups == "female")).all()
    ones = x[:, 5:]
    assert set(np.unique(ones)) == {0.0, 1.0} and (ones[:, :-2].sum(1) == 6).all()


@pytest.mark.usefixtures("environment")
def test_dutch_is_that_of_the_papers():
    split = data.dutch(0)
    assert split.x.shape == (48_336, 59) and split.x_test.shape == (12_084, 59)
    assert (split.x[:, :-2].sum(1) == 9).all()
    assert -(-len(split.y) // 256) * 20 == 3780


@pytest.mark.usefixtures("environment")
def test_mnist_is_that_of_the_papers():
    split = data.mnist(0)
    eights = (split.y == 8).sum()
    assert abs(eights - 0.09 * 5851) < 4 * 22 and (split.y == 2).sum() == 5958
    assert len(split.y_test) == 10_000 and split.x.max() == 1.0


@pytest.mark.usefixtures("environment")
def test_faces_replace_those_of_the_paper():
    split = data.faces(0)
    assert split.x.shape == (10_400, 3, 32, 32) and len(split.y_test) == 2_600
    assert 0.1 < np.mean(split.group == "under 16") < 0.3
    runs = STUDIES["esipova-table3"].runs(Options(seeds=(0,)))
    adapt = next(run.settings for run in runs if run.row == "global_adapt")
    found = [adapt[name] for name in ("lr", "epochs", "sigma")]
    assert [*found, adapt["params"]["strict_max_grad_norm"]] == [0.1, 30, 0.8, 100.0]
