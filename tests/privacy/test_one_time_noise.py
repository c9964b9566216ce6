"""The law of one-time noise, and what its generator depends on."""

from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from skdpfair._utils.keystream import Keystream
from skdpfair.exceptions import InsecureSeedWarning
from skdpfair.privacy.one_time_noise import discrete_laplace, generator_of, noisy

ERROR_RATE = 1e-6  # of the test of Gaussian noise, were it exact; the seed is fixed


@pytest.mark.parametrize("kind", ["standard", "gaussian_sum"])
def test_noisy_has_the_declared_deviation_and_shape(kind):
    """A chi-square test of the variance that rejects one of 1.02 sigma, and bins of the law."""
    zeros = np.zeros((200, 200))
    drawn = noisy(zeros, 7.5, 1.7, np.random.default_rng(0), kind) / (1.7 * 7.5)
    low, high = stats.chi2.ppf([ERROR_RATE / 2, 1 - ERROR_RATE / 2], zeros.size)
    assert low < (drawn**2).sum() < high < (1.02**2) * (drawn**2).sum()
    counts = np.histogram(drawn, stats.norm.ppf(np.linspace(0, 1, 51)))[0]
    assert stats.chisquare(counts).pvalue > ERROR_RATE
    assert abs(np.corrcoef(drawn[:-1].ravel(), drawn[1:].ravel())[0, 1]) < 5 / zeros.size**0.5


def test_generator_of_other_rows_or_settings_is_another():
    rows, other = np.zeros((3, 1)), np.ones((3, 1))
    with pytest.warns(InsecureSeedWarning, match="random_state=1"):
        drawn = {generator_of(1, *a).random() for a in ((rows, "a"), (other, "a"), (rows, "b"))}
    assert len(drawn) == 3


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0])
def test_discrete_laplace_follows_its_law(epsilon):
    """Chance of a false alarm: 1e-4 for each epsilon, and the seed is fixed."""
    n, below = 20_000, Keystream(b"seed").integers
    noise = np.array([discrete_laplace(Fraction(epsilon), below) for _ in range(n)])
    bins = np.arange(-200, 201)
    expected = n * stats.dlaplace(epsilon).pmf(bins)
    seen, usable = np.array([(noise == k).sum() for k in bins]), expected > 5
    seen, expected = (np.append(v[usable], n - v[usable].sum()) for v in (seen, expected))
    chi2 = ((seen - expected) ** 2 / np.maximum(expected, 1)).sum()
    assert stats.chi2.sf(chi2, usable.sum()) > 1e-4


@pytest.mark.parametrize("sign", [1, -1])
def test_discrete_laplace_reaches_its_tails(sign):
    # accept the rest 0; 200 times "go on" with probability 1/e; stop; the sign
    bits = iter([0, 0] + [0, 0, 1] * 200 + [0, 1] + [sign < 0])

    def below(n):
        number = next(bits)
        assert isinstance(n, int) and 0 <= number < n  # no rounding on the way
        return number

    assert discrete_laplace(Fraction(1), below) == sign * 200
