"""One model trained by several processes, played by threads; and by two real ones."""

import copy
import os
import socket
import subprocess
import sys
import threading
import weakref
from collections import defaultdict
from contextlib import contextmanager, suppress

import numpy as np
import pytest
import torch
from scipy import sparse
from skorch.callbacks import Callback

from skdpfair import MLP, DPFairClassifier, Persons
from skdpfair._utils.keystream import Keystream
from skdpfair.analysis import GroupRecorder
from skdpfair.augmentations import PGD
from skdpfair.budget import PrivacyLedger, charging
from skdpfair.engine import PoissonSampler, contracts, record_hooks
from skdpfair.estimators import base
from skdpfair.exceptions import BudgetExceededError, PrivacyAccountingError
from skdpfair.methods import METHODS
from skdpfair.privacy.privacy_report import ASSUMPTIONS
from skdpfair.training import loop, processes
from skdpfair.training.processes import Processes
from tests.quick_fits import GROUP, QUIET, X, Y

pytestmark = QUIET
PRIVATE = sorted(name for name, method in METHODS.items() if method.private)
RECORDS = X.to_numpy(), Y, GROUP.to_numpy()
LEVELS = {"group_col__levels": ["a", "b"], "classes": [0, 1]}  # which a part may lack


class Played(Processes):
    """A process of a group, played by a thread."""

    def __init__(self, size, rank, boards, barrier):
        super().__init__()
        self.size, self.rank, self.boards, self.meeting = size, rank, boards, barrier
        self.calls = 0

    def _exchanged(self, what):
        self.calls += 1
        board = self.boards[self.calls]
        board[self.rank] = copy.deepcopy(what)
        with suppress(threading.BrokenBarrierError):
            self.meeting.wait()
        if len(board) < self.size:
            raise RuntimeError("another process has ended")
        return [board[rank] for rank in range(self.size)]

    def all_reduce_(self, tensor, op="SUM"):
        values = torch.stack(self._exchanged(tensor))
        return tensor.copy_(values.sum(0) if op == "SUM" else values.amax(0))

    def broadcast_(self, tensor):
        return tensor.copy_(self._exchanged(tensor)[0])


def split(records, size=2):
    return [[column[rank::size] for column in records] for rank in range(size)]


HALVES = split(RECORDS)


def fitted(records=RECORDS, fit_params=None, **params):
    x, y, group = records
    params = {"module": "logistic", "epsilon": None, "noise_multiplier": 1.0} | params
    clf = DPFairClassifier().set_params(**params)
    return clf.fit(x, y, sensitive_features=group, **fit_params or {})


@pytest.fixture
def fit_parts(monkeypatch):
    """Return a function that fits in threads, each of which is a process of one group."""
    own = threading.local()

    @contextmanager
    def played(distributed):
        try:
            with own.process.shared_errors():
                yield own.process
        except BaseException:
            own.process.meeting.abort()
            raise

    def fit(parts=HALVES, by_rank=lambda rank: {}, **params):
        """Return the models, or errors, of fits to the parts."""
        boards, barrier = defaultdict(dict), threading.Barrier(len(parts), timeout=60)
        found = list(parts)

        def begin(rank):
            own.process = Played(len(parts), rank, boards, barrier)
            try:
                found[rank] = fitted(parts[rank], **params | by_rank(rank))
            except BaseException as error:
                found[rank] = error
                barrier.abort()

        threads = [threading.Thread(target=begin, args=(rank,)) for rank in range(len(parts))]
        with monkeypatch.context() as patch:
            patch.setattr(base, "process_group", played)
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        return found

    return fit


def whole(found):
    assert not any(isinstance(each, Exception) for each in found), found
    return found


def have_failed(found, match, error=ValueError):
    return all(isinstance(each, error) and match in str(each) for each in found)


def weights(clf):
    return torch.cat([p.detach().flatten() for p in clf.net_.module_.parameters()])


@pytest.fixture
def gradients(monkeypatch):
    """The gradients that steps released, by thread."""
    kept, plain = {}, loop.private_step

    def private_step(*args, **kwargs):
        step = plain(*args, **kwargs)
        kept.setdefault(threading.get_ident(), []).append(step.gradient.clone())
        return step

    monkeypatch.setattr(loop, "private_step", private_step)
    return kept


@pytest.mark.parametrize("name", PRIVATE)
def test_processes_release_without_noise_what_one_does(name, fit_parts, gradients, monkeypatch):
    # all records take part, those of a group that moves to a lower rate, too
    monkeypatch.setattr(Keystream, "random", lambda self, n: np.full(n, 1e-9))
    params = {"method": name, "noise_multiplier": 0.0, "batch_size": 600, "max_steps": 24}
    params |= {"random_state": 0, "module": MLP((8,))}
    if name == "dp_is_sgd":  # groups of equal size are sampled alike
        params["method__group_probabilities"] = [0.5, 0.5]
    one = fitted(**params)
    two = whole(fit_parts(**params))
    alone, *others = [torch.stack(g) for g in gradients.values()]
    assert len(others) == 2 and len(alone) >= 18
    for other in others:
        torch.testing.assert_close(other, alone, rtol=0, atol=1e-6 * float(alone.norm(dim=1).max()))
    for clf in two:
        assert clf.privacy_.n_samples == 600 and clf.n_steps_ == one.n_steps_
        torch.testing.assert_close(weights(clf), weights(one), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("size", [2, 3])
def test_shared_noise_of_a_sum_is_drawn_once(size, fit_parts, gradients):
    """The records weigh nothing, so that gradients are noise: 6 in 10^7 correct runs fail."""
    params = {"method": "dpsgd", "noise_multiplier": 50.0, "max_steps": 300, "lr": 1e-9}
    params |= {"max_sample_weight": 1.0, "method__max_grad_norm": 2.0, "iterate_average": 0.0}
    params["fit_params"] = {"sample_weight": np.full(600 // size, 1e-30)}
    found = whole(fit_parts(split(RECORDS, size), **params))
    first, *others = [torch.stack(g) for g in gradients.values()]
    assert all(torch.equal(first, other) for other in others)
    assert all(torch.equal(weights(found[0]), weights(clf)) for clf in found)
    noise = first * found[0].privacy_.expected_batch_size / 2.0 / 50.0
    assert abs(float(noise.std()) - 1) < 5 / (2 * noise.numel()) ** 0.5
    assert len(torch.unique(noise)) > 0.99 * noise.numel()


@pytest.mark.parametrize("seed", [None, 0])
def test_processes_draw_their_batches_independently(seed, fit_parts, monkeypatch):
    """Nearly equal parts, equal seeds: the correlation of 10^5 inclusions stays below 4.4 sigma."""
    drawn, plain = {}, PoissonSampler.draw

    def draw(self, n_steps):
        found = plain(self, n_steps)
        drawn.setdefault(threading.get_ident(), []).extend(found)
        return found

    monkeypatch.setattr(PoissonSampler, "draw", draw)
    params = {"method": "dpsgd", "batch_size": 240, "max_steps": 170, "random_state": seed}
    x, *more = RECORDS  # equal ones are refused
    whole(fit_parts([(x, *more), (x + 1e-3, *more)], **params))
    one, other = ([np.isin(np.arange(600), b) for b in batches] for batches in drawn.values())
    assert np.size(one) > 1e5
    correlation = np.corrcoef(np.ravel(one), np.ravel(other))[0, 1]
    assert abs(correlation) < 4.4 / np.size(one) ** 0.5


def test_seeded_noise_changes_with_the_records_of_any_process(fit_parts, gradients):
    params = {"method": "dpsgd", "noise_multiplier": 50.0, "max_steps": 2, "lr": 1e-9}
    params |= {"random_state": 0, "batch_size": 600}
    first = []
    for change in (0.0, 1.0):
        gradients.clear()
        x = RECORDS[0].copy()
        x[1, 0] += change
        whole(fit_parts(split((x, *RECORDS[1:])), **params))
        first.append(next(iter(gradients.values()))[0])
    one, other = first
    assert float((one - other).norm() / one.norm()) > 0.5


def test_process_with_an_empty_batch_takes_part(fit_parts):
    parts = [[column[place] for column in RECORDS] for place in (slice(0, 1), slice(1, None))]
    params = {"method": "global_adapt", "batch_size": 20, **LEVELS}
    one, other = whole(fit_parts(parts, **params))
    assert torch.equal(weights(one), weights(other))


def test_group_counts_are_those_of_all_processes(fit_parts):
    own = RECORDS[2] == RECORDS[2][0]
    parts = [[column[place] for column in RECORDS] for place in (own, ~own)]
    params = {"method": "dp_is_sgd", "method__group_count_noise_multiplier": 1e-3, **LEVELS}
    found = whole(fit_parts(parts, **params))
    one, other = (clf.privacy_.releases[-1].group_rates for clf in found)
    assert one == other
    shares = np.array([(RECORDS[2] == g).mean() for g in "ab"])
    rate = found[0].privacy_.expected_batch_size / 600
    np.testing.assert_allclose(np.dot(one, shares), rate, rtol=1e-3)
    assert one[0] != pytest.approx(one[1], rel=1e-3)


def test_check_epoch_refuses_weights_that_differ(fit_parts):
    class Spoil(Callback):
        def on_epoch_end(self, net, **kwargs):
            if net.run.processes.rank == 1:
                with torch.no_grad():
                    next(net.module_.parameters()).add_(1e-3)

    found = fit_parts(method="dpsgd", lr=0.1, callbacks=[Spoil()])
    assert have_failed(found, "the weights after an epoch")


def drawn_scale():
    return torch.from_numpy(np.random.default_rng().random(2, np.float32))


def test_buffers_outside_the_state_dict_are_those_of_process_0(fit_parts):
    class Scaled(torch.nn.Linear):
        def __init__(self):
            super().__init__(6, 2)
            self.register_buffer("scale", drawn_scale(), persistent=False)

        def forward(self, x):
            return super().forward(x) * self.scale

    found = whole(fit_parts(module=Scaled, max_steps=5))
    assert torch.equal(*(clf.net_.module_.scale for clf in found))


BUDGET = {"epsilon": 1.0, "noise_multiplier": None, "delta": 1e-5}
DPSGD = {"method": "dpsgd", **BUDGET}


def test_ledger_is_charged_for_the_plan_where_one_process_sees_values(fit_parts, tmp_path):
    class Stop(Callback):
        def on_epoch_end(self, net, **kwargs):
            raise RuntimeError("these weights will do")

    with PrivacyLedger(tmp_path / "ledger.jsonl", delta=1e-5, data="d") as ledger:
        fit_parts(by_rank=lambda rank: {"callbacks": [Stop()] if rank else None}, **DPSGD)
        assert ledger.epsilon() == pytest.approx(1.0, rel=0.01)


def test_bound_broken_in_one_process_voids_the_fit_in_all(fit_parts, monkeypatch):
    # as if the method were one of this package's: others keep to the bound
    for module in (contracts, record_hooks):
        monkeypatch.setattr(module, "is_shipped", lambda method: True)

    class TwiceTooLong(METHODS["dpsgd"]):
        def clip(self, sample, state, release):
            clip = super().clip(sample, state, release)
            clip.weight[sample.norm > 3] *= 2  # of the records of process 1
            return clip

    params = {"method": TwiceTooLong(max_grad_norm=1.0), "lr": 1e-6, **BUDGET}

    one, (x, *more) = HALVES
    found = fit_parts([one, (x * 1000, *more)], **params)
    assert have_failed(found, "", PrivacyAccountingError)


@pytest.mark.parametrize(
    ("value", "params", "error"),
    [(np.nan, {}, "X contains NaN"), (2.0, {"attack": PGD(0.1)}, "X has values outside")],
    ids=["where it is read", "where the plan is made"],
)
def test_error_of_one_process_ends_the_fit_in_all(value, params, error, fit_parts):
    spoilt = np.clip(RECORDS[0], 0, 1)
    spoilt[1, 0] = value
    first, second = fit_parts(split((spoilt, *RECORDS[1:])), **params)
    assert isinstance(second, ValueError) and isinstance(first, RuntimeError)
    assert f"Process 1 of 2 cannot fit. ValueError: {error}" in str(first)


@pytest.mark.parametrize(
    ("what", "params"),
    [
        ("epsilon", [{"epsilon": 1.0}, {"epsilon": 2.0}]),
        ("classes", [{"classes": [0, 1]}, {"classes": [0, 1, 2]}]),
        ("max_steps", [{"max_steps": 10}, {"max_steps": 11}]),
        ("keep_reference", [{"keep_reference": True}, {}]),
        ("whether random_state", [{"random_state": 0}, {}]),
    ],
)
def test_check_same_refuses_processes_that_differ(what, params, fit_parts):
    found = fit_parts(by_rank=lambda rank: {"noise_multiplier": None} | params[rank])
    assert have_failed(found, f"differ in {what}")


@pytest.mark.parametrize(
    ("what", "params"),
    [
        ("GroupRecorder", {"callbacks": [GroupRecorder()]}),
        ("method='fairlens'", {"method": "fairlens", "noise_multiplier": None}),
        ("method='is_sgd'", {"method": "is_sgd", "noise_multiplier": None}),
        ("persons", {"persons": Persons(), "fit_params": {"persons": np.arange(300) // 2}}),
    ],
)
def test_check_parts_refuses_what_several_processes_cannot_do(what, params, fit_parts):
    assert have_failed(fit_parts(**params), what)


def test_ledger_is_charged_once(fit_parts, tmp_path):
    with PrivacyLedger(tmp_path / "ledger.jsonl", epsilon=1.2, delta=1e-5, data="d") as ledger:
        one, other = whole(fit_parts(**DPSGD))
        assert one.privacy_.epsilon == other.privacy_.epsilon
        assert ledger.epsilon() == pytest.approx(one.privacy_.epsilon)
        first, second = fit_parts(**DPSGD)
    assert isinstance(first, BudgetExceededError) and "BudgetExceededError" in str(second)


@pytest.mark.parametrize("opened", ["none", "another", "the same"])
def test_check_parts_needs_the_ledger_of_process_0(opened, fit_parts, monkeypatch, tmp_path):
    one, same, other = (PrivacyLedger(tmp_path / f"{name}.jsonl", delta=1e-5) for name in "aab")
    of_first = {"none": None, "another": other, "the same": same}[opened]
    own = threading.local()
    for module in (processes, charging):
        monkeypatch.setattr(module, "current_ledger", lambda: own.ledger)

    def by_rank(rank):
        own.ledger = one if rank else of_first
        return {"method": "dpsgd", "delta": 1e-5, "max_steps": 5}

    found = fit_parts(by_rank=by_rank)
    if opened == "the same":
        assert list(same.frame().state) == ["done"] and whole(found)
    else:
        assert have_failed(found, "Process 1 has a PrivacyLedger")
        assert one.frame().empty and other.frame().empty


@pytest.mark.parametrize("kind", ["all rows", "in another order", "pictures", "sparse", "two of 3"])
def test_check_parts_refuses_processes_with_the_same_records(kind, fit_parts, gradients):
    """As where each loads all rows: each record would count twice, and n be twice as large."""
    x, y, group = RECORDS
    pictures = (np.abs(x[:, :4]).reshape(-1, 2, 2, 1) * 50).astype(np.uint8)
    rows = {"pictures": pictures, "sparse": sparse.csr_array(x)}.get(kind, x)

    orders = [np.random.default_rng(rank).permutation(600) for rank in range(3)]
    if kind == "all rows":
        orders = [np.arange(600)] * 3
    if kind == "two of 3":
        orders = [order[order % 2 == rank % 2] for rank, order in enumerate(orders)]
    size = 3 if kind == "two of 3" else 2
    found = fit_parts([(rows[order], y[order], group[order]) for order in orders[:size]])
    assert have_failed(found, f"Processes 0 and {size - 1} hold the same")
    assert not gradients


def test_assumptions_name_the_curator_and_the_parts_of_several_processes(fit_parts, monkeypatch):
    assumed = {ASSUMPTIONS["processes"], ASSUMPTIONS["parts"]}
    assert assumed <= set(fit_parts()[1].privacy_.assumptions)
    alone = fitted(distributed="auto")  # without a launcher
    assert alone.privacy_.n_samples == 600 and not assumed & set(alone.privacy_.assumptions)


def test_process_group_refuses_a_process_that_another_of_the_group_started(monkeypatch):
    """It would wait for a group that its parent is in; so with n_jobs=2."""
    launcher = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
    for name, value in launcher.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv(processes._MARK, str(os.getppid()))
    with pytest.raises(ValueError, match="n_jobs=None"):
        fitted(distributed="auto")


def test_process_group_refuses_a_second_thread(monkeypatch):
    """Two fits in threads could meet those of other processes in another order."""
    monkeypatch.setattr(processes, "_is_one_of_many", lambda: True)
    with processes._ONE_FIT, pytest.raises(ValueError, match="n_jobs=None"):
        fitted(distributed="auto")


def test_error_of_a_lost_process_holds_no_connection():
    """Frames of torch.distributed hold the group, so that others would wait for this process."""

    class Connection:
        pass

    def reduce(connection):
        raise RuntimeError("the other has ended")

    connection = Connection()
    known = weakref.ref(connection)
    with pytest.raises(RuntimeError, match="Another process") as kept, processes._naming_others():
        reduce(connection)
    del connection
    assert kept.value.__cause__ is not None and known() is None


SCRIPT = """
import os, signal, sys, time
import numpy as np
from skorch.callbacks import Callback
from skdpfair import DPFairClassifier
from skdpfair._utils.describe import digest
from skdpfair.budget import PrivacyLedger
from skdpfair.datasets import make_two_groups
from skdpfair.training import processes

rank, path = int(os.environ["RANK"]), sys.argv[1]
assert int(os.environ[processes._MARK]) == os.getpid()  # for those that it starts
data = make_two_groups(600, random_state=0)
x, y = np.asarray(data.data)[rank::2], np.asarray(data.target)[rank::2]

class Die(Callback):
    def on_epoch_end(self, net, **kwargs):
        if rank == 1 and net.n_steps_taken > 50:
            os.kill(os.getpid(), signal.SIGKILL)

params = {"epsilon": 1.0, "max_steps": 60, "module": "logistic", "distributed": "auto"}
clf = DPFairClassifier("dpsgd", **params)
with PrivacyLedger(path, epsilon=10.0, delta=1e-5, data="d"):
    clf.fit(x, y)
    print(digest(*(p.detach().numpy() for p in clf.net_.module_.parameters())).hex(), flush=True)
    try:
        clf.set_params(callbacks=[Die()]).fit(x, y)
    except RuntimeError as error:
        print(error, flush=True)
"""


def test_two_real_processes_make_one_model_and_end_with_each_other(tmp_path):
    """Once one is killed, the other ends, and its releases are charged."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2"}
    path = tmp_path / "ledger.jsonl"
    running = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", SCRIPT, str(path)],
            env=os.environ | shared | {"RANK": str(rank)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    one, other = (process.communicate(timeout=120)[0].splitlines() for process in running)
    assert one[:1] == other and len(one[0]) == 64
    assert one[1].startswith("Another process of this fit has ended")
    assert PrivacyLedger(path, data="d").report().n_fits == 2


@pytest.mark.parametrize("waits", ["init_process_group", "new_group"])
def test_process_group_logs_for_whom_it_waits_and_names_the_end(waits, monkeypatch):
    """Nor is the end of the wait, after torch's own time, an error without a reason."""

    def wait(*args):
        assert logged.wait(30)
        raise torch.distributed.DistStoreError("timed out")

    logged, texts = threading.Event(), []
    monkeypatch.setattr(processes, "_PATIENCE", 0.01)
    monkeypatch.setattr(processes.log, "warning", lambda text: (texts.append(text), logged.set()))
    monkeypatch.setattr(torch.distributed, waits, wait)
    if waits == "new_group":
        monkeypatch.setattr(processes, "_is_one_of_many", lambda: True)
    for name in processes._BY_LAUNCHER:
        monkeypatch.setenv(name, "2")
    monkeypatch.setenv(processes._MARK, str(os.getpid()))
    with pytest.raises(RuntimeError, match="Another process"):
        fitted(distributed="auto")
    assert len(texts) == 1 and 'distributed="auto" waits' in texts[0]
