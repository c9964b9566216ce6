"""What a record has in a batch and alone, and draws that are the same in all calls."""

import pytest
import torch
from torch.nn.functional import dropout

from skdpfair.engine.per_sample.proof.alone import (
    ConstantDraws,
    fixed_draws,
    same_alone_and_together,
)


@pytest.mark.parametrize(
    ("alone", "is_same"),
    [
        ([1.0, torch.nan], True),
        ([1.0 + 1e-6, torch.nan], True),
        ([1.1, torch.nan], False),
        ([1.0, 2.0, 3.0], False),
    ],
)
def test_same_alone_and_together_up_to_rounding(alone, is_same):
    rows = torch.tensor([[1.0, torch.nan], [5.0, 5.0]])
    assert same_alone_and_together(rows, [torch.tensor(alone)], 1e-5, 1e-5) == is_same


def test_same_alone_and_together_compares_whole_numbers_exactly():
    rows = torch.tensor([[10_000_000]])
    assert not same_alone_and_together(rows, [torch.tensor([10_000_001])], 1e-3, 1e-3)


def test_fixed_draws_leave_the_generator_as_it_was():
    state = torch.get_rng_state()
    with fixed_draws(torch.device("cpu")):
        first = torch.rand(3)
    with fixed_draws(torch.device("cpu")):
        assert torch.equal(torch.rand(3), first)
    assert torch.equal(torch.get_rng_state(), state)


def test_constant_draws_are_equal_in_all_calls():
    with ConstantDraws():
        assert torch.rand(3).tolist() == [0.5] * 3 and not torch.randperm(3).any()
        assert dropout(torch.ones(2), 0.5).tolist() == dropout(torch.ones(2), 0.5).tolist()
