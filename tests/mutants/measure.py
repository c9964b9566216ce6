"""What a mutant costs: the epsilon that it claims, and how much it spends at least."""

DELTA = 1e-5


def measured(mutant):
    """Return claim and lower bound, both epsilon at delta 1e-5; None where nothing is measured."""
    if not mutant.measure:
        return None
    kind, *details = mutant.measure
    return {"step": _step, "run": _run}[kind](*details)


def _step(method, settings=None):
    from benchmarks.audits.steps import audit_step

    audit = audit_step(method, n_draws=4000, delta=DELTA, random_state=0, **settings or {})
    return {"claimed": audit.epsilon_claimed, "spent": audit.epsilon_lower}


def _run(method):
    """Return the claim of 1840 steps at rate 1/92, and the truth by dp_accounting alone."""
    from dataclasses import replace

    import torch
    from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent, SelfComposedDpEvent
    from dp_accounting.pld import PLDAccountant

    from skdpfair import get_method
    from skdpfair.engine.mechanism import Mechanism, Task
    from skdpfair.privacy import compute_epsilon

    params = {
        "global_adapt": {"count_noise_multiplier": 2.0},
        "dp_is_sgd": {"group_probabilities": (0.8, 0.2)},
    }
    task = Task(23_484, 2, 1 / 92, torch.tensor([0.8, 0.2], dtype=torch.float64))
    mechanism = Mechanism(get_method(method, **params[method]), task, 1.0)
    steps = replace(mechanism.release, steps=1840)
    rate = max(mechanism.rates.tolist())
    joint = sum(s**-2 for s in steps.noise_multipliers) ** -0.5
    event = SelfComposedDpEvent(PoissonSampledDpEvent(rate, GaussianDpEvent(joint)), 1840)
    truth = PLDAccountant().compose(event).get_epsilon(DELTA)
    return {"claimed": compute_epsilon([steps], DELTA), "spent": truth}
