import json

import joblib
import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.metrics import log_loss
from sklearn.model_selection import KFold
from skorch.callbacks import Callback

from skdpfair import DPFairClassifier, Factory, Groups, get_method
from skdpfair.budget import PrivacyLedger
from skdpfair.exceptions import InfeasibleBudgetError, LowSignalWarning
from skdpfair.features import Scattering2D
from skdpfair.model_selection import _cells, sweep

pytestmark = pytest.mark.filterwarnings("ignore::skdpfair.exceptions.LowSignalWarning")


@pytest.fixture
def data(two_groups):
    return two_groups.data, two_groups.target, two_groups.sensitive_features


@pytest.fixture
def settings(quick):
    return quick | {"lr": 0.5, "max_steps": 6}


DEVICE_OF = {"auto": "cuda"}  # on a machine with GPUs


def without_clock(results):
    return results.frame.drop(columns="fit_seconds")


@pytest.mark.parametrize(
    ("device", "n_devices", "expected"),
    [
        ("auto", 3, ["cuda:0", "cuda:1", "cuda:2", "cuda:0"]),
        ("cuda", 2, ["cuda:0", "cuda:1", "cuda:0", "cuda:1"]),
        ("auto", 1, ["auto"] * 4),
        ("cpu", 3, ["cpu"] * 4),
    ],
)
def test_cells_take_the_devices_in_turn(device, n_devices, expected, data, settings, monkeypatch):
    used, fit = [], DPFairClassifier.fit

    def noted(self, *given, **named):
        used.append(self.device)
        return fit(self.set_params(device="cpu"), *given, **named)

    monkeypatch.setattr(DPFairClassifier, "fit", noted)
    monkeypatch.setattr(_cells.defaults, "used_device", lambda given: DEVICE_OF.get(given, given))
    monkeypatch.setattr("torch.cuda.device_count", lambda: n_devices)
    monkeypatch.setattr("skdpfair.training.spec.used_device", lambda given: None)
    sweep(
        *data[:2],
        sensitive_features=data[2],
        methods=["dpsgd"],
        epsilons=[1.0, 2.0, 3.0],
        seeds=[0],
        **settings,
        device=device,
    )
    assert used == expected


@pytest.mark.filterwarnings("ignore::skdpfair.exceptions.InsecureSeedWarning")
@pytest.mark.parametrize(
    ("levels", "facts"),
    [
        (("a", "b"), {}),
        (("a", "b"), {"group_col": Groups(levels=["a", "b"]), "classes": [0, 1]}),
        ((0, 1), {}),  # in the sweep, "0" and "1"
    ],
)
def test_a_cell_is_the_fit_that_one_would_write_by_hand(data, settings, levels, facts):
    """Groups and classes have the same noise, whether they are declared or discovered."""
    X, y, group = data
    group = group.map(dict(zip("ab", levels, strict=True)))
    results = sweep(
        X,
        y,
        sensitive_features=group,
        methods=["dpsgd"],
        epsilons=[2.0],
        seeds=[3],
        **settings,
        keep_predictions=True,
    )
    state = int(np.random.SeedSequence(3, spawn_key=(1, 0)).generate_state(1)[0])
    code = (group == levels[1]).astype(int).to_numpy()
    (train, test) = _cells.splits(None, 3, y.to_numpy(), code)[0]
    scores = {}
    for name, epsilon in (("reference", np.inf), ("dpsgd", 2.0)):
        spent = {"method": "sgd", "epsilon": None} if name == "reference" else {"epsilon": epsilon}
        model = DPFairClassifier("dpsgd", random_state=state, **facts, **settings)
        model.set_params(**spent)
        model.fit(X.iloc[train], y.iloc[train], sensitive_features=group.iloc[train])
        predicted = model.predict(X.iloc[test])
        assert (results.predictions[name, epsilon, 3, 0]["y_pred"] == predicted).all()
        right = predicted == y.iloc[test]
        scores[name] = {"overall": right.mean()} | {
            str(g): right[group.iloc[test] == g].mean() for g in levels
        }
    frame = results.frame.set_index(["method", "group"])
    for g in ("overall", *map(str, levels)):
        assert frame.loc[("reference", g), "accuracy"] == pytest.approx(scores["reference"][g])
        assert frame.loc[("dpsgd", g), "accuracy"] == pytest.approx(scores["dpsgd"][g])
        assert frame.loc[("dpsgd", g), "privacy_cost"] == pytest.approx(
            scores["reference"][g] - scores["dpsgd"][g]
        )
    first = str(levels[0])
    assert 1.9 < frame.loc[("dpsgd", first), "epsilon_spent"] <= 2.0
    columns = ["epsilon", "epsilon_spent", "privacy_cost"]
    assert frame.loc[("reference", first), columns].tolist() == [np.inf, np.inf, 0]


@pytest.mark.filterwarnings("ignore::skdpfair.exceptions.InsecureSeedWarning")
@pytest.mark.parametrize("kind", [np.uint8, np.float32])
def test_features_of_pictures_are_computed_once_for_all_fits(kind, monkeypatch, tmp_path):
    rng = np.random.default_rng(0)
    y, group = rng.integers(0, 2, 400), rng.choice(["a", "b"], 400)
    X = rng.random((400, 12, 12)) + y[:, None, None] * (np.arange(12) % 2) / 4
    X = (X * 100).astype(kind)
    transform, n_pictures = Scattering2D.transform, []

    def counted(self, X):
        n_pictures.append(len(X))
        return transform(self, X)

    monkeypatch.setattr(Scattering2D, "transform", counted)
    settings = {"max_steps": 5, "lr": 0.5, "batch_size": 100}
    call = {"X": X, "y": y, "sensitive_features": group}
    call |= {"methods": ["dpsgd"], "epsilons": [1.0, 8.0], "seeds": [3]}
    results = sweep(**call, store=tmp_path / "store", **settings)
    again = sweep(**call, store=tmp_path / "store", **settings)
    assert n_pictures == [400]  # what is finished needs no features
    assert without_clock(again).equals(without_clock(results))
    state = int(np.random.SeedSequence(3, spawn_key=(1, 0)).generate_state(1)[0])
    ((train, test),) = _cells.splits(None, 3, y, (group == "b").astype(int))
    shared = settings | {"random_state": state, "classes": [0, 1]}
    shared["group_col"] = Groups(levels=["a", "b"])
    frame = results.frame.query("group == 'overall'").set_index(["method", "epsilon"])
    assert list(frame.index) == [("reference", np.inf), ("dpsgd", 1.0), ("dpsgd", 8.0)]
    for (method, epsilon), row in frame.iterrows():
        private = {"method": "dpsgd", "epsilon": epsilon}
        alone = {"method": "sgd", "epsilon": None} if method == "reference" else private
        model = DPFairClassifier(**alone, **shared)
        model.fit(X[train], y[train], sensitive_features=group[train])
        assert row["accuracy"] == model.score(X[test], y[test])
        expected = log_loss(y[test], model.predict_proba(X[test]))
        assert row["log_loss"] == pytest.approx(expected, rel=1e-5)
    public = {"validation_data": (X[:9], y[:9])}
    sweep(
        X,
        y,
        sensitive_features=group,
        methods=["dpsgd"],
        epsilons=[1.0],
        seeds=1,
        **settings,
        **public,
    )
    assert n_pictures[-2:] == [9, 400]


def test_a_ledger_must_hold_the_finished_fits_of_a_store(data, settings, tmp_path):
    path, store = tmp_path / "ledger", tmp_path / "store"

    def run(name):
        with PrivacyLedger(path, delta=1e-4, data=name) as ledger:
            return sweep(
                *data[:2],
                sensitive_features=data[2],
                methods=["dpsgd"],
                epsilons=[2.0],
                seeds=1,
                store=store,
                **settings,
            ), ledger

    first, ledger = run("mine")
    again, _ = run("mine")
    assert first.spec.ledger_fits == again.spec.ledger_fits and ledger.report().n_fits == 2
    with pytest.raises(ValueError, match=r"holds 2 finished fits .* recorded for data='other'"):
        run("other")
    private = next(p for p in store.glob("[0-9a-f]*.json") if '"epsilon": 2.0' in p.read_text())
    cell = json.loads(private.read_text())
    del cell["ledger_fit"]  # as an earlier version wrote it
    private.write_text(json.dumps(cell))
    with pytest.raises(ValueError, match=r"store=.* holds 1 finished fit .* leave the ledger out"):
        run("mine")
    sweep(
        *data[:2],
        sensitive_features=data[2],
        methods=["dpsgd"],
        epsilons=[2.0],
        seeds=1,
        store=store,
        **settings,
    )  # without a ledger, it continues
    assert ledger.report().n_fits == 2


def test_the_schedule_does_not_matter_and_processes_charge_their_fits(data, settings, tmp_path):
    call = dict(zip(("X", "y", "sensitive_features"), data, strict=True))
    call |= {"methods": ["dpsgd", "sgd"], "epsilons": [4.0], "seeds": 2}
    one = without_clock(sweep(**call, **settings))
    with PrivacyLedger(tmp_path / "ledger", delta=1e-5) as ledger:
        pd.testing.assert_frame_equal(one, without_clock(sweep(**call, n_jobs=2, **settings)))
    assert ledger.report().n_fits == 6
    with joblib.parallel_config("threading", n_jobs=2):
        pd.testing.assert_frame_equal(one, without_clock(sweep(**call, **settings)))
    fewer = without_clock(
        sweep(
            *data[:2],
            sensitive_features=data[2],
            methods=["sgd"],
            epsilons=[4.0],
            seeds=[1],
            **settings,
        )
    )
    both = one[(one["seed"] == 1) & one["method"].isin(["reference", "sgd"])]
    pd.testing.assert_frame_equal(fewer, both.reset_index(drop=True))
    assert set(one[one["method"] == "sgd"]["epsilon"]) == {np.inf}


@pytest.mark.parametrize("cv", [3, KFold(3)])
def test_folds_cover_every_record_once(data, settings, cv):
    frame = sweep(
        *data[:2],
        sensitive_features=data[2],
        methods=["dpsgd"],
        epsilons=[4.0],
        seeds=1,
        cv=cv,
        **settings,
    ).frame
    own = frame[(frame["method"] == "dpsgd") & (frame["group"] == "overall")]
    assert own["fold"].tolist() == [0, 1, 2]
    assert own["n"].sum() == 600


def test_the_split_keeps_the_shares_of_classes_and_groups(data):
    _, y, group = data
    code = (group == "b").astype(int).to_numpy()
    train, test = _cells.splits(None, 0, y.to_numpy(), code)[0]
    assert len(test) == 120 and not set(train) & set(test)
    assert abs((y[test] * code[test]).mean() - (y * code).mean()) < 0.01


def test_networks_that_auto_tells_apart_have_their_own_references():
    base = DPFairClassifier(group_col=Groups(levels=["a", "b"]), classes=[0, 1])
    rows = (np.arange(9000), np.arange(9000, 9100))
    methods = {"dpsgd": get_method("dpsgd", max_grad_norm=0.5)}
    cells = _cells.cells_of(methods, [0.1, 10.0], 0, 0, rows, base)
    assert [(c.method, c.reference) for c in cells] == [
        ("reference (logistic)", None),
        ("reference (mlp)", None),
        ("dpsgd", "reference (logistic)"),
        ("dpsgd", "reference (mlp)"),
    ]
    network = "MLP(hidden_layer_sizes=(32,), zero_output=True)"
    assert [str(c.estimator.module) for c in cells] == ["logistic", network, "auto", "auto"]
    assert len({c.estimator.random_state for c in cells}) == 1


def test_intersections_and_arrays(two_groups, settings):
    sensitive = pd.DataFrame(
        {"sex": two_groups.sensitive_features, "old": two_groups.data["x2"] > 0}
    )
    X, y = two_groups.data.to_numpy(), two_groups.target.map({0: "no", 1: "yes"}).to_numpy()
    results = sweep(
        X,
        y,
        sensitive_features=sensitive,
        methods=["dpsgd"],
        epsilons=[4.0],
        seeds=1,
        keep_predictions=True,
        **settings,
    )
    assert list(results.frame["group"].unique())[1:] == [
        "a, False",
        "a, True",
        "b, False",
        "b, True",
    ]
    part = results.predictions["dpsgd", 4.0, 0, 0]
    assert set(part["y_true"]) == {"no", "yes"}
    scored = results.frame.set_index(["method", "group"])["accuracy"]
    for name, rows in part.groupby("group"):
        assert (rows["y_true"] == rows["y_pred"]).mean() == scored["dpsgd", name]


def test_little_data_is_said_once(two_groups, quick):
    rows = slice(0, 60)
    X, y, group = (
        two_groups.data[rows],
        two_groups.target[rows],
        two_groups.sensitive_features[rows],
    )
    with pytest.warns(LowSignalWarning, match=r"At epsilon 0.1, 0.2: n = 48") as said:
        sweep(
            X, y, sensitive_features=group, methods=["dpsgd"], epsilons=[0.2, 0.1], seeds=2, **quick
        )
    assert len(said) == 1


@pytest.mark.parametrize(
    ("changed", "match"),
    [
        ({"epsilons": [None, 1.0]}, "reference models are always trained"),
        ({"epsilons": [1.0, 1.0]}, "each once"),
        ({"epsilons": [-1.0]}, "epsilons must be a number > 0"),
        ({"seeds": []}, "seeds must be integers"),
        ({"seeds": [-1]}, "seeds must be an integer >= 0"),
        ({"methods": ["dpsdg"]}, "Did you mean 'dpsgd'"),
        ({"methods": []}, "methods is empty"),
        ({"methods": ["dpsgd", "dpsgd"]}, "twice"),
        ({"methods": {"reference": "dpsgd"}}, "Rename yours"),
        ({"sensitive_features": None}, "sensitive_features must hold a value for each row"),
        ({"random_state": 0}, "Use seeds= instead"),
        ({"learning_rate": 0.1}, "no parameters .'learning_rate'"),
        ({"group_col": Groups(levels="a")}, "levels must be a list"),
        ({"module": Factory(len, depth=3)}, "^module"),
    ],
)
def test_refusals_name_the_remedy(data, changed, match):
    records = dict(zip(("X", "y", "sensitive_features"), data, strict=True))
    call = {"methods": ["dpsgd"], "epsilons": [1.0], "seeds": 1} | records
    with pytest.raises((ValueError, TypeError), match=match):
        sweep(**call | changed)


def test_a_rare_group_is_said_and_does_not_spoil_the_gaps(data, settings, tmp_path):
    X, y, group = data
    group = group.astype(object)
    group.iloc[0] = "rare"
    with pytest.warns(UndefinedMetricWarning, match="no test records in some runs"):
        results = sweep(
            X,
            y,
            sensitive_features=group,
            methods=["dpsgd"],
            epsilons=[2.0, 4.0],
            seeds=3,
            **settings,
        )
    gaps = results.table()[["accuracy_difference", "privacy_cost_difference"]].xs(
        "mean", axis=1, level=1
    )
    assert np.isfinite(gaps).all(axis=None)
    assert len(results.pareto_front("accuracy", "privacy_cost_difference"))
    results.plot("privacy_cost_difference").figure_.savefig(tmp_path / "gap.png")


@pytest.mark.parametrize("faulty", ["X", "validation_data", "cv"])
def test_what_no_fit_reads_is_refused_before_anything_is_written(faulty, data, settings, tmp_path):
    X, y, group = data
    wrong = {"X": X.assign(x0=np.nan), "validation_data": (X, y[:3]), "cv": 5000}
    given = settings | {faulty: wrong[faulty]}
    with pytest.raises(ValueError, match=faulty):
        sweep(
            given.pop("X", X),
            y,
            sensitive_features=group,
            methods=["dpsgd"],
            epsilons=[1.0],
            seeds=1,
            **given,
            store=tmp_path / "s",
        )
    assert not (tmp_path / "s").exists()


def test_pictures_that_no_fit_reads_are_refused_before_anything_is_written(tmp_path):
    pictures = np.zeros((200, 8, 8), np.float32)
    pictures[3, 2, 1] = np.nan
    groups = np.where(np.arange(200) % 3, "u", "v")
    with pytest.raises(ValueError, match="NaN"):
        sweep(
            pictures,
            np.arange(200) % 2,
            sensitive_features=groups,
            methods=["dpsgd"],
            epsilons=[1.0],
            seeds=1,
            store=tmp_path / "s",
        )
    assert not (tmp_path / "s").exists()


def test_a_budget_that_cannot_be_met_is_refused_before_any_fit(data, settings, tmp_path):
    with pytest.raises(InfeasibleBudgetError):
        sweep(
            *data[:2],
            sensitive_features=data[2],
            methods=["dpsgd"],
            epsilons=[1.0, 1e-9],
            seeds=1,
            **settings,
            store=tmp_path / "s",
        )
    assert not (tmp_path / "s").exists()


class Failing(Callback):
    def on_epoch_begin(self, net, **kwargs):
        raise ValueError("no epoch")


def test_an_error_names_its_cell(data, settings):
    with pytest.raises(ValueError) as caught:
        sweep(
            *data[:2],
            sensitive_features=data[2],
            methods=["dpsgd"],
            epsilons=[1.0],
            seeds=1,
            **settings | {"callbacks": [Failing()]},
        )
    assert caught.value.__notes__ == ["In the cell: reference, seed 0, fold 0."]
