"""Cells of a sweep: the same fits and scores as those written by hand, and their splits."""

import numpy as np
import pytest
from sklearn.metrics import log_loss
from sklearn.utils import _safe_indexing
from skorch.callbacks import Callback

from skdpfair import DPFairClassifier, Groups, get_method
from skdpfair.features import Scattering2D
from skdpfair.model_selection import _cells

pytestmark = pytest.mark.filterwarnings("ignore::skdpfair.exceptions.InsecureSeedWarning")


def fit_by_hand(X, y, group, method, epsilon, **params):
    """Return the model of a cell of seed 3, and its rows to test."""
    state = int(np.random.SeedSequence(3, spawn_key=(1, 0)).generate_state(1)[0])
    code = np.unique(group, return_inverse=True)[1]
    ((train, test),) = _cells.splits(None, 3, np.asarray(y), code)
    private = {"method": method, "epsilon": epsilon}
    spent = {"method": "sgd", "epsilon": None} if method == "reference" else private
    model = DPFairClassifier(random_state=state, **spent, **params)
    X, y, group = (_safe_indexing(column, train) for column in (X, y, group))
    return model.fit(X, y, sensitive_features=group), test


@pytest.mark.parametrize(
    ("levels", "declared"),
    [
        (("a", "b"), {}),
        (("a", "b"), {"group_col": Groups(levels=["a", "b"]), "classes": [0, 1]}),
        ((0, 1), {}),  # in the sweep, "0" and "1"
    ],
)
def test_cells_are_the_fits_written_by_hand(two_groups, quick, small_sweep, levels, declared):
    """Groups and classes have the same noise, whether they are declared or discovered."""
    X, y = two_groups.data, two_groups.target
    group = two_groups.sensitive_features.map(dict(zip("ab", levels, strict=True)))
    results = small_sweep(sensitive_features=group, seeds=[3], keep_predictions=True)
    frame, right = results.frame.set_index(["method", "group"]), {}
    params = quick | {"lr": 0.5, "max_steps": 6} | declared
    for name, epsilon in (("reference", np.inf), ("dpsgd", 2.0)):
        model, test = fit_by_hand(X, y, group, name, epsilon, **params)
        predicted = model.predict(X.iloc[test])
        assert (results.predictions[name, epsilon, 3, 0]["y_pred"] == predicted).all()
        right[name] = (predicted == y.iloc[test]).astype(float)
    lost = right["reference"] - right["dpsgd"]
    for g, rows in [("overall", slice(None)), *((str(g), group.iloc[test] == g) for g in levels)]:
        for name in right:
            assert frame.loc[(name, g), "accuracy"] == pytest.approx(right[name][rows].mean())
        assert frame.loc[("dpsgd", g), "privacy_cost"] == pytest.approx(lost[rows].mean())
    assert 1.9 < frame.loc[("dpsgd", "overall"), "epsilon_spent"] <= 2.0
    columns = ["epsilon", "epsilon_spent", "privacy_cost"]
    assert frame.loc[("reference", "overall"), columns].tolist() == [np.inf, np.inf, 0]


@pytest.mark.parametrize("kind", [np.uint8, np.float32])
def test_cells_share_the_features_of_pictures(kind, small_sweep, monkeypatch, tmp_path):
    rng = np.random.default_rng(0)
    y, group = rng.integers(0, 2, 400), rng.choice(["a", "b"], 400)
    X = rng.random((400, 12, 12)) + y[:, None, None] * (np.arange(12) % 2) / 4
    X = (X * 100).astype(kind)
    transform, n_pictures = Scattering2D.transform, []

    def counted(self, X):
        n_pictures.append(len(X))
        return transform(self, X)

    monkeypatch.setattr(Scattering2D, "transform", counted)
    params = {"max_steps": 5, "lr": 0.5, "batch_size": 100, "accountant": "pld", "module": "auto"}
    call = {"X": X, "y": y, "sensitive_features": group, "epsilons": [1.0, 8.0]} | params
    call |= {"seeds": [3], "store": tmp_path / "store"}
    frame, again = small_sweep(**call).frame, small_sweep(**call).frame
    assert n_pictures == [400]  # what is finished needs no features
    assert again.equals(frame)
    frame = frame.query("group == 'overall'").set_index(["method", "epsilon"])
    assert list(frame.index) == [("reference", np.inf), ("dpsgd", 1.0), ("dpsgd", 8.0)]
    declared = {"classes": [0, 1], "group_col": Groups(levels=["a", "b"])}
    for (method, epsilon), row in frame.iterrows():
        model, test = fit_by_hand(X, y, group, method, epsilon, **params, **declared)
        assert row["accuracy"] == model.score(X[test], y[test])
        expected = log_loss(y[test], model.predict_proba(X[test]))
        assert row["log_loss"] == pytest.approx(expected, rel=1e-5)
    small_sweep(**call | {"store": None, "epsilons": [1.0], "validation_data": (X[:9], y[:9])})
    assert n_pictures[-2:] == [9, 400]


DEVICE_OF = {"auto": "cuda"}  # on a machine with GPUs


@pytest.mark.parametrize(
    ("device", "n_devices", "expected"),
    [
        ("auto", 3, ["cuda:0", "cuda:1", "cuda:2", "cuda:0"]),
        ("cuda", 2, ["cuda:0", "cuda:1", "cuda:0", "cuda:1"]),
        ("auto", 1, ["auto"] * 4),
        ("cpu", 3, ["cpu"] * 4),
    ],
)
def test_cells_take_the_devices_in_turn(device, n_devices, expected, small_sweep, monkeypatch):
    used, fit = [], DPFairClassifier.fit

    def recorded(self, *columns, **named):
        used.append(self.device)
        return fit(self.set_params(device="cpu"), *columns, **named)

    monkeypatch.setattr(DPFairClassifier, "fit", recorded)
    monkeypatch.setattr(_cells.defaults, "used_device", lambda name: DEVICE_OF.get(name, name))
    monkeypatch.setattr("torch.cuda.device_count", lambda: n_devices)
    monkeypatch.setattr("skdpfair.training.spec.used_device", lambda name: None)
    small_sweep(epsilons=[1.0, 2.0, 3.0], device=device)
    assert used == expected


def test_splits_keep_the_shares_of_classes_and_groups(two_groups):
    y, code = two_groups.target, (two_groups.sensitive_features == "b").astype(int).to_numpy()
    train, test = _cells.splits(None, 0, y.to_numpy(), code)[0]
    assert len(test) == 120 and not set(train) & set(test)
    assert abs((y[test] * code[test]).mean() - (y * code).mean()) < 0.01


def test_cells_of_networks_that_auto_distinguishes_have_their_own_references():
    base = DPFairClassifier(group_col=Groups(levels=["a", "b"]), classes=[0, 1])
    rows = (np.arange(9000), np.arange(9000, 9100))
    methods = {"dpsgd": get_method("dpsgd", max_grad_norm=0.5)}
    cells = _cells.cells_of(methods, [0.1, 10.0], 0, 0, rows, base)
    network = "MLP(hidden_layer_sizes=(32,), zero_output=True)"
    assert [(c.method, c.reference, str(c.estimator.module)) for c in cells] == [
        ("reference (logistic)", None, "logistic"),
        ("reference (mlp)", None, network),
        ("dpsgd", "reference (logistic)", "auto"),
        ("dpsgd", "reference (mlp)", "auto"),
    ]
    assert len({c.estimator.random_state for c in cells}) == 1


class Failing(Callback):
    def on_epoch_begin(self, net, **kwargs):
        raise ValueError("no epoch")


def test_run_cell_names_the_cell_of_an_error(small_sweep):
    with pytest.raises(ValueError, match="no epoch") as caught:
        small_sweep(callbacks=[Failing()])
    assert caught.value.__notes__ == ["In the cell: reference, seed 0, fold 0."]
