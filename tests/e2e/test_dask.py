"""Searches, sweeps and fits on dask's workers over TCP, one of which is killed."""

import os
import pickle
import signal
import threading
import warnings

import joblib
import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from skorch.callbacks import Callback

from skdpfair import DPFairClassifier, fit_on_dask
from skdpfair.budget import PrivacyLedger
from skdpfair.datasets import load_adult, make_two_groups, public_facts
from skdpfair.model_selection import GroupScorer, TradeoffResults, sweep
from skdpfair.preprocessing import public_preprocessor

distributed = pytest.importorskip("distributed", reason="dask is not installed")
pytestmark = pytest.mark.filterwarnings(
    "ignore::skdpfair.exceptions.LowSignalWarning",
    "ignore::skdpfair.exceptions.InsecureSeedWarning",
    "ignore::ResourceWarning",
)


@pytest.fixture(scope="module")
def cluster():
    with (
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=True,
            protocol="tcp",
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
        ) as cluster,
        distributed.Client(cluster),
    ):
        yield cluster


def adult_search(n_jobs):
    prepare = public_preprocessor(**public_facts("adult"), passthrough=["sex"])
    clf = DPFairClassifier(
        group_col="sex", module="logistic", max_steps=10, batch_size=100, random_state=0
    )
    name = "dpfairclassifier__"
    space = [{name + "method": ["dpsgd", "global_adapt"]}, {name + "epsilon": [None]}]
    model = make_pipeline(prepare, clf)
    return GridSearchCV(model, space, scoring=GroupScorer(), refit=fairest, cv=2, n_jobs=n_jobs)


def fairest(cv_results):
    results = TradeoffResults.from_search(cv_results)
    return results.best_index("privacy_cost_difference", at_least={"accuracy": 0.5})


def test_searches_have_the_same_scores_on_workers_and_no_ledger(cluster, tmp_path):
    data = load_adult(subset="train")
    rows = data.data.sample(1000, random_state=0).index
    adult = data.data.loc[rows], data.target.loc[rows]
    one = adult_search(1).fit(*adult)
    ledger = PrivacyLedger(tmp_path / "ledger.jsonl", delta=1e-5, accountant="rdp")
    with joblib.parallel_config("dask"):  # whose workers were started before there was a ledger
        far = adult_search(2).fit(*adult)
        with pytest.raises(RuntimeError, match="run already"):
            ledger.fit(adult_search(2), *adult)
    for name in (name for name in one.cv_results_ if "_test_" in name):
        np.testing.assert_array_equal(one.cv_results_[name], far.cv_results_[name])
    assert one.best_params_ == far.best_params_ and ledger.frame().empty


def weights_of_fit(state):
    clf = DPFairClassifier("dpsgd", module="logistic", max_steps=4, batch_size=100)
    data = make_two_groups(400, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        clf.set_params(random_state=state).fit(data.data, data.target)
    kept = pickle.loads(pickle.dumps(clf)).net_.weights
    return np.concatenate([w.ravel() for w in kept.values()])


def test_fits_on_workers_share_no_noise_unless_seeded(cluster):
    client = distributed.get_client()
    runs = client.gather(client.map(weights_of_fit, [None] * 4, pure=False))
    assert all((a != b).any() for i, a in enumerate(runs) for b in runs[:i])
    seeded = client.gather(client.map(weights_of_fit, [7] * 2, pure=False))
    assert (seeded[0] == seeded[1]).all() and (seeded[0] == weights_of_fit(7)).all()


def test_sweep_is_the_same_on_workers_one_of_which_is_killed(cluster, two_groups, tmp_path):
    data = [part.iloc[:1500] for part in (two_groups.data, two_groups.target)]
    settings = {"module": "logistic", "lr": 0.5, "batch_size": 100, "max_steps": 60}
    settings |= {"sensitive_features": two_groups.sensitive_features.iloc[:1500]}
    call = {"X": data[0], "y": data[1], "methods": ["dpsgd"], "epsilons": [2.0, 4.0], "seeds": 2}
    one = sweep(**call, **settings).frame.drop(columns="fit_seconds")
    pid = next(iter(cluster.workers.values())).pid
    store = tmp_path / "store"

    def kill():
        while not any(store.glob("[0-9a-f]*.json")):
            done.wait(0.01)
        os.kill(pid, signal.SIGKILL)

    done = threading.Event()
    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    with joblib.parallel_config("dask"):
        far = sweep(**call, store=store, **settings).frame.drop(columns="fit_seconds")
    done.set()
    killer.join(10)
    assert pid not in [worker.pid for worker in cluster.workers.values()]
    pd.testing.assert_frame_equal(one, far)
    assert len(list(store.glob("[0-9a-f]*.json"))) == 6
    assert len(list(store.glob(".*"))) == 0


def collections(n):
    data = make_two_groups(n, random_state=0)
    columns = [np.asarray(c) for c in (data.data, data.target, data.sensitive_features)]
    array = pytest.importorskip("dask.array")
    return columns, [array.from_array(c, chunks=(n // 4, *c.shape[1:])) for c in columns]


def test_fit_on_dask_without_noise_is_the_fit_of_one_process(cluster, tmp_path):
    columns, (X, y, group) = collections(600)
    params = {"epsilon": None, "noise_multiplier": 0.0, "batch_size": 600, "max_steps": 20}
    clf = DPFairClassifier(module="logistic", classes=[0, 1], random_state=0, **params)
    clf.set_params(group_col__levels=list(np.unique(columns[2])))
    here = distributed.get_client()
    here.wait_for_workers(2)  # one may just have been killed
    far = fit_on_dask(here, clf, X, y, sensitive_features=group)
    one = clf.fit(*columns[:2], sensitive_features=columns[2])
    assert far.privacy_.n_samples == 600
    assert any("trusted curator" in text for text in far.privacy_.assumptions)
    np.testing.assert_allclose(
        far.decision_function(columns[0]), one.decision_function(columns[0]), rtol=1e-4, atol=1e-5
    )
    with PrivacyLedger(tmp_path / "ledger.jsonl", delta=1e-5) as ledger:
        private = DPFairClassifier("dpsgd", module="logistic", classes=[0, 1], delta=1e-5)
        found = fit_on_dask(here, private, X, y)
        assert ledger.report().n_fits == 1
        assert ledger.epsilon() == pytest.approx(found.privacy_.epsilon, rel=1e-6)


def test_fit_on_dask_refuses_other_collections_estimators_and_threads(cluster):
    _, (X, y, _) = collections(600)
    here, clf = distributed.get_client(), DPFairClassifier(classes=[0, 1])
    with pytest.raises(ValueError, match="same partitions"):
        fit_on_dask(here, clf, X, y.rechunk(600))
    with pytest.raises(TypeError, match="X must be a dask"):
        fit_on_dask(here, clf, np.eye(3), y)
    with pytest.raises(TypeError, match="map_partitions"):
        fit_on_dask(here, make_pipeline(clf), X, y)
    threads = {"processes": False, "n_workers": 2, "dashboard_address": None}
    with (
        distributed.Client(set_as_default=False, **threads) as client,
        pytest.raises(ValueError, match="threads of one process"),
    ):
        fit_on_dask(client, clf, X, y)


def shifted(column, by):
    frames = pytest.importorskip("dask.dataframe")
    part = pd.Series(np.asarray(column), index=np.arange(len(column)) + by)
    return frames.from_pandas(part, npartitions=4)


@pytest.mark.parametrize("name", ["y", "sensitive_features", "sample_weight"])
def test_fit_on_dask_refuses_partitions_with_values_of_other_records(cluster, name):
    """As many partitions, of the same lengths altogether."""
    (_, y, _), (X, labels, group) = collections(600)
    columns = {"y": labels, "sensitive_features": group, "sample_weight": labels}
    here, clf = distributed.get_client(), DPFairClassifier(classes=[0, 1], max_steps=2)
    moved = columns | {name: columns[name].rechunk(((100, 200, 150, 150),))}
    with pytest.raises(ValueError, match=rf"Partition 0 .*'X': 150.*{name}.*: 100"):
        fit_on_dask(here, clf, X, **moved)
    first = "sample_weight" if name == "y" else "y"
    frames = columns | {first: shifted(y, 0)} | {name: shifted(y, 1)}
    with pytest.raises(ValueError, match=r"of different indexes.*to_dask_array"):
        fit_on_dask(here, clf, X, **frames)
    fit_on_dask(here, clf, X, **columns | {name: shifted(y, 1)})


class EndOfWorker(Callback):
    def on_epoch_end(self, net, **kwargs):
        if torch.distributed.get_rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)


def test_fit_on_dask_ends_with_an_error_if_a_worker_is_killed(cluster, tmp_path):
    """Last here: the cluster starts another worker in its place."""
    _, (X, y, _) = collections(600)
    clf = DPFairClassifier("dpsgd", module="logistic", classes=[0, 1], delta=1e-5)
    with PrivacyLedger(tmp_path / "ledger.jsonl", delta=1e-5) as ledger:
        with pytest.raises(RuntimeError, match=r"process of this fit|workers"):
            fit_on_dask(distributed.get_client(), clf.set_params(callbacks=[EndOfWorker()]), X, y)
        assert ledger.report().n_fits == 1 and 0 < ledger.epsilon() <= 1.0
