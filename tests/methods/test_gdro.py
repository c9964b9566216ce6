"""Group DRO without privacy: groups with a larger loss weigh more."""

import math

from tests.methods.formula_steps import SGD, add, assert_steps, releases


class GDRO(SGD):
    params = {"gradient_noise": 0.05, "group_lr": 0.3}

    def step(self, theta, batch):
        k, groups = self.p.n_groups, self.groups(batch)
        u = self.kept.setdefault("u", [1 / k] * k)
        for a in range(k):
            members = [i for i, g in zip(batch, groups, strict=True) if g == a]
            losses = [float(self.p.loss(theta, i)) for i in members]
            u[a] *= math.exp(0.3 * sum(losses) / max(1, len(losses)))
        u[:] = [v / sum(u) for v in u]
        rows = zip(self.gradients(theta, batch), groups, strict=True)
        total = add([u[a] / groups.count(a) * g for g, a in rows], self.p.size)
        return total + self.added_noise()


def test_gdro_steps_are_those_of_the_formula():
    assert_steps("gdro", GDRO)
    assert releases("gdro") == dict.fromkeys(["gradient sum", "groups"], (math.inf, 0.0))
