"""ASC: groups with a large loss are drawn more often, at a lower bound."""

import math

import pytest

from skdpfair import get_method
from skdpfair.testing import example_task
from tests.methods.formula_steps import DPSGD, RATE, SHARES, N, assert_steps, clip, draw, releases


class ASC(DPSGD):
    strata = ((RATE / 2, 1.0), (RATE, 0.5), (2 * RATE, 0.25))
    params = {
        "max_grad_norm": 0.8,
        "group_probabilities": SHARES,
        "group_lr": 0.5,
        "max_loss": 1.0,
        "count_noise_multiplier": 0.3,
    }

    def step(self, theta, batch):
        u, chosen = self.kept.get("u", SHARES), []
        for weight, share in zip(u, SHARES, strict=True):
            wanted = math.log(RATE * weight / share)
            chosen.append(min(self.strata, key=lambda s: abs(math.log(s[0]) - wanted)))
        losses, rows = draw(self.noise, 3, 0.3), []
        for i in batch:
            k = int(self.p.group[i])
            losses[k] += chosen[k][1] * min(1.0, float(self.p.loss(theta, i)))
            rows.append(clip(self.p.gradient(theta, i), 1.6 * chosen[k][1]))
        means = [
            float(total) / (rate * factor * N * share)
            for total, (rate, factor), share in zip(losses, chosen, SHARES, strict=True)
        ]
        mean = sum(m * share for m, share in zip(means, SHARES, strict=True))
        grown = [
            w * math.exp(0.5 * min(1, max(-1, m - mean))) for w, m in zip(u, means, strict=True)
        ]
        self.kept["u"] = [w / sum(grown) for w in grown]
        return self.noisy_mean(rows, bound=1.6)


def test_asc_steps_are_those_of_the_formula():
    assert_steps("asc", ASC)
    expected = {"gradient sum": (0.75, 2.0), "losses": (1.5, 10.0)}
    assert releases("asc", max_grad_norm=0.75, max_loss=1.5) == expected


def test_asc_rate_choices_span_the_rate_range():
    rates = get_method("asc", rate_range=4.0).rate_choices(example_task(sample_rate=0.1))
    assert rates == pytest.approx((0.025, 0.05, 0.1, 0.2, 0.4))
    assert max(get_method("asc").rate_choices(example_task(sample_rate=0.8))) == 1.0
