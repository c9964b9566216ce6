"""skrub's vectorizers learn from the rows; its pipelines take public steps."""

import math

import pytest

from skdpfair import DPFairClassifier
from skdpfair.budget import PrivacyLedger
from skdpfair.exceptions import PrivacyLeakWarning
from skdpfair.preprocessing import lint_pipeline, public_preprocessor

skrub = pytest.importorskip("skrub")
pytestmark = pytest.mark.filterwarnings(
    *(f"ignore::skdpfair.exceptions.{w}Warning" for w in ("LowSignal", "PrivacyLeak"))
)


def quick():
    return DPFairClassifier("dpsgd", epsilon=8.0, max_steps=5, accountant="rdp")


def test_lint_pipeline_finds_a_table_vectorizer(tmp_path, two_groups):
    model = skrub.tabular_pipeline(quick())
    findings = lint_pipeline(model).findings
    assert "TableVectorizer" in {f.name for f in findings}
    assert lint_pipeline(skrub.TableVectorizer()).findings
    ledger = PrivacyLedger(tmp_path / "ledger", delta=1e-5, accountant="rdp")
    with pytest.warns(PrivacyLeakWarning, match="TableVectorizer"):
        ledger.fit(model, two_groups.data, two_groups.target)


def test_lint_pipeline_finds_nothing_in_a_pipeline_of_public_steps(tmp_path, two_groups):
    X, y = two_groups.data, two_groups.target
    model = skrub.tabular_pipeline(quick())
    public = public_preprocessor(dict.fromkeys(X, (-5, 5)), {})
    model = type(model)([("public", public), model.steps[-1]])
    ledger = PrivacyLedger(tmp_path / "ledger", delta=1e-5, accountant="rdp")
    assert lint_pipeline(model).findings == []
    ledger.fit(model, X, y)
    assert ledger.epsilon() < math.inf
    assert model.predict(X).shape == y.shape
