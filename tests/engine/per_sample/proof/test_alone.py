"""What a record has in a batch and alone, and draws that are the same in all calls."""

import pytest
import torch

from skdpfair.engine.per_sample.proof import ConstantDraws, fixed_draws, same_alone_and_together

ROWS = torch.tensor([[1.0, torch.nan], [5.0, 5.0]])
ALONE = {(1.0 + 1e-6, torch.nan): True, (1.1, torch.nan): False, (1.0, 2.0, 3.0): False}


@pytest.mark.parametrize(("alone", "is_same"), ALONE.items())
def test_same_alone_and_together_up_to_rounding(alone, is_same):
    assert same_alone_and_together(ROWS, [torch.tensor(alone)], 1e-5, 1e-5) == is_same
    whole = torch.tensor([[10_000_000]])
    assert not same_alone_and_together(whole, [whole[0] + 1], 1e-3, 1e-3)


def test_fixed_and_constant_draws_are_equal_in_all_calls():
    state = torch.get_rng_state()
    with fixed_draws(torch.device("cpu")):
        first = torch.rand(3)
    with fixed_draws(torch.device("cpu")):
        assert torch.equal(torch.rand(3), first)
    assert torch.equal(torch.get_rng_state(), state)
    with ConstantDraws():
        assert torch.rand(3).tolist() == [0.5] * 3 and not torch.randperm(3).any()
