"""Methods through the estimator: group rates, what is refused, fits that go on."""

import math
import runpy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from torch import nn

from docs.methods_table import methods_table
from skdpfair import MLP, DPFairClassifier, get_method
from skdpfair.analysis import GroupRecorder
from skdpfair.datasets import make_two_groups
from skdpfair.methods import METHODS
from skdpfair.privacy import NoisyRelease, compute_epsilon
from skdpfair.training import run as _run

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
CHEAP = {"epsilon": None, "noise_multiplier": 3.0, "accountant": "rdp", "max_steps": 3}
NOT_PRIVATE = sorted(name for name, method in METHODS.items() if not method.private)


@pytest.fixture(scope="module")
def data():
    return make_two_groups(900, random_state=0)


def fitted(data, method, groups=None, **params):
    params = {"module": "logistic", "epsilon": 2.0, "random_state": 0, "max_epochs": 5} | params
    model = DPFairClassifier(method, **params)
    groups = data.sensitive_features if groups is None else groups
    return model.fit(data.data, data.target, sensitive_features=groups)


def three(data):
    """Return three groups of shares near 0.6, 0.3 and 0.1."""
    return np.random.default_rng(0).choice(["a", "b", "c"], len(data.target), p=[0.6, 0.3, 0.1])


class TestNotPrivate:
    @pytest.mark.parametrize("name", NOT_PRIVATE)
    def test_epsilon_is_refused_and_never_finite(self, data, name):
        instead = METHODS[name].private_alternative
        assert METHODS[instead].private
        with pytest.raises(ValueError, match=rf"not private.*epsilon=2\.0.*Use .*'{instead}'"):
            fitted(data, name)
        assert math.isinf(fitted(data, name, epsilon=None).privacy_.epsilon)

    @pytest.mark.parametrize("name", NOT_PRIVATE)
    def test_noise_multiplier_is_refused_but_by_fairlens(self, data, name):
        if name == "fairlens":
            report = fitted(data, name, epsilon=None, noise_multiplier=1.0).privacy_
            assert math.isinf(report.epsilon) and report.noise_multiplier == 1.0
            return
        with pytest.raises(ValueError, match="gradient_noise"):
            fitted(data, name, epsilon=None, noise_multiplier=1.0)

    @pytest.mark.parametrize("name", [n for n in NOT_PRIVATE if n != "fairlens"])
    def test_gradient_noise_changes_the_fit_and_not_the_report(self, data, name):
        plain = fitted(data, name, epsilon=None)
        noisy = fitted(data, get_method(name, gradient_noise=0.3), epsilon=None)
        assert math.isinf(noisy.privacy_.epsilon)
        assert not np.allclose(
            plain.decision_function(data.data), noisy.decision_function(data.data)
        )

    def test_negative_gradient_noise_is_refused(self, data):
        with pytest.raises(ValueError, match="gradient_noise"):
            fitted(data, get_method("sgd", gradient_noise=-1.0), epsilon=None)


class TestGroupRates:
    def test_public_shares(self, data):
        method = get_method("dp_is_sgd", group_probabilities=(0.6, 0.3, 0.1))
        model = fitted(data, method, three(data), batch_size=90)
        report = model.privacy_
        q = 0.1
        rates = {"a": q / 1.8, "b": q / 0.9, "c": q / 0.3}
        assert report.sample_rate == pytest.approx(rates["c"])
        for group, rate in rates.items():
            run = NoisyRelease("steps", rate, (report.noise_multiplier,), report.steps)
            assert report.group_epsilons[group] == pytest.approx(
                compute_epsilon([run], report.delta)
            )
        assert report.group_epsilons["a"] < report.group_epsilons["b"] < report.epsilon <= 2.0
        assert report.group_epsilons["c"] == pytest.approx(report.epsilon)
        assert any("shares of the groups" in text for text in report.assumptions)
        assert "epsilon[c]" in report.details() and "c" in report.facts()["group_epsilons"]

    def test_shares_counted_with_noise_are_in_the_ledger_and_in_epsilon(self, data):
        method = get_method("dp_is_sgd", group_count_noise_multiplier=30.0, max_sample_rate=0.25)
        report = fitted(data, method, three(data), batch_size=90).privacy_
        first, *rest = report.releases
        assert (first.what, first.noise_multipliers, first.sample_rate) == (
            "group counts",
            (30.0,),
            1.0,
        )
        assert report.sample_rate == 0.25 and all(e.sample_rate == 0.25 for e in rest)
        runs = [NoisyRelease("counts", 1.0, (30.0,)), *rest]
        assert report.epsilon == pytest.approx(compute_epsilon(runs, report.delta))
        assert 1.9 < report.epsilon <= 2.0
        assert all(0 < e <= report.epsilon for e in report.group_epsilons.values())

    @pytest.mark.parametrize("kind", ["standard", "gaussian_sum"])
    def test_the_counts_carry_the_noise_that_is_booked(self, data, kind, monkeypatch):
        made, noisy = [], _run.noisy

        def counts(counted, sensitivity, noise, generator, kind):
            made.append((sensitivity * noise, kind))
            return noisy(counted, sensitivity, noise, generator, kind)

        monkeypatch.setattr(_run, "noisy", counts)
        report = fitted(data, "dp_is_sgd", three(data), noise_sampler=kind, **CHEAP).privacy_
        (booked,) = report.releases[0].noise_multipliers
        assert made == [(booked, kind)] and booked > 0

    def test_the_smallest_group_pays_most_wherever_it_stands(self, data):
        method = get_method("dp_is_sgd", group_probabilities=(0.1, 0.6, 0.3))
        groups = np.array(["b", "c", "a"])[np.searchsorted(["a", "b", "c"], three(data))]
        report = fitted(data, method, groups, batch_size=90, **CHEAP).privacy_
        paid = report.group_epsilons
        assert paid["b"] < paid["c"] < paid["a"] == pytest.approx(report.epsilon)

    def test_counts_take_a_small_part_of_the_budget_by_default(self, data):
        counted = fitted(data, get_method("dp_is_sgd", max_sample_rate=0.5), three(data))
        rest = counted.privacy_.releases[1:]
        assert 0.9 < compute_epsilon(rest, counted.privacy_.delta) / counted.privacy_.epsilon < 1.0

    def test_groups_are_drawn_equally_often(self, data):
        groups, drawn = three(data), []
        code = np.searchsorted(["a", "b", "c"], groups)

        from skorch.callbacks import Callback

        class Look(Callback):
            exposes_records = True

            def on_batch_begin(self, net, batch=None, training=None, **kwargs):
                drawn.append(batch[0])

        method = get_method("dp_is_sgd", group_probabilities=np.bincount(code) / len(code))
        told = {"callbacks": [Look()]}
        model = fitted(data, method, groups, batch_size=90, max_epochs=20, **told)
        rows = np.concatenate([np.asarray(x) for x in drawn])
        x = np.asarray(data.data, dtype=np.float32)
        group_of = {row.tobytes(): c for row, c in zip(x, code, strict=True)}
        counts = np.bincount([group_of[row.tobytes()] for row in rows], minlength=3)
        expected = counts.sum() / 3
        # each count is Poisson-like with this mean; 6 deviations fail once in 1e8
        assert (abs(counts - expected) < 6 * np.sqrt(expected)).all()
        assert model.batch_size_ == 90

    @pytest.mark.parametrize(
        "params, message",
        [
            ({"group_probabilities": (0.6, 0.3, 0.2)}, "sum to 1"),
            ({"group_probabilities": (0.6, 0.4)}, "each of the 3 groups"),
            (
                {"group_probabilities": (0.6, 0.4, 0.0)},
                "group_probabilities must be a number > 0 and <= 1",
            ),
            ({"max_sample_rate": 0.01}, "below the sample rate"),
            ({"max_sample_rate": 1.5}, "max_sample_rate"),
            ({"group_count_noise_multiplier": 0.0}, "group_count_noise_multiplier"),
            ({"group_count_noise_multiplier": 0.1}, "group_count_noise_multiplier"),
        ],
    )
    def test_bad_input(self, data, params, message):
        model = DPFairClassifier(get_method("dp_is_sgd", **params), epsilon=0.5, batch_size=90)
        with pytest.raises(ValueError, match=message):
            model.fit(data.data, data.target, sensitive_features=three(data))
        assert not hasattr(model, "net_")


class TestFairLens:
    @pytest.mark.parametrize("name", ["fairlens", "fairlens_dp"])
    def test_other_than_two_groups_or_classes_is_refused(self, data, name):
        epsilon = 1.0 if METHODS[name].private else None
        with pytest.raises(ValueError, match="two groups, and there are more"):
            fitted(data, name, three(data), epsilon=epsilon)
        y = np.arange(len(data.target)) % 3
        model = DPFairClassifier(name, epsilon=epsilon)
        with pytest.raises(ValueError, match="Only binary classification is supported"):
            model.fit(data.data, y, sensitive_features=data.sensitive_features)

    def test_r1_says_why_it_needs_few_parameters(self, data):
        method = get_method("fairlens_dp", gamma1=1.0)
        with pytest.raises(ValueError, match=r"gamma1=1 .*noise .*parameters.*set gamma1=0"):
            fitted(data, method, module="mlp")
        assert fitted(data, method).privacy_.epsilon <= 2.0

    def test_statistics_are_accounted_with_the_gradient(self, data):
        report = fitted(data, "fairlens_dp", lr=0.1).privacy_
        entry = report.releases[-1]
        gradient, statistics = entry.noise_multipliers
        assert statistics == pytest.approx(5 * gradient) and "groups" in entry.what


class TestWarmStart:
    def test_goes_on_from_the_weights_and_composes(self, data):
        model = DPFairClassifier("dpsgd", epsilon=1.0, max_epochs=5, warm_start=True)
        groups = {"sensitive_features": data.sensitive_features}
        first = model.fit(data.data, data.target, **groups).privacy_
        before = model.decision_function(data.data)
        weights = [p.detach().clone() for p in model.net_.module_.parameters()]
        model.set_params(max_steps=1, lr=1e-9).fit(data.data, data.target, **groups)
        np.testing.assert_allclose(model.decision_function(data.data), before, rtol=1e-4, atol=1e-4)
        assert len(weights) == len(list(model.net_.module_.parameters()))
        second = model.privacy_
        assert second.releases[: len(first.releases)] == first.releases
        assert second.steps == first.steps + 1
        runs = second.releases
        assert second.epsilon == pytest.approx(compute_epsilon(runs, second.delta))
        assert second.epsilon > first.epsilon

    def test_each_fit_spends_epsilon_again_and_searches_the_scale_once(self, data):
        model = DPFairClassifier("global_adapt", epsilon=1.0, warm_start=True)
        spent = []
        for _ in range(2):
            model.fit(data.data, data.target)
            spent.append(model.privacy_.epsilon)
        assert spent[0] <= 1.0 < spent[1] < 2.0
        assert sum("warm-up" in e.what for e in model.privacy_.releases) == 1

    def test_without_it_a_fit_starts_afresh(self, data):
        model = fitted(data, "dpsgd").fit(data.data, data.target)
        assert model.privacy_.epsilon <= 2.0

    def test_what_was_not_private_stays_so(self, data):
        model = DPFairClassifier("dpsgd", epsilon=None, warm_start=True, max_epochs=2)
        model.fit(data.data, data.target).set_params(epsilon=1.0).fit(data.data, data.target)
        assert math.isinf(model.privacy_.epsilon) and not model.privacy_.is_private

    def test_seeded_fits_in_a_row_share_no_noise(self, data):
        model = DPFairClassifier(
            "dpsgd", epsilon=1.0, warm_start=True, random_state=0, max_steps=3, lr=1e-6
        )
        seen = []
        for _ in range(3):
            model.fit(data.data, data.target)
            seen.append(
                np.concatenate(
                    [p.detach().numpy().ravel() for p in model.net_.module_.parameters()]
                )
            )
        steps = np.diff(seen, axis=0)
        assert not np.allclose(steps[0], steps[1], rtol=0.1)

    def test_other_data_are_refused_and_the_fit_is_kept(self, data):
        model = DPFairClassifier("dpsgd", warm_start=True, max_epochs=2)
        model.fit(data.data, data.target)
        report = model.privacy_
        with pytest.raises(ValueError, match="number of features changed"):
            model.fit(np.asarray(data.data)[:, :2], data.target)
        with pytest.raises(ValueError, match="classes changed"):
            model.fit(data.data, np.asarray(data.target) + 5)
        with pytest.raises(ValueError, match="weights"):
            model.set_params(module=MLP((3,))).fit(data.data, data.target)
        assert model.privacy_ is report

    def test_it_must_be_a_bool(self, data):
        with pytest.raises(TypeError, match="warm_start"):
            fitted(data, "dpsgd", warm_start="yes")


def built(page):
    """Return a page of the docs as it is built."""
    docs = Path(__file__).parents[1] / "docs"
    source = [(docs / f"{page}.md").read_text()]
    runpy.run_path(docs / "conf.py")["fill_in"](None, page, source)
    return source[0]


def test_the_docs_get_the_table_of_methods():
    rows = built("methods").splitlines()
    for name, row in methods_table().iterrows():
        assert f"| {' | '.join([name, *row])} |" in rows


def test_the_docs_name_the_papers_of_all_methods():
    papers = built("evidence/references")
    own = [name for name, method in METHODS.items() if not method.reference]
    assert all(f"- `{name}`: " in papers for name in own)


class TestWhatFitsBeforeLeave:
    def groups(self, data):
        return {"sensitive_features": data.sensitive_features}

    def test_group_epsilons_are_infinite_after_a_fit_without_privacy(self, data):
        model = DPFairClassifier("sgd", epsilon=None, max_steps=5, batch_size=90, warm_start=True)
        model.fit(data.data, data.target, **self.groups(data))
        model.set_params(method="dp_is_sgd", epsilon=1.0)
        report = model.fit(data.data, data.target, **self.groups(data)).privacy_
        assert math.isinf(report.epsilon)
        assert set(map(math.isinf, report.group_epsilons.values())) == {True}

    def test_delta_never_grows(self, data):
        model = DPFairClassifier("dpsgd", epsilon=2.0, max_steps=20, warm_start=True)
        first = model.fit(data.data, data.target).privacy_
        few = np.arange(60)
        second = model.set_params(epsilon=0.5, batch_size=30).fit(
            np.asarray(data.data)[few], np.asarray(data.target)[few]
        )
        assert second.privacy_.delta == first.delta and second.privacy_.epsilon > first.epsilon

    def test_delta_shrinks_with_a_larger_data_set(self, data):
        model = DPFairClassifier("dpsgd", batch_size=50, warm_start=True, **CHEAP)
        X, y = np.asarray(data.data), np.asarray(data.target)
        deltas = [model.fit(np.tile(X, (k, 1)), np.tile(y, k)).privacy_.delta for k in (1, 20)]
        assert deltas[0] == 1e-4 and deltas[1] < 1 / 18_000

    def test_assumptions_are_kept(self, data):
        model = DPFairClassifier("dpsgd", max_steps=5, warm_start=True)
        model.fit(data.data, data.target).set_params(classes=[0, 1]).fit(data.data, data.target)
        assert any("taken from y" in text for text in model.privacy_.assumptions)

    def test_an_interrupted_warm_up_shares_no_noise_with_the_next_fit(self, data, monkeypatch):
        from skorch.callbacks import Callback

        from skdpfair.engine import Streams

        class Stop(Callback):
            def on_epoch_end(self, net, **kwargs):
                raise KeyboardInterrupt

        made, seeded = [], Streams.seeded
        monkeypatch.setattr(
            Streams, "seeded", lambda *a, **k: made.append(seeded(*a, **k)) or made[-1]
        )
        model = DPFairClassifier("dpsgd", max_steps=40, warm_start=True, random_state=0, lr=1e-9)
        model.set_params(callbacks=[Stop()]).fit(data.data, data.target)
        model.fit(data.data, data.target)
        model.set_params(callbacks=None).fit(data.data, data.target)
        assert len({streams.entropy for streams in made}) == 3

    def test_the_scale_is_searched_again_for_another_method(self, data):
        model = DPFairClassifier("global_adapt", epsilon=1.0, max_steps=40, warm_start=True)
        model.fit(data.data, data.target)
        before = model.lr_
        model.set_params(method="dpsgd").fit(data.data, data.target)
        assert sum("warm-up" in e.what for e in model.privacy_.releases) == 2
        assert model.lr_ != before


def test_parameters_that_differ_anywhere_have_other_descriptions():
    from functools import partial

    from skdpfair._utils.describe import describe

    class Attack:
        def __init__(self, size):
            self.size = size

    class Slotted:
        __slots__ = ("size",)

        def __init__(self, size):
            self.size = size

    def attack(module, x, y, size):
        return x

    shares = np.full(60, 1 / 60)
    other = shares.copy()
    other[30], other[31] = other[31] + 1e-9, other[30] - 1e-9
    pairs = [
        (partial(attack, size=0.1), partial(attack, size=0.5)),
        (Attack(0.1), Attack(0.5)),
        (Slotted(0.1), Slotted(0.5)),
        (
            get_method("dp_is_sgd", group_probabilities=tuple(shares)),
            get_method("dp_is_sgd", group_probabilities=tuple(other)),
        ),
        (
            get_method("dp_is_sgd", group_probabilities=shares),
            get_method("dp_is_sgd", group_probabilities=other),
        ),
    ]
    for a, b in pairs:
        assert describe(a) != describe(b) and describe(a) == describe(a)


def test_many_groups_pay_no_less_than_at_their_own_rates(monkeypatch):
    from skdpfair.privacy import accounting

    group = np.repeat(np.arange(30), np.arange(1, 31))
    X, y = np.ones((len(group), 2)), np.arange(len(group)) % 2
    priced, real = [], accounting.compute_epsilon
    monkeypatch.setattr(accounting, "compute_epsilon", lambda *a: priced.append(a) or real(*a))
    method = get_method("dp_is_sgd", group_probabilities=tuple(np.arange(1, 31) / 465))
    settings = {"noise_multiplier": 1.0, "max_steps": 3, "batch_size": 60, "accountant": "rdp"}
    model = DPFairClassifier(method, epsilon=None, **settings)
    told = model.fit(X, y, sensitive_features=group).privacy_.group_epsilons
    assert len(priced) <= 1 + 8 and list(told) == list(range(30))
    (entry,) = (e for e in model.privacy_.releases)
    for k in (0, 3, 12, 20, 29):
        own = replace(entry, sample_rate=entry.group_rates[k])
        own = compute_epsilon([own], model.privacy_.delta, "rdp")
        assert own <= told[k] <= model.privacy_.epsilon
    assert told[0] == pytest.approx(model.privacy_.epsilon)


def test_functions_and_classes_of_one_name_are_told_apart_by_what_they_do():
    from skdpfair._utils.describe import describe

    def of_width(width):
        def build(n_features, n_outputs):
            return nn.Sequential(nn.Linear(n_features, width), nn.Linear(width, n_outputs))

        class Net(nn.Module):
            def __init__(self, n_features, n_outputs):
                super().__init__()
                self.linear = nn.Linear(n_features, width)

        def itself():
            return itself, width

        return build, Net, [lambda x: {x, "a"}, lambda x: {x, "b"}][width % 2], itself

    for a, b, same in zip(of_width(3), of_width(4), of_width(3), strict=True):
        assert describe(a) == describe(same) != describe(b)
    spaces = [{"SIZE": 0.1}, {"SIZE": 0.5}, {"SIZE": 0.1}]
    for space in spaces:
        exec("def attack(x):\n    return x + SIZE", space)
    a, b, same = (describe(space["attack"]) for space in spaces)
    assert a == same != b
    secret = ["patient Zero", 0.739085]
    told = describe(lambda x: secret)
    assert "Zero" not in told and "0.739" not in told  # it is written beside the results of sweeps
    tables = [pd.DataFrame({"a": ["x", cell]}) for cell in "yz"]
    assert describe(tables[0]) != describe(tables[1])


def test_batch_size_and_reference_follow_the_shares_that_were_counted(data):
    model = fitted(data, "dp_is_sgd", three(data), batch_size=90, keep_reference=True)
    assert model.batch_size_ == round(model.privacy_.expected_batch_size)
    assert abs(model.reference_.batch_size_ - model.batch_size_) <= 0.1 * model.batch_size_


def test_methods_that_look_at_gradients_refuse_dropout(data):
    from torch import nn

    from skdpfair.exceptions import UnsupportedModuleError

    def module():
        return nn.Sequential(nn.Dropout(0.5), nn.Linear(data.data.shape[1], 2))

    with pytest.raises(UnsupportedModuleError, match="dropout"):
        fitted(data, "fairlens", epsilon=None, module=module)


class TestDiagnostics:
    def test_they_are_recorded_by_group_and_marked(self, data):
        model = fitted(data, "dpsgd", three(data), callbacks=[GroupRecorder(terms=False)])
        frame = model.diagnostics_
        assert set(frame["group"]) == {"a", "b", "c"}
        assert (frame[["loss", "gradient_norm"]] > 0).all(axis=None)
        first = frame[frame["step"] == frame["step"].min()]
        assert np.average(first["loss"], weights=first["n_samples"]) == pytest.approx(
            math.log(2), rel=1e-5
        )  # a logistic model starts at zero
        assert not model.privacy_.releasable and "NOT private" in model.privacy_.statement
        assert model.privacy_.facts()["releasable"] is False

    def test_they_change_nothing_and_stay_out_of_pickles(self, data):
        import pickle

        recorder = GroupRecorder(terms=False)
        plain, watched = (fitted(data, "dpsgd", callbacks=c) for c in (None, [recorder]))
        X = data.data
        assert np.array_equal(plain.decision_function(X), watched.decision_function(X))
        assert not hasattr(plain, "diagnostics_") and plain.privacy_.releasable
        again = pickle.loads(pickle.dumps(watched))
        assert not hasattr(again, "diagnostics_")

    def test_the_display(self, data):
        pytest.importorskip("matplotlib").use("Agg")
        from skdpfair.report import GroupLossDisplay

        display = GroupLossDisplay.from_estimator(
            fitted(data, "dpsgd", callbacks=[GroupRecorder(terms=False)])
        ).plot()
        assert [len(axes.lines) for axes in display.axes_] == [2, 2]
        assert [t.get_text() for t in display.axes_[-1].get_legend().get_texts()] == ["a", "b"]
        display.figure_.clear()
        with pytest.raises(ValueError, match="GroupRecorder"):
            GroupLossDisplay.from_estimator(fitted(data, "dpsgd"))
        with pytest.raises(ValueError, match=r"lacks the columns \['gradient_norm'\]"):
            GroupLossDisplay(display.frame.drop(columns="gradient_norm"))
