"""The one-run audit: correct fits pass, missing noise does not.

Fits are seeded: unseeded, a correct one would fail with a chance of at most 5 %.
"""

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

from skdpfair import METHODS, DPFairClassifier
from skdpfair.audit import FitAudit, audit_fit
from skdpfair.audit._lower_bounds import one_run_epsilon
from skdpfair.datasets import make_two_groups
from skdpfair.engine.noise import Noise
from skdpfair.preprocessing import BoundedScaler

pytestmark = pytest.mark.filterwarnings(
    "ignore::skdpfair.exceptions.LowSignalWarning",
    "ignore::skdpfair.exceptions.InsecureSeedWarning",
)
PRIVATE = sorted(name for name, method in METHODS.items() if method.private)


@pytest.fixture(scope="module")
def data():
    return make_two_groups(2000, random_state=0)


def strong(method="dpsgd", **params):
    """Return a classifier on which the attack does well: one layer, and steps that show."""
    settings = {"epsilon": 1.0, "module": "logistic", "lr": 8.0, "batch_size": 200}
    settings |= {"max_steps": 100, "accountant": "rdp", "random_state": 0}
    return DPFairClassifier(method, **settings | params)


@pytest.mark.parametrize("name", PRIVATE)
def test_correct_fits_pass(name, data):
    groups = {"sensitive_features": data.sensitive_features}
    audit = audit_fit(strong(name), data.data, data.target, 400, **groups, random_state=0)
    assert audit.passed and audit.epsilon_claimed <= 1.0
    assert audit.n_canaries == 400 and audit.n_correct <= audit.n_guesses


def test_the_attack_sees_what_a_large_budget_lets_through(data):
    audit = audit_fit(strong(epsilon=20.0), data.data, data.target, 400, random_state=0)
    assert 0.8 < audit.epsilon_lower <= audit.epsilon_claimed


@pytest.mark.parametrize("name", ["dpsgd", "global_adapt"])
def test_missing_noise_is_found(name, data, monkeypatch):
    monkeypatch.setattr(Noise, "fill_", lambda self, out, *args: out.zero_())
    audit = audit_fit(strong(name), data.data, data.target, 400, random_state=0)
    assert not audit.passed and audit.epsilon_lower > 2.0
    assert "ABOVE its claim of 0.999" in str(audit)


def test_frames_pipelines_and_records_that_are_no_table(data):
    frame = pd.DataFrame(data.data).add_prefix("f")
    frame["sex"] = np.where(np.arange(len(frame)) % 2, "F", "M")
    audit = audit_fit(strong(group_col="sex"), frame, data.target, 50, random_state=0)
    assert audit.n_canaries == 50 and audit.passed
    pipe = make_pipeline(BoundedScaler((-5, 5)), strong())
    assert audit_fit(pipe, data.data, data.target, 50, random_state=0).passed
    images = np.zeros((200, 1, 8, 8), np.float32)
    few = strong(module="auto", max_steps=3, batch_size=50)
    settings = {"kind": "mislabelled", "random_state": 0}
    assert audit_fit(few, images, np.arange(200) % 3, 20, **settings).passed
    with pytest.raises(ValueError, match="kind='mislabelled'"):
        audit_fit(few, images, np.arange(200) % 3, 20)


def test_records_stay_as_they_were(data):
    X, y = data.data.copy(), data.target.copy()
    audit_fit(strong(max_steps=2), X, y, 50, random_state=0)
    assert np.array_equal(np.asarray(X), np.asarray(data.data)) and (y == data.target).all()


@pytest.mark.parametrize(
    ("params", "says"),
    [
        ({"n_canaries": 1500}, "n_canaries=1500 is more than half"),
        ({"n_canaries": 3}, "n_canaries"),
        ({"kind": "loud"}, "kind"),
        ({"confidence": 1.5}, "confidence"),
    ],
)
def test_bad_input(params, says, data):
    with pytest.raises(ValueError, match=says):
        audit_fit(strong(), data.data, data.target, **params)


def fields(**changed):
    given = {"method": "dpsgd", "epsilon_claimed": 1.0, "epsilon_lower": 0.5, "delta": 1e-5}
    given |= {"confidence": 0.95, "n_canaries": 1000, "n_guesses": 100, "n_correct": 60}
    return given | changed


def test_a_lower_bound_of_zero_is_no_result():
    audit = FitAudit(**fields(epsilon_lower=0.0))
    best = max(one_run_epsilon(1000, n, n, 1e-5, 0.05 / 5) for n in (50, 100, 200, 500, 1000))
    assert "shows nothing" in str(audit) and f"would have shown {best:.3g}." in str(audit)
    few = str(FitAudit(**fields(epsilon_lower=0.0, epsilon_claimed=8.0, n_canaries=20)))
    assert "too little to exceed its claim of 8" in few
    assert "0.5 or more" in str(FitAudit(**fields()))


def test_confidence_is_never_rounded_to_certainty():
    assert "confidence 0.95)" in str(FitAudit(**fields()))
    assert "confidence 1 - 1e-09)" in str(FitAudit(**fields(confidence=1 - 1e-9)))


TWENTY = np.zeros((40, 2)), np.arange(40) % 2


@pytest.mark.parametrize(
    ("estimator", "error", "says"),
    [
        (LogisticRegression(), TypeError, "an object of class LogisticRegression"),
        (DPFairClassifier, TypeError, "the class DPFairClassifier.*Pass an instance"),
        (GridSearchCV(DPFairClassifier(), {}), TypeError, "best_estimator_"),
        (
            make_pipeline(BoundedScaler(), LogisticRegression()),
            TypeError,
            "a Pipeline that ends in LogisticRegression",
        ),
        (DPFairClassifier(epsilon=None), ValueError, "claims no finite epsilon"),
        (DPFairClassifier("sgd", epsilon=None), ValueError, "claims no finite epsilon"),
    ],
)
def test_what_claims_nothing_is_refused(estimator, error, says):
    with pytest.raises(error, match=says):
        audit_fit(estimator, *TWENTY, 10)


@pytest.mark.parametrize(
    ("X", "y", "params", "says"),
    [
        (TWENTY[0], TWENTY[1][:30], {}, "y must have one entry for each of the 40"),
        (TWENTY[0], TWENTY[0], {}, "y one label for each"),
        (TWENTY[0], np.zeros(40), {}, "two classes"),
        (*TWENTY, {"sensitive_features": ["F"] * 3}, "sensitive_features must have one entry"),
        (*TWENTY, {"random_state": "x"}, "random_state must be an integer"),
        (sparse.csr_matrix(TWENTY[0]), TWENTY[1], {}, "toarray"),
        (np.full((40, 2), "State-gov"), TWENTY[1], {}, "X must hold numbers"),
        (pd.DataFrame({"a": 1.0, "work": ["State-gov"] * 40}), TWENTY[1], {}, r"\['work'\]"),
    ],
)
def test_bad_records_are_named_and_never_shown(X, y, params, says):
    with pytest.raises((ValueError, TypeError), match=says) as caught:
        audit_fit(strong(), X, y, 10, **params)
    assert "State-gov" not in str(caught.getrepr(chain=True, style="value"))
    assert caught.value.__context__ is None


@pytest.mark.slow
@pytest.mark.parametrize("name", PRIVATE)
def test_full_runs_pass(name):
    data = make_two_groups(20_000, random_state=0)
    settings = {"sensitive_features": data.sensitive_features, "random_state": 0}
    classifier = strong(name, epsilon=4.0, batch_size=1000, max_steps=400)
    audit = audit_fit(classifier, data.data, data.target, 2000, **settings)
    assert audit.passed, str(audit)
