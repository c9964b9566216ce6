"""Fits that go on after a crash."""

import os
import signal
import stat
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from skorch.callbacks import Callback

from skdpfair import METHODS, DPFairClassifier
from skdpfair.audit import audit_artifact
from skdpfair.budget import PrivacyLedger
from skdpfair.datasets import make_two_groups
from skdpfair.engine.noise import Gaussians
from skdpfair.exceptions import BudgetExceeded
from skdpfair.training import checkpoint
from skdpfair.training.steps import TrainingLoop

pytestmark = [
    pytest.mark.filterwarnings("ignore::skdpfair.exceptions.LowSignalWarning"),
    pytest.mark.filterwarnings("ignore::skdpfair.exceptions.InsecureSeedWarning"),
]


class Killed(BaseException):
    """What ends a process in the tests."""


@pytest.fixture(scope="module")
def table():
    data = make_two_groups(800, random_state=0)
    return [np.asarray(column) for column in (data.data, data.target, data.sensitive_features)]


@pytest.fixture
def die(monkeypatch):
    """Return a function that sets after how many steps of this process it is killed."""
    plain, left = TrainingLoop.step, [None]

    def step(self, index):
        if left[0] is not None:
            left[0] -= 1
            if left[0] < 0:
                left[0] = None
                raise Killed
        plain(self, index)

    monkeypatch.setattr(TrainingLoop, "step", step)
    return lambda after: left.__setitem__(0, after)


def fit(table, path=None, **params):
    x, y, group = table
    params = {"epsilon": 1.0, "max_steps": 130, "batch_size": 100, "checkpoint": path} | params
    return DPFairClassifier().set_params(**params).fit(x, y, sensitive_features=group)


def weights(clf):
    return torch.cat([p.detach().flatten() for p in clf.net_.module_.parameters()])


ADAM = {"optimizer": "adam", "lr": 0.01, "iterate_average": 0.5}


@pytest.mark.parametrize(
    "params",
    [
        {"method": "global_adapt"},
        {"method": "dp_sat", "module": "mlp", "hidden_layer_sizes": (8,)},
        {"method": "dpsgd_f", "noise": "gaussian_sum"},
        {"method": "dp_is_sgd"},
        {"method": "fairlens_dp"},
        {"method": "dpsgd", **ADAM},
        {"method": "pcsgd"},
    ],
    ids=lambda params: params["method"],
)
def test_a_seeded_fit_killed_ten_times_ends_with_the_same_weights(params, table, die, tmp_path):
    path, params = tmp_path / "fit.ckpt", params | {"random_state": 3}
    whole = fit(table, **params)
    for after in (0, 1, 2, 7, 11, 13, 17, 19, 23, 25):
        die(after)
        with pytest.raises(Killed):
            fit(table, path, **params)
        assert path.exists()
    die(None)
    clf = fit(table, path, **params)
    assert torch.equal(weights(clf), weights(whole))
    assert clf.privacy_.epsilon == whole.privacy_.epsilon and clf.n_steps_ == whole.n_steps_
    assert clf.privacy_.ledger.entries == whole.privacy_.ledger.entries
    assert clf.n_iter_ >= whole.n_iter_ and not path.exists()


def test_an_unseeded_fit_never_draws_the_same_noise_again(table, die, tmp_path, monkeypatch):
    drawn, plain = [], Gaussians.fill_all_

    def fill_all_(self, flat, scale):
        plain(self, flat, scale)
        drawn.append(flat / scale)

    monkeypatch.setattr(Gaussians, "fill_all_", fill_all_)
    path, whole = tmp_path / "fit.ckpt", fit(table)
    drawn.clear()
    for after in (40, 20, 33):
        die(after)
        with pytest.raises(Killed):
            fit(table, path)
    die(None)
    clf = fit(table, path)
    numbers = np.concatenate(drawn)
    assert len(np.unique(numbers)) > 0.999 * len(numbers)
    assert clf.privacy_.epsilon == whole.privacy_.epsilon


def test_the_file_holds_no_noise_to_come(table, die, tmp_path):
    """Two processes that go on from copies of one file draw different noise."""
    path, copy = tmp_path / "fit.ckpt", tmp_path / "copy.ckpt"
    die(60)
    with pytest.raises(Killed):
        fit(table, path)
    copy.write_bytes(path.read_bytes())
    die(None)
    assert not torch.equal(weights(fit(table, path)), weights(fit(table, copy)))


def test_the_file_is_private_and_known_to_the_scanner(table, die, tmp_path):
    path = tmp_path / "fit.ckpt"
    die(60)
    with pytest.raises(Killed):
        fit(table, path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [p.name for p in tmp_path.iterdir()] == ["fit.ckpt"]
    found = torch.load(path, weights_only=True)
    assert found["taken"] == 60 and "seed" not in " ".join(map(str, found))
    arrays = list(found["module"].values())
    assert sum(a.numel() for a in arrays) == 14
    found = audit_artifact(path).findings
    assert any("a checkpoint of a fit that has not ended" in str(finding) for finding in found)


@pytest.mark.parametrize(
    ("what", "params"),
    [
        ("epsilon 1.0", {"epsilon": 2.0}),
        ("method", {"method": "dpsgd"}),
        ("max_steps", {"max_steps": 131}),
        ("random_state", {"random_state": 1}),
    ],
)
def test_a_file_of_another_fit_is_refused(what, params, table, die, tmp_path):
    path = tmp_path / "fit.ckpt"
    die(60)
    with pytest.raises(Killed):
        fit(table, path)
    die(None)
    with pytest.raises(ValueError, match=f"is of a fit with .*{what.split()[0]}"):
        fit(table, path, **params)
    x, y, group = (column[1:] for column in table)
    with pytest.raises(ValueError, match="n_samples"):
        fit((x, y, group), path)
    assert path.exists()


@pytest.mark.parametrize("content", [b"", b"no checkpoint", b"PK\x03\x04"])
def test_a_file_of_something_else_is_left_as_it_is(content, table, tmp_path):
    path = tmp_path / "fit.ckpt"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="is not a checkpoint of a fit"):
        fit(table, path)
    assert path.read_bytes() == content


def test_a_place_that_cannot_be_written_is_refused_before_a_step(table, tmp_path):
    with PrivacyLedger(tmp_path / "ledger.jsonl", epsilon=3.0, delta=1e-5, data="d") as ledger:
        with pytest.raises(ValueError, match="in a folder that does not exist"):
            fit(table, tmp_path / "no folder" / "fit.ckpt")
        with pytest.raises(ValueError, match="is a folder"):
            fit(table, tmp_path)
        assert ledger.epsilon() == 0


def test_what_may_fit_several_times_is_refused(table, tmp_path):
    x, y, group = table
    clf = DPFairClassifier(checkpoint=tmp_path / "fit.ckpt")
    watched = clone(clf).set_params(callbacks=[Watch()])
    for other in (clone(clf), watched, clf.set_params(warm_start=True)):
        with pytest.raises(ValueError, match="checkpoint="):
            other.fit(x, y, sensitive_features=group)


def test_a_ledger_charges_a_fit_that_goes_on_once(table, die, tmp_path):
    path = tmp_path / "fit.ckpt"
    whole = fit(table, delta=1e-5).privacy_.epsilon
    with PrivacyLedger(tmp_path / "ledger.jsonl", epsilon=1.1, delta=1e-5, data="d") as ledger:
        for after in (0, 30, 55):
            die(after)
            with pytest.raises(Killed):
                fit(table, path, delta=1e-5)
            assert ledger.epsilon() == pytest.approx(whole, rel=1e-6)
        die(None)
        copy = tmp_path / "copy.ckpt"
        copy.write_bytes(path.read_bytes())
        fit(table, path, delta=1e-5)
        assert ledger.epsilon() == pytest.approx(whole, rel=1e-6)
    with PrivacyLedger(tmp_path / "ledger.jsonl", data="d"), pytest.raises(BudgetExceeded):
        fit(table, copy, delta=1e-5)  # the rest is charged again, and there is no room


def test_steps_that_only_a_ledger_counted_are_not_counted_again(table, die, tmp_path):
    (x, y, group), ledger = table, PrivacyLedger(tmp_path / "ledger.jsonl", data="d")
    whole = fit(table).privacy_.epsilon
    clf = DPFairClassifier(
        epsilon=1.0, max_steps=130, batch_size=100, checkpoint=tmp_path / "fit.ckpt"
    )
    die(55)
    with pytest.raises(Killed):
        ledger.fit(clf, x, y, sensitive_features=group)
    die(None)
    ledger.fit(clf, x, y, sensitive_features=group)
    assert clf.privacy_.epsilon == ledger.epsilon(delta=clf.privacy_.delta) == whole


def test_a_ledger_that_has_not_heard_of_the_fit_charges_all_of_it(table, die, tmp_path):
    path = tmp_path / "fit.ckpt"
    die(60)
    with pytest.raises(Killed):
        fit(table, path, delta=1e-5)
    die(None)
    with PrivacyLedger(tmp_path / "ledger.jsonl", epsilon=1.1, delta=1e-5, data="d") as ledger:
        clf = fit(table, path, delta=1e-5)
        assert ledger.epsilon() == pytest.approx(clf.privacy_.epsilon, rel=1e-6)


def test_a_crash_before_and_one_after_a_ledger_is_opened_lose_no_charge(table, die, tmp_path):
    path = tmp_path / "fit.ckpt"
    die(60)
    with pytest.raises(Killed):
        fit(table, path, delta=1e-5)
    with PrivacyLedger(tmp_path / "ledger.jsonl", delta=1e-5, data="d") as ledger:
        die(20)
        with pytest.raises(Killed):
            fit(table, path, delta=1e-5)
        die(None)
        clf = fit(table, path, delta=1e-5)
        assert ledger.epsilon() == pytest.approx(clf.privacy_.epsilon, rel=1e-6)


class Watch(Callback):
    """Sees the weights."""


def test_steps_that_callbacks_saw_and_crashes_undid_are_counted(table, die, tmp_path):
    """Each crash may have undone two steps, whoever continues the fit."""
    path, whole = tmp_path / "fit.ckpt", fit(table)
    for after in (61, 1, 0):
        die(after)
        with pytest.raises(Killed):
            fit(table, path, callbacks=[Watch()])
    die(None)
    clf = fit(table, path)
    assert clf.privacy_.steps == whole.privacy_.steps + 6
    assert clf.privacy_.epsilon > whole.privacy_.epsilon


def test_steps_that_were_seen_are_taken_again_with_other_noise(table, die, tmp_path, monkeypatch):
    drawn, plain = [], Gaussians.fill_all_

    def fill_all_(self, flat, scale):
        plain(self, flat, scale)
        drawn.append(flat[0] / scale)

    monkeypatch.setattr(Gaussians, "fill_all_", fill_all_)
    path, params = tmp_path / "fit.ckpt", {"random_state": 0, "callbacks": [Watch()]}
    for after in (61, 1, 1):
        die(after)
        with pytest.raises(Killed):
            fit(table, path, **params)
    die(None)
    fit(table, path, **params)
    assert len(set(drawn)) == len(drawn)


def test_charges_add_up_however_a_fit_is_continued(table, die, tmp_path):
    """After crashes before a write, without the ledger, and beside a process that still runs."""
    path, copy = tmp_path / "fit.ckpt", tmp_path / "copy.ckpt"
    whole = fit(table, delta=1e-5).privacy_.epsilon

    def killed(after, path=path):
        die(after)
        with pytest.raises(Killed):
            fit(table, path, delta=1e-5)
        die(None)

    with PrivacyLedger(tmp_path / "ledger.jsonl", delta=1e-5, data="d") as ledger:
        for after in (60, 0, 1, 0):
            killed(after)
    killed(3)
    with ledger:
        killed(0)
        assert ledger.epsilon() == pytest.approx(whole, rel=1e-6)
    copy.write_bytes(path.read_bytes())
    with ledger:
        killed(20, copy)  # closes the charge of the other, which runs on
    with PrivacyLedger(tmp_path / "ledger.jsonl", delta=1e-5, data="d") as ledger:
        fit(table, path, delta=1e-5)
        fit(table, copy, delta=1e-5)
        steps = sum(e[3] for line in ledger._entries("d")[0] for e in line["entries"])
    assert steps >= 130 + 60


class WithFrozen(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.frozen = torch.nn.Linear(6, 5).requires_grad_(False)
        self.register_buffer("kept", torch.rand(5))
        drawn = torch.from_numpy(np.random.default_rng().random(5, np.float32))
        self.register_buffer("dropped", drawn, persistent=False)
        self.last = torch.nn.Linear(5, 2)

    def forward(self, x):
        return self.last(torch.tanh(self.frozen(x)) * self.kept * self.dropped)


def test_what_is_drawn_and_frozen_is_continued(table, die, tmp_path):
    path = tmp_path / "fit.ckpt"
    die(60)
    with pytest.raises(Killed):
        fit(table, path, module=WithFrozen)
    die(None)
    held = torch.load(path, weights_only=True)["module"]
    module = fit(table, path, module=WithFrozen).net_.module_
    assert torch.equal(module.frozen.weight, held["frozen.weight"])
    assert torch.equal(module.kept, held["kept"]) and torch.equal(module.dropped, held["dropped"])


class WithDropout(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(6, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 2)
        )

    def forward(self, x):
        return self.layers(x)


def test_equal_noise_comes_with_equal_masks_of_dropout(table, die, tmp_path):
    """With other masks, two releases with the same noise would differ by sums without any."""
    path, params = tmp_path / "fit.ckpt", {"module": WithDropout, "random_state": 0}
    whole = fit(table, **params)
    for after in (37, 50):
        die(after)
        with pytest.raises(Killed):
            fit(table, path, **params)
    die(None)
    assert torch.equal(weights(fit(table, path, **params)), weights(whole))


def test_columns_in_another_order_are_refused(table, die, tmp_path):
    path, (x, y, group) = tmp_path / "fit.ckpt", table
    frame = pd.DataFrame(x, columns=list("abcdef"))
    die(60)
    with pytest.raises(Killed):
        fit((frame, y, group), path)
    die(None)
    with pytest.raises(ValueError, match="names of the columns"):
        fit((frame[list("fedcba")], y, group), path)


class Grows(METHODS["dpsgd"]):
    def start(self, task):
        return []

    def update(self, state, release):
        return [*state, torch.zeros(1)] if len(state) < 40 else state


class KeepsAnObject(Grows):
    def update(self, state, release):
        return [object()]


class KeepsAnObjectFor(torch.optim.SGD):
    def step(self, closure=None):
        super().step(closure)
        self.state[self.param_groups[0]["params"][0]]["mine"] = np.float64(1.0)


@pytest.mark.parametrize(
    ("what", "params"),
    [
        ("method=Grows", {"method": Grows()}),
        ("'object'", {"method": KeepsAnObject()}),
        ("the optimizer", {"method": "dpsgd", "optimizer": KeepsAnObjectFor}),
    ],
)
def test_what_could_not_be_read_again_is_refused_when_written(what, params, table, tmp_path):
    with pytest.raises(TypeError, match=f"(?s)checkpoint.*cannot hold.*{what}"):
        fit(table, tmp_path / "fit.ckpt", **params)


class Second(Callback):
    """Begins another fit while this one runs."""

    def __init__(self, begin):
        self.begin = begin

    def on_epoch_end(self, net, **kwargs):
        self.begin()


def test_a_file_belongs_to_one_fit_at_a_time(table, tmp_path):
    path, refused = tmp_path / "fit.ckpt", []

    def begin():
        with pytest.raises(ValueError, match=r"(?s)checkpoint=.*fit.ckpt.*runs now"):
            fit(table, path)
        refused.append((tmp_path / ".fit.ckpt.lock").stat().st_mode)

    fit(table, path, callbacks=[Second(begin)])
    assert refused and stat.S_IMODE(refused[0]) == 0o600 and not os.listdir(tmp_path)


def test_a_claim_outlives_the_removal_of_the_one_before(tmp_path, monkeypatch):
    """Who waits at a lock file that its holder removes would hold a file without a name."""
    path, plain, first = tmp_path / "fit.ckpt", checkpoint.lock, [True]

    def late(file, **options):
        if first.pop() if first else False:
            (tmp_path / ".fit.ckpt.lock").unlink()
        plain(file, **options)

    monkeypatch.setattr(checkpoint, "lock", late)
    other = checkpoint.claimed(path, writes=True)
    with checkpoint.claimed(path, writes=True), pytest.raises(ValueError, match="runs now"), other:
        pass


def test_half_a_file_of_a_killed_process_is_removed(table, tmp_path):
    (tmp_path / ".fit.ckpt.0123456789abcdef.part").write_bytes(b"half")
    fit(table, tmp_path / "fit.ckpt")
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize(
    "params",
    [
        {"random_state": np.random.RandomState(0)},
        {"random_state": np.random.default_rng(0)},
        {"diagnostics": True},
    ],
)
def test_what_a_file_cannot_hold_is_refused(params, table, tmp_path):
    with pytest.raises(ValueError, match="checkpoint="):
        fit(table, tmp_path / "fit.ckpt", **params)


def test_an_interrupt_leaves_the_file_and_raises(table, tmp_path, monkeypatch):
    path, plain, taken, calm = tmp_path / "fit.ckpt", TrainingLoop.step, [], [True]

    def step(self, index):
        taken.append(index)
        if len(taken) == 70 and not calm:
            raise KeyboardInterrupt
        plain(self, index)

    monkeypatch.setattr(TrainingLoop, "step", step)
    whole = fit(table, delta=1e-5).privacy_.epsilon
    taken.clear()
    calm.clear()
    with PrivacyLedger(tmp_path / "ledger.jsonl", delta=1e-5, data="d") as ledger:
        with pytest.raises(KeyboardInterrupt, match="after 69 of 130 steps"):
            fit(table, path, delta=1e-5)
        assert path.exists()
        assert fit(table, path, delta=1e-5).n_steps_ == 130 and not path.exists()
        assert ledger.epsilon() == pytest.approx(whole, rel=1e-6)


SCRIPT = """
import os, random, signal, sys, warnings
warnings.simplefilter("ignore")
import numpy as np
from skdpfair import DPFairClassifier
from skdpfair._describe import digest
from skdpfair.budget import PrivacyLedger
from skdpfair.datasets import make_two_groups
from skdpfair.training.steps import TrainingLoop

folder = sys.argv[1]
data = make_two_groups(800, random_state=0)
x, y = np.asarray(data.data), np.asarray(data.target)
plain = TrainingLoop.step

def fit(path, end):
    def step(self, index):
        plain(self, index)
        os.write(end, b"s")

    TrainingLoop.step = step
    clf = DPFairClassifier("dpsgd", max_steps=400, batch_size=100, random_state=0, delta=1e-5)
    with PrivacyLedger(f"{folder}/{'one' if path else 'whole'}.jsonl", delta=1e-5, data="d") as led:
        clf.set_params(checkpoint=path).fit(x, y)
        spent = led.report().epsilon
    weights = [p.detach().numpy() for p in clf.net_.module_.parameters()]
    print(digest(*weights).hex(), clf.privacy_.epsilon, round(spent, 6), flush=True)

def run(path, most):
    start, end = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(start)
        fit(path, end)
        os._exit(0)
    os.close(end)
    while most > 0 and (got := os.read(start, most)):
        most -= len(got)
    if most == 0:
        os.kill(pid, signal.SIGKILL)  # anywhere in the next step, or in a write
    os.close(start)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

draw = random.Random(int(sys.argv[2]))
killed = [run(f"{folder}/fit.ckpt", draw.randint(1, 60)) for _ in range(10)]
print(killed, run(f"{folder}/fit.ckpt", 10**9), run(None, 10**9))
"""


@pytest.mark.slow
def test_a_process_killed_ten_times_ends_with_the_weights_and_the_cost_of_one_that_was_not(
    tmp_path,
):
    command = [sys.executable, "-c", SCRIPT, str(tmp_path), "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    one, whole, codes = done.stdout.splitlines()
    assert codes == f"{[-signal.SIGKILL] * 10} 0 0", done.stderr
    assert one == whole
    assert sorted(os.listdir(tmp_path)) == ["one.jsonl", "whole.jsonl"]
