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
from skdpfair.datasets import make_two_groups
from skdpfair.engine import PoissonSampler, contracts, record_hooks
from skdpfair.estimators import base
from skdpfair.exceptions import BudgetExceededError, PrivacyAccountingError
from skdpfair.methods import METHODS
from skdpfair.training import loop, processes
from skdpfair.training.processes import Processes

pytestmark = [
    pytest.mark.filterwarnings("ignore::skdpfair.exceptions.LowSignalWarning"),
    pytest.mark.filterwarnings("ignore::skdpfair.exceptions.InsecureSeedWarning"),
]
PRIVATE = sorted(name for name, method in METHODS.items() if method.private)


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


@pytest.fixture
def together(monkeypatch):
    """Return a function that calls another in threads, each of which is a process of one group."""
    own = threading.local()

    @contextmanager
    def played(distributed):
        try:
            with own.process.shared_errors():
                yield own.process
        except BaseException:
            own.process.meeting.abort()
            raise

    def run(work, size=2):
        """Return the results, or errors, of ``work(rank)``."""
        boards, barrier = defaultdict(dict), threading.Barrier(size, timeout=60)
        found = [None] * size

        def begin(rank):
            own.process = Played(size, rank, boards, barrier)
            try:
                found[rank] = work(rank)
            except BaseException as error:
                found[rank] = error
                barrier.abort()

        threads = [threading.Thread(target=begin, args=(rank,)) for rank in range(size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return found

    run.all = lambda: monkeypatch.setattr(base, "process_group", played)
    return run


@pytest.fixture(scope="module")
def table():
    data = make_two_groups(600, random_state=0)
    columns = data.data, data.target, data.sensitive_features
    return [np.asarray(column) for column in columns]


def fitted(table, part=slice(None), **params):
    x, y, group = (column[part] for column in table)
    params = {"module": "logistic", "epsilon": None, "noise_multiplier": 1.0} | params
    return DPFairClassifier().set_params(**params).fit(x, y, sensitive_features=group)


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
def test_without_noise_two_processes_release_what_one_does(
    name, table, together, gradients, monkeypatch
):
    # all records take part, those of a group that moves to a lower rate, too
    monkeypatch.setattr(Keystream, "random", lambda self, n: np.full(n, 1e-9))
    params = {"method": name, "noise_multiplier": 0.0, "batch_size": 600, "max_steps": 24}
    params |= {"random_state": 0, "module": MLP((8,))}
    if name == "dp_is_sgd":  # groups of equal size are sampled alike
        params["method__group_probabilities"] = [0.5, 0.5]
    one = fitted(table, **params)
    together.all()
    two = together(lambda rank: fitted(table, slice(rank, None, 2), **params))
    assert not any(isinstance(clf, Exception) for clf in two), two
    alone, *others = [torch.stack(g) for g in gradients.values()]
    assert len(others) == 2 and len(alone) >= 18
    for other in others:
        torch.testing.assert_close(other, alone, rtol=0, atol=1e-6 * float(alone.norm(dim=1).max()))
    for clf in two:
        assert clf.privacy_.n_samples == 600 and clf.n_steps_ == one.n_steps_
        torch.testing.assert_close(weights(clf), weights(one), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("size", [2, 3])
def test_the_noise_of_a_sum_is_drawn_once(size, table, together, gradients):
    """The records weigh nothing, so that gradients are noise: 6 in 10^7 correct runs fail."""
    together.all()
    params = {"method": "dpsgd", "noise_multiplier": 50.0, "max_steps": 500, "lr": 1e-9}
    params |= {"max_sample_weight": 1.0, "method__max_grad_norm": 2.0, "iterate_average": 0.0}

    def work(rank):
        x, y, group = (column[rank::size] for column in table)
        nothing = np.full(len(y), 1e-30)
        clf = DPFairClassifier(epsilon=None, module="logistic").set_params(**params)
        return clf.fit(x, y, sensitive_features=group, sample_weight=nothing)

    found = together(work, size)
    assert not any(isinstance(clf, Exception) for clf in found), found
    first, *others = [torch.stack(g) for g in gradients.values()]
    assert all(torch.equal(first, other) for other in others)
    assert all(torch.equal(weights(found[0]), weights(clf)) for clf in found)
    noise = first * found[0].privacy_.expected_batch_size / 2.0 / 50.0
    assert abs(float(noise.std()) - 1) < 5 / (2 * noise.numel()) ** 0.5
    assert len(torch.unique(noise)) > 0.99 * noise.numel()


@pytest.mark.parametrize("seed", [None, 0])
def test_processes_draw_their_batches_independently(seed, table, together, monkeypatch):
    """Nearly equal parts, equal seeds: the correlation of 10^5 inclusions stays below 4.4 sigma."""
    drawn, plain = {}, PoissonSampler.draw

    def draw(self, n_steps):
        found = plain(self, n_steps)
        drawn.setdefault(threading.get_ident(), []).extend(found)
        return found

    monkeypatch.setattr(PoissonSampler, "draw", draw)
    together.all()
    params = {"method": "dpsgd", "batch_size": 240, "max_steps": 170, "random_state": seed}
    x, *more = table  # equal ones are refused
    found = together(lambda rank: fitted((x + 1e-3 * rank, *more), **params))
    assert not any(isinstance(clf, Exception) for clf in found), found
    one, other = (torch.zeros(len(b), 600) for b in drawn.values())
    for mask, batches in zip((one, other), drawn.values(), strict=True):
        for row, batch in zip(mask, batches, strict=True):
            row[batch] = 1.0
    assert one.numel() > 1e5
    correlation = torch.corrcoef(torch.stack([one.flatten(), other.flatten()]))[0, 1]
    assert abs(float(correlation)) < 4.4 / one.numel() ** 0.5


def test_seeded_noise_changes_with_the_records_of_any_process(table, together, gradients):
    together.all()
    params = {"method": "dpsgd", "noise_multiplier": 50.0, "max_steps": 2, "lr": 1e-9}
    params |= {"random_state": 0, "batch_size": 600}
    x, y, group = table
    changed = x.copy()
    changed[1, 0] += 1.0
    first = []
    for features in (x, changed):
        gradients.clear()
        found = together(
            lambda rank, x=features: fitted((x, y, group), slice(rank, None, 2), **params)
        )
        assert not any(isinstance(clf, Exception) for clf in found), found
        first.append(next(iter(gradients.values()))[0])
    one, other = first
    assert float((one - other).norm() / one.norm()) > 0.5


def test_a_process_with_an_empty_batch_takes_part(table, together):
    together.all()
    parts = [slice(0, 1), slice(1, None)]
    params = {
        "method": "global_adapt",
        "batch_size": 20,
        "classes": [0, 1],
        "group_col__levels": ["a", "b"],
    }
    levels = list(np.unique(table[2]))
    params["group_col__levels"] = levels
    found = together(lambda rank: fitted(table, parts[rank], **params))
    assert not any(isinstance(clf, Exception) for clf in found), found
    assert torch.equal(weights(found[0]), weights(found[1]))


def test_groups_are_counted_over_all_processes(table, together):
    together.all()
    own = table[2] == table[2][0]
    params = {
        "method": "dp_is_sgd",
        "group_col__levels": list(np.unique(table[2])),
        "classes": [0, 1],
    }
    params["method__group_count_noise_multiplier"] = 1e-3
    by_rank = [own, ~own]

    def work(rank):
        clf = DPFairClassifier(epsilon=None, noise_multiplier=1.0, module="logistic")
        x, y, group = (column[by_rank[rank]] for column in table)
        return clf.set_params(**params).fit(x, y, sensitive_features=group)

    found = together(work)
    assert not any(isinstance(clf, Exception) for clf in found), found
    rates = [clf.privacy_.releases[-1].group_rates for clf in found]
    assert rates[0] == rates[1]
    q = found[0].privacy_.expected_batch_size / 600
    shares = np.array([(table[2] == g).mean() for g in np.unique(table[2])])
    np.testing.assert_allclose(np.dot(rates[0], shares), q, rtol=1e-3)
    assert rates[0][0] != pytest.approx(rates[0][1], rel=1e-3)


class Spoil(Callback):
    """Changes the weights of one process."""

    def __init__(self, rank):
        self.rank = rank

    def on_epoch_end(self, net, **kwargs):
        if net.run.processes.rank == self.rank:
            with torch.no_grad():
                next(net.module_.parameters()).add_(1e-3)


def test_weights_that_differ_end_the_fit(table, together):
    together.all()
    params = {"method": "dpsgd", "lr": 0.1, "callbacks": [Spoil(1)]}
    found = together(lambda rank: fitted(table, slice(rank, None, 2), **params))
    for error in found:
        assert isinstance(error, ValueError) and "the weights after an epoch" in str(error)


def drawn_scale():
    return torch.from_numpy(np.random.default_rng().random(2, np.float32))


class Scaled(torch.nn.Linear):
    """Scales its outputs by numbers that each process draws for itself."""

    def __init__(self):
        super().__init__(6, 2)
        self.register_buffer("scale", drawn_scale(), persistent=False)

    def forward(self, x):
        return super().forward(x) * self.scale


def test_buffers_that_no_state_dict_holds_are_those_of_the_first(table, together):
    together.all()
    found = together(lambda rank: fitted(table, slice(rank, None, 2), module=Scaled))
    assert not any(isinstance(clf, Exception) for clf in found), found
    assert torch.equal(*(clf.net_.module_.scale for clf in found))


class Stop(Callback):
    """Ends the fit of one process because of its weights."""

    def on_epoch_end(self, net, **kwargs):
        raise RuntimeError("these weights will do")


def test_what_one_process_sees_is_charged_by_the_first(table, together, tmp_path):
    """A rule that stops by released values is charged for the whole plan."""
    together.all()
    params = {"method": "dpsgd", "epsilon": 1.0, "noise_multiplier": None, "delta": 1e-5}
    with PrivacyLedger(tmp_path / "ledger.jsonl", delta=1e-5, data="d") as ledger:
        together(
            lambda rank: fitted(
                table, slice(rank, None, 2), callbacks=[Stop()] if rank else None, **params
            )
        )
        assert ledger.epsilon() == pytest.approx(1.0, rel=0.01)


class TwiceTooLong(METHODS["dpsgd"]):
    """Breaks its bound in the process whose records have a norm above 3."""

    def clip(self, sample, state, release):
        clip = super().clip(sample, state, release)
        clip.weight[sample.norm > 3] *= 2
        return clip


def test_a_bound_broken_in_one_process_voids_the_fit_in_all(table, together, monkeypatch):
    together.all()
    # as if the method were one of this package's: others keep to the bound
    for module in (contracts, record_hooks):
        monkeypatch.setattr(module, "is_shipped", lambda method: True)
    method = TwiceTooLong(max_grad_norm=1.0)

    def work(rank):
        x, y, group = (column[rank::2] for column in table)
        x = x * 1000 if rank else x
        clf = DPFairClassifier(method, epsilon=1.0, lr=1e-6, module="logistic")
        return clf.fit(x, y, sensitive_features=group)

    assert all(isinstance(error, PrivacyAccountingError) for error in together(work))


@pytest.mark.parametrize(
    ("value", "params", "error"),
    [(np.nan, {}, "X contains NaN"), (2.0, {"attack": PGD(0.1)}, "X has values outside")],
)
def test_what_one_process_cannot_use_ends_the_fit_in_all(value, params, error, table, together):
    """Where it is read, or only where the plan is made."""
    together.all()
    x, y, group = table
    spoilt = np.clip(x, 0, 1)
    spoilt[1, 0] = value
    found = together(lambda rank: fitted((spoilt, y, group), slice(rank, None, 2), **params))
    assert isinstance(found[1], ValueError) and isinstance(found[0], RuntimeError)
    assert f"Process 1 of 2 cannot fit. ValueError: {error}" in str(found[0])


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
def test_processes_that_differ_are_refused(what, params, table, together):
    together.all()
    found = together(
        lambda rank: fitted(table, slice(rank, None, 2), noise_multiplier=None, **params[rank])
    )
    assert all(isinstance(e, ValueError) and f"differ in {what}" in str(e) for e in found), found


@pytest.mark.parametrize(
    ("what", "params"),
    [
        ("GroupRecorder", {"callbacks": [GroupRecorder()]}),
        ("method='fairlens'", {"method": "fairlens", "noise_multiplier": None}),
        ("method='is_sgd'", {"method": "is_sgd", "noise_multiplier": None}),
    ],
)
def test_what_several_processes_cannot_do_is_refused(what, params, table, together):
    together.all()
    found = together(lambda rank: fitted(table, slice(rank, None, 2), **params))
    assert all(isinstance(e, ValueError) and what in str(e) for e in found)


def test_persons_are_refused(table, together):
    together.all()
    x, y, group = table
    clf = DPFairClassifier(persons=Persons(max_records=2))
    found = together(
        lambda rank: clf.fit(x, y, sensitive_features=group, persons=np.arange(600) // 2)
    )
    assert all(isinstance(e, ValueError) and "persons" in str(e) for e in found)


def test_a_ledger_is_charged_once(table, together, tmp_path):
    together.all()
    with PrivacyLedger(tmp_path / "ledger.jsonl", epsilon=1.2, delta=1e-5, data="d") as ledger:
        params = {"method": "dpsgd", "epsilon": 1.0, "noise_multiplier": None, "delta": 1e-5}
        found = together(lambda rank: fitted(table, slice(rank, None, 2), **params))
        assert not any(isinstance(clf, Exception) for clf in found), found
        assert found[0].privacy_.epsilon == found[1].privacy_.epsilon
        assert ledger.epsilon() == pytest.approx(found[0].privacy_.epsilon)
        found = together(lambda rank: fitted(table, slice(rank, None, 2), **params))
    assert isinstance(found[0], BudgetExceededError) and "BudgetExceededError" in str(found[1])


@pytest.fixture
def ledger(tmp_path):
    return PrivacyLedger(tmp_path / "one.jsonl", epsilon=1.2, delta=1e-5)


@pytest.fixture
def apart(table, together, monkeypatch):
    """Return a function that fits in two processes, each of which has opened its own ledger."""
    together.all()
    own = threading.local()
    for module in (processes, charging):
        monkeypatch.setattr(module, "current_ledger", lambda: own.ledger)

    def fit(*opened):
        def work(rank):
            own.ledger = opened[rank]
            model = DPFairClassifier("dpsgd", module="logistic", delta=1e-5, max_steps=5)
            return model.fit(table[0][rank::2], table[1][rank::2])

        return together(work)

    return fit


@pytest.mark.parametrize("has_other", [False, True])
def test_a_ledger_that_the_first_process_lacks_is_refused_in_all(
    has_other, apart, ledger, tmp_path
):
    other = PrivacyLedger(tmp_path / "other.jsonl", delta=1e-5)
    found = apart(other if has_other else None, ledger)
    assert all(isinstance(error, ValueError) for error in found), found
    assert all("Process 1 has a PrivacyLedger that process 0" in str(error) for error in found)
    assert ledger.frame().empty and other.frame().empty


def test_the_first_process_charges_one_file_for_all(apart, ledger):
    found = apart(ledger, PrivacyLedger(ledger.path))
    assert not any(isinstance(model, Exception) for model in found), found
    assert list(ledger.frame().state) == ["done"]


@pytest.mark.parametrize("kind", ["all rows", "in another order", "pictures", "sparse", "two of 3"])
def test_processes_with_the_same_records_are_refused(kind, table, together, gradients):
    """As where each loads all rows: each record would count twice, and n be twice as large."""
    together.all()
    x, y, group = table
    size = 3 if kind == "two of 3" else 2

    def work(rank):
        order = np.random.default_rng(rank).permutation(600)
        if kind == "two of 3":
            order = order[order % 2 == rank % 2]
        if kind == "all rows":
            order = np.arange(600)
        rows = x[order]
        if kind == "pictures":
            rows = (np.abs(rows[:, :4]).reshape(-1, 2, 2, 1) * 50).astype(np.uint8)
        elif kind == "sparse":
            rows = sparse.csr_array(rows)
        clf = DPFairClassifier(epsilon=None, noise_multiplier=1.0, module="logistic")
        return clf.fit(rows, y[order], sensitive_features=group[order])

    found = together(work, size)
    assert all(isinstance(error, ValueError) for error in found), found
    said = "Processes 0 and 2 hold" if size == 3 else "Processes 0 and 1 hold"
    assert all(f"{said} the same records" in str(error) for error in found)
    assert not gradients


def test_the_statement_names_the_curator(table, together):
    together.all()
    found = together(lambda rank: fitted(table, slice(rank, None, 2)))
    said = "the processes that trained together are one trusted curator"
    assert said in found[1].privacy_.assumptions
    said = "each record lies in one of the processes that trained together"
    assert said in found[1].privacy_.assumptions


@pytest.fixture
def launched(monkeypatch):
    """The environment of a launcher's process 1 of 2."""
    for name, value in {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("MASTER_PORT", "1")


def test_a_process_that_another_started_is_not_one_of_the_group(table, launched, monkeypatch):
    """It would wait for a group that its parent is in; so with n_jobs=2."""
    monkeypatch.setenv("SKDPFAIR_LAUNCHED", str(os.getppid()))
    with pytest.raises(ValueError, match="n_jobs=None"):
        fitted(table, distributed="auto")


def test_a_second_thread_is_refused(table, monkeypatch):
    """Two fits in threads could meet those of other processes in another order."""
    monkeypatch.setattr(processes, "_is_one_of_many", lambda: True)
    with processes._ONE_FIT, pytest.raises(ValueError, match="one model at a time"):
        fitted(table, distributed="auto")


def test_an_error_that_is_kept_keeps_no_connection():
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


def test_without_a_launcher_one_process_trains_alone(table):
    clf = fitted(table, distributed="auto")
    assert clf.privacy_.n_samples == 600
    assert not any("processes" in text for text in clf.privacy_.assumptions)


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

clf = DPFairClassifier("dpsgd", epsilon=1.0, module="logistic", distributed="auto")
with PrivacyLedger(path, epsilon=10.0, delta=1e-5, data="d"):
    clf.fit(x, y)
    print(digest(*(p.detach().numpy() for p in clf.net_.module_.parameters())).hex(), flush=True)
    try:
        clf.set_params(callbacks=[Die()]).fit(x, y)
    except RuntimeError as error:
        print(error, flush=True)
"""


def test_two_real_processes(tmp_path):
    """They end with one model; and once one is killed, the other ends, its releases charged."""
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
    said = [process.communicate(timeout=120)[0].splitlines() for process in running]
    assert said[0][0] == said[1][0] and len(said[0][0]) == 64
    assert said[0][1].startswith("Another process of this fit has ended") and len(said[1]) == 1
    spent = PrivacyLedger(path, data="d").report()
    assert spent.n_fits == 2


@pytest.mark.parametrize("waits", ["init_process_group", "new_group"])
def test_a_process_that_never_fits_is_not_waited_for_in_silence(waits, monkeypatch, table):
    """Nor is the end of the wait, after torch's own time, an error without a reason."""

    def wait(*args):
        assert said.wait(30)
        raise torch.distributed.DistStoreError("timed out")

    said, told = threading.Event(), []
    monkeypatch.setattr(processes, "_PATIENCE", 0.01)
    monkeypatch.setattr(processes.log, "warning", lambda text: (told.append(text), said.set()))
    monkeypatch.setattr(torch.distributed, waits, wait)
    if waits == "new_group":
        monkeypatch.setattr(processes, "_is_one_of_many", lambda: True)
    for name in processes._BY_LAUNCHER:
        monkeypatch.setenv(name, "2")
    monkeypatch.setenv(processes._MARK, str(os.getpid()))
    with pytest.raises(RuntimeError, match="Another process of this fit has ended"):
        fitted(table, distributed="auto")
    assert len(told) == 1 and "has not called fit, or has ended" in told[0]
