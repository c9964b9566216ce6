"""Callbacks of skorch: which a fit refuses, and how they end it and expose records."""

import signal

import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV
from skorch.callbacks import (
    BatchScoring,
    Callback,
    Checkpoint,
    EarlyStopping,
    EpochScoring,
    Freezer,
    GradientNormClipping,
    InputShapeSetter,
    LRScheduler,
    PassthroughScoring,
    ProgressBar,
    Unfreezer,
)

from skdpfair.analysis import GroupRecorder
from tests.quick_fits import QUIET, X, Y, quick

pytestmark = QUIET
REFUSED = [
    EarlyStopping(),
    EarlyStopping(monitor="train_loss"),
    Checkpoint(),
    EarlyStopping,
    ("plateau", LRScheduler(policy="ReduceLROnPlateau")),
    EpochScoring("accuracy", on_train=True),
    EpochScoring("accuracy", on_train=True, use_caching=False),
    [
        EpochScoring("accuracy", on_train=True, use_caching=False, name="own"),
        EarlyStopping("own"),
    ],
    ("own", BatchScoring("accuracy", on_train=True)),
    PassthroughScoring("train_loss", on_train=True),
    ProgressBar(),
    ProgressBar,
    InputShapeSetter(),
    GradientNormClipping(1.0),
    Freezer("*"),
    ("own", Unfreezer("*")),
]


@pytest.mark.parametrize("callback", REFUSED)
def test_check_callbacks_refuses_what_needs_private_records_or_freezes(callback):
    callbacks = callback if isinstance(callback, list) else [callback]
    inner = callbacks[0][1] if isinstance(callbacks[0], tuple) else callbacks[0]
    kind = inner if isinstance(inner, type) else type(inner)
    remedy = "module=" if kind in (Freezer, Unfreezer) else "validation_data="
    model = quick(callbacks=callbacks)
    with pytest.raises(ValueError, match=f"^callbacks holds {kind.__name__},.*{remedy}"):
        model.fit(X, Y)
    assert not [name for name in vars(model) if name.endswith("_")]


def test_epoch_scoring_of_training_rows_needs_a_fit_that_exposes_them():
    own = EpochScoring("accuracy", on_train=True, use_caching=False)
    recorder = GroupRecorder(terms=False)
    for params in ({"epsilon": None, "callbacks": [own]}, {"callbacks": [own, recorder]}):
        history = quick(lr=0.1, **params).fit(X, Y).net_.history
        assert all(0 <= score <= 1 for score in history[:, "accuracy"])
    cached = EpochScoring("accuracy", on_train=True)
    with pytest.raises(ValueError, match="EpochScoring, which scores"):
        quick(callbacks=[cached, recorder]).fit(X, Y)


def test_release_is_refused_after_a_callback_that_exposes_records():
    class Exposing(Callback):
        exposes_records = True

    model = quick(callbacks=[Exposing()], random_state=None).fit(X, Y)
    assert not model.privacy_.releasable
    with pytest.raises(ValueError, match="diagnostics_"):
        model.release()


def test_early_stopping_ends_each_fit_of_a_search_and_leaves_the_handler_of_ctrl_c():
    stop = EarlyStopping(patience=1, threshold=10.0)  # nothing improves by so much
    rows = X.to_numpy()
    model = quick(callbacks=[stop], validation_data=(rows[:50], Y[:50]))
    handler = signal.getsignal(signal.SIGINT)
    search = GridSearchCV(model, {"lr": [0.1, 0.2]}, cv=2, error_score="raise").fit(rows, Y)
    assert search.best_estimator_.n_steps_ < 20 and not np.isnan(search.best_score_)
    assert signal.getsignal(signal.SIGINT) is handler
