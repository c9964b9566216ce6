"""What a private search must not reveal: how many trials there were, and how they scored."""

import json
import os
import pickle
import signal
import struct
import traceback

import numpy as np
import pandas as pd
import pytest
from sklearn.dummy import DummyClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from skdpfair.budget import PrivacyLedger
from skdpfair.exceptions import InsecureSeedWarning
from skdpfair.model_selection import _trials, forecast
from skdpfair.training.loop import TrainingLoop
from tests.model_selection.searches import NAME, base, searching

pytestmark = pytest.mark.usefixtures("trials")


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    return X, (X[:, 0] > 0).astype(int)


class MarkedCount(int):
    pass


class MarkedScore(float):
    pass


def test_fit_without_trials_has_a_model_of_no_record(data, trials):
    trials(0)
    search = searching().fit(*data)
    assert isinstance(search.best_estimator_, DummyClassifier)
    assert (search.predict_proba(data[0]) == 0.5).all()
    assert search.best_params_ == {} and search.privacy_.is_private
    assert search.privacy_.epsilon == forecast(search, 200).epsilon_total


def test_fit_keeps_neither_the_number_of_trials_nor_their_scores(
    data, trials, monkeypatch, capfd, caplog
):
    """Both are of classes whose names would show in a pickle, and in no other way."""
    secret = 98765432.125
    trials(MarkedCount(3))
    monkeypatch.setattr(_trials, "scorer", lambda *args: lambda model: MarkedScore(secret))
    assert b"MarkedScore" in pickle.dumps([MarkedCount(3), MarkedScore(secret)])
    search = searching().fit(*data)
    kept = pickle.dumps(search)
    for trace in (b"Marked", struct.pack(">d", secret), struct.pack("<d", secret)):
        assert trace not in kept
    assert str(secret) not in repr(vars(search)) + repr(search.privacy_.facts())
    public = {"best_estimator_", "best_params_", "classes_", "privacy_", "n_features_in_"}
    assert {k for k in vars(search) if k.endswith("_")} == public
    assert capfd.readouterr() == ("", "") and caplog.text == ""


def failing(X):
    raise ValueError(f"({len(X)} rows)")


def test_error_of_a_trial_holds_nothing_of_the_others(data, trials):
    trials(3)
    pipe = make_pipeline(FunctionTransformer(failing), base())
    with pytest.raises(ValueError, match=r"param_distributions .*\(160 rows") as caught:
        searching(pipe, {NAME + "lr": [0.1]}).fit(*data)
    error = caught.value
    frames = traceback.extract_tb(error.__traceback__)
    assert not any(frame.name in ("best_of", "train") for frame in frames)
    assert error.__context__ is None and error.__cause__ is None
    held = [v for tb, _ in traceback.walk_tb(error.__traceback__) for v in tb.f_locals.values()]
    assert not any(isinstance(value, np.random.Generator) for value in held)  # it can be rewound


def test_random_state_reproduces_a_search_and_warns_once(data):
    with pytest.warns(InsecureSeedWarning, match="number of trials") as caught:
        first, again = (searching(random_state=3).fit(*data) for _ in range(2))
    assert len(caught) == 2  # one for each search, whatever the number of trials
    assert np.array_equal(first.predict_proba(data[0]), again.predict_proba(data[0]))
    assert first.privacy_.seeded
    assert pickle.loads(pickle.dumps(first)).random_state is None


def test_random_state_gives_equal_secrets_only_if_all_is_equal(data, monkeypatch):
    """A secret shared by neighbouring data is none: their winners' difference would tell it."""
    X, y = data
    drawn, sex = [], np.where(X[:, 1] > 0, "F", "M")
    nobody = (None, None), None
    monkeypatch.setattr(_trials, "run", lambda rng, *_: drawn.append(rng.random()) or nobody)

    def secret(X=X, y=y, sex=sex, estimator=None, **params):
        with pytest.warns(UserWarning, match="random_state"):
            search = searching(estimator, **{"random_state": 3} | params)
            search.fit(X, y, sensitive_features=sex)
        return drawn.pop()

    moved, flipped, other = X.copy(), y.copy(), sex.copy()
    moved[0, 0] += 1e-9
    flipped[0] = 1 - y[0]
    other[0] = "M" if sex[0] == "F" else "F"
    secrets = [secret(), secret(X=moved), secret(y=flipped), secret(sex=other), secret(sex=None)]
    secrets += [secret(X=pd.DataFrame(moved + 1)), secret(random_state=4), secret(mean_trials=4.0)]
    secrets += [secret(space={"lr": [0.2]}), secret(estimator=base(noise_multiplier=4.0))]
    assert len(set(secrets)) == len(secrets)
    assert secret() == secrets[0] == secret(X=X.copy(), space={"lr": [0.1, 1.0]})


def test_labels_that_cannot_be_used_are_refused_whatever_the_number_of_trials(data, trials):
    X, y = data
    trials(0)
    with pytest.raises(ValueError, match="one class"):
        searching().fit(X, np.ones(200))
    with pytest.raises(ValueError, match="inconsistent numbers"):
        searching().fit(X, np.append(y, 1))


def test_classes_and_groups_that_are_rare_are_those_of_all_trials(data, trials):
    X, y = data
    y, sex = y.copy(), np.where(X[:, 1] > 0, "F", "M").astype(object)
    y[5], sex[7] = 2, "X"
    for count in (0, 1):
        trials(count)
        for seed in range(1 + 3 * count):
            with pytest.warns(UserWarning, match="random_state"):
                search = searching(random_state=seed).fit(X, y, sensitive_features=sex)
            assert list(search.classes_) == [0, 1, 2] == list(search.best_estimator_.classes_)
            assert count == 0 or list(search.best_estimator_.levels_) == ["F", "M", "X"]
    declared = searching(base(classes=[3, 2, 1, 0])).fit(X, y)
    assert list(declared.classes_) == [0, 1, 2, 3]


class Callback:
    max_propagation_depth = None

    def setup(self, estimator, context):
        pass

    teardown = on_fit_task_begin = on_fit_task_end = setup


@pytest.mark.parametrize("inside", ["classifier", "pipeline", "step", "value"])
def test_callbacks_inside_the_estimator_are_refused(data, inside):
    pytest.importorskip("sklearn.callback")
    callback, pipe = Callback(), make_pipeline(FunctionTransformer(), base())
    estimator, space = {
        "classifier": lambda: (base().set_callbacks(callback), None),
        "pipeline": lambda: (pipe.set_callbacks(callback), None),
        "step": lambda: (
            make_pipeline(GridSearchCV(None, {}).set_callbacks(callback), base()),
            None,
        ),
        "value": lambda: (pipe, {"dpfairclassifier": [base().set_callbacks(callback)]}),
    }[inside]()
    search = searching(estimator, space)
    for use in (lambda: search.fit(*data), lambda: forecast(search, 200)):
        with pytest.raises(ValueError, match="set_callbacks on the DPRandomizedSearch"):
            use()


def test_memory_of_a_pipeline_is_refused_as_it_would_keep_trials(data, tmp_path):
    pipe = make_pipeline(FunctionTransformer(), base(), memory=str(tmp_path))
    with pytest.raises(ValueError, match="memory=None"):
        searching(pipe).fit(*data)


def test_history_of_the_winner_has_no_times(data, trials):
    trials(3)
    search = searching().fit(*data)
    winner = search.best_estimator_
    assert winner.net_.history and not any("dur" in epoch for epoch in winner.net_.history)
    again = pickle.loads(pickle.dumps(search))
    assert np.array_equal(again.predict_proba(data[0]), winner.predict_proba(data[0]))
    assert winner.n_steps_ == search.privacy_.steps


def throw():
    raise KeyboardInterrupt


@pytest.mark.parametrize("interrupt", [lambda: signal.raise_signal(signal.SIGINT), throw])
def test_interrupted_search_stays_charged(data, trials, tmp_path, monkeypatch, interrupt):
    step, steps = TrainingLoop.step, []

    def interrupted(self, index):
        steps.append(1)
        if len(steps) == 7:  # in the second trial
            interrupt()
        return step(self, index)

    trials(4)
    monkeypatch.setattr(TrainingLoop, "step", interrupted)
    search, ledger = searching(), PrivacyLedger(tmp_path / "ledger", delta=1e-4, accountant="rdp")
    with ledger, pytest.raises(KeyboardInterrupt, match="stays charged") as caught:
        search.fit(*data)
    assert len(steps) == 7 and not hasattr(search, "best_estimator_")
    assert ledger.epsilon() == pytest.approx(forecast(search, 200, delta=1e-4).epsilon_total)
    frames = traceback.extract_tb(caught.value.__traceback__)
    assert not any(frame.filename.endswith("_trials.py") for frame in frames)
    assert caught.value.__context__ is None
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert "SKDPFAIR_LEDGER" not in os.environ
    lines = [json.loads(line) for line in ledger.path.read_text().splitlines()]
    assert len(lines) == 3  # the budget, the search as planned, its end
