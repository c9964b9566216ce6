"""What clipping does, against gradients of one record at a time in float64, and by hand."""

import math

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.stats import norm
from torch import nn
from torch.nn.functional import cross_entropy

from benchmarks.papers.clipping import clipping_error_bound, gradient_bias, train_with_error
from benchmarks.papers.knolle import ExactBAM
from skdpfair import get_method
from skdpfair.methods.bam import BAM
from skdpfair.privacy.gdp import gdp_epsilon
from tests.analysis.problems import dense, gradient, loss_of, records, seeded

N, BOUND = 12, 0.7


@pytest.fixture
def case():
    def made():
        module = dense(4, 5, 3)
        for p in module.parameters():
            nn.init.normal_(p)
        return module, *records(N, 4, 3)

    return seeded(made)


def rows(module, x, y, shift=0.0, ahead=0.0):
    """Return each record's gradient, taken elsewhere or ahead along itself."""
    gradients = []
    for i in range(len(x)):
        own, by = (module, x[i : i + 1], y[i : i + 1]), shift
        if ahead:
            by = ahead * nn.functional.normalize(gradient(*own), dim=0)
        gradients.append(gradient(*own, by))
    return torch.stack(gradients)


def clipped(rows, bound=BOUND):
    return (rows * (bound / rows.norm(dim=1, keepdim=True)).clamp(max=1)).mean(0)


DIRECTION = nn.functional.normalize(torch.linspace(-1, 1, 43).double(), dim=0)
AHEAD = {"max_grad_norm": BOUND, "perturbation_radius": 0.3}
CASES = {
    "dpsgd": (get_method("dpsgd", max_grad_norm=BOUND), None, {}),
    "bam": (get_method("bam", **AHEAD), None, {"ahead": 0.3}),
    "dp_sat": (get_method("dp_sat", **AHEAD), DIRECTION, {"shift": 0.3 * DIRECTION}),
    "dp_sat, first step": (get_method("dp_sat", max_grad_norm=BOUND), None, {}),
}


@pytest.mark.parametrize("name", CASES)
def test_gradient_bias_is_that_of_autograd_record_by_record(case, name):
    method, state, where = CASES[name]
    own, plain = rows(*case, **where), rows(*case)
    step = clipped(own)
    for reference, mean in {"batch": plain.mean(0), "unclipped": own.mean(0)}.items():
        bias = gradient_bias(*case, method, state=state, reference=reference)
        a = step @ mean / (mean @ mean)
        cosine = step @ mean / step.norm() / mean.norm()
        expected = [(step - mean).norm(), a, (step - a * mean).norm(), cosine]
        expected = [float(v) for v in (*expected, step.norm(), mean.norm())]
        np.testing.assert_allclose(list(vars(bias).values()), expected, rtol=1e-9, atol=1e-10)
        parts = ((bias.magnitude - 1) * bias.reference_norm) ** 2 + bias.direction**2
        assert bias.norm**2 == pytest.approx(parts, rel=1e-9)  # Theorem 1


def test_gradient_bias_of_exact_bam_is_clipped_at_the_parameters(case):
    near, tiny = (bam(**AHEAD | {"perturbation_radius": 1e-4}) for bam in (BAM, ExactBAM))
    methods = CASES["dpsgd"][0], ExactBAM(**AHEAD), near, tiny
    plain, exact, *limits = (gradient_bias(*case, m).norm for m in methods)
    assert exact != pytest.approx(plain, rel=1e-3)
    assert limits[0] == pytest.approx(limits[1], rel=1e-7)  # equation 14 nears 13


@pytest.mark.parametrize("batch_size", [40.0, 10.0])
@pytest.mark.parametrize("epsilon", [0.01, 0.15, 0.37, 5.0])
def test_clipping_error_bound_is_equation_1_and_its_best_value(epsilon, batch_size):
    rng = np.random.default_rng(0)
    group = np.where(rng.random(40) < 0.3, "a", "b")
    x = rng.normal(size=(40, 3)) * np.where(group == "a", 3.0, 1.0)[:, None]
    y = (x[:, 0] > 0).astype(int)
    module = seeded(lambda: dense(3, 4, 2))
    norms = rows(module, x, y).norm(dim=1).numpy()
    table = clipping_error_bound(module, x, y, group, 0.4, epsilon=epsilon, batch_size=batch_size)
    for level, row in table.iterrows():
        own = norms[group == level]
        b_k = batch_size * len(own) / len(x)

        def bound(c, own=own, b_k=b_k):
            return c / (b_k * epsilon) + np.maximum(own - c, 0).mean()

        best, quantile = row["best_max_grad_norm"], max(0.0, 1 - 1 / (b_k * epsilon))
        found = row[["noise", "bound", "best_bound"]].tolist()
        assert found == pytest.approx([0.4 / (b_k * epsilon), bound(0.4), bound(best)], rel=1e-9)
        search = np.append(np.linspace(0, own.max() * 1.1, 2000), own)
        assert bound(best) <= min(map(bound, search)) + 1e-12
        assert row["quantile"] == pytest.approx(quantile, abs=1e-12)
        by_numpy = np.quantile(own, quantile, method="inverted_cdf") if quantile > 0 else 0.0
        assert best == pytest.approx(by_numpy)


@pytest.mark.parametrize("signs", [(1, 1, 1), (1, -1, 0)])
def test_clipping_error_bound_is_above_the_error_and_below_its_double_in_one_direction(signs):
    """E|Laplace(s) - bias| is s exp(-|bias| / s) + |bias|; opposite gradients have no bias."""
    module = nn.Linear(1, 2, bias=False).double()
    nn.init.zeros_(module.weight)
    gradients = 5.0 * np.array(signs)
    data = math.sqrt(2) * gradients[:, None], np.zeros(3, dtype=int), None
    row = clipping_error_bound(module, *data, 1.0, epsilon=2.0, batch_size=3).loc["all"]
    bias, scale = abs((gradients - np.clip(gradients, -1, 1)).mean()), 1 / (3 * 2.0)
    error = scale * math.exp(-bias / scale) + bias
    assert row["noise"] == pytest.approx(scale) and error <= row["bound"]
    assert (error >= row["bound"] / 2) == (min(signs) > 0)


def test_printed_epsilon_of_a_group_is_too_small():
    """With ratio 1 / 101, the counts alone exceed the printed guarantee, by quadrature."""
    delta, sigma = 1e-6, 10.0
    printed = gdp_epsilon(math.hypot(1.0, 1 / sigma), delta) / 101

    def excess(z):
        return max(0.0, norm.pdf(z, 1, sigma) - math.exp(printed) * norm.pdf(z, 0, sigma))

    root = sigma**2 * printed + 0.5
    assert quad(excess, root, 200)[0] == pytest.approx(0.021, abs=5e-4)


def test_train_with_error_takes_the_steps_of_table_1(case):
    module, x, y = case
    groups, (_, start) = np.where(np.arange(N) % 3 == 0, "b", "a"), loss_of(*case)
    start = start.clone()
    plain, short = rows(*case).mean(0), clipped(rows(*case), 0.4)
    s = short.norm() / plain.norm()
    expected = {"none": plain, "both": short, "magnitude": s * plain, "direction": short / s}
    with torch.no_grad():
        loss = cross_entropy(module(torch.from_numpy(x)), torch.from_numpy(y), reduction="none")
    for error, step in expected.items():
        once = {"error": error, "lr": 1.0, "n_epochs": 1, "batch_size": N}
        trained, losses = train_with_error(module, x, y, groups, bound=0.4, **once)
        taken = start - loss_of(trained, x, y)[1]
        torch.testing.assert_close(taken, step, rtol=1e-9, atol=1e-12)
        assert torch.equal(loss_of(*case)[1], start)
        own = {level: float(loss[groups == level].mean()) for level in "ab"}
        assert {level: losses[level] for level in "ab"} == pytest.approx(own)
