"""The clipping rule, thresholds that follow the norms, and noise of counts."""

import pytest
import torch

from skdpfair import get_method
from skdpfair.methods._clipping import clip_to


def test_clip_to_weighs_norms_above_the_bound():
    norm = torch.tensor([0.0, 0.5, 1.0, 4.0, torch.inf])
    assert clip_to(torch.tensor(1.0), norm).tolist() == [1.0, 1.0, 1.0, 0.25, 0.0]


@pytest.mark.parametrize("name", ["global_adapt", "dpsgd_f", "naive", "asc", "soft_adaclip"])
def test_count_noise_is_five_times_that_of_the_gradient_by_default(name):
    assert get_method(name).count_noise(2.0) == 10.0
    assert get_method(name, count_noise_multiplier=3.0).count_noise(2.0) == 3.0
