"""Scattering features of pictures: normalised, invariant, and of each picture alone."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.pipeline import make_pipeline

from skdpfair import DPFairClassifier
from skdpfair.features import Scattering2D
from skdpfair.preprocessing import lint_pipeline


def test_a_picture_gets_the_same_features_beside_others(waves):
    transformer = Scattering2D()
    together = transformer.fit_transform(waves)
    others = waves.copy()
    others[1:] = 1e6
    np.testing.assert_array_equal(transformer.transform(others)[0], together[0])
    alone = np.concatenate([transformer.transform(one[None]) for one in waves])
    np.testing.assert_allclose(alone, together, atol=1e-4)


def test_scattering_is_normalised_in_groups(waves):
    """Each of the groups of a record has mean 0 and variance 1, unless it is faint."""
    found = Scattering2D().fit_transform(100 * waves).reshape(7, 27, 3 * 5 * 6)
    np.testing.assert_allclose(found.mean(2), 0, atol=1e-4)
    np.testing.assert_allclose(found.std(2), 1, atol=0.02)
    colour = np.stack([100 * waves, 0 * waves, -50 * waves], 1)
    found = Scattering2D().fit_transform(colour)[:, : 81 * 5 * 3].reshape(7, 81, 5, 3)
    for group in (slice(0, 1), slice(1, 9), slice(9, 17), slice(17, 81)):
        np.testing.assert_allclose(found[:, group].mean((1, 2, 3)), 0, atol=1e-4)
        np.testing.assert_allclose(found[:, group].std((1, 2, 3)), 1, atol=0.05)
    faint = Scattering2D().fit_transform(waves / 1000)
    assert np.abs(faint[:, 18 * 30 :]).max() < 0.1  # what hardly varies stays small


def test_mirror_images_have_nearly_the_same_features():
    smooth = np.random.default_rng(1).random((4, 8, 8, 3)).repeat(4, 1).repeat(4, 2)
    found = Scattering2D().fit_transform(smooth)
    other = Scattering2D().fit_transform(smooth[:, :, ::-1])
    assert np.abs(found - other).mean() < 0.05 * np.abs(found).mean()
    distinct = Scattering2D(mirror=False)
    apart = distinct.fit_transform(smooth) - distinct.fit_transform(smooth[:, :, ::-1])
    assert np.abs(apart).mean() > 0.5 * np.abs(found).mean()
    assert found.shape == (4, (81 + 2 * 17) * 8 * 4)


def test_scattering_learns_nothing_and_is_named_in_the_report(waves):
    transformer = Scattering2D(L=4, verbose=1)
    head = DPFairClassifier("dpsgd", epsilon=8.0, delta=0.01, module="logistic", max_steps=3)
    pipe = make_pipeline(transformer, head)
    assert not lint_pipeline(pipe).findings
    with pytest.warns(UserWarning):  # seven records are few
        report = pipe.fit(waves, np.arange(7) % 2)[-1].privacy_
    assert report.features == "Scattering2D(L=4), which learns nothing"
    found = transformer.fit(waves).transform(waves)
    np.testing.assert_array_equal(clone(transformer).transform(waves), found)  # without fit
    assert len(transformer.get_feature_names_out()) == found.shape[1]
