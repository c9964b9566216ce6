"""Pictures in DPFairClassifier: features by shape, and what they refuse."""

import logging
import re

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from torch import nn

from skdpfair import MLP, DPFairClassifier
from skdpfair.augmentations import PGD, FlipAndShift, Views
from skdpfair.features import Scattering2D
from skdpfair.training.pictures import features_of
from skdpfair.training.spec import FitSpec
from tests.bars import FEATURES, GROUP, X, Y, classifier
from tests.quick_fits import QUIET

pytestmark = QUIET


@pytest.fixture(scope="module")
def fitted():
    return classifier().fit(X, Y, sensitive_features=GROUP)


def test_auto_trains_a_linear_model_on_features_that_the_statement_names(fitted):
    assert isinstance(fitted.net_.module_, nn.Linear) and fitted.score(X, Y) > 0.85
    assert repr(fitted.features_) == "Scattering2D()"
    assert fitted.privacy_statement()["features"] == FEATURES
    pipe = make_pipeline(Scattering2D(), classifier(module="logistic"))
    pipe.fit(X, Y, dpfairclassifier__sensitive_features=GROUP)
    np.testing.assert_array_equal(pipe.predict_proba(X), fitted.predict_proba(X))
    assert pipe[-1].privacy_.epsilon == fitted.privacy_.epsilon
    named = classifier(module=Scattering2D(J=2)).fit(X, Y, sensitive_features=GROUP)
    np.testing.assert_array_equal(named.predict_proba(X), fitted.predict_proba(X))


COLOURS = "records of shape .* are no pictures of 1 or 3 channels"


@pytest.mark.parametrize(
    "shape, params, features, logged",
    [
        ((12, 10), {}, "Scattering2D()", r"on Scattering2D\(\), .* shape \(12, 10\)"),
        ((3, 8, 8), {}, "Scattering2D()", ""),
        ((8, 9, 3), {}, "Scattering2D()", ""),
        ((32, 7), {}, None, "less than 8 pixels"),
        ((5, 12, 12), {}, None, COLOURS),
        ((2, 3, 12, 12), {}, None, None),
        ((5,), {}, None, None),  # a row of a table is not worth a line
        ((784,), {}, None, r"X\.reshape\(-1, 28, 28\)"),
        ((3072,), {}, None, r"\(-1, 32, 32, 3\)"),
        ((783,), {}, None, None),
        ((12, 10), {"module": MLP((4,))}, None, None),
        ((12, 10), {"attack": PGD(0.1, n_steps=1)}, None, "attack is given"),
        ((12, 10), {"augment": Views(FlipAndShift(shift=1), n=2)}, None, "augment is given"),
        ((12, 10), {"module": "logistic"}, None, None),
        ((12, 10), {"module": "cnn"}, None, None),
        ((12, 10), {"module": Scattering2D(L=4)}, "Scattering2D(L=4)", None),
    ],
)
def test_features_of_chooses_by_shape_and_logs_why(shape, params, features, logged, caplog):
    spec = FitSpec.of(DPFairClassifier(**params))
    with caplog.at_level(logging.INFO, "skdpfair"):
        head, found = features_of(spec, shape)
    assert (found and repr(found)) == features
    assert head.module == "logistic" if found else head is spec
    assert len(caplog.messages) == (logged is not None)
    assert re.search(logged or "", caplog.text)


@pytest.mark.parametrize("module", ["cnn", "scattering"])
@pytest.mark.parametrize(
    ("size", "remedy"),
    [
        (784, r"X\.reshape\(-1, 28, 28\)"),
        (3072, r"X\.reshape\(-1, 3, 32, 32\)"),
        (91, r"X\.reshape\(-1, height, width\)"),
    ],
)
def test_fit_refuses_rows_of_pixels_with_the_call_that_makes_pictures(module, size, remedy):
    x, y = np.zeros((1000, size), np.float32), np.arange(1000) % 2
    with pytest.raises(ValueError, match=f"module='{module}' .*{remedy}"):
        classifier(module=module).fit(x, y)


DIFFERENT = [np.zeros((12, 10)), np.zeros((12, 9))]
OBJECTS = np.empty(2, dtype=object)
OBJECTS[:] = DIFFERENT


@pytest.mark.parametrize("X", [DIFFERENT, OBJECTS, [torch.zeros(2, 3), torch.zeros(2, 4)]])
@pytest.mark.parametrize("read", [lambda X: DPFairClassifier().fit(X, [0, 1]), Scattering2D().fit])
def test_fit_refuses_pictures_of_different_sizes(X, read):
    with pytest.raises(ValueError, match=r"^X holds .*different shapes, such as \("):
        read(X)


@pytest.mark.parametrize("spoilt", [np.nan, np.inf])
def test_fit_and_predict_refuse_missing_pixels_without_advice_on_columns(fitted, spoilt):
    x = X.copy()
    x[3, 4, 5] = spoilt
    for read in (fitted.predict, lambda x: clone(fitted).fit(x, Y)):
        with pytest.raises(ValueError, match=r"^X contains NaN or inf(?!.*column)"):
            read(x)


@pytest.mark.parametrize(
    "params, shape, match",
    [
        ({}, (2, 3, 4, 5), "needs pictures"),
        ({"module": Scattering2D(J=9)}, (12, 12), "J"),
        ({"module__image_shape": (12, 10)}, (12, 10), "image_shape"),
        ({"attack": PGD(0.1)}, (12, 12), "attack=PGD"),
        ({"augment": FlipAndShift()}, (12, 12), "augment=FlipAndShift"),
    ],
)
def test_features_of_refuses_what_features_cannot_do(params, shape, match):
    x = np.random.default_rng(0).random((50, *shape))
    model = classifier(module="scattering").set_params(**params)
    with pytest.raises((ValueError, TypeError), match=match):
        model.fit(x, np.arange(50) % 2)
