"""Prediction with a trained module: knots of amounts, private records, and nets in pickles."""

import pickle
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.special import softmax
from torch import nn

from skdpfair import MLP
from skdpfair._networks import FineColumns, small_cnn
from skdpfair.inputs.rows import SparseRows, numbers_of
from skdpfair.training import inference
from tests.quick_fits import QUIET, X, Y, quick

pytestmark = QUIET


def test_with_fine_columns_stores_the_hats_between_the_coarse_knots():
    u = np.r_[0.0, 1.0, 0.5, 1 / 1024, np.random.default_rng(0).uniform(size=50)].astype(np.float32)
    x = np.stack([np.full_like(u, 9.0), 2 * u - 1, 1 - 2 * u], axis=1)
    knots = FineColumns((2, 1), 3)
    wide = knots(torch.from_numpy(x)).numpy()
    expected = [
        j_max**0.25 * np.maximum(0, 1 - np.abs(j_max * (x[:, column].astype(float) + 1) / 2 - j))
        for column in (2, 1)
        for j_max in (16, 32, 64, 128, 256, 512)
        for j in range(1, j_max, 2)
    ]
    assert knots.width - 3 == len(expected) == 2 * (512 - 8)
    np.testing.assert_array_equal(wide[:, :3], x)
    np.testing.assert_allclose(wide[:, 3:], np.transpose(expected), atol=1e-4)
    stored = inference.with_fine_columns(knots, x)
    np.testing.assert_array_equal(stored.matrix.toarray(), wide)
    assert stored.n_stored <= 3 + 12


def test_logits_are_those_of_the_module_for_dense_sparse_and_private_rows():
    rows = X.to_numpy(np.float32, copy=True)
    module = quick(module=MLP((5,))).fit(X, Y).net_.module_
    expected = module(torch.from_numpy(rows)).detach().numpy()
    for x in (rows, SparseRows(rows)):
        np.testing.assert_allclose(inference.logits(module, x), expected, atol=1e-6)
        np.testing.assert_allclose(inference.private_logits(module, x, 2), expected, atol=1e-6)


@pytest.mark.parametrize("of_knots", [False, True])
def test_linear_models_are_the_module_whatever_holds_the_rows(of_knots):
    rng, size = np.random.default_rng(0), 40_000  # of several batches
    rows = rng.uniform(-1.2, 1.2, (size, 3)).astype(np.float32)
    rows[:6, 1] = [-1, 1, -2, 2, 0, 1 - 2**-9]  # ends, beyond, and a knot
    knots = FineColumns((2, 1), 3) if of_knots else nn.Identity()
    last = nn.Linear(knots.width if of_knots else 3, 3)
    module = nn.Sequential(knots, last) if of_knots else last
    expected = module(torch.from_numpy(rows)).detach().numpy()
    frame = pd.DataFrame(rows.astype(float)).assign(**{"1": rows[:, 1]})[[0, "1", 2]]
    for table in (rows, np.asfortranarray(rows), rows.astype(float), frame):
        late = numbers_of(table, at_once=False)
        for found in (
            inference.logits(module, late),
            inference.private_logits(module, late, 3),
        ):
            np.testing.assert_allclose(found, expected, atol=2e-6 * np.abs(expected).max())
    for column in (2, 1, 0):
        rows[-1] = np.where(np.arange(3) == column, np.nan, 0)
        with pytest.raises(ValueError, match=f"NaN or infinite values in column {column}"):
            inference.logits(module, numbers_of(rows, at_once=False))
    with torch.no_grad():
        last.weight[:, 0] = 0.0  # products may leave out what this column holds
    with pytest.raises(ValueError, match="NaN or infinite values in column 0"):
        inference.logits(module, numbers_of(rows, at_once=False))
    # others, such as a module that somebody looks into, run as they are written
    last.forward = lambda x: torch.ones(len(x), 3)
    assert (inference.logits(module, rows[:1]) == 1).all()
    del last.forward
    last.register_forward_hook(lambda *_: torch.zeros(1, 3))
    assert not inference.logits(module, rows[:1]).any()


def test_logits_are_finite_and_leave_the_module_as_it_is():
    class Remembering(nn.Linear):
        def forward(self, x):
            self.seen = x
            return super().forward(x)

    module = Remembering(1, 2).train()
    found = inference.logits(module, np.array([[np.inf], [-np.inf]], np.float32))
    assert np.isfinite(found).all() and module.training and not hasattr(module, "seen")


def test_inference_net_is_a_factory_with_weights():
    module = small_cnn((1, 6, 6), 3, channels=(2,))
    weights = {name: tensor.numpy() for name, tensor in module.state_dict().items()}
    net = inference.InferenceNet(partial(small_cnn, (1, 6, 6), 3, channels=(2,)), weights)
    x = np.random.default_rng(0).random((5, 1, 6, 6), dtype=np.float32)
    again = pickle.loads(pickle.dumps(net))
    expected = softmax(inference.logits(module, x), axis=1)
    np.testing.assert_allclose(again.predict_proba(x), expected, atol=1e-12)
    assert set(vars(again)) == {"module", "weights", "module_"}
