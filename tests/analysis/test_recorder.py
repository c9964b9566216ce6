"""The recorder: what it writes down, that it changes nothing, and that nothing of it gets out."""

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
from skdpfair.report import GroupLossDisplay

pytestmark = pytest.mark.filterwarnings(
    "ignore::skdpfair.exceptions.InsecureSeedWarning",
    "ignore::skdpfair.exceptions.LowSignalWarning",
)
FAST = {"n_batches": 2, "n_vectors": 2, "random_state": 0}


def fitted(data, recorder, **params):
    given = {
        "method": get_method("dpsgd", max_grad_norm=0.5),
        "epsilon": None,
        "noise_multiplier": 1.0,
        "lr": 0.5,
        "batch_size": 100,
        "max_steps": 12,
        "module": "logistic",
        "random_state": 0,
    } | params
    if recorder is not None:
        given.setdefault("callbacks", [recorder])
    model = DPFairClassifier(**given)
    return model.fit(data.data, data.target, sensitive_features=data.sensitive_features)


def test_each_look_is_a_row_per_group(two_groups):
    recorder = GroupRecorder(every=5, **FAST)
    model = fitted(two_groups, recorder)
    frame = model.diagnostics_
    assert frame is recorder.frame_
    quick = fitted(two_groups, GroupRecorder(every=5, eigenvalues=False, **FAST)).diagnostics_
    terms = ["clip", "magnitude", "direction", "threshold"]
    pd.testing.assert_frame_equal(quick.loc[:1, terms], frame.loc[:1, terms])
    assert quick["lambda_max"].isna().all()
    assert frame["step"].unique().tolist() == [0, 5, 10, 12]
    assert frame["group"].tolist() == ["a", "b"] * 4
    assert (frame["lr"] == 0.5).all() and (frame["threshold"] == 0.5).all()
    assert (frame["method"] == "dpsgd").all()
    assert frame.drop(columns=["method", "group"]).notna().all(axis=None)
    assert list(recorder.risks_) == [0, 5, 10, 12]


def test_looking_changes_nothing(two_groups):
    """Weights of seeded fits agree bit by bit with and without a recorder, dropout included."""
    plain = fitted(two_groups, None, module=_with_dropout)
    seen = fitted(two_groups, GroupRecorder(every=3, **FAST), module=_with_dropout)
    for a, b in zip(plain.net_.module_.parameters(), seen.net_.module_.parameters(), strict=True):
        assert torch.equal(a, b)
    assert plain.privacy_.releases == seen.privacy_.releases


def _with_dropout():
    layers = torch.nn.Linear(6, 5), torch.nn.Dropout(0.5), torch.nn.Tanh(), torch.nn.Linear(5, 2)
    return torch.nn.Sequential(*layers)


def test_without_terms_it_keeps_losses_and_norms(two_groups):
    model = fitted(two_groups, GroupRecorder(every=6, terms=False), iterate_average=0.5)
    frame = model.diagnostics_
    assert "direction" not in frame and frame["step"].unique().tolist() == [0, 6, 12]
    rows = np.asarray(two_groups.sensitive_features) == "b"
    x = torch.tensor(two_groups.data[rows].to_numpy(np.float32))
    y = torch.tensor(np.searchsorted(model.classes_, two_groups.target[rows]))
    with torch.no_grad():
        loss = float(cross_entropy(model.net_.module_(x), y))
    assert frame["loss"].iloc[-1] == pytest.approx(loss, rel=1e-5)


@pytest.mark.parametrize(
    ("method", "column"),
    [("global_adapt", "Z moves"), ("dpsgd_f", "C_k differ")],
)
def test_moving_thresholds_are_seen(two_groups, method, column):
    params = {"method": get_method(method), "lr": "auto", "epsilon": 4.0, "noise_multiplier": None}
    model = fitted(two_groups, GroupRecorder(every=5, **FAST), **params)
    thresholds = model.diagnostics_.pivot(index="step", columns="group", values="threshold")
    if method == "global_adapt":
        assert (thresholds["a"] == thresholds["b"]).all() and thresholds["a"].nunique() > 2
    else:
        assert (thresholds["a"] != thresholds["b"]).any()


def test_a_fit_has_one_recorder(two_groups):
    with pytest.raises(ValueError, match="two recorders"):
        fitted(two_groups, None, callbacks=[GroupRecorder(), GroupRecorder()])


def test_nothing_of_it_gets_out(two_groups):
    recorder = GroupRecorder(every=6, **FAST)
    model = fitted(two_groups, recorder)
    assert not model.privacy_.releasable
    with pytest.raises(ValueError, match="diagnostics"):
        model.release()
    sentinel = recorder.frame_["loss"].iloc[0].tobytes()
    for thing in (model, recorder):
        stored = pickle.dumps(thing)
        assert sentinel not in stored and b"gradient_norm" not in stored
    assert not hasattr(pickle.loads(pickle.dumps(recorder)), "frame_")
    assert not hasattr(clone(recorder), "frame_")
    assert not any(np.size(value) >= len(two_groups.data) for value in vars(recorder).values())


@pytest.mark.parametrize(
    "params",
    [{"every": 0}, {"n_batches": 0}, {"n_vectors": -1}, {"random_state": "a"}],
)
def test_bad_parameters_are_named_before_a_step(two_groups, params):
    with pytest.raises((ValueError, TypeError), match=next(iter(params))):
        fitted(two_groups, GroupRecorder(**params))


def test_a_warm_start_goes_on(two_groups):
    recorder = GroupRecorder(every=6, **FAST)
    model = fitted(two_groups, recorder, warm_start=True)
    model.fit(two_groups.data, two_groups.target, sensitive_features=two_groups.sensitive_features)
    table = recorder.frame_.pivot(index="step", columns="group", values="loss")
    assert table.index.tolist() == [0, 6, 12, 18, 24] and table.notna().all(axis=None)


class _Stops(Callback):
    def on_batch_end(self, net, **kwargs):
        if net.n_steps_taken == 7:
            raise KeyboardInterrupt


def test_a_fit_that_ends_early_keeps_its_looks(two_groups):
    recorder = GroupRecorder(every=3, **FAST)
    model = fitted(two_groups, None, callbacks=[recorder, _Stops()])
    assert model.diagnostics_["step"].unique().tolist() == [0, 3, 6, 7]


class Fails(Callback):
    """Ends a fit by an error."""

    def on_batch_end(self, net, training=False, **kwargs):
        raise RuntimeError("of a user's callback")


def test_no_record_stays_when_a_fit_fails(two_groups):
    recorder = GroupRecorder(every=5, **FAST)
    kept = []
    with pytest.raises(RuntimeError, match="of a user's callback"):
        fitted(two_groups, recorder, callbacks=[recorder, Holds(kept), Fails()])
    assert kept[0].records_ is None
    assert kept[1]["records_"] is None and kept[1]["_loop"] is None
    assert not any(np.size(value) >= len(two_groups.data) for value in vars(recorder).values())


class Holds(Callback):
    """Keeps the net, and what a pickle of it would hold in the midst of a fit."""

    def __init__(self, kept):
        self.kept = kept

    def on_batch_begin(self, net, **kwargs):
        self.kept += [net, net.__getstate__()]


def test_recorded_values_are_drawn_with_bands(two_groups):
    frame = fitted(two_groups, GroupRecorder(every=4, **FAST)).diagnostics_
    measures = ["direction", "magnitude", "noise", "lambda_max"]
    display = GroupLossDisplay(frame, measures).plot()
    for axes, measure in zip(display.axes_, measures, strict=True):
        assert "not private" in axes.get_title(loc="left")
        assert axes.get_xlabel() == "step" and axes.get_ylabel() == measure.replace("_", " ")
        own = frame[frame["group"] == "b"]
        np.testing.assert_allclose(axes.lines[1].get_ydata(), own[measure])
        assert len(axes.collections) == 2 * (measure != "lambda_max")
    display.figure_.clear()
    with pytest.raises(ValueError, match=r"lacks the columns \['direction'\]"):
        GroupLossDisplay(frame.drop(columns="direction"), measures)


@pytest.mark.parametrize("module", ["logistic", "mlp"])
def test_a_declared_group_without_records_is_nan(two_groups, module):
    recorder = GroupRecorder(every=12, n_batches=2, n_vectors=2, random_state=0)
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


def test_rates_of_projected_steps_are_those_to_come(two_groups):
    method = get_method("pcsgd", max_grad_norm=0.5, radius=5.0, schedule=(1.0, 2.0))
    recorder = GroupRecorder(every=3, **FAST)
    fitted(two_groups, recorder, method=method)
    rates = recorder.frame_.drop_duplicates("step").set_index("step")["lr"]
    assert rates.to_dict() == {t: 0.5 * method.step_size(t) for t in (0, 3, 6, 9, 12)}
    assert recorder.risks_[12].lr == 0.5 * method.step_size(12)
