"""Private names of torch, by what this package relies on."""

import torch

from skdpfair._utils.torch_internals import (
    dispatch_functionalize,
    memory_address,
    was_changed_in_place,
)


def test_memory_address_is_that_of_views_and_aliases():
    x = torch.zeros(6)
    assert memory_address(x) == memory_address(x[2:].view(2, 2)) == memory_address(x.detach())
    assert memory_address(x) != memory_address(x.clone())


def test_changes_in_place_are_seen_in_functionalized_tensors():
    seen = []

    def second(x, y):
        y += 1
        seen.extend(map(was_changed_in_place, (x, y)))
        return x

    dispatch_functionalize(second)(torch.zeros(2), torch.zeros(2))
    assert seen == [False, True]
