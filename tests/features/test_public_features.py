"""Forms of pictures that transformers read, and those that they refuse."""

import numpy as np
import pytest
import torch

from skdpfair.features import Scattering2D
from skdpfair.features._public_features import BATCH_SIZE


def test_every_form_of_pictures_gives_the_same_features():
    first = np.random.default_rng(0).integers(0, 256, (5, 3, 16, 12), dtype=np.uint8)
    expected = Scattering2D().fit_transform(first.astype(np.float32) / 255)
    last = first.transpose(0, 2, 3, 1)
    for name, params, pictures in (
        ("uint8", {}, first),
        ("last", {"channels": "last"}, last),
        ("guessed", {}, last),
        ("tensor", {}, torch.from_numpy(first)),
        ("rows", {"image_shape": (3, 16, 12)}, first.reshape(5, -1)),
    ):
        found = Scattering2D(**params).fit_transform(pictures)
        np.testing.assert_allclose(found, expected, atol=1e-5, err_msg=name)
    one = Scattering2D().fit_transform(first[:, :1])
    np.testing.assert_array_equal(one, Scattering2D().fit_transform(first[:, 0]))
    assert Scattering2D(channels="first").fit_transform(first[:, [0, 1, 2, 0, 1]]).shape[0] == 5


@pytest.mark.parametrize(
    "params, X, error, match",
    [
        ({}, np.zeros((4, 5)), ValueError, r"X must hold pictures of \(height, width\)"),
        ({}, np.zeros((4, 7, 20, 20)), ValueError, "channels="),
        ({}, np.zeros((4, 3, 20)), ValueError, "J=2 .* at least 4 x 4"),
        ({"J": 5}, np.zeros((4, 20, 20)), ValueError, "J=5 .* at least 32 x 32"),
        ({"J": 0}, np.zeros((4, 20, 20)), ValueError, "J"),
        ({"L": 2.5}, np.zeros((4, 20, 20)), TypeError, "L"),
        ({"max_order": 3}, np.zeros((4, 20, 20)), ValueError, "max_order"),
        ({"mirror": "left"}, np.zeros((4, 20, 20)), TypeError, "mirror"),
        ({"channels": "middle"}, np.zeros((4, 20, 20)), ValueError, "channels"),
        ({"image_shape": (3, 3)}, np.zeros((4, 10)), ValueError, "image_shape=.* the 10"),
        ({}, np.full((4, 20, 20), "a"), TypeError, "X must hold numbers"),
        ({}, np.zeros(4), ValueError, r"X .* one axis or more, got shape \(4,\)"),
        ({}, np.full((4, 20, 20), np.nan), ValueError, "X holds NaN, infinity"),
    ],
)
def test_parameters_and_pictures_that_give_no_features_are_refused(params, X, error, match):
    with pytest.raises(error, match=match):
        Scattering2D(**params).fit_transform(X)


@pytest.mark.parametrize("form", [np.int64, np.float32])
def test_pictures_unlike_those_of_fit_are_refused(form):
    pictures = np.random.default_rng(0).integers(0, 256, (6, 8, 8)).astype(np.uint8)
    features = Scattering2D().fit(pictures)
    for other, match in (
        (pictures.astype(form), r"numpy\.uint8"),
        (pictures[:, :4], r"X .*shape \(8, 8\), as in fit, got \(4, 8\)"),
    ):
        with pytest.raises(ValueError, match=match):
            features.transform(other)


def test_pictures_in_a_memory_map_are_read_in_batches(tmp_path):
    path = tmp_path / "pictures.npy"
    rng = np.random.default_rng(0)
    np.save(path, rng.integers(0, 256, (BATCH_SIZE + 3, 12, 12), dtype=np.uint8))
    mapped = np.load(path, mmap_mode="r")
    found = Scattering2D().fit_transform(mapped)
    np.testing.assert_array_equal(found, Scattering2D().fit_transform(np.array(mapped)))
