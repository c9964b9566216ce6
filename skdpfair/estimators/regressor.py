"""The regressor DPFairRegressor, with the interface of scikit-learn."""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils import Tags

from skdpfair.estimators.base import DPEstimator
from skdpfair.exceptions import PrivacyLeakWarning
from skdpfair.inputs import target
from skdpfair.inputs.columns import by_index


@dataclass(kw_only=True, repr=False, eq=False)
class DPFairRegressor(RegressorMixin, DPEstimator):
    """Regressor trained by a differentially private, group-aware gradient method.

    Steps, accounting, ledgers and pickles are those of :class:`DPFairClassifier`.

    Parameters
    ----------
    method : str or Method, default="global_adapt"
        Algorithm, by name or as an object with hyper-parameters, see ``get_method``;
        not "fairlens" and "fairlens_dp", which are defined for classes.
    epsilon : float > 0 or None, default=1.0
        Privacy budget of one fit.  None without ``noise_multiplier`` trains the non-private
        reference model.
    delta, noise_multiplier, accountant, noise_sampler, persons : see `DPFairClassifier`
        The budget, how epsilon is computed, and whom it protects.
    group_col : see `DPFairClassifier`
        The groups; "target" is refused, as a regression has no classes.
    module : see `DPFairClassifier`
        The network; a module of your own maps (batch, ...) to outputs (batch, 1), where -1 stands
        for the lower end of ``y_range``, and 1 for the upper end.
    optimizer, lr, batch_size, max_epochs, max_steps, iterate_average : see `DPFairClassifier`
        The steps.
    max_physical_batch_size, augment, max_sample_weight, warm_start : see `DPFairClassifier`
        Memory, random views of the records, weights, and fits in a row.
    keep_reference, callbacks, device, random_state, verbose : see `DPFairClassifier`
        The non-private reference model, what is recorded, and where and how a fit runs.
    y_range : tuple (low, high) or None, default=None
        PUBLIC limits of the target.  Targets outside are clipped to them, without a warning, and
        predictions lie between them.  Narrow limits reduce the noise.  None takes the smallest and
        the largest target as public, and ``privacy_.assumptions`` says so.
    loss : {"squared", "absolute", "huber"}, default="squared"
        Loss of a record.  Half the squared error, the absolute error, or Huber's loss, which is
        squared up to an eighth of the width of ``y_range``, and linear beyond.  In private fits,
        clipping limits the effect of large errors with all of them.

    Attributes
    ----------
    y_range_ : tuple of float
        Limits of the target and of the predictions.
    levels_, n_features_in_, feature_names_in_, privacy_, features_, net_, method_, lr_, \
batch_size_, n_steps_, n_iter_, signal_to_noise_, diagnostics_, reference_
        As in `DPFairClassifier`.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpfair import DPFairRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (5000, 2))
    >>> y = 50 + 30 * X[:, 0] + rng.normal(scale=5, size=5000)
    >>> model = DPFairRegressor("dpsgd", epsilon=1.0, y_range=(0, 100)).fit(X, y)
    >>> model.privacy_.epsilon <= 1.0, model.score(X, y) > 0.8
    (True, True)
    """

    score = by_index(RegressorMixin.score)

    y_range: tuple[float, float] | None = None
    loss: str = "squared"

    def predict(self, X: Any) -> np.ndarray:
        """Return the predicted target of each row.

        Parameters
        ----------
        X : DataFrame or array of shape (n_samples, n_features, ...)
            Rows like those of ``fit``; the group columns may be absent.

        Returns
        -------
        ndarray of shape (n_samples,)
            Numbers between the limits ``y_range_``.
        """
        return target.unscaled(self._outputs(X)[:, 0], self.y_range_)

    def _read_target(self, y: Any) -> tuple[np.ndarray, np.ndarray | None, np.ndarray]:
        y = target.read_numbers(y)
        if len(y) == 0:
            raise ValueError("X and y have 0 samples, and a fit needs one or more.")
        limits, budget = self.y_range, (self.epsilon, self.noise_multiplier)
        if limits is None and budget != (None, None):
            warnings.warn(
                "Epsilon does not cover the smallest and the largest target, which the model "
                "reveals since y_range=None. Declare public limits, such as y_range=(0, 120).",
                PrivacyLeakWarning,
                stacklevel=4,
            )
        self.y_range_ = target.limits_of(y) if limits is None else target.range_of(limits)
        return y, None, target.scaled(y, self.y_range_)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        # noise, on as few records as scikit-learn's checks
        tags.regressor_tags.poor_score = True
        return tags
