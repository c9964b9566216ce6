"""Losses and gradients by group, recorded while a fit lasts, which forbid its release."""

import math
import pickle

import numpy as np
import pytest

from skdpfair import DPFairClassifier
from skdpfair.analysis import GroupRecorder
from skdpfair.datasets import make_two_groups

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
DATA = make_two_groups(900, random_state=0)
GROUPS = np.random.default_rng(0).choice(["a", "b", "c"], 900, p=[0.6, 0.3, 0.1])


@pytest.fixture(scope="module")
def fitted():
    """Return fits without and with a recorder."""
    params = {"module": "logistic", "epsilon": 2.0, "random_state": 0, "max_epochs": 5}
    return [
        DPFairClassifier("dpsgd", **params, callbacks=callbacks).fit(
            DATA.data, DATA.target, sensitive_features=GROUPS
        )
        for callbacks in (None, [GroupRecorder(terms=False)])
    ]


def test_diagnostics_are_by_group_and_forbid_the_release(fitted):
    model = fitted[1]
    frame = model.diagnostics_
    assert set(frame["group"]) == {"a", "b", "c"}
    assert (frame[["loss", "gradient_norm"]] > 0).all(axis=None)
    first = frame[frame["step"] == frame["step"].min()]
    loss = np.average(first["loss"], weights=first["n_samples"])
    assert loss == pytest.approx(math.log(2), rel=1e-5)  # a logistic model starts at zero
    assert not model.privacy_.releasable and "NOT private" in model.privacy_.statement
    assert model.privacy_.facts()["releasable"] is False


def test_diagnostics_change_no_score_and_are_in_no_pickle(fitted):
    plain, watched = fitted
    assert np.array_equal(*(model.decision_function(DATA.data) for model in fitted))
    assert not hasattr(plain, "diagnostics_") and plain.privacy_.releasable
    assert not hasattr(pickle.loads(pickle.dumps(watched)), "diagnostics_")


def test_group_loss_display_has_a_line_of_each_group(fitted):
    pytest.importorskip("matplotlib").use("Agg")
    from skdpfair.report import GroupLossDisplay

    display = GroupLossDisplay.from_estimator(fitted[1]).plot()
    assert [len(axes.lines) for axes in display.axes_] == [3, 3]
    assert [t.get_text() for t in display.axes_[-1].get_legend().get_texts()] == ["a", "b", "c"]
    display.figure_.clear()
    with pytest.raises(ValueError, match="GroupRecorder"):
        GroupLossDisplay.from_estimator(fitted[0])
    with pytest.raises(ValueError, match="gradient_norm"):
        GroupLossDisplay(display.frame.drop(columns="gradient_norm"))
