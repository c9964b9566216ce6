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

N, BOUND = 12, 0.7


@pytest.fixture
def case():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double()
        for p in module.parameters():
            nn.init.normal_(p)
        x, y = torch.randn(N, 4).double(), torch.randint(0, 3, (N,))
    return module, x.numpy(), y.numpy()


def flat(module):
    return torch.cat([p.detach().flatten() for p in module.parameters()])


def gradient(module, x, y):
    loss = cross_entropy(module(x[None]), y[None])
    return torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(module.parameters()))])


def moved(module, by):
    """Move the parameters by a flat vector, in place."""
    parts = by.split([p.numel() for p in module.parameters()])
    with torch.no_grad():
        for p, part in zip(module.parameters(), parts, strict=True):
            p.add_(part.view_as(p))


def rows(module, x, y, shift=None, ahead=0.0):
    """Return each record's gradient, taken elsewhere or ahead along itself."""
    gradients = []
    for record, label in zip(torch.from_numpy(x), torch.from_numpy(y), strict=True):
        by = torch.zeros_like(flat(module)) if shift is None else shift
        if ahead:
            own = gradient(module, record, label)
            by = ahead * own / own.norm()
        moved(module, by)
        gradients.append(gradient(module, record, label))
        moved(module, -by)
    return torch.stack(gradients)


def clipped(rows, bound=BOUND):
    return (rows * (bound / rows.norm(dim=1, keepdim=True)).clamp(max=1)).mean(0)


DIRECTION = torch.linspace(-1, 1, 43).double()
DIRECTION /= DIRECTION.norm()
AHEAD = {"max_grad_norm": BOUND, "perturbation_radius": 0.3}
CASES = {
    "dpsgd": (get_method("dpsgd", max_grad_norm=BOUND), None, {}),
    "bam": (get_method("bam", **AHEAD), None, {"ahead": 0.3}),
    "dp_sat": (get_method("dp_sat", **AHEAD), DIRECTION, {"shift": 0.3 * DIRECTION}),
    "dp_sat, first step": (get_method("dp_sat", max_grad_norm=BOUND), None, {}),
}


@pytest.mark.parametrize("name", CASES)
def test_the_bias_is_that_of_autograd_record_by_record(case, name):
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


def test_exact_bam_is_clipped_at_the_parameters(case):
    method = ExactBAM(**AHEAD)
    near, tiny = (bam(**AHEAD | {"perturbation_radius": 1e-4}) for bam in (BAM, ExactBAM))
    plain, *biases = (gradient_bias(*case, m) for m in (CASES["dpsgd"][0], method, near, tiny))
    assert biases[0].norm != pytest.approx(plain.norm, rel=1e-3)
    assert biases[1].norm == pytest.approx(biases[2].norm, rel=1e-7)  # equation 14 nears 13


@pytest.mark.parametrize("batch_size", [40.0, 10.0])
@pytest.mark.parametrize("epsilon", [0.01, 0.15, 0.37, 5.0])
def test_equation_1_and_its_best_bound(epsilon, batch_size):
    rng = np.random.default_rng(0)
    group = np.where(rng.random(40) < 0.3, "a", "b")
    x = rng.normal(size=(40, 3)) * np.where(group == "a", 3.0, 1.0)[:, None]
    y = (x[:, 0] > 0).astype(int)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    norms = rows(module, x, y).norm(dim=1).numpy()
    table = clipping_error_bound(module, x, y, group, 0.4, epsilon=epsilon, batch_size=batch_size)
    for level, row in table.iterrows():
        own = norms[group == level]
        b_k = batch_size * len(own) / len(x)

        def bound(c, own=own, b_k=b_k):
            return c / (b_k * epsilon) + np.maximum(own - c, 0).mean()

        assert row["noise"] == pytest.approx(0.4 / (b_k * epsilon), rel=1e-9)
        assert row["bound"] == pytest.approx(bound(0.4), rel=1e-9)
        best, quantile = row["best_max_grad_norm"], max(0.0, 1 - 1 / (b_k * epsilon))
        assert row["best_bound"] == pytest.approx(bound(best), rel=1e-9)
        search = np.append(np.linspace(0, own.max() * 1.1, 2000), own)
        assert bound(best) <= min(map(bound, search)) + 1e-12
        assert row["quantile"] == pytest.approx(quantile, abs=1e-12)
        by_numpy = np.quantile(own, quantile, method="inverted_cdf") if quantile > 0 else 0.0
        assert best == pytest.approx(by_numpy)


@pytest.mark.parametrize("signs", [(1, 1, 1), (1, -1, 0)])
def test_the_error_lies_below_the_bound_and_above_half_of_it_in_one_direction(signs):
    """E|Laplace(s) - bias| is s exp(-|bias| / s) + |bias|; opposite gradients have no bias."""
    module = nn.Linear(1, 2, bias=False).double()
    nn.init.zeros_(module.weight)
    x = 5 * math.sqrt(2) * np.array(signs, dtype=float)[:, None]  # gradients 5 * signs
    table = clipping_error_bound(
        module, x, np.zeros(3, dtype=int), None, 1.0, epsilon=2.0, batch_size=3
    )
    row, gradients = table.loc["all"], 5.0 * np.array(signs)
    bias, scale = abs((gradients - np.clip(gradients, -1, 1)).mean()), 1 / (3 * 2.0)
    error = scale * math.exp(-bias / scale) + bias
    assert row["noise"] == pytest.approx(scale)
    assert error <= row["bound"]
    assert (error >= row["bound"] / 2) == (min(signs) > 0)


def test_the_printed_epsilon_of_a_group_is_too_small():
    """With ratio 1 / 101, the counts alone exceed the printed guarantee, by quadrature."""
    delta, sigma = 1e-6, 10.0
    printed = gdp_epsilon(math.hypot(1.0, 1 / sigma), delta) / 101

    def excess(z):
        return max(0.0, norm.pdf(z, 1, sigma) - math.exp(printed) * norm.pdf(z, 0, sigma))

    root = sigma**2 * printed + 0.5
    assert quad(excess, root, 200)[0] == pytest.approx(0.021, abs=5e-4)


def test_each_error_of_clipping_is_that_of_table_1(case):
    module, x, y = case
    groups, start = np.where(np.arange(N) % 3 == 0, "b", "a"), flat(module).clone()
    plain, short = rows(*case).mean(0), clipped(rows(*case), 0.4)
    s = short.norm() / plain.norm()
    expected = {"none": plain, "both": short, "magnitude": s * plain, "direction": short / s}
    with torch.no_grad():
        loss = cross_entropy(module(torch.from_numpy(x)), torch.from_numpy(y), reduction="none")
    for error, step in expected.items():
        once = {"error": error, "lr": 1.0, "n_epochs": 1, "batch_size": N}
        trained, losses = train_with_error(module, x, y, groups, bound=0.4, **once)
        torch.testing.assert_close(start - flat(trained), step, rtol=1e-9, atol=1e-12)
        assert torch.equal(flat(module), start)
        for level in "ab":
            assert losses[level] == pytest.approx(float(loss[groups == level].mean()))
