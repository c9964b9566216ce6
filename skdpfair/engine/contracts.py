"""Contracts of methods, checked on made-up records, and what examples of methods are made of."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from numbers import Number
from typing import TypeAlias

import torch
from sklearn.base import clone
from torch import Tensor
from torch.nn.functional import normalize

from skdpfair._utils.torch_internals import tree_leaves
from skdpfair.engine.mechanism import (
    Mechanism,
    Method,
    NoisySums,
    PerSample,
    PerSampleGradients,
    Query,
    State,
    Task,
)
from skdpfair.engine.per_sample.proof import ConstantDraws, same_alone_and_together
from skdpfair.engine.record_hooks import is_shipped
from skdpfair.engine.step import noisy_sums
from skdpfair.engine.streams import Streams

Values: TypeAlias = Sequence[float] | Tensor

# batches with random norms, beside those with extreme ones
_N_BATCHES, _N_BATCHES_OF_FIT = 20, 3
_N_ROWS = 5  # of a batch that are compared with themselves alone
_EXTREME: list[list[float]] = [[], [0.0], [1e-30, 1e30], [0.0, 1.0, 1e6], [1.0] * 5, [1e6] * 4]


def example_task(n_samples: int = 1000, n_groups: int = 2, sample_rate: float = 0.1) -> Task:
    """Return a small task for examples and tests.

    Parameters
    ----------
    n_samples, n_groups : int, default=1000 and 2
        Number of records and of groups.
    sample_rate : float in (0, 1], default=0.1
        Probability that a record is in a batch.

    Returns
    -------
    Task
        A task without shares of the groups.

    Examples
    --------
    >>> example_task(sample_rate=0.5)
    Task(n_samples=1000, n_groups=2, sample_rate=0.5, group_fractions=None, strata=())
    """
    return Task(n_samples, n_groups, sample_rate)


def example_records(
    norm: Values,
    loss: Values | None = None,
    group: Sequence[int] | Tensor | None = None,
    probability: Sequence[Sequence[float]] | Tensor | None = None,
    dtype: torch.dtype = torch.float32,
) -> PerSample:
    """Return records of a batch, as hooks of a method see them, from lists.

    Parameters
    ----------
    norm : sequence of float, length n
        Norm of each record's gradient.
    loss, group : sequence of n numbers or None, default=None
        Loss and group code of each record; None is 0 for all.
    probability : sequence of shape (n, n_classes) or None, default=None
        Predicted class probabilities; None is 0.5 for each of two classes.
    dtype : torch.dtype, default=torch.float32
        Type of all tensors except the groups.

    Returns
    -------
    PerSample
        The records.

    Examples
    --------
    >>> example_records(norm=[1.0, 2.0]).group
    tensor([0, 0])
    """
    norm = torch.as_tensor(norm, dtype=dtype)
    n = len(norm)
    loss = norm.new_zeros(n) if loss is None else torch.as_tensor(loss, dtype=dtype)
    group = torch.as_tensor([0] * n if group is None else group, dtype=torch.int64)
    if probability is None:
        probability = norm.new_full((n, 2), 0.5)
    return PerSample(norm, loss, group, torch.as_tensor(probability, dtype=dtype))


def noiseless_releases(
    method: Method, sample: PerSample, task: Task, state: State = None
) -> dict[str, Tensor]:
    """Return the releases of the method's queries on a batch, without noise.

    Parameters
    ----------
    method : Method
        The method with the queries.
    sample : PerSample
        The batch; if the method needs gradients and it has none, they are made from the norms.
    task : Task
        Public facts about the fit.
    state : object or None, default=None
        State of the method; None is the state before the first step.

    Returns
    -------
    dict of str to Tensor
        The sum of the rows of each query, by its name.

    Examples
    --------
    >>> from skdpfair import get_method
    >>> sample = example_records(norm=[4.0, 0.5])
    >>> noiseless_releases(get_method("global_adapt"), sample, example_task())
    {'above_z': tensor([1.])}
    """
    state = method.start(task) if state is None else state
    finite_mask = torch.ones_like(sample.norm, dtype=torch.bool)
    if method.sees_gradients and not isinstance(sample, PerSampleGradients):
        sample = with_gradients(sample)
    queries = tuple(replace(q, noise_multiplier=0.0) for q in method.queries(task, 0.0))
    return noisy_sums(queries, sample, finite_mask, state, Streams.fresh().noise())


def with_gradients(sample: PerSample, n_parameters: int = 3) -> PerSampleGradients:
    """Return the sample with gradients that have its norms and depend only on the norms."""
    angle = sample.norm[:, None] + torch.arange(n_parameters, dtype=sample.norm.dtype)
    columns = sample.norm, sample.loss, sample.group, sample.probability
    return PerSampleGradients(*columns, sample.norm[:, None] * normalize(torch.cos(angle), dim=1))


def check_method(method: Method, *, n_groups: int = 3) -> None:
    """Raise AssertionError if a private method breaks a contract that its epsilon relies on.

    Parameters
    ----------
    method : Method
        A private method, as a user would create it.
    n_groups : int, default=3
        Number of groups of the simulated task.

    Raises
    ------
    AssertionError
        If a contract is broken, or the method is not private.

    Notes
    -----
    For batches with random and extreme norms, batches without some groups, and empty batches:

    * no weighted gradient is longer than the declared bound, times the factor of its stratum if
      the method has strata;
    * a row of a query is at most as long as its sensitivity, times that factor, and depends only
      on its own record;
    * given the release, the weight of a record does not depend on other records;
    * given the release, removing a record changes the gradient sum by at most the bound;
    * given the release, the addition to a record's gradient does not depend on other records;
    * hooks that see records set no attributes, and the next state is finite: it depends on the
      batch only through the release.

    Examples
    --------
    >>> from skdpfair import get_method
    >>> check_method(get_method("dpsgd_f"))
    """
    assert method.private, f"{method.name} is not private, so it has no bound to keep"
    small = example_task(n_groups=2 if method.binary else n_groups)
    rates = method.rate_choices(small)
    strata = tuple((rate, min(rates) / rate) for rate in rates)
    _check_hooks(method, replace(small, strata=strata), _N_BATCHES)


def refuse_broken(method: Method, task: Task, n_outputs: int) -> None:
    """Raise ValueError before the first step if a user's private method breaks a contract.

    `check_method` tries more batches; training does not rely on either, see `RecordHooks`.
    """
    if not method.private or is_shipped(method):
        return
    if method.needs_group_fractions and task.group_fractions is None:
        # noise will tell them
        task = replace(task, group_fractions=torch.full((task.n_groups,), 1 / task.n_groups))
    try:
        _check_hooks(clone(method), task, _N_BATCHES_OF_FIT, n_outputs)
    except Exception as error:  # of made-up records
        fault = (
            "is not private" if isinstance(error, AssertionError) else "fails on made-up records"
        )
        raise ValueError(
            f"method={method!r} {fault}: {error}. Its results for a record must depend on that "
            "record and on released values only, for any number of records, and stay within its "
            "bounds: skdpfair.testing.check_method tests this."
        ) from None


def _check_hooks(method: Method, task: Task, n_batches: int, n_outputs: int = 2) -> None:
    batches = [*_batches(task.n_groups, n_batches, n_outputs)]
    with torch.random.fork_rng(devices=[]):
        drawn = torch.get_rng_state()
        try:
            _check_batches(method, task, batches)
        except AssertionError:
            if torch.equal(torch.get_rng_state(), drawn):
                raise
            # slow, so only for hooks that draw random numbers
            with ConstantDraws():
                _check_batches(method, task, batches)


def _check_batches(method: Method, task: Task, batches: Sequence[PerSample]) -> None:
    for sample in batches:
        if method.sees_gradients:
            sample = with_gradients(sample)
        first = later = method.start(task)
        for _ in range(3):
            later = method.update(later, _release(method, sample, task, later))
        for state in (first,) if later is first else (first, later):
            factors = Mechanism(method, task, 1.0).factors_at(state)
            factor = torch.ones(len(sample.norm)) if factors is None else factors[sample.group]
            _check_queries(method, sample, task, state, factor)
            exact = _release(method, sample, task, state)
            noisy = {k: v + torch.linspace(-9.0, 9.0, len(v)) for k, v in exact.items()}
            for release in (exact, noisy):
                attributes = dict(vars(method))
                _check_addition(method, sample, state, release)
                _check_clip(method, sample, state, release, factor)
                changed = [k for k, v in vars(method).items() if v is not attributes.get(k, v)]
                changed += vars(method).keys() - attributes.keys()
                assert not changed, f"a hook that sees records sets {', '.join(changed)}"
                _check_next_state(method, state, release)


def _batches(n_groups: int, n_batches: int, n_outputs: int) -> Iterator[PerSample]:
    generator = torch.Generator().manual_seed(0)
    for norms in _EXTREME:
        codes = [i % max(n_groups - 1, 1) for i in range(len(norms))]
        yield example_records(
            norms, None, codes, torch.full((len(norms), n_outputs), 1 / n_outputs)
        )
    for _ in range(n_batches):
        n = int(torch.randint(1, 40, (), generator=generator))
        norm = torch.empty(n).log_normal_(0.0, 3.0, generator=generator)
        group = torch.randint(0, n_groups, (n,), generator=generator)
        probability = torch.rand((n, n_outputs), generator=generator)
        yield example_records(norm, torch.rand(n, generator=generator), group, probability)


def _release(method: Method, sample: PerSample, task: Task, state: State) -> dict[str, Tensor]:
    return noiseless_releases(method, sample, task, state) | {
        "gradient": torch.tensor([3.0, 0.0, -4.0])
    }


def _rows(sample: PerSample, rows: slice) -> PerSample:
    return type(sample)(*(getattr(sample, field.name)[rows] for field in fields(sample)))


def _check_alone(what: str, of: Callable[[PerSample], Tensor], sample: PerSample) -> None:
    """Check that what follows from a batch has, of each record, what follows from it alone."""
    together = of(sample)
    assert len(together) == len(sample.norm), f"{what}: not one row per record"
    alone = (of(_rows(sample, slice(i, i + 1)))[0] for i in range(min(len(together), _N_ROWS)))
    is_same = same_alone_and_together(together, alone, rtol=1e-5, atol=1e-6, equal_nan=False)
    assert is_same, f"{what} of a record depends on other records"


def _check_queries(
    method: Method, sample: PerSample, task: Task, state: State, factor: Tensor
) -> None:
    for query in method.queries(task, 1.0):
        lengths = query.matrix(sample, state).norm(dim=1) / factor
        is_bounded = bool((lengths <= query.sensitivity * (1 + 1e-5)).all())
        assert is_bounded, f"{query.name}: a row beyond the sensitivity"

        def of(batch: PerSample, query: Query = query) -> Tensor:
            return query.matrix(batch, state)

        _check_alone(query.name, of, sample)


def _check_addition(method: Method, sample: PerSample, state: State, release: NoisySums) -> None:
    addition = method.gradient_term(sample, state, release)
    if addition is None:
        return
    assert not addition.averaged, "a mean over the batch mixes the records"
    term = addition.logit_gradient
    is_of_outputs = term is None or term.shape == sample.probability.shape
    assert is_of_outputs, "logit_gradient has no number for each output"
    for part in ("logit_gradient", "hvp_vectors"):
        if getattr(addition, part) is not None:

            def of(batch: PerSample, part: str = part) -> Tensor:
                value: Tensor | None = getattr(
                    method.gradient_term(batch, state, release), part, None
                )
                assert value is not None, f"{part} of a record depends on other records"
                return value

            _check_alone(part, of, sample)


def _check_clip(
    method: Method, sample: PerSample, state: State, release: NoisySums, factor: Tensor
) -> None:
    clip = method.clip(sample, state, release)
    bound = float(clip.bound)
    assert math.isfinite(bound) and bound >= 0, f"bound {bound} is not a sensitivity"
    assert clip.weight.shape == sample.norm.shape, "one weight per record"
    assert bool((clip.weight >= 0).all()), "a negative weight"
    lengths = clip.weight.double() * sample.norm.double() / factor
    assert bool((lengths <= bound * (1 + 1e-5)).all()), f"a weighted gradient exceeds {bound}"
    for rows in (slice(0), *(slice(i, i + 1) for i in range(_N_ROWS))):
        alone = method.clip(_rows(sample, rows), state, release)
        is_same = math.isclose(float(alone.bound), bound, rel_tol=1e-6)
        assert is_same, "the bound depends on the records"
        is_same = torch.allclose(alone.weight, clip.weight[rows], rtol=1e-6, atol=0.0)
        assert is_same, "weight of a record depends on other records"


def _check_next_state(method: Method, state: State, release: NoisySums) -> None:
    after = method.update(state, release)
    numbers = [v for v in tree_leaves(after) if isinstance(v, (Tensor, Number))]
    is_finite = all(torch.isfinite(torch.as_tensor(v)).all() for v in numbers)
    assert is_finite, "the next state is not finite"
