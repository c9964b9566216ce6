"""White-box audit of single steps: attacks on all that a step releases.

The attacker knows the batch, the weights and the gradients, and must tell whether one record or
person took part: by thresholds on likelihood ratios, known and learned.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from scipy.stats import norm as normal_law
from sklearn.discriminant_analysis import QuadraticDiscriminantAnalysis
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

from benchmarks.audits.sums import clip_of, rate_at_most, recording
from skdpfair import get_method
from skdpfair._utils.validate import integer, number, one_of
from skdpfair.engine import Batch, Streams, private_step, select_strategy
from skdpfair.engine.batch import Examples
from skdpfair.engine.mechanism import Mechanism, PerSample, Task
from skdpfair.privacy import gdp
from skdpfair.privacy.releases import MAX_RECORDS
from skdpfair.testing import example_records
from skdpfair.testing._lower_bounds import describe_bound
from skdpfair.training.batches import records_at

_NORMS = np.geomspace(1e-2, 1e4, 61)
# how well a change of scale shows in the norm of so many numbers
_SPREAD = 30.0
# gradient norms of the other records
_QUIET, _LOUD = 0.3, 100.0
_FEW = 16  # numbers of a vector that the attack sees one by one
# outputs held in memory at once
_CHUNK = 1000
_TRAINING = 0.25  # share of the outputs that the attack is learned on
_TAILS = np.array([0.002, 0.005, 0.01, 0.02])
_THRESHOLDS = np.concatenate([_TAILS, np.linspace(0, 1, 17)[1:-1], 1 - _TAILS])
_RIDGE = 1e-9


@dataclass(frozen=True)
class Scenario:
    """A batch, and the group of the record or person that joins it."""

    name: str
    norms: tuple[float, ...]
    groups: tuple[int, ...]
    canary_group: int


def scenarios(n_groups: int) -> tuple[Scenario, ...]:
    """Return the batches of the audit: nobody else, another group only, and a crowd.

    >>> [(s.name, len(s.norms), s.canary_group) for s in scenarios(3)]
    [('alone', 0, 2), ('stranger', 20, 2), ('crowd', 200, 2)]
    """
    last = n_groups - 1
    return (
        Scenario("alone", (), (), last),
        Scenario("stranger", (_QUIET,) * 20, (0,) * 20, last),
        Scenario("crowd", (_QUIET,) * 180 + (_LOUD,) * 20, (0,) * 180 + (last,) * 20, last),
    )


@dataclass(frozen=True)
class StepAudit:
    """What a white-box attack on single steps proves."""

    method: str
    scenario: str
    mu_claimed: float
    mu_lower: float
    epsilon_claimed: float
    epsilon_lower: float
    delta: float
    confidence: float
    n_draws: int
    records_per_person: int = 1

    @property
    def passed(self) -> bool:
        """Whether the lower bound is not above the claim."""
        return self.mu_lower <= self.mu_claimed

    def __str__(self):
        best = best_mu(self.n_draws, (1 - self.confidence) / len(scenarios(1)))
        at_best = gdp.gdp_epsilon(best, self.delta) if best > 0 else 0.0
        evidence, k = f"batch {self.scenario!r}", self.records_per_person
        if k > 1:
            evidence += f" of persons with up to {k} records"
        return describe_bound(self, "a step", evidence, at_best, "draws")


def audit_step(
    method,
    *,
    noise_multiplier=1.0,
    noise_sampler="standard",
    n_draws=20_000,
    delta=1e-5,
    confidence=1 - 1e-6,
    n_groups=2,
    n_features=1000,
    records_per_person=1,
    random_state=None,
) -> StepAudit:
    """Attack single steps of a method, knowing all but whether one record or person took part.

    Parameters
    ----------
    method : str or Method
        A private method, with its hyper-parameters.
    noise_multiplier : float in [0.001, 1e6], default=1.0
        Of the gradient.
    noise_sampler : {"standard", "gaussian_sum"}, default="standard"
        As in `DPFairClassifier`.
    n_draws : int >= 100, default=20_000
        Steps taken with the record and without, on each of three batches.
    delta : float in (0, 1), default=1e-5
        Where epsilon is taken.
    confidence : float in (0, 1), default=1 - 1e-6
        Chance that correct code passes; the failures of several audits add up.
    n_groups : int >= 1, default=2
        Groups of the simulated task.
    n_features : int >= 250, default=1000
        The model has twice as many parameters.
    records_per_person : int in [1, 1000], default=1
        If more than 1, the batches are of persons with 1 to so many records; the one who joins
        has so many.
    random_state : int or None, default=None
        None draws fresh noise.

    Returns
    -------
    StepAudit
        ``passed`` tells whether the lower bound ``mu_lower`` of Gaussian differential privacy is
        not above ``mu_claimed``, what the accountant charges for; ``epsilon_lower`` and
        ``epsilon_claimed`` are the same as epsilon at ``delta``.  ``scenario`` is the batch on
        which the attack did best.  ``str`` says this in a sentence.

    Notes
    -----
    A softmax regression takes its first step through the engine that fits use, on a batch with
    and without a record whose gradient is orthogonal to all others and of the norm that shows
    most.  A person's records have equal gradients, so that a sum in place of their mean, or
    clipping record by record, shows most.  The attack sees every release, the noisy gradient and
    the next state: their parts along the record's gradient, along the others', and the norm of
    the rest, which betrays a noise that depends on the data.  A quarter of the draws fit a normal
    distribution to each neighbour; on the others their log-likelihood ratio is thresholded, and so
    is the one that the method's own rule gives for what was released.  Clopper-Pearson limits of
    the error rates give the least ``mu`` (Dong et al., 2022), all at ``confidence`` together.  The
    claim is the joint Gaussian of the step that the accountant charges for.

    Each batch is given, so sampling is not audited.

    Examples
    --------
    >>> audit = audit_step("dpsgd", n_draws=400, random_state=0)
    >>> audit.passed, audit.mu_claimed
    (True, 1.0)
    """
    method = get_method(method)
    if not method.private:
        raise ValueError(f"method={method.name!r} claims no finite epsilon: nothing to audit.")
    one_of("noise_sampler", noise_sampler, ("standard", "gaussian_sum"))
    inner: dict[str, Any] = {"low": 0, "low_open": True, "high_open": True}
    number("noise_multiplier", noise_multiplier, low=1e-3, high=1e6)
    number("delta", delta, high=1, **inner)
    number("confidence", confidence, high=1, **inner)
    integer("n_draws", n_draws, low=100)
    integer("n_features", n_features, low=250)
    integer("records_per_person", records_per_person, high=MAX_RECORDS)
    if records_per_person > 1 and not method.takes_persons:
        raise ValueError(
            f"method={method.name!r} has no formula for persons with several records: "
            f"records_per_person={records_per_person} cannot be audited. Use 1."
        )
    task = Task(1000, 2 if method.binary else integer("n_groups", n_groups), 0.1)
    mechanism = Mechanism(method, task, float(noise_multiplier))
    batches, bounds = scenarios(task.n_groups), {}
    for place, scenario in enumerate(batches):
        source = _streams(random_state, place).noise(kind=noise_sampler)
        with_record = _batch(mechanism, scenario, n_features, records_per_person)
        without, with_record = _outputs(mechanism, with_record, n_draws, source)
        bounds[scenario.name] = mu_of(without, with_record, (1 - confidence) / len(batches))
    worst = max(bounds, key=bounds.__getitem__)
    mu, mu_lower = 1 / mechanism.release.joint_noise_multiplier, bounds[worst]
    return StepAudit(
        method=method.name,
        scenario=worst,
        mu_claimed=mu,
        mu_lower=mu_lower,
        epsilon_claimed=gdp.gdp_epsilon(mu, delta),
        epsilon_lower=gdp.gdp_epsilon(mu_lower, delta) if mu_lower > 0 else 0.0,
        delta=delta,
        confidence=confidence,
        n_draws=n_draws,
        records_per_person=records_per_person,
    )


def _streams(random_state, place):
    if random_state is None:
        return Streams.fresh()
    seed = integer("random_state", random_state, low=0)
    return Streams.seeded(seed, digest=bytes([place]))


def _outputs(mechanism, with_record, n_draws, noise):
    """Return what the attack sees, (n_draws, n_seen), without the record or person and with it."""
    module = nn.Linear(with_record.x.shape[1], 2, bias=False)
    nn.init.zeros_(module.weight)
    without = _without_last(with_record)
    with select_strategy(module, with_record.x, 2) as engine:
        attack = Transcripts(engine, mechanism, with_record, noise)
        return [attack.draws(batch, n_draws) for batch in (without, with_record)]


def _batch(mechanism, scenario, n_features, most):
    """Return the batch with the record or person last; inputs of two share no feature."""
    norms = torch.tensor([*scenario.norms, _telling_norm(mechanism, scenario)])
    x = torch.zeros(len(norms), n_features)
    # a gradient is half of (x, -x)
    x.fill_diagonal_(2**0.5)
    y = torch.zeros(len(norms), dtype=torch.int64)
    batch = Batch(x * norms[:, None], y, torch.tensor([*scenario.groups, scenario.canary_group]))
    if most == 1:
        return batch
    # norms of persons are rounded up, and a gradient just beyond a threshold may count for nothing
    batch = replace(batch, x=batch.x * (1 - 1e-4))
    sizes = torch.tensor([*(1 + i % most for i in range(len(norms) - 1)), most])
    records = torch.arange(len(norms)).repeat_interleave(sizes)
    return replace(records_at(batch, records), examples=Examples(sizes))


def _without_last(batch):
    """Return the batch without its last record or person."""
    sizes = batch.examples.sizes
    if isinstance(sizes, int):
        return records_at(batch, torch.arange(len(batch) - 1))
    rest = records_at(batch, torch.arange(len(batch) - int(sizes[-1])))
    return replace(rest, examples=Examples(sizes[:-1]))


def _telling_norm(mechanism, scenario):
    """Return the largest norm of a gradient that moves the releases, or their noise, most."""
    method, task, groups = mechanism.method, mechanism.task, [*scenario.groups]
    state, best = method.start(task), (0.0, 1.0)
    quiet = clip_of(method, example_records(scenario.norms, group=groups), state, task).bound
    groups.append(scenario.canary_group)
    for norm in _NORMS:
        sample = example_records([*scenario.norms, norm], group=groups)
        clip = clip_of(method, sample, state, task)
        moved = [float(clip.weight[-1]) * norm / float(clip.bound) / mechanism.noise_multiplier]
        moved.append(_SPREAD * abs(float(torch.log(clip.bound / quiet))))  # data-dependent noise
        if not method.sees_gradients:
            rows = [(q, float(q.matrix(sample, state)[-1].norm())) for q in mechanism.queries]
            moved += [row / q.sensitivity / q.noise_multiplier for q, row in rows]
        best = max(best, (round(float(np.linalg.norm(moved)), 6), float(norm)))
    return best[1]


class Transcripts:
    """Steps taken again and again on a batch, and what an attacker of its last record sees."""

    def __init__(self, engine, mechanism, batch, noise):
        self.engine, self.mechanism, self.noise = engine, mechanism, noise
        self.state = mechanism.method.start(mechanism.task)
        measured = engine.per_sample_gradients(batch)
        last = torch.arange(len(measured.norm)) == len(measured.norm) - 1
        self.directions = torch.stack([self._direction(measured, kept) for kept in (last, ~last)])
        facts = measured.norm, measured.loss, batch.example_group, measured.probability
        self.record = PerSample(*(fact[-1:] for fact in facts))

    def _direction(self, measured, kept):
        """Return the direction of the sum of some gradients."""
        total = self.engine.flat()
        measured.weighted_sum(kept.float(), total)
        return (total / total.norm().clamp(min=1e-30)).double()

    def draws(self, batch, n_draws):
        """Return what is seen of so many steps, (n_draws, n_seen)."""
        seen = []
        for first in range(0, n_draws, _CHUNK):
            size = min(_CHUNK, n_draws - first)
            outputs, ratios = zip(*(self._output(batch) for _ in range(size)), strict=True)
            parts = [torch.stack(part).double() for part in zip(*outputs, strict=True)]
            columns = [_seen(part, self.directions) for part in parts]
            seen.append(np.hstack([*columns, np.array(ratios)[:, None]]))
        return np.vstack(seen)

    def _output(self, batch):
        """Return all vectors that leave a step, and the ratio by the method's own rule."""
        mechanism, releases = recording(self.mechanism)
        step = private_step(self.engine, batch, mechanism, self.state, self.noise)
        states = step.state if isinstance(step.state, tuple) else (step.state,)
        total = step.gradient * mechanism.expected_batch_size
        kept = [*(releases[name] for name in sorted(releases)), total, *states]
        vectors = [part.flatten().clone() for part in kept if torch.is_tensor(part)]
        return vectors, self._ratio(total, releases)

    def _ratio(self, total, release):
        """Return the log-likelihood ratio of the gradient sum, given what else was released."""
        clip = self.mechanism.method.clip(self.record, self.state, release)
        length = float(clip.weight[0] * self.record.norm[0])
        scale = self.mechanism.noise_multiplier * float(clip.bound)
        along = float(self.directions[0].float() @ total)
        return float(np.clip((along - length / 2) * length / max(scale**2, 1e-30), -1e6, 1e6))


def _seen(vectors, directions):
    """Return what the attack sees of vectors (n, d): all of a few numbers, else three."""
    if vectors.shape[1] <= _FEW:
        return vectors.numpy()
    if vectors.shape[1] != directions.shape[1]:
        return vectors.norm(dim=1, keepdim=True).clamp(min=1e-300).log().numpy()
    along = vectors @ directions.T
    rest = (vectors - along @ directions).norm(dim=1, keepdim=True)
    return torch.cat([along, rest.clamp(min=1e-300).log()], dim=1).numpy()


def mu_of(without, with_record, failure: float) -> float:
    """Return the least ``mu`` that outputs (n_draws, n_seen) on two neighbours leave possible.

    Two attacks: the last column, which is a likelihood ratio, as it is, and the likelihood ratio of
    normal distributions that are fitted to a part of the draws, which finds what nobody thought of.
    The bound exceeds the truth with a chance of at most ``failure``.

    >>> rng = np.random.default_rng(0)
    >>> a, b = rng.normal(size=(2, 5000, 3))
    >>> print(f"{mu_of(a, b + [2.0, 0.0, 0.0], 1e-6):.1f} {mu_of(a, b, 1e-6):.1f}")
    1.7 0.0
    """
    n, bounds = int(_TRAINING * len(without)), []
    learned = likelihood_ratio(without[:n], with_record[:n])
    for score in (learned, lambda rows: rows[:, -1]):
        known = np.concatenate([score(without[:n]), score(with_record[:n])])
        thresholds = np.quantile(known, _THRESHOLDS)
        scores = score(without[n:]), score(with_record[n:])
        bounds.append(mu_lower_bound(*scores, thresholds, failure / 2))
    return max(bounds)


def mu_lower_bound(without, with_record, thresholds, failure: float) -> float:
    """Return the least ``mu`` of Gaussian differential privacy that two samples leave possible.

    High scores of outputs, without the record and with it, speak for the record; the thresholds
    are chosen without a look at them.  A test of a mu-GDP mechanism has
    ``Phi^-1(1 - FPR) - Phi^-1(FNR) <= mu`` (Dong et al., 2022); both rates are replaced by upper
    confidence limits, which fail with a chance of ``failure`` over all thresholds together.

    >>> rng = np.random.default_rng(0)
    >>> a, b = rng.normal(size=(2, 20_000))
    >>> print(f"{mu_lower_bound(a, b + 1.0, [0.0, 0.5, 1.0], 1e-6):.2f}")
    0.89
    """
    each, best = failure / (2 * len(thresholds)), 0.0
    for threshold in thresholds:
        false_positive = rate_at_most(int(np.sum(without > threshold)), len(without), each)
        missed = int(np.sum(with_record <= threshold))
        false_negative = rate_at_most(missed, len(with_record), each)
        if max(false_positive, false_negative) < 1:
            best = max(best, normal_law.isf(false_positive) - normal_law.ppf(false_negative))
    return float(best)


def best_mu(n_draws: int, failure: float) -> float:
    """Return the bound of an attack that is never wrong.

    >>> print(f"{best_mu(1000, 1e-6):.1f} {best_mu(20_000, 1e-6):.1f}")
    3.9 6.1
    """
    n = n_draws - int(_TRAINING * n_draws)
    return mu_lower_bound(np.zeros(n), np.ones(n), np.full(len(_THRESHOLDS), 0.5), failure / 2)


def likelihood_ratio(without, with_record):
    """Return the log-likelihood ratio of normal distributions fitted to two samples."""
    normal = QuadraticDiscriminantAnalysis(priors=[0.5, 0.5], reg_param=_RIDGE, tol=0.0)
    rows = np.vstack([without, with_record])
    of = np.repeat([0, 1], [len(without), len(with_record)])
    return make_pipeline(StandardScaler(), normal).fit(rows, of).decision_function
