"""Steps as CUDA graphs, by an emulator on CPU, and on a GPU if there is one."""

import gc
import threading
import weakref
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from skdpfair import METHODS, DPFairClassifier, get_method
from skdpfair.attacks import PGD
from skdpfair.datasets import make_two_groups
from skdpfair.engine import Batch, PoissonSampler, Streams, memory, precision, select_strategy
from skdpfair.engine import replay as replay_module
from skdpfair.engine.flat import FlatSGD, flatten_
from skdpfair.engine.memory import affordable_batch, is_out_of_memory
from skdpfair.engine.noise import Noise
from skdpfair.engine.per_sample import Strategy
from skdpfair.engine.precision import current_device, full_precision, is_exact
from skdpfair.engine.replay import CudaGraphs, Replay
from skdpfair.exceptions import InsecureSeedWarning
from skdpfair.mechanism import Clip, Mechanism, Method, Task
from skdpfair.methods import _fairlens_terms
from skdpfair.training import steps
from skdpfair.training.processes import ALONE
from skdpfair.training.schedule import PoissonBatches, Schedule, StreamedRows, rows_on

MODULES = {
    "closed_form": lambda: nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 3)),
    "bookkeeping": lambda: nn.Sequential(nn.Linear(5, 6), nn.GELU(), nn.Linear(6, 3)),
    "vmap": lambda: nn.Sequential(nn.Linear(5, 6), nn.PReLU(), nn.Linear(6, 3)),
}
on_gpu = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device"),
]


# ---- an emulator of CUDA graphs -----------------------------------------------------------------


class Tape(TorchDispatchMode):
    """Notes the operations of a step, and refuses those that a capture refuses."""

    aten = torch.ops.aten
    WAITS = {  # for the device, or copy numbers of the host to it
        *(aten._local_scalar_dense.default, aten.nonzero.default, aten.equal.default),
        *(aten.masked_select.default, aten.bincount.default, aten.lift_fresh.default),
    }

    def __init__(self):
        super().__init__()
        self.operations, self.made, self.before = [], {}, {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func in self.WAITS:
            raise RuntimeError(f"operation not permitted when stream is capturing: {func}")
        given = {t.untyped_storage().data_ptr() for t in _tensors((args, kwargs))}
        for place, argument in enumerate(func._schema.arguments):
            if argument.alias_info is not None and argument.alias_info.is_write:
                written = args[place] if place < len(args) else kwargs.get(argument.name)
                for storage in (t.untyped_storage() for t in _tensors(written)):
                    if storage.data_ptr() not in self.made | self.before:
                        self.before[storage.data_ptr()] = storage, storage.clone()
        out = func(*args, **kwargs)
        for t in _tensors(out):
            if t.untyped_storage().data_ptr() not in given:
                self.made[t.untyped_storage().data_ptr()] = t
        self.operations.append((func, args, kwargs, out))
        return out

    def undo(self):
        """Put back what the step wrote, and fill what it made with nonsense."""
        for storage, values in self.before.values():
            storage.copy_(values)
        for t in self.made.values():
            t.detach().fill_(torch.nan if t.is_floating_point() else 1)

    @torch.no_grad()
    def play(self):
        """Repeat the operations, with the numbers of the host as they were."""
        for func, args, kwargs, out in self.operations:
            for kept, new in zip(_tensors(out), _tensors(func(*args, **kwargs)), strict=True):
                if kept.data_ptr() != new.data_ptr():
                    kept.detach().copy_(new)


def _tensors(tree):
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


class Emulator:
    """A recorder on CPU that does what CUDA graphs do."""

    capturing = False

    def __init__(self, noise, device, *others):
        self.generators = noise.generator, *others

    def warm_up(self, run):
        run()

    def record(self, run):
        states, tape = [g.get_state() for g in self.generators], Tape()
        Emulator.capturing = True
        try:
            with tape:
                run()
        finally:
            Emulator.capturing = False
            for generator, state in zip(self.generators, states, strict=True):
                generator.set_state(state)
            tape.undo()
        return tape.play


class DeviceNoise(Noise):
    """Noise as it is made on CUDA: by a generator of torch."""

    on_cpu = False


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=on_gpu)])
def device(request, monkeypatch):
    """The device of the steps; on CPU the emulator records them."""
    if request.param == "cpu":
        emulate(monkeypatch)
    return request.param


def emulate(monkeypatch):
    chance = Strategy.chance

    def guarded(self):
        if self.draws and Emulator.capturing:
            raise RuntimeError("Cannot call CUDAGeneratorImpl::current_seed during capture")
        return chance(self)

    monkeypatch.setattr(Strategy, "chance", guarded)
    monkeypatch.setattr(steps, "recorder", Emulator)
    # on CPU alone, torch's looks at the values
    monkeypatch.setattr(
        _fairlens_terms, "one_hot", lambda code, n: code[:, None] == torch.arange(n)
    )


# ---- a training loop ----------------------------------------------------------------------------


def loop_of(
    device,
    name="dpsgd",
    strategy="closed_form",
    module=None,
    kind="standard",
    lr=0.1,
    noise=1.0,
    **params,
):
    """Return a training loop of 40 steps and its batches, of about 27 records."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = (module or MODULES[strategy])().double().to(device)
    rng, cycle = torch.Generator().manual_seed(0), torch.arange(90, device=device)
    x = torch.rand((90, 5), generator=rng, dtype=torch.float64).to(device)
    flat, method = flatten_(list(module.parameters())), get_method(name, **params)
    source = DeviceNoise if device == "cpu" else Noise
    loop = steps.TrainingLoop(
        engine=select_strategy(module, x[:1], 3),
        optimizer=FlatSGD([flat], lr=lr, momentum=0.9, dampening=0.9),
        flat=flat,
        mechanism=Mechanism(method, Task(90, 2, 0.3), noise if method.private else 0.0),
        schedule=Schedule(n_steps=40, steps_per_epoch=20),
        noise=source(np.random.SeedSequence(0), device, kind),
        processes=ALONE,
        chunk=100,
        lr=lr,
        on_step=None,
        attack=None,
        copies=1,
    )
    loop.engine.generator.manual_seed(0)
    sampler = PoissonSampler(0.3, 90, np.random.default_rng(0))
    filled = loop.recorder is not None
    every = Batch(x, cycle % 3, cycle % 2)
    return loop, PoissonBatches(every, sampler, lambda: loop.this_epoch, filled)


def run(loop, batches, after_epoch=lambda loop: None):
    """Take all steps; return weights, gradients, the number of replays and why there are none."""
    gradients, replayed, sizes = [], 0, set()
    with loop.engine:
        while loop.taken < loop.schedule.n_steps:
            loop.begin_epoch(batches, with_callbacks=False)
            for index in batches:
                loop.step(index)
                gradients.append(loop._gradient.clone())
                sizes.add(len(index))
                replayed += loop._replay is not None and len(index) in loop._replay._recorded
            after_epoch(loop)
        loop.check_bound()
        refusal = None if loop._replay is None else loop._replay.refusal
        loop.finish()
    return SimpleNamespace(
        weights=loop.flat.detach(),
        gradients=torch.stack(gradients).cpu(),
        replayed=replayed,
        sizes=sizes,
        refusal=refusal,
        chunk=loop.chunk,
    )


def both(monkeypatch, *given, after_epoch=lambda loop: None, **params):
    """Run a loop recorded and plain."""
    recorded = run(*loop_of(*given, **params), after_epoch)
    monkeypatch.setattr(steps, "recorder", lambda *given: None)
    return recorded, run(*loop_of(*given, **params), after_epoch)


def check_equal(recorded, plain):
    torch.testing.assert_close(recorded.weights, plain.weights, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("strategy", MODULES)
@pytest.mark.parametrize("name", sorted(METHODS))
def test_recorded_steps_are_the_plain_steps(name, strategy, device, monkeypatch):
    recorded, plain = both(monkeypatch, device, name, strategy)
    assert recorded.refusal is None and recorded.replayed > 20 and plain.replayed == 0
    assert recorded.sizes == {32, 48}
    check_equal(recorded, plain)


@pytest.mark.parametrize("kind", ["standard", "gaussian_sum"])
def test_each_replay_draws_fresh_noise(kind, device):
    loop, batches = loop_of(device, kind=kind, noise=1e3, max_grad_norm=1.0, lr=0.0)
    found, scale = run(loop, batches), 1e3 / loop.mechanism.expected_batch_size
    assert found.replayed > 20
    noise = found.gradients / scale
    assert 0.9 < float(noise.std()) < 1.1
    alike = torch.corrcoef(noise) - torch.eye(len(noise))
    assert float(alike.abs().max()) < 6 / noise.shape[1] ** 0.5


@pytest.mark.parametrize(
    ("layer", "name"), [(nn.PReLU, "dpsgd"), (nn.GELU, "bam")], ids=["vmap", "ahead"]
)
def test_dropout_in_two_passes_is_not_replayed(layer, name, device):
    def module():
        return nn.Sequential(layer(), nn.Dropout(), nn.Linear(5, 3))

    found = run(*loop_of(device, name, module=module))
    assert "captur" in found.refusal and found.replayed == 0
    assert len(found.gradients) == 40 and bool(found.weights.isfinite().all())


def test_dropout_of_one_pass_is_replayed_with_fresh_masks(device):
    def module():
        return nn.Sequential(nn.GELU(), nn.Dropout(), nn.Linear(5, 3))

    found = run(*loop_of(device, "sgd", module=module, lr=0.0))
    assert found.replayed > 20 and len(torch.unique(found.gradients, dim=0)) == 40


def test_a_learning_rate_set_by_a_callback_is_taken_over(device, monkeypatch):
    def slower(loop):
        group = loop.optimizer.param_groups[0]
        group["lr"] = float(group["lr"]) * 0.01

    recorded, plain = both(monkeypatch, device, after_epoch=slower)
    assert recorded.replayed > 20
    check_equal(recorded, plain)
    assert not torch.allclose(plain.weights, run(*loop_of(device)).weights)


@pytest.mark.parametrize("first", [1, 2])  # of the calls that run out of memory
def test_memory_that_runs_out_takes_smaller_chunks(first, device, monkeypatch):
    step, chunks = steps.private_step, []

    def little(*args, chunk_size, **kwargs):
        chunks.append(chunk_size)
        if len(chunks) >= first and chunk_size > 8:
            raise RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate`")
        return step(*args, chunk_size=chunk_size, **kwargs)

    monkeypatch.setattr(steps, "private_step", little)
    found = run(*loop_of(device))
    assert found.chunk == 8 and chunks[-1] == 8
    monkeypatch.setattr(steps, "private_step", step)
    check_equal(found, run(*loop_of(device)))


def test_memory_that_runs_out_in_a_recording_is_no_reason_for_chunks(device, monkeypatch):
    step = steps.private_step

    def little(*args, **kwargs):
        if loop._replay.is_recording:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB.")
        return step(*args, **kwargs)

    monkeypatch.setattr(steps, "private_step", little)
    loop, batches = loop_of(device)
    found = run(loop, batches)
    assert "out of memory" in found.refusal and found.chunk == 100


@dataclass(kw_only=True, repr=False, eq=False)
class Waits(Method):
    """Looks at a value in large batches."""

    def clip(self, sample, state, release):
        if len(sample.norm) > 40:
            float(sample.norm.sum())
        return Clip(weight=1 / (sample.norm + 1), bound=torch.ones_like(sample.norm[0]))


def test_steps_go_on_after_a_recording_that_fails(device, monkeypatch):
    found, plain = both(monkeypatch, device, Waits())
    assert "captur" in found.refusal and 0 < found.replayed < 35
    check_equal(found, plain)
    assert torch.rand(3, device=device).shape == (3,)  # torch's own generator works, too


FITS = {
    "default": {},
    "mlp": {"module": "mlp", "hidden_layer_sizes": (8,), "method": "dp_sat"},
    "adam": {
        "module": "mlp",
        "hidden_layer_sizes": (8,),
        "optimizer": torch.optim.Adam,
        "lr": 0.01,
    },
    "attack": {"attack": PGD(0.1, 0.05, 2, input_range=None)},
    "averaged": {"iterate_average": 0.5, "lr": 0.5},
}


@pytest.mark.parametrize("params", FITS.values(), ids=FITS)
def test_a_recorded_fit_is_the_plain_fit(params, device, monkeypatch):
    data = make_two_groups(1500, random_state=0)
    if device == "cpu":
        monkeypatch.setattr(Streams, "noise", _device_noise)
    model = DPFairClassifier(
        epsilon=9.0, batch_size=100, max_epochs=3, device=device, random_state=0, **params
    )
    replays, begin = [], steps.TrainingLoop.begin_epoch

    def noted(loop, batches, **how):
        begin(loop, batches, **how)
        replays.append(loop._replay)

    def logits():
        with pytest.warns(InsecureSeedWarning):
            model.fit(data.data, data.target, sensitive_features=data.sensitive_features)
        return model.decision_function(data.data)

    monkeypatch.setattr(steps.TrainingLoop, "begin_epoch", noted)
    recorded = logits()
    assert replays[-1].refusal is None and replays[-1]._recorded
    monkeypatch.setattr(steps, "recorder", lambda *given: None)
    plain = logits()
    assert replays[-1] is None
    np.testing.assert_allclose(recorded, plain, rtol=1e-3, atol=1e-4 * np.abs(plain).max())


def test_a_failed_recording_drops_the_others_and_says_why():
    def fails(run):
        raise RuntimeError("it waits")

    taken, recorder = [], SimpleNamespace(warm_up=lambda run: run(), record=lambda run: run)
    replay = Replay(lambda index: taken.append(len(index)), recorder)
    for size in (1, 1, 2):
        replay(torch.arange(size))
    recorder.record = fails
    replay(torch.arange(2))
    assert taken == [1, 1, 2, 2] and "it waits" in replay.refusal and not replay._recorded


# ---- what surrounds the steps -------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "CUDA error: out of memory",
        "MPS backend out of memory (MPS allocated: 1 GB)",
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
        "[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory",
    ],
)
def test_texts_of_memory_that_ran_out(text):
    assert is_out_of_memory(RuntimeError(text)) and not is_out_of_memory(ValueError(text))


def test_chunks_follow_the_free_memory_of_a_card(monkeypatch):
    example, module = torch.zeros(1, 10), nn.Linear(10, 10)
    at_home = affordable_batch(module, example)
    facts = {"mem_get_info": (3 * 2**30, 0), "memory_reserved": 2**30, "memory_allocated": 0}
    for name, value in facts.items():
        monkeypatch.setattr(torch.cuda, name, lambda device, value=value: value)
    assert memory._budget(torch.device("cuda:1")) == 2 * memory.ACTIVATION_BUDGET
    assert at_home == memory.ACTIVATION_BUDGET // 30


PLACES = [("cuda", name) for name in ("matmul", "conv", "rnn")]


def cuda_settings():
    return [torch._C._get_fp32_precision_getter(*place) for place in PLACES]


@pytest.fixture
def tf32():
    """What torch sets on a GPU by default: TF32 for cuDNN."""
    before = cuda_settings()
    assert before[1:] == ["tf32", "tf32"] and not is_exact(torch.device("cuda"))
    yield
    assert cuda_settings() == before


def test_full_precision_covers_cudas_products(tf32):
    with full_precision("cuda"):
        assert is_exact(torch.device("cuda")) and cuda_settings() == ["ieee"] * 3


def test_full_precision_lasts_as_long_as_any_fit(tf32):
    first, second = full_precision("cuda"), full_precision("cuda")
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert is_exact(torch.device("cuda"))
    second.__exit__(None, None, None)


def test_full_precision_of_older_versions_of_torch(monkeypatch):
    monkeypatch.setattr(precision, "_setting", None)
    assert not is_exact(torch.device("cuda")) and is_exact(torch.device("cpu"))
    with full_precision("cuda"):
        assert is_exact(torch.device("cuda")) and not torch.backends.cudnn.allow_tf32
    assert torch.backends.cudnn.allow_tf32


def test_a_fit_makes_its_device_the_current_one(monkeypatch):
    entered = []
    monkeypatch.setattr(
        torch.cuda, "device", lambda device: entered.append(device) or nullcontext()
    )
    with current_device("cuda:1"), current_device("cpu"):
        assert entered == [torch.device("cuda:1")]


def test_tensors_on_the_device_are_used_in_place():
    y = np.zeros(4, np.int64)
    x = torch.rand(4, 3, requires_grad=True)
    found = rows_on("cpu", x, y, y)
    assert isinstance(found, Batch) and found.x.data_ptr() == x.data_ptr()
    assert not found.x.requires_grad
    for other in (x.detach().double(), torch.zeros((4, 2, 2), dtype=torch.uint8)):
        assert isinstance(rows_on("cpu", other, y, y), StreamedRows)
    assert isinstance(rows_on("meta", x, y, y), StreamedRows)


@pytest.mark.parametrize("recorded", [False, True])
def test_a_fit_leaves_no_cycle_that_holds_the_rows(recorded, monkeypatch):
    if recorded:
        emulate(monkeypatch)
        monkeypatch.setattr(Streams, "noise", _device_noise)
    data = make_two_groups(900, random_state=0)
    x, held = torch.tensor(np.asarray(data.data, np.float32)), []
    begin = steps.TrainingLoop.begin_epoch

    def noted(loop, batches, **how):
        held[:] = [weakref.ref(loop), weakref.ref(batches), weakref.ref(batches.data)]
        begin(loop, batches, **how)

    monkeypatch.setattr(steps.TrainingLoop, "begin_epoch", noted)
    gc.collect()
    gc.disable()
    try:
        model = DPFairClassifier(epsilon=9.0, batch_size=50, max_epochs=3).fit(x, data.target)
        assert model.n_steps_ > 0 and [ref() for ref in held] == [None] * 3
    finally:
        gc.enable()


def _device_noise(self, device="cpu", kind="standard"):
    return DeviceNoise(self._sequence(1), device, kind)


# ---- the recorder itself, on a device made up ---------------------------------------------------


class FakeCuda:
    """Replaces torch.cuda's streams and graphs by notes of what was asked of them."""

    def __init__(self, monkeypatch):
        self.current, self.streams, self.captures = "default", [], []
        cuda = torch.cuda
        monkeypatch.setattr(cuda, "graph_pool_handle", lambda: "pool")
        monkeypatch.setattr(cuda, "Stream", self.new_stream)
        monkeypatch.setattr(cuda, "current_stream", lambda device=None: self.current)
        monkeypatch.setattr(cuda, "stream", self.stream)
        monkeypatch.setattr(cuda, "CUDAGraph", self.graph)
        monkeypatch.setattr(cuda, "graph", self.capture)
        monkeypatch.setattr(cuda, "default_generators", tuple(map(FakeGenerator, "abc")))

    def new_stream(self, device):
        self.streams.append(f"stream {len(self.streams)} of {device}")
        return self.streams[-1]

    @contextmanager
    def stream(self, stream):
        before, self.current = self.current, stream
        try:
            yield
        finally:
            self.current = before

    def graph(self):
        registered = []
        return SimpleNamespace(
            registered=registered,
            register_generator_state=registered.append,
            replay=lambda: "replayed",
        )

    @contextmanager
    def capture(self, graph, **options):
        assert replay_module._CAPTURE.locked()
        self.captures.append((graph, options))
        self.current = options["stream"]
        yield  # torch leaves the stream as it is where a capture fails
        self.current = "default"


class FakeGenerator:
    def __init__(self, state):
        self.state = state

    def clone_state(self):
        return self.state + "'"

    def graphsafe_set_state(self, state):
        self.state = state


def fake_noise():
    noise = SimpleNamespace(generator=FakeGenerator("noise"), renewed=0)

    def renew():
        noise.renewed += 1

    noise.renew = renew
    return noise


def test_a_capture_lets_other_threads_be_and_knows_all_generators(monkeypatch):
    cuda, noise, dropout = FakeCuda(monkeypatch), fake_noise(), FakeGenerator("dropout")
    recorder, ran = CudaGraphs(noise, "cuda:1", dropout), []
    assert recorder.record(lambda: ran.append(cuda.current))() == "replayed"
    ((graph, options),) = cuda.captures
    assert graph.registered == [noise.generator, dropout]
    assert options["capture_error_mode"] == "thread_local" and options["pool"] == "pool"
    assert ran == ["stream 0 of cuda:1"] and cuda.current == "default"
    assert dropout.state == "dropout" and not noise.renewed
    assert not replay_module._CAPTURE.locked()


def test_a_failed_capture_gives_stream_and_generators_back(monkeypatch):
    cuda, noise, dropout = FakeCuda(monkeypatch), fake_noise(), FakeGenerator("dropout")

    def waits():
        raise RuntimeError("operation not permitted when stream is capturing")

    with pytest.raises(RuntimeError, match="not permitted"):
        CudaGraphs(noise, "cuda:1", dropout).record(waits)
    assert cuda.current == "default" and noise.renewed == 1 and dropout.state == "dropout'"
    assert [g.state for g in torch.cuda.default_generators] == ["a", "b'", "c"]
    assert not replay_module._CAPTURE.locked()


def test_a_thread_has_one_stream_on_each_device(monkeypatch):
    monkeypatch.setattr(replay_module, "_STREAMS", {})
    cuda = FakeCuda(monkeypatch)

    def record(device):
        CudaGraphs(fake_noise(), device).record(lambda: None)

    for device in ("cuda:0", "cuda:0", "cuda:1"):
        record(device)
    assert cuda.streams == ["stream 0 of cuda:0", "stream 1 of cuda:1"]
    other = threading.Thread(target=record, args=("cuda:0",))
    other.start()
    other.join()
    assert len(cuda.streams) == 3


# ---- fits on a GPU ------------------------------------------------------------------------------


def fit_on_gpu(**params):
    data = make_two_groups(4000, random_state=0)
    given = {"epsilon": 9.0, "batch_size": 200, "max_epochs": 4, "device": "cuda"} | params
    return DPFairClassifier(**given).fit(data.data.to_numpy(np.float32), data.target)
