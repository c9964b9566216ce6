"""DP-SAT: gradients are taken uphill along the last noisy gradient."""

from tests.methods.formula_steps import DPSGD, assert_steps, clip, releases


class DPSAT(DPSGD):
    params = {"max_grad_norm": 0.8, "perturbation_radius": 0.3}

    def step(self, theta, batch):
        last = self.kept.get("last")
        ahead = theta if last is None else theta + 0.3 * last / last.norm()
        self.kept["last"] = self.noisy_mean(clip(g, 0.8) for g in self.gradients(ahead, batch))
        return self.kept["last"]


def test_dp_sat_steps_are_those_of_the_formula():
    assert_steps("dp_sat", DPSAT)
    assert releases("dp_sat", max_grad_norm=0.75) == {"gradient sum": (0.75, 2.0)}
