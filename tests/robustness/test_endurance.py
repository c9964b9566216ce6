"""Long and unlucky programs: interrupts, little memory, many fits, many processes."""

import gc
import multiprocessing
import os
import pickle
import signal
import warnings

import numpy as np
import psutil
import pytest
import torch
from joblib import Parallel, delayed
from sklearn.base import clone
from sklearn.ensemble import VotingClassifier
from sklearn.model_selection import GridSearchCV, cross_validate
from skorch.callbacks import Callback

import skdpfair.training.loop as steps
from skdpfair import DPFairClassifier, get_method
from skdpfair.budget import PrivacyLedger
from skdpfair.engine import ScaleSearch
from skdpfair.engine.flat import FlatSGD
from skdpfair.privacy import compute_epsilon

pytestmark = pytest.mark.filterwarnings(
    "ignore::skdpfair.exceptions.LowSignalWarning",
    "ignore::skdpfair.exceptions.InsecureSeedWarning",
)
rng = np.random.default_rng(0)
X, Y = rng.normal(size=(300, 4)).astype(np.float32), np.arange(300) % 2


def quick(method="dpsgd", **params):
    settings = {"epsilon": None, "noise_multiplier": 2.0, "max_steps": 4, "batch_size": 60}
    settings |= {"accountant": "rdp", "module": "logistic", "lr": 0.5}
    return DPFairClassifier(method, **settings | params)


def weights_of(model):
    return np.concatenate([p.detach().numpy().ravel() for p in model.net_.module_.parameters()])


def fitted_weights(model):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return weights_of(model.fit(X, Y))


class Interrupts(Callback):
    """Sends this process the signal of Ctrl-C after a step."""

    def __init__(self, step):
        self.step, self.seen_ = step, 0

    def on_batch_end(self, net, training, **kwargs):
        self.seen_ += training
        if self.seen_ == self.step:
            os.kill(os.getpid(), signal.SIGINT)


@pytest.fixture
def ledger(tmp_path):
    return PrivacyLedger(tmp_path / "ledger", delta=1e-4, accountant="rdp")


def has_no_fit(model):
    return not [name for name in vars(model) if name.endswith("_")]


def ending(function, at, error, ended):
    """Return the function, whose call number ``at`` raises after all is done."""

    def called(*args, **kwargs):
        out = function(*args, **kwargs)
        ended.append(out)
        if len(ended) == at:
            raise error
        return out

    return called


@pytest.mark.parametrize("step", [1, 7, 12])
def test_a_fit_that_ctrl_c_ends_states_its_steps(step, ledger):
    method = get_method("global_adapt", strict_max_grad_norm=1.0)
    model = quick(method, max_steps=20, callbacks=[Interrupts(step)])
    with ledger, pytest.warns(UserWarning, match=rf"after ({step}|{step + 1}) of 20 steps"):
        model.fit(X, Y)
    assert model.n_steps_ in (step, step + 1)  # the step that was under way counts
    # callbacks may have shown released values to whoever pressed the keys
    assert (model.privacy_.steps, list(ledger.frame().steps)) == (20, [20])
    assert ledger.epsilon() == pytest.approx(compute_epsilon(model.privacy_.releases, 1e-4, "rdp"))
    for fitted in (model, pickle.loads(pickle.dumps(model))):
        assert np.isfinite(fitted.predict_proba(X)).all()


@pytest.mark.parametrize("place", ["train._net", "net.select_strategy", "net.TrainingLoop"])
def test_ctrl_c_before_the_first_step_leaves_the_fit_before(place, monkeypatch):
    model, new = quick(warm_start=True).fit(X, Y), quick()
    before = vars(model).copy()

    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(f"skdpfair.training.{place}", interrupted)
    for each in (model, new):
        with pytest.raises(KeyboardInterrupt):
            each.fit(X, Y)
    assert vars(model) == before and model.predict(X).shape == Y.shape
    assert has_no_fit(new)


@pytest.mark.skipif(not hasattr(GridSearchCV, "set_callbacks"), reason="scikit-learn < 1.9")
def test_ctrl_c_stops_a_search_whatever_callbacks_there_are():
    search = GridSearchCV(quick(callbacks=[Interrupts(2)]), {"lr": [0.1, 0.2]}, cv=2)
    with pytest.raises(KeyboardInterrupt, match=r"after [23] of 4 steps"):
        search.fit(X, Y)
    assert not hasattr(search, "best_estimator_")


def test_ctrl_c_stops_the_reference_too():
    model = quick(callbacks=[Interrupts(2)], keep_reference=True)
    with pytest.warns(UserWarning, match="interrupted"):
        model.fit(X, Y)
    assert not hasattr(model, "reference_") and model.n_steps_ in (2, 3)


OF_CLONES = {
    "cross-validation": lambda model: cross_validate(model, X, Y, cv=2),
    "ensemble": lambda model: VotingClassifier([("a", model), ("b", model)]).fit(X, Y),
    "clone": lambda model: clone(model).fit(X, Y),
}


@pytest.mark.parametrize("run", OF_CLONES)
def test_ctrl_c_stops_what_fits_clones(run, monkeypatch):
    once = ending(steps.private_step, 2, KeyboardInterrupt(), [])
    monkeypatch.setattr(steps, "private_step", once)
    with pytest.raises(KeyboardInterrupt, match=r"after [12] of 4 steps"):
        OF_CLONES[run](quick(get_method("dpsgd", max_grad_norm=1.0)))


@pytest.mark.parametrize("name", ["dpsgd", "global_adapt"])
@pytest.mark.parametrize("lr", [0.5, "auto"])
def test_where_memory_runs_out_chunks_shrink(monkeypatch, name, lr):
    limit, real, sizes = 16, steps.private_step, []

    def little(engine, batch, *args, chunk_size=None, **kwargs):
        if min(chunk_size, len(batch)) > limit:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        sizes.append(chunk_size)
        return real(engine, batch, *args, chunk_size=chunk_size, **kwargs)

    monkeypatch.setattr(steps, "private_step", little)
    model = quick(name, lr=lr, max_steps=12, noise_multiplier=0.0).fit(X, Y)
    assert model.privacy_.steps == 12 and 0 < max(sizes) <= limit


def test_chunks_that_shrank_change_nothing(monkeypatch):
    whole = fitted_weights(quick(random_state=0, noise_multiplier=0.0))
    real, failures = steps.private_step, [MemoryError(), RuntimeError("can't allocate memory")]

    def fails_first(*args, **kwargs):
        if failures:
            raise failures.pop()
        return real(*args, **kwargs)

    monkeypatch.setattr(steps, "private_step", fails_first)
    parts = fitted_weights(quick(random_state=0, noise_multiplier=0.0))
    np.testing.assert_allclose(parts, whole, rtol=1e-5, atol=1e-7)
    assert not failures


def test_an_update_that_runs_out_of_memory_repeats_no_release(monkeypatch, ledger):
    released, updated = [], []
    monkeypatch.setattr(steps, "private_step", ending(steps.private_step, 0, None, released))
    step = ending(FlatSGD.step, 3, MemoryError(), updated)
    step.hooked = True  # else torch wraps it for good
    monkeypatch.setattr(FlatSGD, "step", step)
    with ledger, pytest.raises(MemoryError):
        quick(get_method("dpsgd", max_grad_norm=1.0)).fit(X, Y)
    assert len(updated) == len(released) == 3 and list(ledger.frame().steps) == [3]


@pytest.mark.parametrize("bound", [1.0, "auto"])  # "auto" begins with steps of the search
def test_loop_accounts_for_a_step_before_it_is_taken(monkeypatch, bound):
    owner, name = (steps, "private_step") if bound == 1.0 else (ScaleSearch, "step")
    last = ending(getattr(owner, name), 3, KeyboardInterrupt(), [])
    monkeypatch.setattr(owner, name, last)
    with pytest.warns(UserWarning, match="after 2 of 40 steps"):
        model = quick(get_method("dpsgd", max_grad_norm=bound), max_steps=40).fit(X, Y)
    assert model.privacy_.steps == 3


def test_other_errors_are_not_taken_for_little_memory(monkeypatch):
    def broken(*args, **kwargs):
        raise RuntimeError("shapes differ")

    monkeypatch.setattr(steps, "private_step", broken)
    with pytest.raises(RuntimeError, match="shapes differ"):
        quick().fit(X, Y)


def _fits_in_child(connection, states):
    connection.send([fitted_weights(quick(random_state=state)) for state in states])
    connection.close()


def in_children(kind, states, n):
    """Return the weights of the fits with each state, in ``n`` child processes."""
    context, found = multiprocessing.get_context(kind), []
    for _ in range(n):
        here, there = context.Pipe()
        child = context.Process(target=_fits_in_child, args=(there, states))
        child.start()
        found.append(here.recv())
        child.join()
    return zip(*found, strict=True)


def _all_differ(runs):
    return all((a != b).any() for i, a in enumerate(runs) for b in runs[:i])


@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("kind", ["fork", "spawn"])
def test_no_two_processes_share_noise_unless_seeded(kind):
    if kind not in multiprocessing.get_all_start_methods():
        pytest.skip(f"this system cannot {kind}")
    unseeded, seeded = in_children(kind, (None, 5), 3 if kind == "fork" else 1)
    assert _all_differ([fitted_weights(quick()), *unseeded])
    alone = fitted_weights(quick(random_state=5))
    assert all((a == alone).all() for a in seeded)


@pytest.mark.parametrize(
    "backend", [pytest.param("loky", marks=pytest.mark.slow), "threading", "sequential"]
)
def test_jobs_and_clones_share_no_noise_unless_seeded(backend):
    model, seeded = quick(), quick(random_state=2**40 + 1)
    with Parallel(n_jobs=2, backend=backend) as jobs:
        runs = jobs(delayed(fitted_weights)(clone(model)) for _ in range(4))
        assert _all_differ(runs)
        same = jobs(delayed(fitted_weights)(clone(seeded)) for _ in range(2))
    assert (same[0] == same[1]).all()


@pytest.mark.slow
def test_five_hundred_fits_leave_no_trace():
    """Memory grows by less than 10 kB a fit, no file stays open, no stream comes twice."""
    process, methods = psutil.Process(), ["dpsgd", "global_adapt", "dpsgd_f", "bam"]
    memory, seen, groups = [], set(), np.arange(300) % 3
    for i in range(500):
        model = quick(methods[i % 4]).fit(X, Y, sensitive_features=groups)
        seen.add(weights_of(model).tobytes())
        if i == 99:
            gc.collect()
            handles, threads = process.num_fds(), process.num_threads()
        if i >= 100:
            memory.append(process.memory_info().rss)
    gc.collect()
    slope = np.polyfit(np.arange(len(memory)), memory, 1)[0]
    print(f"{slope:.0f} bytes a fit")
    assert slope < 10_000
    assert process.num_fds() <= handles and process.num_threads() <= threads
    assert len(seen) == 500
