"""White-box attack on a fit: canaries with gradients of their own, seen in every step."""

import copy
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy.stats import beta
from sklearn.base import clone
from sklearn.utils import _safe_indexing
from skorch.callbacks import Callback

from skdpfair import get_method
from skdpfair.inputs import groups
from skdpfair.privacy.accounting import delta_curve
from skdpfair.privacy.releases import merged
from skdpfair.testing import example_records, example_task, noiseless_releases
from skdpfair.testing._fit_audit import FitAudit, refuted
from skdpfair.testing._lower_bounds import LEVEL

_NORMS = np.geomspace(1e-3, 1e4, 701)
_N_BLANK = 1000  # entries that are noise only
_LEAST_VARIANCE = 1e-6
# exponent of a likelihood ratio
_MOST = 500.0


def audit_sums(
    classifier,
    X,
    y,
    n_canaries,
    *,
    sensitive_features=None,
    persons=None,
    confidence=0.95,
    random_state=None,
):
    """Return the `FitAudit` of a fit whose attacker sees the noisy sums of all steps.

    Parameters are those of `skdpfair.testing.audit_fit`.  The gradient of a canary is a vector of
    its own, orthogonal to all others and of the norm that shows most, in place of that of its
    record.  It passes through the sampler, queries, weights and noise of the fit; how gradients of
    records are computed, and the warm-up, are not audited.  Its score is the log-likelihood ratio
    of the inner products of the released sums with it, and a positive score is the guess that it
    took part.  A sampled step is not exactly Gaussian, and neither is the score, so that only its
    sign is used.

    The bound is the largest chance of a right guess, half of 1 plus the total variation.  It takes
    the guesses as independent: they are if sampling and noise are, except that thresholds and
    bounds may follow noisy counts of all records.  For methods that give small groups larger
    weights or rates, canaries are drawn from the smallest group first, all but one of its records,
    then from the next.  The guesses about the first groups are tested by themselves, too, and the
    tests are paid for.  Groups and tests are set before the coins.
    """
    model, rng = clone(classifier), np.random.default_rng(random_state)
    method = get_method(model.method)
    if method.changes_gradients:
        raise ValueError(f"{method.name} changes gradients: none can be planted. Use audit_fit.")
    code = np.arange(len(y)) if persons is None else pd.factorize(persons, sort=True)[0]
    group = groups.encode(
        X, y, group_col=model.group_col, sensitive_features=sensitive_features
    ).code[np.unique(code, return_index=True)[1]]
    order, ends = rng.permutation(len(group)), [n_canaries]
    if _favours_small_groups(type(method)()):
        order, ends = _smallest_groups_first(order, group, n_canaries)
    of = np.full(len(group), -1)
    of[order[:n_canaries]] = np.arange(n_canaries)
    took_part = rng.random(n_canaries) < 0.5
    of = of[code]
    kept = np.flatnonzero((of < 0) | took_part[of])
    canaries = Canaries(
        of[kept][pd.Series(code[kept]).drop_duplicates().index], group[order[:n_canaries]]
    )
    model.set_params(callbacks=[*(model.callbacks or ()), canaries], device="cpu")
    columns = {"sensitive_features": sensitive_features, "persons": persons}
    rows = {k: _safe_indexing(v, kept) for k, v in columns.items() if v is not None}
    report = model.fit(_safe_indexing(X, kept), y[kept], **rows).privacy_
    right = np.cumsum((canaries.score > 0) == took_part)
    guesses, failure = [(end, int(right[end - 1])) for end in ends], (1 - confidence) / len(ends)
    lower, best = refuted(report, [accuracy_excess(n, k, failure) for n, k in guesses])
    claim = report.epsilon, lower, report.delta, confidence
    protects = "record" if persons is None else "person"
    return FitAudit(report.method, *claim, n_canaries, *guesses[best], protects)


def _favours_small_groups(method):
    """Return whether, of two groups alike but for their sizes, the small one has more influence."""
    sample = example_records([1.0] * 4, group=[0, 0, 0, 1])
    facts = replace(example_task(), group_fractions=torch.tensor([0.75, 0.25], dtype=torch.float64))
    state = method.start(facts)
    weight = clip_of(method, sample, state, facts).weight
    influence = method.rates(facts) * weight[[0, 3]]
    return bool(influence[1] > 1.01 * influence[0])


def _smallest_groups_first(order, group, n_canaries):
    """Return an order, with one member of each group last, and the ends of canaries of one size."""
    size = np.bincount(group)[group]
    order = order[np.argsort(size[order], kind="stable")]
    first = np.unique(group[order], return_index=True)[1]
    order = np.append(np.delete(order, first), order[first])
    changes = np.flatnonzero(np.diff(size[order[:n_canaries]])) + 1
    return order, [*changes.tolist(), n_canaries]


def rate_at_most(hits: int, trials: int, failure: float) -> float:
    """Return an upper confidence limit of a rate [clopper1934use]_, exceeded with this chance."""
    if hits == trials:
        return 1.0
    return float(beta.isf(failure, hits + 1, trials - hits))


def accuracy_excess(n_guesses: int, n_correct: int, failure: float):
    """Return a function of releases, positive if so many right INDEPENDENT guesses refute them.

    A guess about a fair coin is right with a chance of at most (1 + TV) / 2, where TV is the total
    variation of the releases; the number of right guesses is binomial, and its chance is replaced
    by the lower confidence limit.

    >>> from skdpfair.privacy import NoisyRelease
    >>> excess = accuracy_excess(1000, 700, 0.05)
    >>> one, two = ((NoisyRelease("step", 1.0, (s,)),) for s in (1.2, 1.0))
    >>> excess(one) > 0 > excess(two)
    True
    """
    accuracy = 1 - rate_at_most(n_guesses - n_correct, n_guesses, failure)
    return lambda rs: float(2 * accuracy - 1 - delta_curve(merged(rs), np.zeros(1), LEVEL)[0])


def recording(mechanism):
    """Return the mechanism, and a dict that gets what each of its steps releases first."""
    recorded, hooks, releases = replace(mechanism), copy.copy(mechanism.hooks), {}

    def clip(sample, state, release):
        releases.update(release)
        return mechanism.hooks.clip(sample, state, release)

    hooks.clip = clip
    vars(recorded)["hooks"] = hooks  # a cached property
    return recorded, releases


def clip_of(method, sample, state, task):
    """Return how a method clips gradients if its releases have no noise."""
    return method.clip(sample, state, noiseless_releases(method, sample, task, state))


class Canaries(Callback):
    """Give some records of a fit gradients that the attacker knows, and score what is released.

    ``canary_of`` (n_examples,) is the canary that an example of the fit is, -1 for none, and
    ``group`` (n_canaries,) the group code of each, of those that do not take part, too.  ``score``
    (n_canaries,) is the log-likelihood ratio that it took part, summed over the steps.

    The released gradient gets one more entry for each canary, which is the only one that its
    gradient has, and 1000 that nobody has.  Sampler, queries, weights, noise and schedule are those
    of the fit.  With r its weighted norm over the declared bound, x the released entry over that
    bound, q its sampling rate and s the noise of the 1000 entries over that bound, a step adds
    ``log(1 - q + q exp((r x - r^2 / 2) / s^2))`` to the score of a canary.  What is done with noise
    that is too low, or missing, is thus what is best.
    """

    def __init__(self, canary_of, group):
        self.canary_of, self.group = torch.from_numpy(canary_of), torch.from_numpy(group)
        self.score = np.zeros(len(group))

    def on_epoch_begin(self, net, **kwargs):
        """Take the place of the private step, after the warm-up."""
        loop = net._running
        loop.release = partial(self._release, loop)

    def _release(self, loop, index):
        engine, mechanism, state = loop.engine, loop.scaled_mechanism, loop.state
        recorded, releases = recording(mechanism)
        norm = _telling_norm(mechanism, state)
        n_more = len(self.group) + _N_BLANK
        planted: Any = Planted(engine, self.canary_of[loop.batches.in_order(index)], norm, n_more)
        step = type(loop).release(loop, index, planted, recorded)
        n, size = engine.n_parameters, mechanism.expected_batch_size
        x = (step.gradient[n:].double() * size / step.bound).numpy()
        x, blank = np.split(x, [len(self.group)])
        groups = list(range(mechanism.task.n_groups))
        sample = example_records([norm] * len(groups), group=groups)
        weighed = mechanism.method.clip(sample, state, releases)
        r = (weighed.weight * norm / weighed.bound).double()[self.group].numpy()
        q = np.minimum(mechanism.rates_at(state)[self.group].numpy(), 1 - 1e-12)
        variance = max(np.mean(blank**2), _LEAST_VARIANCE)
        exponent = np.clip((r * x - r**2 / 2) / variance, -_MOST, _MOST)
        self.score += np.logaddexp(np.log1p(-q), np.log(q) + exponent)
        return replace(step, gradient=loop.flat.grad.copy_(step.gradient[:n]))


# not a Strategy: it has no module of its own
class Planted:
    """A strategy in which some records have a gradient of a norm along an entry of their own.

    ``canary`` (batch,) is the canary that a record or person of the batch is, -1 for none; their
    entries are the first of ``n_more`` that follow those of the parameters.
    """

    def __init__(self, engine, canary, norm, n_more):
        self._engine, self._canary, self._norm = engine, canary, norm
        self._n_more, self._first = n_more, 0

    def __getattr__(self, name):
        return getattr(self._engine, name)

    def flat(self):
        """Return a zero vector with one entry per parameter and canary."""
        flat = self._engine.flat()
        return flat.new_zeros(len(flat) + self._n_more)

    def perturbed_parameters(self, shift):
        """Move the parameters; canaries have none."""
        return self._engine.perturbed_parameters(shift[: self._engine.n_parameters])

    def per_sample_gradients(self, batch):
        """Return the gradients of the next examples of the batch, which may come in chunks."""
        gradients = self._engine.per_sample_gradients(batch)
        first = self._first % len(self._canary)
        self._first = first + len(gradients.norm)
        return self._with_canaries(gradients, self._canary[first : self._first])

    def _with_canaries(self, gradients, canary):
        n, mine = self._engine.n_parameters, canary >= 0

        def weighted_sum(weight, out, finite=None):
            gradients.weighted_sum(torch.where(mine, 0.0, weight), out[:n], finite)
            out[n:].index_add_(0, canary[mine], weight[mine] * self._norm)

        return replace(
            gradients,
            norm=torch.where(mine, self._norm, gradients.norm),
            weighted_sum=weighted_sum,
            at_ascent=lambda scale: self._with_canaries(gradients.at_ascent(scale), canary),
        )


def _telling_norm(mechanism, state):
    """Return the largest norm of a gradient that, weighted, is longest over its bound."""
    method, task = mechanism.method, mechanism.task
    sample = example_records(_NORMS.tolist(), group=[task.n_groups - 1] * len(_NORMS))
    clip = clip_of(method, sample, state, task)
    share = (clip.weight.double().numpy() * _NORMS / float(clip.bound)).round(5)
    return float(_NORMS[share == share.max()].max())
