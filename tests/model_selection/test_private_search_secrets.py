"""What a private search must not tell: how many trials there were, and which one won."""

import json
import os
import pickle
import signal
import traceback

import numpy as np
import pandas as pd
import pytest
from sklearn.feature_selection import SelectFromModel
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from skdpfair import DPFairClassifier
from skdpfair.budget import PrivacyLedger
from skdpfair.model_selection import DPRandomizedSearch, _trials, forecast
from skdpfair.preprocessing import DPQuantileScaler

pytestmark = [
    pytest.mark.usefixtures("trials"),
    pytest.mark.filterwarnings("ignore::skdpfair.exceptions.LowSignalWarning"),
]
NAME = "dpfairclassifier__"


def base(**params):
    params = {"noise_multiplier": 3.0, "max_steps": 4, "batch_size": 50} | params
    return DPFairClassifier("dpsgd", epsilon=None, **{"accountant": "rdp"} | params)


def searching(estimator=None, space=None, **params):
    estimator = estimator or base()
    name = "" if isinstance(estimator, DPFairClassifier) else NAME
    space = {name + "lr": [0.1, 1.0]} if space is None else space
    return DPRandomizedSearch(
        estimator, space, **{"mean_trials": 3.0, "trials": "geometric"} | params
    )


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    return X, (X[:, 0] > 0).astype(int)


class Predicts:
    classes_ = np.array([0, 1])

    def __init__(self, labels):
        self.labels = labels


class Heard:
    max_propagation_depth = None

    def setup(self, estimator, context):
        pass

    teardown = on_fit_task_begin = on_fit_task_end = setup


# the score


def test_no_prediction_lets_one_record_move_the_score_by_more_than_one(data, monkeypatch):
    X, y = data
    monkeypatch.setattr(_trials, "private_logits", lambda model, X: np.eye(2)[model.labels])
    score = _trials.scorer(X, y, 0.0, np.random.default_rng(0))
    assert score(Predicts(y)) == 200 and score(Predicts(1 - y)) == 0
    other = y.copy()
    other[0] = 1 - y[0]
    assert _trials.scorer(X, other, 0.0, np.random.default_rng(0))(Predicts(y)) == 199
    for labels in (y[:1], y[:199], np.append(y, 1)):
        with pytest.raises(ValueError, match="one row for each of 200 rows"):
            score(Predicts(labels))


def test_labels_that_cannot_be_used_are_refused_whatever_the_number_of_trials(data, trials):
    X, y = data
    trials(0)
    with pytest.raises(ValueError, match="one class only"):
        searching().fit(X, np.ones(200))
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        searching().fit(X, np.append(y, 1))


def test_a_rare_class_and_a_rare_group_are_known_to_all_trials(data, trials):
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


def test_seeded_searches_share_no_secret_unless_all_is_equal(data, monkeypatch):
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


# callbacks and ledgers


def books(tmp_path, **params):
    given = {"delta": 1e-4, "accountant": "rdp"} | params
    return PrivacyLedger(tmp_path / "ledger.jsonl", **given)


@pytest.mark.parametrize("inside", ["classifier", "pipeline", "step", "value"])
def test_callbacks_inside_the_estimator_are_refused(data, inside):
    pytest.importorskip("sklearn.callback")
    heard, pipe = Heard(), make_pipeline(FunctionTransformer(), base())
    estimator, space = {
        "classifier": lambda: (base().set_callbacks(heard), None),
        "pipeline": lambda: (pipe.set_callbacks(heard), None),
        "step": lambda: (make_pipeline(GridSearchCV(None, {}).set_callbacks(heard), base()), None),
        "value": lambda: (pipe, {"dpfairclassifier": [base().set_callbacks(heard)]}),
    }[inside]()
    search = searching(estimator, space)
    with pytest.raises(ValueError, match="call set_callbacks on the DPRandomizedSearch"):
        search.fit(*data)
    with pytest.raises(ValueError, match="call set_callbacks on the DPRandomizedSearch"):
        forecast(search, 200)


@pytest.mark.parametrize("n_jobs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_grid_of_private_searches_is_charged(data, tmp_path, n_jobs):
    ledger = books(tmp_path)
    grid = GridSearchCV(searching(), {"mean_trials": [2.0, 3.0]}, cv=2, n_jobs=n_jobs)
    ledger.fit(grid, *data)
    assert ledger.report().n_fits == 5
    assert set(ledger.frame().what) == {"private selection"}


# private fits beside the last step


def selecting(inner):
    return make_pipeline(SelectFromModel(inner), base())


@pytest.mark.parametrize(
    "pipe",
    [
        selecting(base()),
        selecting(base(noise_multiplier=None)),
        selecting(GridSearchCV(base(), {})),
        selecting(searching()),
    ],
)
def test_private_fits_besides_the_last_step_are_refused(data, pipe):
    with pytest.raises(ValueError, match="before its last step"):
        searching(pipe).fit(*data)
    for planned in (pipe, searching(pipe), GridSearchCV(pipe, {NAME + "lr": [0.1]})):
        with pytest.raises(ValueError, match="before its last step"):
            forecast(planned, 200)


def test_a_frozen_private_step_was_paid_for_before(data):
    scaler = DPQuantileScaler((-3, 3))
    with pytest.raises(ValueError, match="a DPQuantileScaler before its last step"):
        searching(make_pipeline(scaler, base())).fit(*data)
    scaler.fit(data[0])
    search = searching(make_pipeline(FrozenEstimator(scaler), base())).fit(*data)
    assert search.privacy_.epsilon == forecast(search, 200).epsilon_total


# traces


def test_the_winner_does_not_tell_when_it_was_trained(data, trials):
    trials(3)
    search = searching().fit(*data)
    winner = search.best_estimator_
    assert winner.net_.history and not any("dur" in epoch for epoch in winner.net_.history)
    again = pickle.loads(pickle.dumps(search))
    assert np.array_equal(again.predict_proba(data[0]), winner.predict_proba(data[0]))
    assert winner.n_steps_ == search.privacy_.steps


def test_a_memory_would_keep_files_of_trials(data, tmp_path):
    pipe = make_pipeline(FunctionTransformer(), base(), memory=str(tmp_path))
    with pytest.raises(ValueError, match=r"would store or.*Set memory=None"):
        searching(pipe).fit(*data)


# Ctrl-C


def interrupting_loop(monkeypatch, how):
    from skdpfair.training.loop import TrainingLoop

    take, taken = TrainingLoop.step, []

    def breaks(self, index):
        taken.append(1)
        if len(taken) == 6:  # in the second trial
            how()
        return take(self, index)

    monkeypatch.setattr(TrainingLoop, "step", breaks)
    return taken


def thrown():
    raise KeyboardInterrupt


@pytest.mark.parametrize("how", [lambda: signal.raise_signal(signal.SIGINT), thrown])
def test_ctrl_c_ends_the_search_which_stays_charged(data, trials, tmp_path, monkeypatch, how):
    trials(4)
    search, ledger = searching(), books(tmp_path)
    taken = interrupting_loop(monkeypatch, how)
    with ledger, pytest.raises(KeyboardInterrupt, match="its cost stays charged") as caught:
        search.fit(*data)
    assert len(taken) == 6
    assert not hasattr(search, "best_estimator_")
    assert ledger.epsilon() == pytest.approx(forecast(search, 200, delta=1e-4).epsilon_total)
    frames = traceback.extract_tb(caught.value.__traceback__)
    assert not any(frame.filename.endswith("_trials.py") for frame in frames)
    assert caught.value.__context__ is None
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert "SKDPFAIR_LEDGER" not in os.environ
    lines = [json.loads(line) for line in ledger.path.read_text().splitlines()]
    assert len(lines) == 3  # the budget, the search as planned, its end
