"""The recorder: what it measures, that it changes nothing, and that nothing of it gets out."""

import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from skorch.callbacks import Callback
from torch.nn.functional import cross_entropy

from benchmarks.papers.bounds import pairs_of
from skdpfair import DPFairClassifier, Groups, get_method
from skdpfair.analysis import GroupRecorder

pytestmark = pytest.mark.filterwarnings(
    "ignore::skdpfair.exceptions.InsecureSeedWarning",
    "ignore::skdpfair.exceptions.LowSignalWarning",
)


def recording(every, **params):
    return GroupRecorder(
        every=every, **{"n_batches": 2, "n_vectors": 2, "random_state": 0} | params
    )


def fitted(data, *callbacks, **params):
    settings = {"method": get_method("dpsgd", max_grad_norm=0.5), "epsilon": None, "lr": 0.5}
    settings |= {"noise_multiplier": 1.0, "batch_size": 100, "max_steps": 12, "random_state": 0}
    model = DPFairClassifier(**settings | {"module": "logistic", "callbacks": callbacks} | params)
    return model.fit(data.data, data.target, sensitive_features=data.sensitive_features)


def holds_no_record(recorder, data):
    return all(np.size(value) < len(data.data) for value in vars(recorder).values())


def test_group_recorder_has_a_row_per_group_and_recorded_step(two_groups):
    recorder = recording(5)
    frame = fitted(two_groups, recorder).diagnostics_
    assert frame is recorder.frame_ and list(recorder.risks_) == [0, 5, 10, 12]
    assert frame["step"].tolist() == np.repeat([0, 5, 10, 12], 2).tolist()
    assert frame["group"].tolist() == ["a", "b"] * 4
    assert (frame[["lr", "threshold"]] == 0.5).all(axis=None) and (frame["method"] == "dpsgd").all()
    assert frame.drop(columns=["method", "group"]).notna().all(axis=None)
    loss = np.average(frame["loss"][:2], weights=frame["n_samples"][:2])
    assert loss == pytest.approx(np.log(2), rel=1e-5)  # a logistic model starts at zero
    quick = fitted(two_groups, recording(5, eigenvalues=False)).diagnostics_
    terms = ["clip", "magnitude", "direction", "threshold"]
    pd.testing.assert_frame_equal(quick.loc[:1, terms], frame.loc[:1, terms])
    assert quick["lambda_max"].isna().all()


def with_dropout():
    layers = torch.nn.Linear(6, 5), torch.nn.Dropout(0.5), torch.nn.Tanh(), torch.nn.Linear(5, 2)
    return torch.nn.Sequential(*layers)


def test_group_recorder_changes_no_bit_of_a_seeded_fit(two_groups):
    plain = fitted(two_groups, module=with_dropout)
    seen = fitted(two_groups, recording(3), module=with_dropout)
    for a, b in zip(plain.net_.module_.parameters(), seen.net_.module_.parameters(), strict=True):
        assert torch.equal(a, b)
    assert plain.privacy_.releases == seen.privacy_.releases
    assert not hasattr(plain, "diagnostics_") and plain.privacy_.releasable


def test_group_recorder_without_terms_has_losses_and_norms(two_groups):
    model = fitted(two_groups, GroupRecorder(every=6, terms=False), iterate_average=0.5)
    frame = model.diagnostics_
    assert "direction" not in frame and frame["step"].unique().tolist() == [0, 6, 12]
    rows = np.asarray(two_groups.sensitive_features) == "b"
    x = torch.tensor(two_groups.data[rows].to_numpy(np.float32))
    y = torch.tensor(np.searchsorted(model.classes_, two_groups.target[rows]))
    with torch.no_grad():
        loss = float(cross_entropy(model.net_.module_(x), y))
    assert frame["loss"].iloc[-1] == pytest.approx(loss, rel=1e-5)


@pytest.mark.parametrize("method", ["global_adapt", "dpsgd_f"])
def test_group_recorder_has_moving_thresholds(two_groups, method):
    params = {"method": get_method(method), "lr": "auto", "epsilon": 4.0, "noise_multiplier": None}
    frame = fitted(two_groups, recording(5), **params).diagnostics_
    thresholds = frame.pivot(index="step", columns="group", values="threshold")
    are_equal = (thresholds["a"] == thresholds["b"]).all()
    assert are_equal == (method == "global_adapt")
    assert thresholds["a"].nunique() > 2 * are_equal


def test_diagnostics_stay_out_of_releases_pickles_and_clones(two_groups):
    recorder = recording(6)
    model = fitted(two_groups, recorder)
    assert not model.privacy_.releasable and "NOT private" in model.privacy_.statement
    assert model.privacy_.facts()["releasable"] is False
    with pytest.raises(ValueError, match="diagnostics"):
        model.release()
    sentinel = recorder.frame_["loss"].iloc[0].tobytes()
    for thing in (model, recorder):
        stored = pickle.dumps(thing)
        assert sentinel not in stored and b"gradient_norm" not in stored
    copies = pickle.loads(pickle.dumps(recorder)), clone(recorder)
    assert not any(hasattr(copy, "frame_") for copy in copies)
    assert holds_no_record(recorder, two_groups)


@pytest.mark.parametrize(
    "callbacks, message",
    [
        ([GroupRecorder(every=0)], "^every "),
        ([GroupRecorder(n_batches=0)], "^n_batches "),
        ([GroupRecorder(n_vectors=-1)], "^n_vectors "),
        ([GroupRecorder(random_state="a")], "^random_state "),
        ([GroupRecorder(), GroupRecorder()], "two recorders"),
    ],
)
def test_group_recorder_is_refused_before_a_step(two_groups, callbacks, message):
    with pytest.raises((ValueError, TypeError), match=message):
        fitted(two_groups, *callbacks)


def test_group_recorder_continues_with_a_warm_start(two_groups):
    recorder = recording(6)
    model = fitted(two_groups, recorder, warm_start=True)
    model.fit(two_groups.data, two_groups.target, sensitive_features=two_groups.sensitive_features)
    table = recorder.frame_.pivot(index="step", columns="group", values="loss")
    assert table.index.tolist() == [0, 6, 12, 18, 24] and table.notna().all(axis=None)


class Raises(Callback):
    """Ends a fit by an error, and holds the net and its state of before the last step."""

    def __init__(self, error, step=0):
        self.error, self.step = error, step

    def on_batch_begin(self, net, **kwargs):
        self.net, self.state = net, net.__getstate__()

    def on_batch_end(self, net, training=False, **kwargs):
        if net.n_steps_taken >= self.step:
            raise self.error


def test_group_recorder_of_an_interrupted_fit_has_its_last_step(two_groups):
    model = fitted(two_groups, recording(3), Raises(KeyboardInterrupt(), 7))
    assert model.diagnostics_["step"].unique().tolist() == [0, 3, 6, 7]


def test_no_record_is_left_when_a_fit_fails(two_groups):
    recorder, fails = recording(5), Raises(RuntimeError("of a user's callback"))
    with pytest.raises(RuntimeError, match="of a user's callback"):
        fitted(two_groups, recorder, fails)
    assert (fails.net.records_, fails.state["records_"], fails.state["_loop"]) == (None,) * 3
    assert holds_no_record(recorder, two_groups)


@pytest.mark.parametrize("module", ["logistic", "mlp"])
def test_group_recorder_of_a_declared_group_without_records_is_nan(two_groups, module):
    recorder = recording(12)
    fitted(two_groups, recorder, group_col=Groups(levels=["a", "b", "c"]), module=module)
    last = recorder.frame_[recorder.frame_["step"] == 12].set_index("group")
    numbers = last.drop(columns=["method", "step", "lr", "n_samples", "threshold"])
    assert numbers.loc["c"].isna().all() and numbers.loc[["a", "b"]].notna().all(axis=None)
    pairs = pairs_of(recorder)
    with_c = (pairs["group_a"] == "c") | (pairs["group_b"] == "c")
    names = ["clip_difference", "direction_difference", "prop3_bound"]
    assert pairs.loc[with_c, names].isna().all(axis=None)
    assert not pairs.loc[with_c, "condition"].any()
    assert pairs.loc[~with_c, "direction_difference"].notna().all()


def test_group_recorder_has_the_rates_of_projected_steps_to_come(two_groups):
    method = get_method("pcsgd", max_grad_norm=0.5, radius=5.0, schedule=(1.0, 2.0))
    recorder = recording(3)
    fitted(two_groups, recorder, method=method)
    rates = recorder.frame_.drop_duplicates("step").set_index("step")["lr"]
    assert rates.to_dict() == {t: 0.5 * method.step_size(t) for t in (0, 3, 6, 9, 12)}
    assert recorder.risks_[12].lr == 0.5 * method.step_size(12)
