"""Importance weights without privacy: groups weigh by the inverse of their shares."""

import math

from tests.methods.formula_steps import SGD, SHARES, assert_steps, releases


class IWSGD(SGD):
    params = {"gradient_noise": 0.05, "group_probabilities": SHARES}

    def step(self, theta, batch):
        rows = zip(self.gradients(theta, batch), self.groups(batch), strict=True)
        weighted = [g / (3 * SHARES[a]) for g, a in rows]
        return self.noisy_mean(weighted, sd=0.0) + self.added_noise()


def test_iw_sgd_steps_are_those_of_the_formula():
    assert_steps("iw_sgd", IWSGD)
    assert releases("iw_sgd") == {"gradient sum": (math.inf, 0.0)}
