"""The classifier: predictions, scores, several labels, and the classifier in a pipeline."""

import pickle

import numpy as np
import pytest
from scipy.special import log_softmax, softmax
from sklearn.linear_model import LogisticRegression
from sklearn.multioutput import ClassifierChain, MultiOutputClassifier
from sklearn.pipeline import make_pipeline

from skdpfair import DPFairClassifier
from skdpfair.budget import PrivacyLedger
from skdpfair.estimators.classifier import classifier_of, private_logits, routed
from skdpfair.model_selection import DPThresholdClassifier
from skdpfair.privacy import compute_epsilon
from tests.quick_fits import QUIET, X, Y, quick

pytestmark = QUIET


@pytest.mark.parametrize("scale", [0.5, 2.0])
def test_all_predictions_have_the_logit_scale(scale):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(300, 4)).astype(np.float32), rng.integers(0, 3, 300)
    model = quick(logit_scale=scale, keep_reference=True).fit(x, y)
    raw = model.net_.logits(x)
    for other in (model, model.release(), pickle.loads(pickle.dumps(model))):
        assert other.logit_scale_ == scale
        np.testing.assert_array_equal(other.decision_function(x), scale * raw)
        np.testing.assert_allclose(other.predict_proba(x), softmax(scale * raw, axis=1))
        np.testing.assert_allclose(other.predict_log_proba(x), log_softmax(scale * raw, axis=1))
        np.testing.assert_array_equal(other.predict(x), raw.argmax(axis=1))
    for private in (model, make_pipeline("passthrough", model)):
        np.testing.assert_allclose(private_logits(private, x), scale * raw, rtol=1e-6)
    assert model.reference_.logit_scale_ == 1.0


def test_predict_log_proba_is_the_logarithm_of_predict_proba():
    for model in (quick(), DPThresholdClassifier(quick())):
        model.fit(X, Y)
        expected = np.log(model.predict_proba(X))
        np.testing.assert_allclose(model.predict_log_proba(X), expected, atol=1e-6)
    far = quick(module="logistic", epsilon=None, noise_multiplier=0.0, lr=1e4).fit(X, Y)
    assert np.isfinite(far.predict_log_proba(X)).all()


def test_score_is_the_accuracy_and_refuses_other_targets():
    model = quick().fit(X, Y)
    assert model.score(X, Y) == np.mean(model.predict(X) == Y)
    for wrong in (Y[:-1], Y[:, None] + np.zeros(2), np.full(len(Y), np.nan)):
        with pytest.raises(ValueError, match=r"^(Input )?y |samples: \[\d"):
            model.score(X, wrong)


@pytest.mark.parametrize("wrapper", [MultiOutputClassifier, ClassifierChain])
def test_fits_to_several_labels_are_charged_one_by_one(wrapper, tmp_path):
    labels = np.stack([X["x0"] > cut for cut in (-0.3, 0.0, 0.3)], axis=1).astype(int)
    params = {"epsilon": None, "noise_multiplier": 2.0, "max_steps": 12, "batch_size": 100}
    model = DPFairClassifier("dpsgd", classes=[0, 1], accountant="rdp", **params)
    with pytest.raises(ValueError, match=r"MultiOutputClassifier: .*epsilon"):
        model.fit(X.to_numpy(), labels)
    with PrivacyLedger(tmp_path / "l.json", epsilon=20.0, delta=1e-4) as ledger:
        fitted = wrapper(model).fit(X.to_numpy(), labels)
    reports = [one.privacy_ for one in fitted.estimators_]
    total = [entry for report in reports for entry in report.releases]
    assert len(reports) == 3 and ledger.epsilon() > 1.2 * reports[0].epsilon
    assert ledger.epsilon() == pytest.approx(compute_epsilon(total, 1e-4, "pld"), rel=0.01)


def test_classifier_of_and_routed_reach_into_pipelines():
    clf = quick()
    inner = make_pipeline("passthrough", clf)
    assert classifier_of(make_pipeline("passthrough", inner)) is classifier_of(clf) is clf
    given = routed(make_pipeline(inner), ["a"])
    assert given == {"pipeline__dpfairclassifier__sensitive_features": ["a"]}
    assert routed(clf, None, [0]) == {"persons": [0]}
    with pytest.raises(TypeError, match=r"DPFairClassifier.*LogisticRegression"):
        classifier_of(make_pipeline(LogisticRegression()))
