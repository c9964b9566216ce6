"""A record on which an operation fails counts as zero, and no error holds its values."""

import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from skdpfair import DPFairClassifier, get_method
from skdpfair.augmentations import PGD
from skdpfair.engine import Batch, Streams, private_step, select_strategy
from skdpfair.engine.mechanism import Mechanism
from skdpfair.engine.per_sample.proof import RecordTrace
from skdpfair.model_selection import DPThresholdClassifier
from skdpfair.testing import example_task
from skdpfair.training.batches import records_at
from tests.engine.per_sample.modules import Net, seeded

BAD = 77_777.0  # no other number holds these digits
OPERATIONS = {
    "embedding": lambda x, table: x + table(x[:, 0].long()),
    "gather": lambda x, table: x + x.gather(1, x[:, :1].long()),
    "bernoulli": lambda x, table: x * (0.5 + 0 * torch.bernoulli(x / 10)),
    "normal": lambda x, table: x + 0 * torch.normal(x, 10 - x),
    "poisson": lambda x, table: x + 0 * torch.poisson(10 - x),
    "multinomial": lambda x, table: x + 0 * torch.multinomial(10 - x, 1),
    "binary_cross_entropy": lambda x, table: (
        x * F.binary_cross_entropy(x / 10, torch.ones_like(x), reduction="none")
    ),
    "division": lambda x, table: x + 0 * (7 // (x.long() - int(BAD))),
    "remainder": lambda x, table: x + 0 * (7 % (x.long() - int(BAD))),
    "scatter": lambda x, table: torch.zeros_like(x).scatter(1, x[:, :1].long(), x[:, 1:2]) + x,
    "target": lambda x, table: (
        x * F.cross_entropy(x[:, :3], x[:, 0].long(), reduction="none")[:, None]
    ),
}


def failing(name):
    table = nn.Embedding(10, 4).requires_grad_(False)
    return Net(lambda m, x: m.head(OPERATIONS[name](x, m.table)), table=table, head=(4, 2))


@pytest.fixture(scope="module")
def rows():
    x = torch.rand(40, 4, generator=torch.Generator().manual_seed(0))
    x[[3, 20]] = BAD
    return x


def assert_without_two_records(module, rows):
    """Compare a step on 40 records, two of which fail, with one on the others, in chunks or not."""
    batch = Batch(rows, torch.arange(40) % 2)
    mechanism = Mechanism(get_method("dpsgd"), example_task(40, n_groups=1, sample_rate=1.0), 0.0)
    others = torch.tensor([i for i in range(40) if i not in (3, 20)])
    with select_strategy(module, rows[:1], 2) as strategy:
        steps = [
            private_step(strategy, part, mechanism, None, Streams.fresh().noise(), chunk_size=size)
            for part in (batch, records_at(batch, others))
            for size in (None, 7)
        ]
    assert all(step.sound and step.gradient.isfinite().all() for step in steps)
    for step in steps[:-1]:
        torch.testing.assert_close(step.gradient, steps[-1].gradient, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", OPERATIONS)
def test_record_trace_leaves_out_records_on_which_an_operation_fails(name, rows):
    torch.manual_seed(0)
    assert_without_two_records(failing(name), rows)


CODES = {
    "once": lambda m, x: m.head(m.table(x.long()).sum(1)),
    "twice": lambda m, x: m.head(m.table(x.long()).sum(1)) + m.head(m.table(x[:, 1].long())),
}


@pytest.mark.parametrize("code", [-1, 10])
@pytest.mark.parametrize("padding_idx", [None, 0])
@pytest.mark.parametrize("name", CODES)
def test_record_trace_leaves_out_records_with_codes_that_a_table_lacks(
    name, code, padding_idx, rows
):
    x = (rows * 10).long().float().clamp(max=9)
    x[[3, 20], 1] = code
    module = seeded(lambda: Net(CODES[name], table=nn.Embedding(10, 4, padding_idx), head=(4, 2)))
    assert_without_two_records(module, x)


def test_record_trace_raises_where_the_code_fails_on_made_up_numbers():
    one = RecordTrace(lambda x, i: x.index_select(0, i), (), (torch.rand(3), torch.tensor([0])))
    one._made_up[1] = torch.tensor([[5]])
    with pytest.raises((RuntimeError, IndexError)):
        one(None, (), torch.rand(2, 3), torch.tensor([[6], [7]]))


def test_record_trace_takes_columns_in_any_layout():
    trace = RecordTrace(lambda x: x.view(-1), (), (torch.ones(2, 3),))
    x = torch.rand(5, 3, 2).transpose(1, 2)
    assert torch.equal(trace(None, (), x), x.reshape(5, 6))


def gathered(x):
    return x + 0 * x.gather(1, x[:, :1].long().clamp(min=0))


DOORS = {
    "module": {"module": lambda: failing("gather")},
    "attack": {"attack": lambda module, x, y: gathered(x)},
    "view": {"augment": gathered},
    "PGD": {"module": lambda: failing("gather"), "attack": PGD(0.1, input_range=None)},
    "PGD of views": {
        "augment": lambda x: x + 1e9 * (x > 1),
        "attack": PGD(0.1, input_range=(0, BAD)),
    },
}


@pytest.mark.parametrize("door", DOORS)
def test_no_error_or_warning_of_a_fit_holds_the_value_of_a_failing_record(door, rows):
    X, y = rows.numpy(), np.arange(40) % 2
    model = DPFairClassifier(epsilon=3.0, max_steps=3, batch_size=40, lr=0.1, classes=[0, 1])
    model.set_params(**DOORS[door])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            DPThresholdClassifier(model).fit(X, y)
        except (RuntimeError, LookupError, ValueError) as error:
            pytest.fail(f"one record ended the fit: {type(error).__name__}")
    assert not any("7777" in str(warning.message) for warning in caught)


def dividing():
    """Divide by zero on a record whose first number is large."""
    return Net(lambda m, x: m.layer(x) + 0 * (7 // (x[:, :1] < 1.25).long()), layer=(3, 2))


@pytest.mark.filterwarnings("ignore::skdpfair.exceptions.LowSignalWarning")
def test_pgd_on_a_batch_of_failing_records_does_not_end_a_fit():
    X, y = np.full((40, 3), 1.3, np.float32), np.arange(40) % 2
    DPFairClassifier(
        "dpsgd",
        epsilon=None,
        noise_multiplier=1.0,
        module=dividing,
        attack=PGD(0.1, input_range=(0, 2)),
        max_steps=3,
        batch_size=4,
        lr=0.1,
    ).fit(X, y)
