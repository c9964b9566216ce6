"""Private names of torch, by what this package relies on."""

import torch

from skdpfair._utils import torch_internals as internals


def test_memory_address_is_that_of_views_and_aliases():
    x = torch.zeros(6)
    same = internals.memory_address(x[2:].view(2, 2)), internals.memory_address(x.detach())
    assert {*same} == {internals.memory_address(x)} != {internals.memory_address(x.clone())}


def test_was_changed_in_place_is_true_of_the_changed_tensor_alone():
    seen = []

    def second(x, y):
        y += 1
        seen.extend(map(internals.was_changed_in_place, (x, y)))
        return x

    internals.dispatch_functionalize(second)(torch.zeros(2), torch.zeros(2))
    assert seen == [False, True]
