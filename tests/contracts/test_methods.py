"""The contract of every registered method; a new file in methods/ is tested here unasked."""

import copy
import pickle
import re
from dataclasses import replace
from math import inf
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn.base import clone
from torch import nn

from docs.methods_table import paper, references
from skdpfair import get_method
from skdpfair.engine import Batch, Streams, private_step, select_strategy
from skdpfair.engine import step as engine_step
from skdpfair.engine.step import noisy_sums
from skdpfair.methods import METHODS
from skdpfair.testing import check_method, example_records, example_task, noiseless_releases
from skdpfair.training.batches import records_at

from .method_steps import PRIVATE, mechanism_of, step_of

BIBLIOGRAPHY = Path(__file__).parents[2] / "docs" / "references.bib"
# the chance that correct noise fails one of the tests below
ALPHA = 1e-6
extreme = st.sampled_from([0.0, 1e-38, 1e-6, 0.5, 1.0, 1.0 + 1e-6, 1e6, 1e30])
norms = st.lists(st.one_of(extreme, st.floats(0, 1e3, width=32)), max_size=12)


def sample_of(norm, seed):
    rng = torch.Generator().manual_seed(seed)
    group = torch.randint(0, 3, (len(norm),), generator=rng)
    return example_records(norm, group=group)


@pytest.mark.parametrize("name", PRIVATE)
@pytest.mark.parametrize("n_groups", [1, 2, 7])
def test_contract(name, n_groups):
    check_method(METHODS[name](), n_groups=n_groups)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("dpsgd_f", {"ratio": "group_mean"}),
        ("naive", {"largest_factor": 2.0}),
        ("fairlens_dp", {"gamma1": 1.0}),
        ("global_adapt", {"threshold": 0.7}),
        ("global_adapt", {"count_noise_multiplier": 10.0}),
    ],
)
def test_contract_of_other_settings(name, settings):
    check_method(METHODS[name](**settings))


@pytest.mark.parametrize("name", PRIVATE)
@given(norm=norms, seed=st.integers(0, 9))
@settings(max_examples=40, deadline=None)
def test_one_record_moves_each_release_by_at_most_its_sensitivity(name, norm, seed):
    method, facts = METHODS[name](), example_task(n_groups=3)
    sample, state = sample_of(norm, seed), METHODS[name]().start(facts)
    whole = noiseless_releases(method, sample, facts, state)
    for i in range(len(norm)):
        kept = [j for j in range(len(norm)) if j != i]
        rest = type(sample)(*(getattr(sample, f)[kept] for f in sample.__dataclass_fields__))
        for query in method.queries(facts, 1.0):
            moved = whole[query.name] - noiseless_releases(method, rest, facts, state)[query.name]
            assert moved.norm() <= query.sensitivity * (1 + 1e-5)
        # the gradient query is asked at the SAME noisy counts for both neighbours
        with_i, without = method.clip(sample, state, whole), method.clip(rest, state, whole)
        torch.testing.assert_close(with_i.weight[kept], without.weight, rtol=1e-6, atol=0)
        own = float(with_i.weight[i].double() * sample.norm[i].double())
        assert own <= float(with_i.bound) * (1 + 1e-5)
        torch.testing.assert_close(with_i.bound, without.bound)


@pytest.fixture
def wide():
    """A module with many parameters, so that one draw of noise is a large sample."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Linear(500, 20)


def noise_of(name, module, batch, noise_multiplier, seed):
    """Return one step's noise in units of its claimed standard deviation."""
    mechanism, source = mechanism_of(name, noise_multiplier), Streams.seeded(seed, digest=b"")
    state = mechanism.method.start(mechanism.task)
    bounds, original = [], METHODS[name].clip

    def noted(*args):
        return bounds.append(original(*args)) or bounds[-1]

    strategy = select_strategy(module, batch.x, 20)
    with strategy, patch.object(METHODS[name], "clip", noted):
        step = private_step(strategy, batch, mechanism, state, source.noise())
        clip, exact = bounds[-1], strategy.flat()
        if len(batch):
            strategy.per_sample_gradients(batch).weighted_sum(clip.weight, exact)
    noise = step.gradient * mechanism.expected_batch_size - exact
    return (noise / (noise_multiplier * clip.bound)).double().numpy()


def scale_is(noise, factor):
    """Two-sided chi-square test that the standard deviation is ``factor``."""
    n, total = len(noise), float(np.sum((noise / factor) ** 2))
    return ALPHA / 2 < stats.chi2.cdf(total, n) < 1 - ALPHA / 2


def batch_of(size, groups):
    rng = torch.Generator().manual_seed(1)
    x = torch.rand((size, 500), generator=rng) * 100
    y = torch.randint(0, 20, (size,), generator=rng)
    return Batch(x, y, torch.tensor((groups * size)[:size], dtype=torch.int64))


@pytest.mark.parametrize("name", PRIVATE)
@pytest.mark.parametrize("size, groups", [(0, [0]), (1, [0]), (1, [1]), (40, [0]), (40, [0, 1])])
def test_gradient_noise_has_the_claimed_scale_whoever_is_in_the_batch(name, size, groups, wide):
    noise = noise_of(name, wide, batch_of(size, groups), 1.5, seed=size)
    assert scale_is(noise, 1.0)
    assert not scale_is(noise, 1.2) and not scale_is(noise, 1 / 1.2)
    assert abs(noise.mean()) < stats.norm.ppf(1 - ALPHA / 2) / np.sqrt(len(noise))


@pytest.mark.parametrize("name", PRIVATE)
def test_count_noise_has_the_claimed_scale(name):
    method, facts = METHODS[name](), example_task(n_groups=3)
    source = Streams.seeded(0, digest=b"").noise()
    sample, state = sample_of([0.5, 2.0, 1e6], 0), method.start(facts)
    finite = torch.ones(3, dtype=torch.bool)
    for query in method.queries(facts, 1.5):
        exact = noiseless_releases(method, sample, facts, state)[query.name]
        draws = [
            noisy_sums((query,), sample, finite, state, source)[query.name] - exact
            for _ in range(5000)
        ]
        noise = torch.stack(draws).flatten().double().numpy()
        claimed = query.noise_multiplier * query.sensitivity
        assert scale_is(noise / claimed, 1.0) and not scale_is(noise / claimed, 1.2)


@pytest.mark.parametrize("name", PRIVATE)
def test_two_steps_draw_fresh_noise(name, wide):
    source, mechanism = Streams.fresh().noise(), mechanism_of(name, 1.0)
    a, b = (step_of(wide, batch_of(0, [0]), mechanism, source).gradient for _ in range(2))
    r = stats.pearsonr(a.numpy(), b.numpy()).statistic
    assert abs(r) < stats.norm.ppf(1 - ALPHA / 2) / np.sqrt(len(a))


@pytest.mark.parametrize("value", [1e30, inf, -inf, float("nan")])
@pytest.mark.parametrize("name", PRIVATE)
def test_a_record_without_a_finite_gradient_contributes_nothing(name, value, wide):
    good, mechanism = batch_of(5, [0, 1]), mechanism_of(name)
    bad = Batch(good.x.clone(), good.y, good.group)
    bad.x[2] = value
    with_bad = step_of(wide, bad, mechanism)
    without = step_of(wide, records_at(good, torch.tensor([0, 1, 3, 4])), mechanism)
    torch.testing.assert_close(with_bad.gradient, without.gradient, rtol=1e-5, atol=1e-9)
    as_tuple = (s if isinstance(s, tuple) else (s,) for s in (with_bad.state, without.state))
    for a, b in zip(*as_tuple, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize(
    "name, options",
    [
        *(pytest.param(name, {}, id=name) for name in PRIVATE),
        pytest.param("fairlens_dp", {"gamma1": 1.0}, id="fairlens_dp-gamma1"),
    ],
)
def test_a_record_moves_the_sum_by_at_most_the_bound_whatever_its_weight(
    name, options, wide, monkeypatch
):
    batch, mechanism = (
        replace(batch_of(5, [0, 1]), weight=torch.ones(5)),
        mechanism_of(name, **options),
    )
    batch.x.mul_(1e-3)
    fixed, moves = {}, []

    def same_for_neighbours(queries, *args, early=None, examples=None):
        if early not in fixed:
            fixed[early] = noisy_sums(queries, *args, early=early, examples=examples)
        return fixed[early]

    monkeypatch.setattr(engine_step, "noisy_sums", same_for_neighbours)
    without = step_of(wide, records_at(batch, torch.tensor([0, 1, 3, 4])), mechanism).gradient
    for weight in (0.0, 1e-20, 0.1, 1.0, 1e3, 1e15):
        batch.weight[2] = weight
        step = step_of(wide, batch, mechanism)
        moved = (step.gradient - without).norm() * mechanism.expected_batch_size
        moves.append(float(moved / step.bound))
    assert max(moves) <= 1 + 1e-5
    assert moves[0] < 1e-6 and moves[2] == pytest.approx(0.1 * moves[3], rel=1e-4)
    assert moves[4:] == moves[3:4] * 2  # above 1 is 1


@pytest.mark.parametrize("name", sorted(METHODS))
def test_chunks_change_nothing(name, wide):
    batch, mechanism = batch_of(23, [0, 1]), mechanism_of(name)
    whole, parts = (step_of(wide, batch, mechanism, chunk_size=n).gradient for n in (None, 7))
    largest = float(whole.abs().max())
    torch.testing.assert_close(whole, parts, rtol=1e-4, atol=1e-6 * largest)


@pytest.mark.parametrize("name", PRIVATE)
def test_a_broken_bound_is_not_sound(name, wide):
    original = METHODS[name].clip

    def too_heavy(*args):
        clip = original(*args)
        return replace(clip, weight=clip.weight * 100)

    batch = batch_of(9, [0, 1])
    batch = replace(batch, x=batch.x * 1e-4)  # which no method clips
    assert bool(step_of(wide, batch, mechanism_of(name)).sound)
    with patch.object(METHODS[name], "clip", too_heavy):
        assert not bool(step_of(wide, batch, mechanism_of(name)).sound)


@pytest.mark.parametrize("name", sorted(METHODS))
def test_hyper_parameters_are_scikit_learn_parameters(name):
    method = METHODS[name]()
    params = method.get_params()
    for other in (clone(method), pickle.loads(pickle.dumps(method)), copy.deepcopy(method)):
        assert other.get_params() == params and other is not method
    for field, value in params.items():
        other = value + 1.0 if isinstance(value, float) else value
        assert METHODS[name]().set_params(**{field: other}).get_params()[field] == other
    assert get_method(name).get_params() == params
    assert get_method(method) is not method


@pytest.mark.parametrize("name", sorted(METHODS))
def test_documentation_names_the_paper_and_all_parameters(name):
    method = METHODS[name]
    for text in ("References", "Examples", ">>>", *method().get_params()):
        assert text in method.__doc__
    keys = re.findall(r"^@\w+\{(\w+),", BIBLIOGRAPHY.read_text(), flags=re.MULTILINE)
    assert method.reference in {"", *keys}
    author, year = paper(method).split()
    assert author.isalpha() and 1950 < int(year) < 2100 and author in references(method)


@pytest.mark.parametrize("name", sorted(METHODS))
def test_only_methods_that_take_noise_have_a_bound(name):
    method, sample = METHODS[name](), sample_of([1.0, 2.0], 0)
    facts = example_task(n_groups=3)
    state = method.start(facts)
    clip = method.clip(sample, state, noiseless_releases(method, sample, facts, state))
    assert (float(clip.bound) < inf) == method.takes_noise
    assert method.takes_noise or not method.private
