"""Descriptions and digests that are the same in every process; see tests/test_seeds.py, too."""

import numpy as np
import torch

from skdpfair._utils.describe import describe, digest, state_of


def test_digest_and_describe_depend_on_all_parts():
    def scaled(by):
        return lambda x: by * x

    parts = np.zeros(4), np.zeros((2, 2)), np.zeros(4, np.float32), np.ones(4), "0", 0
    assert len({digest(part) for part in parts}) == len(parts)
    values = [{"a": (1, np.zeros(2))}, {"a": (1, np.ones(2))}, {1, 2}, scaled(1), scaled(2)]
    texts = [describe(value) for value in values]
    assert len(set(texts)) == len(values) and texts[3] == describe(scaled(1))


def test_state_of_leaves_out_weights_if_asked():
    module = torch.nn.BatchNorm1d(1)
    before = state_of(module), state_of(module, weights=False)
    with torch.no_grad():
        module.weight += 1
    assert state_of(module) != before[0] and state_of(module.eval(), weights=False) == before[1]
    module.running_mean += 1
    assert state_of(module, weights=False) != before[1]
