"""Small private fits, and what a copy of a fitted classifier must agree on."""

import re

import numpy as np
import pytest
from sklearn.base import clone

from skdpfair import DPFairClassifier

PRIVATE = {"epsilon": None, "noise_multiplier": 1.0, "accountant": "rdp", "max_steps": 3}


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
        model = DPFairClassifier(method, **PRIVATE, group_col="group")
        return model.set_params(**params).fit(*table)

    return fit


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
