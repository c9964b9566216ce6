"""Views of records: their gradients are averaged and clipped once, each from its own record."""

import pickle

import numpy as np
import pytest
import torch
from scipy import sparse
from sklearn.base import clone
from torch import nn
from torch.nn.functional import pad

from skdpfair import DPFairClassifier, Persons, get_method
from skdpfair._networks import CNN
from skdpfair.analysis import GroupRecorder
from skdpfair.augmentations import PGD, FlipAndShift, Views, views
from skdpfair.engine import Batch, Streams, private_step, select_strategy
from skdpfair.engine.batch import Examples
from skdpfair.engine.mechanism import Mechanism
from skdpfair.methods import METHODS
from skdpfair.testing import example_task
from skdpfair.training.loop import TrainingLoop
from tests.engine.per_sample.modules import chain, loop, seeded

PRIVATE = sorted(name for name, method in METHODS.items() if method.private)
BOUND = 0.7
pytestmark = pytest.mark.filterwarnings(
    "ignore::skdpfair.exceptions.InsecureSeedWarning",
    "ignore::skdpfair.exceptions.LowSignalWarning",
)


def jittered(x):
    return x + torch.randn_like(x)


ACTIVATIONS = {"closed_form": nn.Tanh, "bookkeeping": nn.GELU, "vmap": nn.PReLU}
by_strategy = pytest.mark.parametrize("name", ACTIVATIONS)
UNITS = {"records": None, "persons": [2, 1, 3]}
by_unit = pytest.mark.parametrize("sizes", UNITS.values(), ids=UNITS)


def module_of(name):
    return seeded(chain, (4, 5), ACTIVATIONS[name](), (5, 3)).double()


def batch_of(sizes=None, n=9):
    """A batch of ``n`` records, or of persons with ``sizes`` records."""
    generator = torch.Generator().manual_seed(1)
    n, sizes = (n, 1) if sizes is None else (sum(sizes), torch.tensor(sizes))
    x = torch.randn((n, 4), generator=generator, dtype=torch.float64)
    y = torch.randint(0, 2, (n,), generator=generator)
    of = Examples(sizes, n)
    group = torch.randint(0, 2, (len(of),), generator=generator)
    return Batch(x, y, of.spread(group), examples=of)


def stepped(module, batch, copies=1, attack=None, method=None, noise=0.0, **options):
    """Return the sum of a step, and the inputs that it was taken on."""
    method = method or get_method("dpsgd", max_grad_norm=BOUND)
    mechanism, seen = Mechanism(method, example_task(n_groups=2), noise), []
    with select_strategy(module, batch.x, 3) as model:
        model.generator.manual_seed(0)
        view = None if attack is None else views(attack, model, batch.x[:1])

        def watched(module, x, y):
            seen.append(view(module, x, y))
            return seen[-1]

        options["attack"] = None if view is None else watched
        stream, state = Streams.seeded(0, digest=b"").noise(), method.start(mechanism.task)
        step = private_step(model, batch.repeated(copies), mechanism, state, stream, **options)
    return step.gradient.clone() * mechanism.expected_batch_size, seen


def by_loop(module, x, y, sizes):
    """Return the sum of the mean gradients of units, each clipped."""
    means = torch.stack([rows.mean(0) for rows in loop(module, x, y).split(sizes)])
    return (means * (BOUND / means.norm(dim=1, keepdim=True)).clamp(max=1.0)).sum(0)


@pytest.mark.parametrize("copies, chunk_size", [(1, 7), (3, None), (3, 7)])
@pytest.mark.parametrize("sizes", [None, [2, 1, 3], [2, 2, 2]], ids=["records", "persons", "pairs"])
@by_strategy
def test_step_equals_a_loop_over_the_views(name, sizes, copies, chunk_size):
    module, batch = module_of(name), batch_of(sizes)
    found, seen = stepped(module, batch, copies, jittered, chunk_size=chunk_size)
    x, y = torch.cat(seen), batch.y.repeat_interleave(copies)
    assert len(x) == copies * len(batch)  # both passes over the chunks see the same views
    each = [1] * len(batch) if sizes is None else sizes
    expected = by_loop(module, x, y, [copies * size for size in each])
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("copies", [1, 3])
@by_unit
@by_strategy
def test_one_record_or_person_moves_the_sum_by_at_most_the_bound(name, sizes, copies):
    module, batch = module_of(name), batch_of(sizes)
    whole, seen = stepped(module, batch, copies, lambda x: 9.0 * jittered(x))
    viewed = batch.repeated(copies)
    sizes = copies * torch.tensor(sizes or [1] * len(batch))
    for u in (0, len(sizes) - 1):
        at = torch.arange(len(sizes))
        kept = at.repeat_interleave(sizes) != u
        columns = torch.cat(seen)[kept], viewed.y[kept], viewed.group[kept]
        rest = Batch(*columns, examples=Examples(sizes[at != u]))
        without, _ = stepped(module, rest)
        assert 0 < (whole - without).norm() <= BOUND * (1 + 1e-9)


@by_unit
@pytest.mark.parametrize("name", PRIVATE)
def test_views_equal_to_the_record_change_no_step(name, sizes):
    module, batch, method = module_of("closed_form"), batch_of(sizes), get_method(name)
    plain, _ = stepped(module, batch, method=method, noise=0.5)
    found, _ = stepped(module, batch, 3, lambda x: x, method=method, noise=0.5)
    torch.testing.assert_close(found, plain, rtol=1e-6, atol=1e-8)


COUPLED = {
    "reversed": lambda x: x.flip(0),
    "mean of the batch": lambda x: x - x.mean(0),
    "size of the batch": lambda x: x / len(x),
    "mix-up": lambda x: (x + x[torch.randperm(len(x))]) / 2,
    "larger batches": lambda x: x - x.mean(0) if len(x) > 2 else x,
    "first record": lambda x: torch.cat([x[:1], x[1:] + x[:1]]),
    "one draw for all": lambda x: x * torch.rand(()),
}


@pytest.mark.parametrize("name", COUPLED)
def test_views_are_made_from_their_own_record(name):
    x = torch.rand((5, 4), generator=torch.Generator().manual_seed(0))
    y = torch.zeros(5, dtype=torch.int64)
    with select_strategy(nn.Linear(4, 2), x, 2) as model:
        view, found = views(COUPLED[name], model, x[:1]), []
        for others in (x[1:], 1 - x[1:]):
            model.generator.manual_seed(0)
            found.append(view(None, torch.cat([x[:1], others]), y)[0])
        assert torch.equal(*found)
        if name == "one draw for all":
            ratio = view(None, torch.ones(5, 4), y)
            assert len(ratio.unique()) == 5


@pytest.mark.parametrize("shape", [(7, 6), (1, 7, 6), (3, 7, 6), (7, 6, 3), (7, 6, 1)])
@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize("shift", [0, 1, 2])
def test_flip_and_shift_draws_each_of_its_views_evenly(shape, flip, shift):
    height, width = 7, 6
    is_last = shape[-1] < 6
    picture = torch.rand(shape, generator=torch.Generator().manual_seed(0))
    x = torch.stack([picture, picture + 1]).repeat_interleave(2000, 0)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        found = FlipAndShift(flip, shift)(x)
    if is_last:
        picture, found = picture.movedim(-1, 0), found.movedim(-1, 1)
    size, views = 2 * shift + 1, []
    for image in [picture, *([picture.flip(-1)] if flip else [])]:
        wide = pad(image.reshape(1, -1, height, width), [shift] * 4, mode="reflect")
        parts = wide.unfold(2, height, 1).unfold(3, width, 1)  # (1, channels, size, size, ...)
        views += parts.movedim(1, 3).reshape(size * size, *picture.shape)
    for part, start in ((found[:2000], 0), (found[2000:], 1)):
        which = (part[:, None] == torch.stack(views)[None] + start).flatten(2).all(2)
        assert which.any(1).all()  # each is one of the views, of its own picture
        share = which.float().mean(0)
        assert (share > 0.4 / len(views)).all() and (share < 2.0 / len(views)).all()


def test_augment_is_cloned_and_reached_by_parameters():
    augment = FlipAndShift(shift=2)
    assert repr(augment) == "FlipAndShift(shift=2)"
    copies = clone(augment), pickle.loads(pickle.dumps(augment))
    assert all(c.get_params() == augment.get_params() for c in copies)
    model = clone(quick(augment=Views(augment, n=2)))
    assert model.augment.augment is not augment and model.augment.n == 2
    assert "augment=Views(augment=FlipAndShift(shift=2), n=2)" in repr(model)
    assert model.set_params(augment__augment__shift=3).augment.augment.shift == 3


def pictures(n=120, shape=(6, 6)):
    rng = np.random.default_rng(0)
    x, y = 0.6 * rng.random((n, *shape), dtype=np.float32), np.arange(n) % 2
    x[y == 1, ..., :3] += 0.4
    return x, y


def quick(method="dpsgd", **params):
    given = {"epsilon": 3.0, "max_steps": 8, "batch_size": 60, "random_state": 0}
    given |= {"module": CNN(channels=(2,)), "accountant": "rdp"}
    return DPFairClassifier(method, **(given | params))


VIEWS = {"augment": Views(FlipAndShift(shift=1), n=3)}


# one of each kind: by formula, by counts, by groups, by two gradients, and without a formula
@pytest.mark.parametrize("name", ["dpsgd", "dpsgd_f", "dp_is_sgd", "dp_sat", "fairlens_dp", "sgd"])
def test_methods_train_on_views_or_refuse_n(name):
    X, y = pictures()
    epsilon = 5.0 if METHODS[name].private else None
    model = quick(name, epsilon=epsilon, **VIEWS)
    groups = np.arange(len(y)) // 2 % 2
    if not METHODS[name].takes_persons:
        with pytest.raises(ValueError, match="n=3"):
            model.fit(X, y, sensitive_features=groups)
        model.set_params(augment=FlipAndShift(shift=1))
    model.fit(X, y, sensitive_features=groups)
    assert np.isfinite(model.predict_proba(X)).all()


def test_augment_changes_no_part_of_the_guarantee():
    X, y = pictures()
    plain, viewed = (quick("global_adapt", **p).fit(X, y).privacy_ for p in ({}, VIEWS))
    assert viewed.releases == plain.releases and viewed.epsilon == plain.epsilon
    for name in ("protects", "n_samples", "sample_rate", "noise_multiplier", "delta", "steps"):
        assert getattr(viewed, name) == getattr(plain, name)
    persons = np.arange(len(y)) // 3
    bounded = {"persons": Persons(max_records=2), "delta": 1e-3}
    plain, viewed = (quick(**bounded, **p).fit(X, y, persons=persons).privacy_ for p in ({}, VIEWS))
    assert viewed.epsilon == plain.epsilon and viewed.n_samples == plain.n_samples == 40


def inputs_of_steps(model, X, y, monkeypatch, **given):
    """Fit, and return the inputs that each step was taken on."""
    seen, begin = [], TrainingLoop.__init__

    def watched(self, *args):
        begin(self, *args)
        attack = self.attack

        def noted(module, x, y):
            seen.append(attack(module, x, y))
            return seen[-1]

        self.attack = noted

    with monkeypatch.context() as patch:
        patch.setattr(TrainingLoop, "__init__", watched)
        model.fit(X, y, **given)
    return seen


@pytest.mark.parametrize("persons", [False, True])
def test_views_are_drawn_anew_in_each_step_for_each_copy(persons, monkeypatch):
    X, y = np.zeros((60, 4), dtype=np.float32), np.arange(60) % 2
    given = {"persons": np.arange(60) // 3} if persons else {}
    model = quick(module="logistic", augment=Views(jittered, n=3))
    model.set_params(persons__max_records=3 if persons else None, delta=1e-3, batch_size=20)
    first = inputs_of_steps(model, X, y, monkeypatch, **given)
    assert len(first) >= 6 and all(len(x) % 3 == 0 for x in first)
    values = torch.cat(first).flatten()
    assert len(values.unique()) > 0.999 * len(values)
    again = inputs_of_steps(clone(model), X, y, monkeypatch, **given)
    assert all(map(torch.equal, first, again))
    other = inputs_of_steps(clone(model).set_params(random_state=1), X, y, monkeypatch, **given)
    assert not torch.equal(first[0][:3], other[0][:3])


def test_views_are_made_before_the_attack(monkeypatch):
    X, y = pictures()
    model = quick(attack=lambda module, x, y: x.clamp(max=0.5), augment=lambda x: x * 0 + 0.9)
    seen = inputs_of_steps(model, X, y, monkeypatch)
    assert all(bool((x == 0.5).all()) for x in seen)
    quick(attack=PGD(0.1, n_steps=2), **VIEWS).fit(X, y)


def test_predictions_and_diagnostics_are_of_records_without_augment():
    X, y = pictures()
    recorder = GroupRecorder(terms=False)
    params = {"module": "logistic", "batch_size": len(y), "callbacks": [recorder]}
    hidden = {"augment": Views(lambda x: x * 0, n=2)}
    noiseless = {"epsilon": None, "noise_multiplier": 0.0, "lr": 0.5}
    method = get_method("dpsgd", max_grad_norm=1.0)
    plain, blind = (quick(method, **params, **noiseless, **p).fit(X, y) for p in ({}, hidden))
    assert not blind.net_.module_[1].weight.any()  # it saw nothing but zeros
    first = [m.diagnostics_[["step", "loss", "gradient_norm"]].iloc[0] for m in (blind, plain)]
    np.testing.assert_allclose(*first)
    seeing = quick(**VIEWS, validation_data=(X, y)).fit(X, y)
    np.testing.assert_array_equal(seeing.predict_proba(X), seeing.predict_proba(X))
    score = seeing.net_.history[-1]["valid_acc"]
    assert score == pytest.approx(seeing.score(X, y))


@pytest.mark.parametrize("persons", [False, True])
def test_sparse_rows_train_on_views_like_dense_ones(persons):
    X, y = np.eye(120, 5, dtype=np.float32), np.arange(120) % 2
    params = {"module": "logistic", "augment": Views(lambda x: 2 * x, n=2)}
    noiseless = {"epsilon": None, "noise_multiplier": 0.0, "lr": 0.5, "batch_size": 120}
    found = [
        quick(get_method("dpsgd", max_grad_norm=0.3), **(params | noiseless))
        .set_params(max_physical_batch_size=50, persons__max_records=3 if persons else None)
        .fit(rows, y, persons=np.arange(120) // 3 if persons else None)
        .decision_function(X)
        for rows in (X, sparse.csr_array(X))
    ]
    np.testing.assert_allclose(*found, rtol=1e-5)


def test_augment_is_that_of_reference_and_copies():
    X, y = pictures()
    model = quick(**VIEWS, keep_reference=True).fit(X, y)
    assert model.reference_.augment.get_params()["augment__shift"] == 1
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert repr(again.augment) == repr(model.augment)
    assert model.release().augment.n == 3


@pytest.mark.parametrize(
    ("params", "error", "match"),
    [
        ({"augment": FlipAndShift}, TypeError, r"augment must be .*FlipAndShift\(\)"),
        ({"augment": nn.Tanh()}, TypeError, "augment must be .* callable"),
        ({"augment": lambda: None}, TypeError, "augment must be .* callable"),
        ({"augment": lambda x: None}, TypeError, "augment .*torch.Tensor"),
        ({"augment": lambda x: x[:, :3]}, ValueError, r"augment must .* the shape \(2, 3, 6\)"),
        ({"augment": lambda x: x / 0}, ValueError, "augment .* NaN or infinity"),
        ({"augment": FlipAndShift(shift=-1)}, ValueError, "shift of FlipAndShift .* -1"),
        ({"augment": FlipAndShift(flip="yes")}, ValueError, "flip of FlipAndShift .* 'yes'"),
        ({"augment": FlipAndShift(shift=6)}, ValueError, "more than shift=6 pixels"),
        (
            {"augment": lambda x: x if torch.rand(()) < 0.5 else -x},
            ValueError,
            r"augment cannot run on one record at a time: .*line \d+",
        ),
        (
            {"augment": lambda x: x + torch.rand(1, generator=torch.Generator())},
            ValueError,
            "generator of its own|Generator",
        ),
    ],
)
def test_augment_that_cannot_be_used_is_refused(params, error, match):
    with pytest.raises(error, match=match):
        quick(**params).fit(*pictures())
