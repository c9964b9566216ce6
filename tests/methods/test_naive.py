"""Naive reweighting: groups weigh by the inverse of their noisy counts."""

from skdpfair import get_method
from tests.methods.formula_steps import DPSGD, assert_steps, clip, releases


class Naive(DPSGD):
    params = {"max_grad_norm": 0.8, "count_noise_multiplier": 3.0}

    def factors(self, counts):
        return [(self.size / self.p.n_groups) / max(1.0, count) for count in counts]

    def step(self, theta, batch):
        groups = self.groups(batch)
        counts = self.counted([groups.count(a) for a in range(self.p.n_groups)])
        factor = self.factors(counts)
        rows = zip(self.gradients(theta, batch), groups, strict=True)
        return self.noisy_mean([factor[a] * clip(g, 0.8) for g, a in rows], 0.8 * max(factor))


class Rescaled(Naive):
    params = {**Naive.params, "largest_factor": 2.0}

    def factors(self, counts):
        factors = super().factors(counts)
        return [2.0 * factor / max(factors) for factor in factors]


def test_naive_steps_are_those_of_the_formula():
    assert_steps("naive", Naive)
    assert_steps("naive", Rescaled)
    assert releases("naive") == {"gradient sum": (None, 2.0), "counts": (1.0, 10.0)}
    fixed = releases("naive", max_grad_norm=0.5, largest_factor=2.0)
    assert fixed["gradient sum"] == (1.0, 2.0)


def test_naive_has_a_largest_factor_of_1_where_the_bound_is_auto():
    assert get_method("naive").at_scale(2.0, 1.0)[0].largest_factor == 1.0
    assert get_method("naive", max_grad_norm=0.5).at_scale(2.0, 1.0)[0].largest_factor == "auto"
