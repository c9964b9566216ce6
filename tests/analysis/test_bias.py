"""The bias of clipping against autograd, one record at a time, in float64."""

from dataclasses import astuple

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from skdpfair import DPFairClassifier, get_method
from skdpfair.analysis import GradientBias, bias_by_batch_size, gradient_bias
from skdpfair.plotting import BatchSizeDisplay

pytestmark = pytest.mark.filterwarnings(
    "ignore::skdpfair.exceptions.InsecureSeedWarning",
    "ignore::skdpfair.exceptions.LowSignalWarning",
)

N, BOUND = 12, 0.7


@pytest.fixture
def case():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layers = nn.Linear(4, 5), nn.Tanh(), nn.Dropout(0.5), nn.Linear(5, 3)
        module = nn.Sequential(*layers).double()
        for p in module.parameters():
            nn.init.normal_(p)
        x, y = torch.randn(N, 4).double(), torch.randint(0, 3, (N,))
    return module.train(), x.numpy(), y.numpy()


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
    module.eval()
    found = []
    for record, label in zip(torch.from_numpy(x), torch.from_numpy(y), strict=True):
        by = torch.zeros(sum(p.numel() for p in module.parameters())).double()
        if shift is not None:
            by = shift
        if ahead:
            own = gradient(module, record, label)
            by = ahead * own / own.norm()
        moved(module, by)
        found.append(gradient(module, record, label))
        moved(module, -by)
    return torch.stack(found)


def clipped(rows):
    return (rows * (BOUND / rows.norm(dim=1, keepdim=True)).clamp(max=1)).mean(0)


def check(found, gradient, reference):
    bias = gradient - reference
    a = gradient @ reference / (reference @ reference)
    cosine = gradient @ reference / gradient.norm() / reference.norm()
    expected = [bias.norm(), a, (gradient - a * reference).norm(), cosine]
    expected += [gradient.norm(), reference.norm()]
    got = list(vars(found).values())
    np.testing.assert_allclose(got, [float(v) for v in expected], rtol=1e-9, atol=1e-10)


DIRECTION = torch.linspace(-1, 1, 43).double()
DIRECTION /= DIRECTION.norm()
CASES = {
    "dpsgd": (get_method("dpsgd", max_grad_norm=BOUND), None, {}),
    "bam": (
        get_method("bam", max_grad_norm=BOUND, perturbation_radius=0.3),
        None,
        {"ahead": 0.3},
    ),
    "dp_sat": (
        get_method("dp_sat", max_grad_norm=BOUND, perturbation_radius=0.3),
        DIRECTION,
        {"shift": 0.3 * DIRECTION},
    ),
    "dp_sat, first step": (get_method("dp_sat", max_grad_norm=BOUND), None, {}),
}


@pytest.mark.parametrize("chunk_size", ["auto", 5])
@pytest.mark.parametrize("name", CASES)
def test_equals_autograd_record_by_record(case, name, chunk_size):
    module, x, y = case
    method, state, where = CASES[name]
    own, plain = rows(module, x, y, **where), rows(module, x, y)
    for reference, mean in {"batch": plain.mean(0), "unclipped": own.mean(0)}.items():
        given = {"state": state, "reference": reference, "chunk_size": chunk_size}
        check(gradient_bias(module, x, y, method, **given), clipped(own), mean)


GROUPS = np.repeat(["a", "b"], [7, N - 7])


def by_hand(name, own):
    """Return the weights of a group method, from the norms and the exact counts of the batch."""
    norm, code = own.norm(dim=1), torch.from_numpy((GROUPS == "b").astype(int))
    size = torch.tensor([7.0, N - 7.0]).double()
    if name == "naive":
        return (BOUND / norm).clamp(max=1) * (N / 2 / size)[code]
    bound = torch.full_like(size, BOUND)
    if name == "dpsgd_f":
        share = torch.stack([(norm[code == k] > BOUND).double().mean() for k in (0, 1)])
        bound = BOUND * (1 + share / (norm > BOUND).double().mean())
    return (bound[code] / norm).clamp(max=1)


@pytest.mark.parametrize("reference", ["batch", "unclipped"])
@pytest.mark.parametrize("name", ["dpsgd_f", "naive", "dp_is_sgd"])
def test_methods_with_groups_have_the_exact_statistics_of_the_batch(case, name, reference):
    module, x, y = case
    own = rows(module, 3 * x, y)
    method, given = get_method(name, max_grad_norm=BOUND), {"sensitive_features": GROUPS}
    if name != "dp_is_sgd":
        method.set_params(count_noise_multiplier=10.0)  # which the bias is without
    found = gradient_bias(module, 3 * x, y, method, reference=reference, **given)
    weight = by_hand(name, own)
    assert 0 < float((weight == weight.max()).double().mean()) < 1 or name != "dpsgd_f"
    check(found, (weight[:, None] * own).mean(0), own.mean(0))
    table = bias_by_batch_size(
        module, 3 * x, y, method, batch_sizes=[N], n_batches=1, random_state=0, **given
    )
    assert table["norm"].item() == pytest.approx(found.norm)


def test_exact_bam_is_clipped_where_it_stands(case):
    module, x, y = case
    method = get_method("bam", max_grad_norm=BOUND, perturbation_radius=0.3, exact=True)
    near = get_method("bam", max_grad_norm=BOUND, perturbation_radius=1e-4)
    tiny = get_method("bam", max_grad_norm=BOUND, perturbation_radius=1e-4, exact=True)
    plain = gradient_bias(module, x, y, get_method("dpsgd", max_grad_norm=BOUND))
    found = [gradient_bias(module, x, y, m) for m in (method, near, tiny)]
    assert found[0].norm != pytest.approx(plain.norm, rel=1e-3)
    assert found[1].norm == pytest.approx(found[2].norm, rel=1e-7)  # equation 14 nears 13
    endless = get_method("bam", max_grad_norm=1e6, perturbation_radius=0.3, exact=True)
    assert gradient_bias(module, x, y, endless, reference="unclipped").norm < 1e-10


def test_the_parts_make_the_whole(case):
    found = gradient_bias(*case, CASES["bam"][0])
    parts = ((found.magnitude - 1) * found.reference_norm) ** 2 + found.direction**2
    assert found.norm**2 == pytest.approx(parts, rel=1e-9)
    assert found.magnitude == pytest.approx(
        found.cosine * found.gradient_norm / found.reference_norm, rel=1e-9
    )


def test_there_is_no_bias_without_clipping(case):
    for method in (get_method("sgd"), get_method("dpsgd", max_grad_norm=1e6)):
        found = gradient_bias(*case, method)
        assert found.norm < 1e-10 and found.cosine == pytest.approx(1)
    ahead = get_method("bam", max_grad_norm=1e6, perturbation_radius=0.3)
    assert gradient_bias(*case, ahead, reference="unclipped").norm < 1e-10
    assert gradient_bias(*case, ahead).norm > 1e-3


def test_noise_is_left_out_and_nothing_is_left_behind(case):
    module, x, y = case
    before = [p.detach().clone() for p in module.parameters()]
    noisy = get_method("sgd", gradient_noise=1.0)
    state = torch.get_rng_state()
    first, second = (gradient_bias(module, x, y, m) for m in (CASES["dpsgd"][0],) * 2)
    assert astuple(first) == pytest.approx(astuple(second), rel=1e-9)
    assert isinstance(first, GradientBias)
    assert gradient_bias(module, x, y, noisy).norm < 1e-10
    assert torch.equal(torch.get_rng_state(), state) and module.training
    assert all(torch.equal(p, b) for p, b in zip(module.parameters(), before, strict=True))
    assert all(p.grad is None for p in module.parameters())


def test_of_an_estimator_it_takes_labels_and_its_own_method(two_groups):
    X, y = two_groups.data, np.where(two_groups.target == 1, "yes", "no")
    model = DPFairClassifier("dpsgd", max_steps=5, random_state=0).fit(X, y)
    own = gradient_bias(model, X[:100], y[:100])
    codes = (y[:100] == "yes").astype(int)
    x = X[:100].to_numpy(np.float32)
    direct = gradient_bias(model.net_.module_, x, codes, model.method_)
    # float32 sums depend on how memory is aligned
    assert astuple(own) == pytest.approx(astuple(direct), rel=1e-5)
    assert own != gradient_bias(model, X[:100], y[:100], "sgd")


def test_what_is_refused(case, two_groups):
    module, x, y = case
    with pytest.raises(ValueError, match=r"method=None uses the method of the estimator.*module"):
        gradient_bias(module, x, y)
    with pytest.raises(ValueError, match=r"method='dpsgd_f' needs groups. Pass sensitive_features"):
        gradient_bias(module, x, y, "dpsgd_f")
    with pytest.raises(ValueError, match=r"method must be one of.*'bma'. Did you mean 'bam'"):
        gradient_bias(module, x, y, "bma")
    with pytest.raises(ValueError, match="reference must be one of 'batch', 'unclipped', got 'x'"):
        gradient_bias(module, x, y, "dpsgd", reference="x")
    with pytest.raises(ValueError, match="chunk_size must be an integer >= 1, got 0"):
        gradient_bias(module, x, y, "dpsgd", chunk_size=0)
    with pytest.raises(ValueError, match="labels outside the model's classes"):
        gradient_bias(module, x, y + 1, "dpsgd")
    with pytest.raises(ValueError, match="inconsistent"):
        gradient_bias(module, x, y[:-1], "dpsgd")
    with pytest.raises(TypeError, match=r"fitted DPFairClassifier.*int"):
        gradient_bias(3, x, y, "dpsgd")


def test_bias_by_batch_size_is_that_of_each_batch(case):
    """One batch of all records has the bias of all; each row is one batch."""
    module, x, y = case
    method = get_method("dpsgd", max_grad_norm=BOUND)
    whole = gradient_bias(module, x, y, method)
    table = bias_by_batch_size(
        module, x, y, method, batch_sizes=[3, N], n_batches=4, random_state=0
    )
    rows = table[table["batch_size"] == N]
    assert len(rows) == 4 and (rows["size"] == N).all()
    for name, value in vars(whole).items():
        np.testing.assert_allclose(rows[name], value)
    assert table[table["batch_size"] == 3]["size"].between(1, N).all()
    again = bias_by_batch_size(
        module, x, y, method, batch_sizes=[3, N], n_batches=4, random_state=0
    )
    assert table.equals(again)
    display = BatchSizeDisplay(table).plot()
    assert [ax.get_xlabel() for ax in display.axes_] == ["expected batch size"] * 2
    display.figure_.clear()
    with pytest.raises(ValueError, match="batch_sizes"):
        bias_by_batch_size(module, x, y, method, batch_sizes=[N + 1])
