"""Fits on a GPU."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from scipy import sparse
from torch import nn

from skdpfair import DPFairClassifier, Persons, get_method
from skdpfair.datasets import make_two_groups
from skdpfair.engine import Batch, Streams, private_step, select_strategy
from skdpfair.engine.mechanism import Mechanism, Task
from skdpfair.engine.precision import full_precision
from skdpfair.features import Scattering2D
from skdpfair.privacy.privacy_report import DEVICE_NOISE
from tests.engine.per_sample.modules import Net

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device"),
]
DATA = make_two_groups(4000, random_state=0)
X, Y = DATA.data.to_numpy(np.float32), DATA.target


def fit(x=X, y=Y, **params):
    given = {"epsilon": 9.0, "batch_size": 200, "max_epochs": 4, "device": "cuda"} | params
    return DPFairClassifier(**given).fit(x, y)


def test_convolutions_on_cuda_are_exact():
    x = np.random.default_rng(0).random((2000, 1, 28, 28), dtype=np.float32)
    model = fit(x, np.arange(2000) % 10, module="cnn", batch_size=128)
    assert model.net_.engine_.name == "bookkeeping"
    module, norms = model.net_.module_, []
    for device in ("cpu", "cuda"):
        rows, labels = (torch.as_tensor(v[:50], device=device) for v in (x, np.arange(50) % 10))
        with select_strategy(module.to(device), rows, 10) as strategy, full_precision("cuda"):
            norms.append(strategy.per_sample_gradients(Batch(rows, labels)).norm.cpu())
    torch.testing.assert_close(*norms, rtol=1e-4, atol=0)


def test_recurrences_on_cuda_have_gradients_by_record():
    def last():
        layers = {"lstm": nn.LSTM(1, 4, batch_first=True), "linear": (4, 2)}
        return Net(lambda m, x: m.linear(m.lstm(x[..., None])[0][:, -1]), **layers)

    assert fit(module=last, max_epochs="auto", max_steps=5).privacy_.steps == 5


@pytest.mark.parametrize("setting", ["highest", "high", "medium"])
@pytest.mark.parametrize("value", [1 + 2.0**-11 + 2.0**-13, 1 + 2.0**-12])  # TF32 rounds these
def test_private_step_on_cuda_bounds_a_record_that_tf32_rounds(setting, value):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 10)).to("cuda")
    x = torch.full((512, 256), value, device="cuda")
    zeros = torch.zeros(512, dtype=torch.int64, device="cuda")
    mechanism = Mechanism(get_method("dpsgd", max_grad_norm=0.01), Task(1, 1, 1.0), 0.0)
    torch.set_float32_matmul_precision(setting)
    try:
        with select_strategy(module, x[:1], 10) as engine:
            batch = Batch(x[:1], zeros[:1], zeros[:1])
            step = private_step(engine, batch, mechanism, None, Streams.fresh().noise("cuda"))
    finally:
        torch.set_float32_matmul_precision("highest")
    assert float(step.gradient.double().norm()) <= 0.01


def test_not_accounted_has_the_noise_of_the_device():
    assert DEVICE_NOISE in fit(max_epochs=1).privacy_.not_accounted


def test_rows_on_cuda_are_used_in_place():
    x = torch.tensor(X, device="cuda")
    model = fit(x)
    assert model.predict(X).shape == (4000,)
    assert torch.equal(x.cpu(), torch.tensor(X))


def on_disk(folder, rows):
    np.save(folder / "rows.npy", rows)
    return np.load(folder / "rows.npy", mmap_mode="r")


ROWS = {
    "dense": lambda folder: X,
    "on disk": lambda folder: on_disk(folder, X),
    "sparse": lambda folder: sparse.csr_array(X * (np.abs(X) > 0.5)),
    "tensors of another memory": lambda folder: torch.tensor(X, dtype=torch.float64),
    "computed when they are read": lambda folder: on_disk(folder, np.resize(X, (400, 8, 8))),
}
GROUPS, WEIGHTS = DATA.sensitive_features, np.linspace(0.5, 2, 4000)


# some persons have one record, others three
PERSON = np.arange(4000) // 4 * 2 + (np.arange(4000) % 4 > 0)
OTHERS = {
    "records": {},
    "persons": {"persons": PERSON},
    "persons with as many records each": {"persons": np.arange(4000) // 2},
    "weights": {"sample_weight": WEIGHTS},
    "all": {"persons": PERSON, "sample_weight": WEIGHTS, "sensitive_features": GROUPS},
}


def scores_of(device, kind, others, folder, method="dpsgd", **params):
    """Return the scores of a fit without noise, which are nearly equal on all devices."""
    x = ROWS[kind](folder)
    columns = {name: column[: x.shape[0]] for name, column in OTHERS[others].items()}
    features = Scattering2D(J=1, L=2) if x.ndim > 2 else "logistic"
    bounds = {"max_sample_weight": 2.0} if "sample_weight" in columns else {}
    persons = Persons(max_records=3) if "persons" in columns else None
    model = DPFairClassifier(
        method,
        **{"epsilon": None, "noise_multiplier": 0.0, "lr": 0.5, "batch_size": 40, "max_steps": 8},
        **{"random_state": 0, "device": device, "module": features, "persons": persons},
        **bounds | params,
    )
    model.fit(x, Y[: x.shape[0]], **columns)
    rows = x[:50] if kind != "sparse" else x.toarray()[:50]
    return model.decision_function(np.asarray(rows, dtype=np.float32))


@pytest.mark.parametrize("others", OTHERS)
@pytest.mark.parametrize("kind", ROWS)
def test_scores_on_cuda_are_those_on_the_cpu(kind, others, tmp_path):
    scores = [scores_of(device, kind, others, tmp_path) for device in ("cuda", "cpu")]
    np.testing.assert_allclose(*scores, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("kind", ["dense", "on disk", "sparse"])
@pytest.mark.parametrize("method", ["dp_is_sgd", "dpsgd_f", "bam", "asc", "fairlens_dp"])
def test_methods_by_groups_train_on_cuda(method, kind, tmp_path):
    params = {"epsilon": 9.0, "batch_size": 200, "max_steps": 8, "device": "cuda"}
    for unit, persons in ((None, None), (PERSON, Persons(max_records=3))):
        model = DPFairClassifier(method, persons=persons, **params)
        model.fit(ROWS[kind](tmp_path), Y, sensitive_features=GROUPS, persons=unit)
        assert model.privacy_.is_private and np.isfinite(model.decision_function(X)).all()


def test_device_of_the_last_index_trains():
    last = torch.cuda.device_count() - 1
    model = fit(device=f"cuda:{last}", module="mlp")
    assert {p.device.index for p in model.net_.module_.parameters()} == {last}
    assert torch.cuda.current_device() == 0


def test_fits_in_threads_train_on_one_device():
    with ThreadPoolExecutor(6) as threads:
        models = [*threads.map(lambda module: fit(module=module), ["mlp", "logistic"] * 3)]
    assert len(models) == 6


def test_max_physical_batch_size_is_lowered_where_memory_runs_out():
    def wide():
        """Return a hidden layer whose activations take much memory."""
        layers = {"first": (X.shape[1], 60_000), "last": (60_000, 2)}
        return Net(lambda m, x: m.last(torch.tanh(m.first(x))), **layers)

    torch.cuda.empty_cache()
    _, total = torch.cuda.mem_get_info()
    most = torch.cuda.memory_reserved() + 4e8
    torch.cuda.set_per_process_memory_fraction(min(1.0, most / total))
    try:
        model = fit(module=wide, batch_size=3000, max_physical_batch_size=100_000)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert model.privacy_.steps > 0


def test_fits_leave_no_memory_on_the_device():
    held = []
    for _ in range(12):
        fit(module="mlp", max_epochs=3)
        torch.cuda.empty_cache()
        held.append(torch.cuda.memory_reserved())
    assert held[-1] <= held[2] + 2**23
