"""MLflow keeps what a release keeps: weights, public facts and the statement, and no records."""

import warnings

import numpy as np
import pytest

from skdpfair import DPFairClassifier, load_release
from skdpfair.report import model_card

with warnings.catch_warnings():  # of type hints of its own
    warnings.simplefilter("ignore")
    pytest.importorskip("mlflow")
    import mlflow
    import mlflow.pyfunc as pyfunc
    import mlflow.pyfunc.model
    import mlflow.sklearn

pytestmark = pytest.mark.filterwarnings(
    "ignore::skdpfair.exceptions.LowSignalWarning",
    *(f"ignore::{w}Warning:mlflow" for w in ("Deprecation", "Future", "User")),
)


TEXTS = "privacy.txt", "card.md"


class Released(pyfunc.PythonModel):
    """Serves a release file."""

    def load_context(self, context):
        self.model = load_release(context.artifacts["release"])

    def predict(self, context, model_input, params=None):
        return self.model.predict_proba(model_input)


@pytest.fixture
def store(tmp_path):
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path}/mlflow.db")
    experiment = mlflow.create_experiment("private", artifact_location=(tmp_path / "a").as_uri())
    mlflow.set_experiment(experiment_id=experiment)
    yield tmp_path
    mlflow.set_tracking_uri(None)


@pytest.fixture(scope="module")
def fitted(two_groups):
    X, y = two_groups.data, two_groups.target
    return DPFairClassifier("dpsgd", epsilon=8.0, max_steps=20).fit(X, y), X


def test_pyfunc_model_of_a_release_holds_its_statement_and_no_record(store, fitted):
    clf, X = fitted
    clf.save_release(store / "model.safetensors")
    artifacts = {"release": str(store / "model.safetensors")}
    with mlflow.start_run() as run:
        mlflow.log_metric("epsilon", clf.privacy_.epsilon)
        for text, name in zip((clf.privacy_.statement, model_card(clf)), TEXTS, strict=True):
            mlflow.log_text(text, name)
        logged = pyfunc.log_model(
            name="model",
            python_model=Released(),
            artifacts=artifacts,
            pip_requirements=["skdpfair"],
        )
    run = mlflow.get_run(run.info.run_id)
    assert run.data.metrics["epsilon"] == clf.privacy_.epsilon
    texts = [mlflow.artifacts.load_text(f"{run.info.artifact_uri}/{name}") for name in TEXTS]
    assert texts[0] == clf.privacy_.statement and "Not accounted" in texts[1]
    loaded = pyfunc.load_model(logged.model_uri)
    np.testing.assert_array_equal(loaded.predict(X), clf.predict_proba(X))
    cells = [X.to_numpy()[0, :2].astype(kind).tobytes() for kind in (np.float32, np.float64)]
    files = [path for path in store.rglob("*") if path.is_file()]
    assert len(files) > 5
    assert not any(cell in path.read_bytes() for path in files for cell in cells)


def test_sklearn_flavour_takes_a_release(store, fitted):
    clf, X = fitted
    copy = clf.release()
    with mlflow.start_run():
        logged = mlflow.sklearn.log_model(
            copy, name="model", serialization_format="pickle", pip_requirements=["skdpfair"]
        )
    loaded = mlflow.sklearn.load_model(logged.model_uri)
    np.testing.assert_array_equal(loaded.predict_proba(X), clf.predict_proba(X))
    assert loaded.privacy_ == clf.privacy_
