"""Scattering features against a direct computation, and what the transformer promises."""

import math

import numpy as np
import pytest
import torch
from scipy.ndimage import convolve
from sklearn.base import clone
from sklearn.pipeline import make_pipeline

from skdpfair import DPFairClassifier
from skdpfair.features import Scattering2D, _base
from skdpfair.features._wavelets import Scattering
from skdpfair.preprocessing import lint_pipeline


@pytest.fixture
def digits():
    rng = np.random.default_rng(0)
    rows, columns = np.mgrid[:20, :24] / 6
    waves = rng.uniform(-2, 2, (7, 2, 1, 1)) * np.stack([rows, columns])
    return (np.sin(waves.sum(1)) + rng.random((7, 20, 24)) / 4).astype(np.float32)


def morlet(j, angle, L, size):
    """The wavelet of one scale and orientation, from its formula."""
    half = size // 2
    u, v = np.mgrid[-half : half + 1, -half : half + 1].astype(float)
    along = u * math.cos(angle) + v * math.sin(angle)
    across = -u * math.sin(angle) + v * math.cos(angle)
    sigma = 0.8 * 2**j
    bell = np.exp(-(along**2 + (4 / L * across) ** 2) / (2 * sigma**2))
    bell *= 4 / L / (2 * math.pi * sigma**2)
    wave = bell * np.exp(0.75j * math.pi / 2**j * along)
    return wave - wave.sum() / bell.sum() * bell


def local_means(x, J, pad, shape):
    """Gaussian means at the middles of blocks of ``2**J`` pixels, of a padded picture."""
    places = [[2**J * (i + 0.5) - 0.5 + pad for i in range(n // 2**J)] for n in shape]
    sigma, out = 0.8 * 2 ** (J - 1), np.zeros([len(p) for p in places])
    rows, columns = np.mgrid[: x.shape[0], : x.shape[1]]
    for a, p in enumerate(places[0]):
        for b, q in enumerate(places[1]):
            weight = np.exp(-((rows - p) ** 2 + (columns - q) ** 2) / (2 * sigma**2))
            out[a, b] = (weight * x).sum() / weight.sum()
    return out


def modulus(x, psi):
    """The modulus of a convolution, periodic like the padded picture."""
    return np.hypot(convolve(x, psi.real, mode="wrap"), convolve(x, psi.imag, mode="wrap"))


def test_coefficients_are_those_of_direct_convolutions(digits):
    """By float64 convolutions in space, without Fourier transforms or samples in between."""
    J, L, x = 2, 4, digits[0].astype(float)
    padded = np.pad(x, 4, mode="reflect")
    found = Scattering(x.shape, J, L, 2)(torch.from_numpy(digits[:1]))[0].numpy()
    psi = {(j, k): morlet(j, k * math.pi / L, L, 23 + 20 * j) for j in range(J) for k in range(L)}
    first = {at: modulus(padded, wave) for at, wave in psi.items()}
    maps = [padded, *first.values()]
    maps += [modulus(first[0, k], psi[1, m]) for k in range(L) for m in range(L)]
    expected = np.array([local_means(u, J, 4, x.shape) for u in maps])
    assert found.shape == expected.shape == (1 + J * L + L**2, 5, 6)
    np.testing.assert_allclose(found[: 1 + L], expected[: 1 + L], atol=1e-5)
    # moduli of larger wavelets are sampled, which loses what little they have of high frequencies
    error = np.abs(found - expected).max((1, 2)) / np.abs(expected).max((1, 2))
    assert error.max() < 0.06
    assert error.mean() < 0.03


def test_a_picture_gets_the_same_features_beside_others(digits):
    transformer = Scattering2D()
    together = transformer.fit_transform(digits)
    others = digits.copy()
    others[1:] = 1e6
    np.testing.assert_array_equal(transformer.transform(others)[0], together[0])
    alone = np.concatenate([transformer.transform(one[None]) for one in digits])
    np.testing.assert_allclose(alone, together, atol=1e-4)


def test_features_are_normalised_in_groups(digits):
    """Each of the groups of a record has mean 0 and variance 1, unless it is faint."""
    found = Scattering2D().fit_transform(100 * digits).reshape(7, 27, 3 * 5 * 6)
    np.testing.assert_allclose(found.mean(2), 0, atol=1e-4)
    np.testing.assert_allclose(found.std(2), 1, atol=0.02)
    colour = np.stack([100 * digits, 0 * digits, -50 * digits], 1)
    found = Scattering2D().fit_transform(colour)[:, : 81 * 5 * 3].reshape(7, 81, 5, 3)
    for group in (slice(0, 1), slice(1, 9), slice(9, 17), slice(17, 81)):
        np.testing.assert_allclose(found[:, group].mean((1, 2, 3)), 0, atol=1e-4)
        np.testing.assert_allclose(found[:, group].std((1, 2, 3)), 1, atol=0.05)
    faint = Scattering2D().fit_transform(digits / 1000)
    assert np.abs(faint[:, 18 * 30 :]).max() < 0.1  # what hardly varies stays small


def test_a_mirror_image_has_nearly_the_same_features():
    smooth = np.random.default_rng(1).random((4, 8, 8, 3)).repeat(4, 1).repeat(4, 2)
    found = Scattering2D().fit_transform(smooth)
    other = Scattering2D().fit_transform(smooth[:, :, ::-1])
    assert np.abs(found - other).mean() < 0.05 * np.abs(found).mean()
    distinct = Scattering2D(mirror=False)
    apart = distinct.fit_transform(smooth) - distinct.fit_transform(smooth[:, :, ::-1])
    assert np.abs(apart).mean() > 0.5 * np.abs(found).mean()
    assert found.shape == (4, (81 + 2 * 17) * 8 * 4)


def test_every_form_of_pictures_gives_the_same():
    rng = np.random.default_rng(0)
    first = rng.integers(0, 256, (5, 3, 16, 12), dtype=np.uint8)
    expected = Scattering2D().fit_transform(first.astype(np.float32) / 255)
    rows = Scattering2D(image_shape=(3, 16, 12)).fit_transform(first.reshape(5, -1))
    forms = {
        "uint8": Scattering2D().fit_transform(first),
        "last": Scattering2D(channels="last").fit_transform(first.transpose(0, 2, 3, 1)),
        "guessed": Scattering2D().fit_transform(first.transpose(0, 2, 3, 1)),
        "tensor": Scattering2D().fit_transform(torch.from_numpy(first)),
        "rows": rows,
    }
    for name, found in forms.items():
        np.testing.assert_allclose(found, expected, atol=1e-5, err_msg=name)
    one = Scattering2D().fit_transform(first[:, :1])
    np.testing.assert_array_equal(one, Scattering2D().fit_transform(first[:, 0]))
    assert Scattering2D(channels="first").fit_transform(first[:, [0, 1, 2, 0, 1]]).shape[0] == 5


@pytest.mark.parametrize(
    "params, shape, error, text",
    [
        ({}, (4, 5), ValueError, r"X must hold pictures of \(height, width\)"),
        ({}, (4, 7, 20, 20), ValueError, "channels="),
        ({}, (4, 3, 20), ValueError, "J=2 needs pictures of at least 4 x 4 pixels"),
        ({"J": 5}, (4, 20, 20), ValueError, "J=5 needs pictures of at least 32 x 32"),
        ({"J": 0}, (4, 20, 20), ValueError, "J"),
        ({"L": 2.5}, (4, 20, 20), TypeError, "L"),
        ({"max_order": 3}, (4, 20, 20), ValueError, "max_order"),
        ({"mirror": "left"}, (4, 20, 20), TypeError, "mirror"),
        ({"channels": "middle"}, (4, 20, 20), ValueError, "channels"),
        ({"image_shape": (3, 3)}, (4, 10), ValueError, "image_shape=.* does not hold the 10"),
    ],
)
def test_modules_and_parameters_that_cannot_give_features_are_refused(params, shape, error, text):
    with pytest.raises(error, match=text):
        Scattering2D(**params).fit_transform(np.zeros(shape))


def test_values_that_are_not_finite_are_refused(digits):
    digits[4, 3, 3] = np.nan
    with pytest.raises(ValueError, match="X holds NaN, infinity"):
        Scattering2D().fit_transform(digits)


def test_pictures_in_a_memory_map_are_read_in_batches(tmp_path):
    path = tmp_path / "pictures.npy"
    rng = np.random.default_rng(0)
    np.save(path, rng.integers(0, 256, (_base.BATCH_SIZE + 3, 12, 12), dtype=np.uint8))
    mapped = np.load(path, mmap_mode="r")
    found = Scattering2D().fit_transform(mapped)
    np.testing.assert_array_equal(found, Scattering2D().fit_transform(np.array(mapped)))


def test_it_learns_nothing_and_says_so(digits):
    transformer = Scattering2D(L=4, verbose=1)
    y = np.arange(7) % 2
    head = DPFairClassifier("dpsgd", epsilon=8.0, delta=0.01, module="logistic", max_steps=3)
    pipe = make_pipeline(transformer, head)
    assert not lint_pipeline(pipe).findings
    with pytest.warns(UserWarning):  # seven records are few
        report = pipe.fit(digits, y)[-1].privacy_
    assert "Features are those of Scattering2D(L=4), which learns nothing." in report.statement
    np.testing.assert_array_equal(  # without fit
        clone(transformer).transform(digits), transformer.transform(digits)
    )
    names = transformer.fit(digits).get_feature_names_out()
    assert len(names) == transformer.transform(digits).shape[1]
