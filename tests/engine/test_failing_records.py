"""A record on which an operation fails counts as zero, and nobody hears of it."""

import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from skdpfair import DPFairClassifier, get_method
from skdpfair.augmentations import PGD
from skdpfair.engine import Batch, Streams, private_step, select_strategy
from skdpfair.engine.mechanism import Clip, Mechanism, Method
from skdpfair.engine.per_sample.proof import RecordTrace
from skdpfair.model_selection import DPThresholdClassifier
from skdpfair.testing import example_records, example_task
from skdpfair.training.batches import records_at

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


class Failing(nn.Module):
    def __init__(self, operation):
        super().__init__()
        self.operation, self.table, self.head = operation, nn.Embedding(10, 4), nn.Linear(4, 2)
        self.table.requires_grad_(False)

    def forward(self, x):
        return self.head(self.operation(x, self.table))


@pytest.fixture(scope="module")
def rows():
    x = torch.rand(40, 4, generator=torch.Generator().manual_seed(0))
    x[[3, 20]] = BAD
    return x


def check_two_records_of_40(module, rows, strategy_name=None):
    batch = Batch(rows, torch.arange(40) % 2)
    mechanism = Mechanism(get_method("dpsgd"), example_task(40, n_groups=1, sample_rate=1.0), 0.0)
    others = torch.tensor([i for i in range(40) if i not in (3, 20)])
    with select_strategy(module, rows[:1], 2) as strategy:
        assert strategy_name in (None, strategy.name)
        steps = [
            private_step(strategy, part, mechanism, None, Streams.fresh().noise(), chunk_size=size)
            for part in (batch, records_at(batch, others))
            for size in (None, 7)
        ]
    assert all(step.sound and step.gradient.isfinite().all() for step in steps)
    for step in steps[:-1]:
        torch.testing.assert_close(step.gradient, steps[-1].gradient, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", OPERATIONS)
def test_it_adds_nothing_and_the_others_stay(name, rows):
    torch.manual_seed(0)
    check_two_records_of_40(Failing(OPERATIONS[name]), rows)


class Table(nn.Module):
    def __init__(self, padding_idx=None):
        super().__init__()
        self.table, self.head = nn.Embedding(10, 4, padding_idx), nn.Linear(4, 2)

    def forward(self, x):
        return self.head(self.table(x.long()).sum(1))


class Twice(Table):
    """A table that is called twice, which book-keeping does not cover."""

    def forward(self, x):
        return super().forward(x) + self.head(self.table(x[:, 1].long()))


@pytest.mark.parametrize("code", [-1, 10])
@pytest.mark.parametrize("padding_idx", [None, 0])
def test_codes_that_a_trained_table_lacks_take_no_other_way(code, padding_idx, rows):
    x = (rows * 10).long().float().clamp(max=9)
    x[[3, 20], 1] = code
    torch.manual_seed(0)
    check_two_records_of_40(Table(padding_idx), x, "bookkeeping")
    check_two_records_of_40(Twice(padding_idx), x, "vmap")


QUOTIENTS = {
    "floor": (lambda a, b: a // b, [3, -(2**63), -5]),
    "trunc": (lambda a, b: torch.div(a, b, rounding_mode="trunc"), [3, -(2**63), -5]),
    "remainder": (lambda a, b: a % b, [1, 0, 0]),
    "fmod": (torch.fmod, [1, 0, 0]),
    "by a number": (lambda a, b: a // -1 + 0 * b, [-7, -(2**63), -5]),
}


@pytest.mark.parametrize("name", QUOTIENTS)
def test_a_quotient_without_room_ends_no_process(name):
    divided, expected = QUOTIENTS[name]
    a, b = torch.tensor([7, -(2**63), 5]), torch.tensor([2, -1, -1])
    one = RecordTrace(divided, (), (torch.tensor(1), torch.tensor(1)))
    assert one(None, (), a, b).tolist() == expected


def test_a_fault_of_the_code_is_an_error():
    one = RecordTrace(lambda x, i: x.index_select(0, i), (), (torch.rand(3), torch.tensor([0])))
    one._made_up[1] = torch.tensor([[5]])
    with pytest.raises((RuntimeError, IndexError)):
        one(None, (), torch.rand(2, 3), torch.tensor([[6], [7]]))


def fails(x):
    return x + 0 * x.gather(1, x[:, :1].long().clamp(min=0))


class Picky(Method):
    def clip(self, sample, state, release):
        places = (sample.norm > 1).long()
        weight = sample.probability.gather(1, places[:, None] * 7)[:, 0]
        return Clip(weight / (1 + sample.norm), 1.0)


DOORS = {
    "module": {"module": lambda: Failing(OPERATIONS["gather"])},
    "attack": {"attack": lambda module, x, y: fails(x)},
    "view": {"augment": fails},
    "PGD": {"module": lambda: Failing(OPERATIONS["gather"]), "attack": PGD(0.1, input_range=None)},
    "PGD of views": {
        "augment": lambda x: x + 1e9 * (x > 1),
        "attack": PGD(0.1, input_range=(0, BAD)),
    },
}


@pytest.mark.parametrize("door", DOORS)
def test_no_door_of_a_fit_lets_its_value_out(door, rows):
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


def test_a_method_on_whose_record_an_operation_fails_gives_it_no_weight():
    hooks = Mechanism(Picky(), example_task(), 1.0).hooks
    clip = hooks.clip(example_records([1e-6, 2.0]), None, {})
    assert clip.weight.tolist() == pytest.approx([0.5, 0.0], rel=1e-4)


class Dividing(nn.Module):
    """Divides by zero on a record whose first number is large."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, x):
        return self.layer(x) + 0 * (7 // (x[:, :1] < 1.25).long())


@pytest.mark.filterwarnings("ignore::skdpfair.exceptions.LowSignalWarning")
def test_a_batch_of_failing_records_alone_does_not_end_an_attack():
    X, y = np.full((40, 3), 1.3, np.float32), np.arange(40) % 2
    attack = PGD(0.1, input_range=(0, 2))
    clf = DPFairClassifier(
        "dpsgd", epsilon=None, noise_multiplier=1.0, module=Dividing, attack=attack, max_steps=3
    )
    clf.set_params(batch_size=4, lr=0.1).fit(X, y)
