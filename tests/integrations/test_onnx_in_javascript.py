"""A released ONNX file in a host without Python gives the same labels and probabilities."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from skdpfair import DPFairClassifier

HOST = Path(__file__).parents[2] / "examples" / "onnx_host.mjs"
FOLDER = os.environ.get("SKDPFAIR_NODE_FOLDER", "")  # with node_modules/onnxruntime-web
pytestmark = [
    pytest.mark.filterwarnings("ignore::skdpfair.exceptions.LowSignalWarning"),
    pytest.mark.skipif(
        shutil.which("node") is None or not FOLDER,
        reason="SKDPFAIR_NODE_FOLDER names no folder with onnxruntime-web, which npm installs",
    ),
]


@pytest.mark.parametrize("names", [["no", "yes"], [0, 1]])
@pytest.mark.parametrize("module", ["logistic", "mlp"])
def test_a_javascript_host_predicts_the_same(names, module, tmp_path, two_groups):
    X, y = two_groups.data, np.array(names)[np.asarray(two_groups.target).astype(int)]
    clf = DPFairClassifier("dpsgd", epsilon=8.0, max_steps=20, module=module).fit(X, y)
    clf.export_onnx(tmp_path / "model.onnx")
    rows = X.iloc[:20]
    done = subprocess.run(
        ["node", str(HOST), str(tmp_path / "model.onnx")],
        input=json.dumps(rows.to_numpy().tolist()),
        capture_output=True,
        text=True,
        cwd=FOLDER,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["label"] for row in found] == clf.predict(rows).tolist()
    probabilities = [row["probabilities"] for row in found]
    np.testing.assert_allclose(probabilities, clf.predict_proba(rows), atol=1e-5)
