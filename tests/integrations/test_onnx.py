"""The recipe of the documentation exports the probabilities of a classifier."""

import re
from pathlib import Path

import numpy as np
import pytest
from torch import nn

from skdpfair import DPFairClassifier
from skdpfair._networks import Curves

pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

pytestmark = pytest.mark.filterwarnings(
    "ignore::skdpfair.exceptions.LowSignalWarning",
    "ignore::FutureWarning",  # of torch, for its own code
)
PAGE = (Path(__file__).parents[2] / "docs" / "release.md").read_text()
RECIPE = re.search(r"^## ONNX$.*?^```python\n(.*?)^```$", PAGE, re.M | re.S)[1]


def own():
    return nn.Sequential(nn.Flatten(), nn.Linear(6, 5), nn.Dropout(), nn.PReLU(), nn.Linear(5, 3))


MODELS = {
    "auto": ({}, (6,), 2),
    "own": ({"module": own, "logit_scale": 0.5}, (2, 3), 3),
    "pictures": ({"module": "cnn", "logit_scale": 2.0}, (8, 9, 3), 3),
    "curves": ({"module": Curves((0, 1), fine=(1,)), "logit_scale": 0.7}, (6,), 2),
}


@pytest.mark.parametrize("name", MODELS)
def test_onnx_recipe_of_the_page_exports_probabilities(name, tmp_path, capsys):
    params, shape, n_classes = MODELS[name]
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-1, 1, (400, *shape)).astype(np.float32), np.arange(400) % n_classes
    clf = DPFairClassifier("dpsgd", epsilon=8.0, **params).fit(X, y)
    assert clf.logit_scale_ != 1
    path = tmp_path / "model.safetensors"
    exec(RECIPE, {"__name__": "__main__", "clf": clf, "X": X, "path": path})
    assert capsys.readouterr().out == "True\n"
    (file,) = tmp_path.iterdir()
    assert b".py" not in file.read_bytes()  # of the exporter's notes on where operations stand
