"""SHAP explains a private model against a public background."""

import warnings

import numpy as np
import pytest

from skdpfair import DPFairClassifier

with warnings.catch_warnings():  # of matplotlib, for what shap calls on import
    warnings.simplefilter("ignore")
    shap = pytest.importorskip("shap")

pytestmark = pytest.mark.filterwarnings(
    "ignore::skdpfair.exceptions.InsecureSeedWarning",
    "ignore::skdpfair.exceptions.LowSignalWarning",
)


def test_shap_values_add_up_to_the_predictions(two_groups):
    X, y = two_groups.data, two_groups.target
    clf = DPFairClassifier("dpsgd", epsilon=8.0, max_steps=20, random_state=0).fit(X, y)
    public = np.random.default_rng(0).uniform(-1, 1, size=(10, X.shape[1]))  # no private rows
    with np.errstate(all="ignore"):
        explainer = shap.Explainer(
            lambda rows: clf.predict_proba(as_table(rows, X))[:, 1], public, seed=0
        )
        rows = X.iloc[:4].to_numpy()
        found = explainer(rows)
    assert found.values.shape == rows.shape
    total = found.base_values + found.values.sum(axis=1)
    np.testing.assert_allclose(total, clf.predict_proba(X.iloc[:4])[:, 1], atol=1e-5)
    expected = clf.predict_proba(as_table(public, X))[:, 1].mean()
    np.testing.assert_allclose(found.base_values, expected, atol=1e-5)


def as_table(rows, like):
    return type(like)(rows, columns=like.columns)
