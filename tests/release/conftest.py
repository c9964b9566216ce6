"""Small private fits, files whose facts can be changed, and what copies must agree on."""

import re
from copy import deepcopy

import numpy as np
import pytest
from sklearn.base import clone
from torch import nn

from skdpfair import MLP, DPFairClassifier, DPFairRegressor, Groups, Persons
from skdpfair.release import _file


class Wide(nn.Module):
    """A network of one's own."""

    def __init__(self, n_features, width=8, depth=1, make=nn.ReLU):
        super().__init__()
        self.inner = nn.ModuleList(nn.Linear(n_features, width) for _ in range(depth))
        self.act, self.drop, self.norm = make(), nn.Dropout(0.2), nn.LayerNorm(width)
        self.logits = nn.Linear(width, 2)

    def forward(self, x):
        inner = sum(layer(x) for layer in self.inner)
        return self.logits(self.norm(self.drop(self.act(inner))))


@pytest.fixture(scope="session")
def wide():
    return Wide


@pytest.fixture
def table(two_groups):
    return two_groups.frame.drop(columns="target"), two_groups.target.to_numpy()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.safetensors"


@pytest.fixture(scope="session")
def fitted():
    """``fitted(table, method, **params)``."""

    def fit(table, method="dpsgd", **params):
        few = {"noise_multiplier": 1.0, "accountant": "rdp", "max_steps": 3}
        model = DPFairClassifier(method, epsilon=None, **few, group_col="group")
        return model.set_params(**params).fit(*table)

    return fit


@pytest.fixture(scope="session")
def fits(tmp_path_factory):
    """Fits by groups, on persons and of numbers: the estimator, and the facts and weights."""
    X, y = np.linspace(-1, 1, 1200).reshape(400, 3), np.arange(400) % 2
    few, path = {"epsilon": 2.0, "accountant": "rdp", "max_steps": 4}, tmp_path_factory.mktemp("a")
    levels, groups = Groups(levels=["a", "b"]), np.where(np.arange(400) % 8, "a", "b")
    by_group = DPFairClassifier(
        "dp_is_sgd", **few, batch_size=50, module=MLP((4,)), group_col=levels
    )
    of_persons = DPFairClassifier("dpsgd", **few, persons=Persons(max_records=2))
    models = {
        "groups": by_group.fit(X, y, sensitive_features=groups),
        "persons": of_persons.fit(X, y, persons=np.arange(400) // 2),
        "regressor": DPFairRegressor("dpsgd", **few, y_range=(0, 1)).fit(X, y),
    }
    for name, model in models.items():
        model.save_release(path / name)
    return {name: (model, *_file.opened(path / name)[:2]) for name, model in models.items()}


@pytest.fixture
def changed(fits, path):
    """``changed(name, change)``: a file whose facts are changed, with a digest that matches."""

    def changed(name, change):
        _, facts, weights = deepcopy(fits[name])
        change(facts, weights)
        _file.write(path, facts, weights)
        return path

    return changed


def shown(value):
    """Return a repr in which a numpy scalar is what it holds."""
    return re.sub(r"np\.(?:str_|int64|float32)\(([^)]*)\)", r"\1", repr(value))


@pytest.fixture(scope="session")
def check_same():
    """``check_same(other, model, X)``: bit for bit, for batches of several sizes."""

    def check(other, model, X):
        for rows in (X[:1], X[:7], X):
            scores = model.decision_function(rows)
            np.testing.assert_array_equal(other.decision_function(rows), scores)
            labels, expected = other.predict(rows), model.predict(rows)
            np.testing.assert_array_equal(labels, expected)
            assert labels.dtype == expected.dtype
        assert other.privacy_.facts() == model.privacy_.facts()
        assert other.privacy_.releases == model.privacy_.releases
        assert other.privacy_statement() == model.privacy_statement()
        assert repr(other.classes_) == repr(model.classes_)
        assert shown(other.levels_) == shown(model.levels_)
        assert other.random_state is other.callbacks is other.validation_data is None
        assert shown(clone(other).get_params()) == shown(other.get_params())

    return check
