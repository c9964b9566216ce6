"""White-box audit of one step: do its outputs tell whether a record took part."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from skdpfair._validate import integer, number, one_of, safe_repr
from skdpfair.audit._attack import best_mu, mu_of
from skdpfair.audit._transcripts import Transcripts
from skdpfair.audit._words import said
from skdpfair.engine import Batch, Streams, select_strategy
from skdpfair.mechanism import Mechanism, Task
from skdpfair.methods import get_method
from skdpfair.privacy import gdp
from skdpfair.privacy.calibration import compose_noise_multipliers
from skdpfair.testing import per_sample, released

_NORMS = np.geomspace(1e-2, 1e4, 61)
_SPREAD = 30.0  # how well a change of scale shows in the norm of so many numbers
_QUIET, _LOUD = 0.3, 100.0  # gradient norms of the other records


@dataclass(frozen=True)
class Scenario:
    """A batch, and the group of the record that joins it."""

    name: str
    norms: tuple[float, ...]
    groups: tuple[int, ...]
    canary_group: int


def scenarios(n_groups: int) -> tuple[Scenario, ...]:
    """Return the batches of the audit: nobody else, another group only, and a crowd.

    Examples
    --------
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
    """What a white-box attack on single steps found.

    Parameters
    ----------
    method : str
        Name of the method.
    scenario : str
        The batch on which the attack did best.
    mu_claimed, mu_lower : float
        Parameter of Gaussian differential privacy: as accounted for, and the lower bound.
    epsilon_claimed, epsilon_lower : float
        The same as epsilon at ``delta``.
    delta : float
        Where both epsilons are taken.
    confidence : float
        Chance that correct code passes.
    n_draws : int
        Outputs of each of the two neighbours, for each batch.

    Examples
    --------
    >>> audit = audit_step("dpsgd", n_draws=200, n_features=250)
    >>> audit.mu_claimed, audit.mu_lower <= audit.mu_claimed
    (1.0, True)
    """

    method: str
    scenario: str
    mu_claimed: float
    mu_lower: float
    epsilon_claimed: float
    epsilon_lower: float
    delta: float
    confidence: float
    n_draws: int

    @property
    def passed(self) -> bool:
        """Whether the lower bound is not above the claim."""
        return self.mu_lower <= self.mu_claimed

    def __str__(self):
        best = best_mu(self.n_draws, (1 - self.confidence) / len(scenarios(1)))
        at_best = gdp.gdp_epsilon(best, self.delta) if best > 0 else 0.0
        return said(self, "a step", f"batch {self.scenario!r}", at_best, "draws")


def audit_step(
    method,
    *,
    noise_multiplier=1.0,
    noise="standard",
    n_draws=20_000,
    delta=1e-5,
    confidence=1 - 1e-6,
    n_groups=2,
    n_features=1000,
    random_state=None,
    callback=None,
) -> StepAudit:
    """Attack single steps of a method, knowing all but whether one record took part.

    Parameters
    ----------
    method : str or Method
        A private method, with its hyper-parameters.
    noise_multiplier : float in [0.001, 1e6], default=1.0
        Of the gradient.
    noise : {"standard", "gaussian_sum"}, default="standard"
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
    random_state : int or None, default=None
        None draws fresh noise.
    callback : callable or None, default=None
        Called with a number of steps each time that so many more were taken; of
        ``6 * n_draws`` in all.

    Returns
    -------
    StepAudit
        ``passed`` tells whether the lower bound stays below the claim.

    Raises
    ------
    ValueError, TypeError
        If the method claims no finite epsilon, or a number is out of range.

    Notes
    -----
    A softmax regression takes its first step through the engine that fits use, on a batch with
    and without a record whose gradient is orthogonal to all others and of the norm that shows
    most.  The attack sees every release, the noisy gradient and the next state: their parts
    along the record's gradient, along the others', and the norm of the rest, which betrays a
    noise that depends on the data.  A quarter of the draws fit a normal distribution to each
    neighbour; on the others their log-likelihood ratio is thresholded, and so is the one that
    the method's own rule gives for what was released.  Clopper-Pearson limits of the error rates
    give the least ``mu`` (Dong et al., 2022), all at ``confidence`` together.  The claim is the
    joint Gaussian of the step that the accountant charges for.

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
    one_of("noise", noise, ("standard", "gaussian_sum"))
    inner = {"low": 0, "low_open": True, "high_open": True}
    number("noise_multiplier", noise_multiplier, low=1e-3, high=1e6)
    number("delta", delta, high=1, **inner)
    number("confidence", confidence, high=1, **inner)
    integer("n_draws", n_draws, low=100)
    integer("n_features", n_features, low=250)
    if callback is not None and not callable(callback):
        raise TypeError(f"callback must be callable or None, got {safe_repr(callback)}.")
    task = Task(1000, 2 if method.binary else integer("n_groups", n_groups), 0.1)
    mechanism = Mechanism(method, task, float(noise_multiplier))
    batches, bounds = scenarios(task.n_groups), {}
    for place, scenario in enumerate(batches):
        source = _streams(random_state, place).noise(kind=noise)
        outputs = _outputs(mechanism, scenario, n_features, n_draws, source, callback)
        bounds[scenario.name] = mu_of(*outputs, (1 - confidence) / len(batches))
    worst = max(bounds, key=bounds.get)
    mus = 1 / compose_noise_multipliers(mechanism.noise_multipliers), bounds[worst]
    epsilons = [gdp.gdp_epsilon(mu, delta) if mu > 0 else 0.0 for mu in mus]
    return StepAudit(method.name, worst, *mus, *epsilons, delta, confidence, n_draws)


def _streams(random_state, place):
    if random_state is None:
        return Streams.fresh()
    seed = integer("random_state", random_state, low=0)
    return Streams.seeded(seed, digest=bytes([place]))


def _outputs(mechanism, scenario, n_features, n_draws, noise, callback):
    """Return what the attack sees, (n_draws, n_seen), without the record and with it."""
    module = nn.Linear(n_features, 2, bias=False)
    nn.init.zeros_(module.weight)
    with_record = _batch(scenario, n_features, _telling_norm(mechanism, scenario))
    without = with_record.select(torch.arange(len(scenario.norms)))
    with select_strategy(module, with_record.x, 2) as engine:
        attack = Transcripts(engine, mechanism, with_record, noise)
        return [attack.draws(batch, n_draws, callback) for batch in (without, with_record)]


def _batch(scenario, n_features, norm):
    """Return the batch with the record last; its inputs share no feature with the others'."""
    norms = torch.tensor([*scenario.norms, norm])
    x = torch.zeros(len(norms), n_features)
    x.fill_diagonal_(2**0.5)  # a gradient is half of (x, -x)
    y = torch.zeros(len(norms), dtype=torch.int64)
    return Batch(x * norms[:, None], y, torch.tensor([*scenario.groups, scenario.canary_group]))


def _telling_norm(mechanism, scenario):
    """Return the largest gradient norm whose record moves the releases, or their noise, most."""
    method, groups = mechanism.method, [*scenario.groups, scenario.canary_group]
    state, best = method.start(mechanism.task), (0.0, 1.0)
    others = per_sample(scenario.norms, group=scenario.groups)
    quiet = method.clip(others, state, released(method, others, mechanism.task, state)).bound
    for norm in _NORMS:
        sample = per_sample([*scenario.norms, norm], group=groups)
        clip = method.clip(sample, state, released(method, sample, mechanism.task, state))
        moved = [float(clip.weight[-1]) * norm / float(clip.bound) / mechanism.noise_multiplier]
        moved.append(_SPREAD * abs(float(torch.log(clip.bound / quiet))))  # data-dependent noise
        if not method.sees_gradients():
            rows = [(q, float(q.rows(sample, state)[-1].norm())) for q in mechanism.queries]
            moved += [row / q.sensitivity / q.noise_multiplier for q, row in rows]
        best = max(best, (round(float(np.linalg.norm(moved)), 6), float(norm)))
    return best[1]
