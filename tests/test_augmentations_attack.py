"""Adversarial inputs: the mathematics of PGD, and what would break privacy."""

import pickle

import numpy as np
import pytest
import torch
from sklearn.base import clone
from torch import nn
from torch.nn.functional import cross_entropy

from skdpfair import DPFairClassifier
from skdpfair._networks import CNN, small_cnn
from skdpfair.augmentations import PGD, Views, check_attack, record_by_record
from skdpfair.engine import select_strategy
from tests.quick_fits import QUIET, X, Y

pytestmark = QUIET


def mlp(dropout=0.0):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layers = nn.Linear(4, 16), nn.Tanh(), nn.Dropout(dropout), nn.Linear(16, 3)
        return nn.Sequential(*layers).double()


def records(n=20, shape=(4,), dtype=torch.float64):
    generator = torch.Generator().manual_seed(1)
    x = torch.rand((n, *shape), generator=generator, dtype=dtype)
    return x, torch.randint(0, 3, (n,), generator=generator)


def losses(module, x, y):
    return cross_entropy(module(x), y, reduction="none")


def by_hand(module, x, y, radius, step, n_steps, low, high):
    """PGD of one record, one coordinate at a time."""
    found = x.clone()
    for _ in range(n_steps):
        here = found.clone().requires_grad_()
        losses(module, here[None], y[None]).sum().backward()
        for i, slope in enumerate(here.grad):
            moved = found[i] + step * torch.sign(slope)
            moved = min(max(moved, x[i] - radius), x[i] + radius)
            found[i] = min(max(moved, low), high)
    return found


def test_pgd_is_a_loop_over_the_records():
    module, (x, y) = mlp(), records()
    found = PGD(0.1, 0.03, 5)(module, x, y)
    expected = [by_hand(module, *row, 0.1, 0.03, 5, 0.0, 1.0) for row in zip(x, y, strict=True)]
    torch.testing.assert_close(found, torch.stack(expected), rtol=0, atol=1e-14)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(4,), (2, 2), (1, 2, 2)])
def test_pgd_raises_the_loss_within_ball_and_range(shape, dtype):
    module = nn.Sequential(nn.Flatten(), mlp()).to(dtype)
    x, y = records(50, shape, dtype)
    found = PGD(0.2)(module, x, y)
    assert (found.dtype, found.shape, found.requires_grad) == (dtype, x.shape, False)
    assert (found - x).abs().max() <= 0.2 * (1 + 1e-6)
    assert found.min() >= 0 and found.max() <= 1
    assert (losses(module, found, y) > losses(module, x, y)).all()


def test_pgd_reaches_the_ball_by_its_default_step_and_has_no_range_with_none():
    module, (x, y) = nn.Linear(4, 2).double(), records()  # of two classes: signs never change
    y = y % 2
    found = PGD(0.5, input_range=None)(module, x, y)
    torch.testing.assert_close((found - x).abs(), torch.full_like(x, 0.5))
    assert found.min() < 0 or found.max() > 1
    one = PGD(0.5, n_steps=1, step_size=0.2, input_range=None)(module, x, y)
    torch.testing.assert_close((one - x).abs(), torch.full_like(x, 0.2))


@pytest.mark.parametrize("frozen", [True, False])
def test_pgd_leaves_gradients_mode_inputs_and_generator_alone(frozen):
    module, (x, y) = mlp(), records()
    for p in module.parameters():
        p.requires_grad_(not frozen)
        p.grad = torch.ones_like(p)
    before, state = x.clone(), torch.get_rng_state()
    with torch.no_grad():
        PGD(0.1)(module.train(), x, y)
    assert all(bool((p.grad == 1).all()) for p in module.parameters())
    assert module.training and torch.equal(x, before)
    assert torch.equal(torch.get_rng_state(), state)


def test_pgd_attacks_in_train_mode_with_dropout():
    module, (x, y) = mlp(dropout=0.5).train(), records()
    torch.manual_seed(3)
    first = PGD(0.1)(module, x, y)
    torch.manual_seed(3)
    assert torch.equal(PGD(0.1)(module, x, y), first)
    check_attack(PGD(0.1), module, x[:1], 3)


@pytest.mark.parametrize(
    ("params", "match"),
    [
        ({"radius": 0.0}, r"radius of PGD must be .*\(0.0, .*got 0.0"),
        ({"radius": float("inf")}, "radius.*inf"),
        ({"radius": "big"}, "radius.*'big'"),
        ({"step_size": float("nan")}, "step_size.*nan"),
        ({"n_steps": 0}, "n_steps of PGD must be .*got 0"),
        ({"n_steps": 2.5}, "n_steps.*2.5"),
        ({"input_range": (1.0, 0.0)}, r"input_range.*low < high, got \(1.0, 0.0\)"),
        ({"input_range": (0.0, 1.0, 2.0)}, "input_range"),
        ({"input_range": (0.0, float("inf"))}, "input_range.*finite"),
        ({"input_range": 1.0}, "input_range.*got 1.0"),
    ],
)
def test_pgd_refuses_parameters_when_used(params, match):
    attack, (x, y) = PGD(**({"radius": 0.1} | params)), records()
    for use in (lambda: attack(mlp(), x, y), lambda: check_attack(attack, mlp(), x[:1], 3)):
        with pytest.raises(ValueError, match=match):
            use()


def test_pgd_refuses_inputs_outside_the_range_without_a_value_of_the_data():
    x, y = records()
    x[7, 2] = 3.14159
    with pytest.raises(ValueError, match=r"input_range=\(0.0, 1.0\)") as caught:
        PGD(0.1)(mlp(), x, y)
    assert "3.14" not in str(caught.value) and "7" not in str(caught.value)
    assert PGD(0.1, input_range=None)(mlp(), x, y).shape == x.shape
    with pytest.raises(TypeError, match=r"torch.int64"):
        PGD(0.1)(mlp(), x.long(), y)


def test_pgd_is_a_value_as_in_scikit_learn():
    attack = PGD(0.1, n_steps=3)
    assert repr(attack) == "PGD(n_steps=3, radius=0.1)"
    copies = clone(attack), pickle.loads(pickle.dumps(attack))
    assert all(c.get_params() == attack.get_params() for c in copies)
    model = clone(DPFairClassifier("dpsgd", attack=attack)).set_params(attack__radius=0.3)
    assert (model.attack.radius, attack.radius) == (0.3, 0.1)


# what check_attack refuses

IMAGE, ROW = torch.full((1, 1, 6, 6), 7.0), torch.full((1, 4), 7.0)


def image_net():
    return small_cnn((1, 6, 6), 3, channels=(2,))


def slope_of(module, x, y):
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        return torch.autograd.grad(cross_entropy(module(x), y, reduction="sum"), x)[0]


def test_check_attack_takes_sound_attacks():
    for attack in (
        PGD(0.1),
        lambda module, x, y: PGD(0.1)(module, (x + 0.1 * torch.rand_like(x)).clamp(0, 1), y),
        lambda module, x, y: (x + slope_of(module, x, y)).clamp(0, 1),
        lambda module, x, y: 1.0 - x,
    ):
        check_attack(attack, image_net(), IMAGE, 3)


def by_the_largest_gradient(module, x, y):
    slope = slope_of(module, x, y)
    return (x + 0.1 * slope / slope.abs().max()).clamp(0, 1)


def by_one_pixel(module, x, y):
    x = x.clone()
    x[..., 0, 0] = x[..., 0, 0].mean()
    return x


COUPLED = {
    "one pixel": by_one_pixel,
    "mix-up": lambda module, x, y: (x + x.flip(0)) / 2,
    "mean of the batch": lambda module, x, y: (x + x.mean(0)) / 2,
    "largest gradient": by_the_largest_gradient,
    "mean loss": lambda module, x, y: (x + slope_of(module, x, y) / len(x)).clamp(0, 1),
    "labels": lambda module, x, y: x * (1 + y.sum()) / 6,
    "first record": lambda module, x, y: torch.cat([x[:1], (x[1:] + x[:1]) / 2]),
    "batch size": lambda module, x, y: x / len(x),
}


@pytest.mark.parametrize("name", COUPLED)
def test_record_by_record_calls_an_attack_on_one_record(name):
    x, y = torch.rand(5, 1, 6, 6, generator=torch.Generator().manual_seed(0)), torch.arange(5) % 3
    with select_strategy(image_net(), x[:1], 3) as model:
        attack = record_by_record(COUPLED[name], model, x[:1], 3)
        alone = [attack(None, x[i : i + 1], y[i : i + 1]) for i in range(5)]
        torch.testing.assert_close(attack(None, x, y), torch.cat(alone))


def test_fit_refuses_operations_outside_the_closed_list_by_name():
    def strided(x):
        return torch.as_strided(x, x.shape, x.stride())

    for params in ({"attack": lambda module, x, y: strided(x)}, {"augment": Views(strided, n=2)}):
        with pytest.raises(ValueError, match="as_strided"):
            quick(**params).fit(*digits())


@pytest.mark.parametrize(
    ("attack", "error", "match"),
    [
        (lambda module, x, y: x.numpy(), TypeError, "torch.Tensor.*got ndarray"),
        (lambda module, x, y: None, TypeError, "got NoneType"),
        (lambda module, x, y: x[:, :, :2], ValueError, r"shape \(2, 1, 2, 6\)"),
        (lambda module, x, y: x.double(), ValueError, "torch.float64 .* torch.float32"),
        (lambda module, x, y: x / 0, ValueError, "NaN or infinity"),
        (lambda module, x, y: x + 0.5, ValueError, r"input_range=\(0.0, 1.0\) \(assumed"),
    ],
)
def test_check_attack_refuses_what_does_not_return_inputs(attack, error, match):
    with pytest.raises(error, match=match):
        check_attack(attack, image_net(), IMAGE, 3)


def test_check_attack_takes_the_range_from_the_attribute_of_a_callable():
    def shift(module, x, y):
        return x + 0.5

    check_attack(shift, mlp().float(), ROW, 3)  # a table: no range is assumed
    with pytest.raises(ValueError, match="assumed"):
        check_attack(shift, image_net(), IMAGE, 3)
    shift.input_range = None
    check_attack(shift, image_net(), IMAGE, 3)
    for wrong, match in (((0.0, 1.0), r"input_range=\(0.0, 1.0\)\."), ((2.0, 1.0), "low < high")):
        shift.input_range = wrong
        with pytest.raises(ValueError, match=match):
            check_attack(shift, mlp().float(), ROW, 3)


def test_check_attack_leaves_weights_gradients_and_generator_alone():
    seen = []

    def backward(module, x, y):
        seen.append(x.clone())
        cross_entropy(module(x), y).backward()
        torch.rand(3)
        return x

    module = image_net()
    weights, state = [p.detach().clone() for p in module.parameters()], torch.get_rng_state()
    check_attack(backward, module, IMAGE, 3)
    assert all(p.grad is None for p in module.parameters())
    assert all(torch.equal(p, w) for p, w in zip(module.parameters(), weights, strict=True))
    assert torch.equal(torch.get_rng_state(), state)
    assert all(x.min() >= 0 and x.max() <= 1 for x in seen)  # never the example's sevens


# through the estimator


def digits():
    rng = np.random.default_rng(0)
    y, x = rng.integers(0, 2, 300), rng.random((300, 6, 6), dtype=np.float32) * 0.6
    x[y == 1, :3] += 0.4
    return x, y


def quick(**params):
    given = {"max_steps": 8, "batch_size": 100, "epsilon": 5.0, "random_state": 0}
    return DPFairClassifier("dpsgd", **(given | params))


def test_attack_on_images_costs_no_epsilon():
    x, y = digits()
    cnn = {"module": CNN(channels=(2,))}
    plain = quick(**cnn).fit(x, y)
    attacked = quick(**cnn, attack=PGD(0.1, n_steps=2)).fit(x, y)
    assert attacked.privacy_.epsilon == plain.privacy_.epsilon <= 5.0
    assert not np.array_equal(attacked.predict_proba(x), plain.predict_proba(x))
    again = pickle.loads(pickle.dumps(attacked))
    np.testing.assert_array_equal(again.predict(x), attacked.predict(x))


def test_attack_on_a_table_needs_an_input_range():
    attacked = quick(attack=PGD(0.2, input_range=None)).fit(X, Y)
    assert attacked.privacy_.epsilon == quick().fit(X, Y).privacy_.epsilon
    with pytest.raises(ValueError, match="set input_range"):
        quick(attack=PGD(0.2)).fit(X, Y)
