"""DPSGD-F: groups with more clipped records have a larger bound."""

from tests.methods.formula_steps import DPSGD, assert_steps, clip, releases


class DPSGDF(DPSGD):
    params = {"max_grad_norm": 0.8, "count_noise_multiplier": 3.0}

    def ratio(self, m, b):
        """Return the clipped share of each group over that of the batch."""
        if sum(m) == 0:
            return [0.0] * len(m)
        whole = sum(m) / sum(b)
        return [u / v / whole if v else 1.0 for u, v in zip(m, b, strict=True)]

    def step(self, theta, batch):
        rows, groups, k = self.gradients(theta, batch), self.groups(batch), self.p.n_groups
        counts = [0.0] * (2 * k)
        for g, a in zip(rows, groups, strict=True):
            counts[a if float(g.norm()) > 0.8 else k + a] += 1
        noisy = [max(0.0, count) for count in self.counted(counts)]
        m, unclipped = noisy[:k], noisy[k:]
        ratios = self.ratio(m, [u + v for u, v in zip(m, unclipped, strict=True)])
        bounds = [0.8 * (1 + min(float(k), ratio)) for ratio in ratios]
        clipped = [clip(g, bounds[a]) for g, a in zip(rows, groups, strict=True)]
        return self.noisy_mean(clipped, max(bounds))


class ByMeanOfGroups(DPSGDF):
    """As in the published code."""

    params = {**DPSGDF.params, "ratio": "group_mean"}

    def ratio(self, m, b):
        shares = [u / v for u, v in zip(m, b, strict=True) if v]
        whole = sum(shares) / len(shares) if shares else 0.0
        if whole == 0:
            return [0.0] * len(m)
        return [u / v / whole if v else 1.0 for u, v in zip(m, b, strict=True)]


def test_dpsgd_f_steps_are_those_of_the_formula():
    assert_steps("dpsgd_f", DPSGDF)
    assert_steps("dpsgd_f", ByMeanOfGroups)
    assert releases("dpsgd_f") == {"gradient sum": (None, 2.0), "counts": (1.0, 10.0)}
