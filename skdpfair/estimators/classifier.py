"""The classifier DPFairClassifier, with the interface of scikit-learn."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import log_softmax, softmax
from sklearn import get_config
from sklearn.base import ClassifierMixin
from sklearn.pipeline import Pipeline
from sklearn.utils import Tags
from sklearn.utils.validation import check_consistent_length

from skdpfair._utils import validate
from skdpfair.engine.step import Attack
from skdpfair.estimators.base import DPEstimator
from skdpfair.inputs import persons as _persons
from skdpfair.inputs import table, target
from skdpfair.inputs.columns import check_indexes
from skdpfair.methods._registry import get_method
from skdpfair.metrics._arguments import accuracy


@dataclass(kw_only=True, repr=False, eq=False)
class DPFairClassifier(ClassifierMixin, DPEstimator):
    """Classifier trained by a differentially private, group-aware gradient method.

    Parameters
    ----------
    method : str or Method, default="global_adapt"
        Algorithm, by name or as an object with hyper-parameters, see ``get_method``.
    epsilon : float > 0 or None, default=1.0
        Privacy budget of one fit.  None, without ``noise_multiplier``, trains the non-private
        reference model: plain SGD on the same module.
    delta : float in (0, 1/n) or "auto", default="auto"
        Probability mass of the privacy loss beyond epsilon.  "auto": the largest power of ten
        that is at most 1/(10 n).
    noise_multiplier : float >= 0 or None, default=None
        Noise instead of a budget (with ``epsilon=None``); 0 clips without noise.
    group_col : str, int, "target", list of these, Groups or None, default=None
        Column(s) of X that hold the groups; several make intersections; "target" takes the class
        labels.  The columns are not features.  :class:`skdpfair.Groups` also declares the public
        set of groups; without it, at most 30 are read from the rows, and statements say so.
    persons : Persons or None, default=None
        :class:`skdpfair.Persons` names the person of each record and bounds the number of records
        of a person.  The guarantee is then for all records of a person.
    module : str, MLP, Scattering2D, Factory, class or function, default="auto"
        The network: "logistic", "mlp", "cnn" or "scattering"; an object with its sizes, such as
        :class:`skdpfair.MLP`; or a class or function that makes a torch.nn.Module, with its
        arguments in a :class:`skdpfair.Factory`.  The module maps (batch, ...) to logits (batch,
        n_classes).  "scattering" is a linear model on the public features
        :class:`skdpfair.features.Scattering2D` of pictures.  "auto" is "scattering" for records of
        2 or 3 axes, of 8 x 8 pixels or more, and a linear model or a small MLP for others.  Columns
        of `public_preprocessor`, recognised by their names, get a linear model.  Noisy counts, paid
        from epsilon, then choose finer curves for amounts, such as money, if their exact values
        matter, and cells for pairs of columns that interact; ``privacy_`` names them.  "cnn" takes
        (height, width), or a channel axis first or, if of length 1 or 3, last.  Frozen parts of a
        module (``requires_grad=False``) are public by declaration, also batch normalisation.
    optimizer : torch.optim class, its name, Factory, or "auto", default="auto"
        "auto" is SGD: with damped momentum 0.9 if ``lr`` is "auto", else plain.  A
        :class:`skdpfair.Factory` holds the class with its arguments.
    lr : float > 0 or "auto", default="auto"
        Learning rate.
    batch_size : int or "auto", default="auto"
        Expected number of records (persons, if they are named) in a Poisson batch;
        the rate is 1 / ceil(n / batch_size).
    max_epochs : int or "auto", default="auto"
        Passes over the data.
    max_steps : int or None, default=None
        Number of steps on the data; overrides ``max_epochs``.
    iterate_average : float in [0, 1] or "auto", default="auto"
        Share of the last steps whose weights are averaged.  "auto": one half if ``lr`` is "auto"
        and ``signal_to_noise_`` is at least 500, else none.
    max_physical_batch_size : int or "auto", default="auto"
        Number of records in memory at once; each view of a record counts.  It never changes the
        distribution of the result.
    augment : callable, Views or None, default=None
        Random views of the records: :class:`skdpfair.augmentations.FlipAndShift`, or any
        ``augment(x)`` that returns records of the same shape, each made from its own record.  In
        every step, a new view replaces each record, before ``attack``;
        :class:`skdpfair.augmentations.Views` makes several.  Predictions, ``validation_data`` and
        recorders use the records themselves.
    max_sample_weight : float > 0 or None, default=None
        Public bound on the weights that ``fit`` takes as ``sample_weight``; None takes the largest
        of them as public, and ``privacy_.assumptions`` says so.
    warm_start : bool, default=False
        Whether a second ``fit`` continues from the weights, bounds and learning rate of the first.
        Each fit spends ``epsilon`` again, and ``privacy_`` composes them all.
    accountant : {"pld", "prv", "rdp"}, default="pld"
        Method that computes epsilon.
    noise_sampler : {"standard", "gaussian_sum"}, default="standard"
        "gaussian_sum" sums four float64 Gaussians per number against floating-point attacks.
    keep_reference : bool, default=False
        Also train the non-private reference model and keep it in ``reference_``: the same network
        and initial weights; other settings at "auto" are those of a model without privacy.
    callbacks : list of skorch callbacks or None, default=None
        Called at epoch ends, and at batch ends if they override that.  A
        :class:`skdpfair.analysis.GroupRecorder` keeps losses and gradient norms of each group in
        ``diagnostics_``.  These are NOT private: the fitted object must not be released, and
        ``privacy_`` says so.
    device : str or "auto", default="auto"
        "auto" is "cuda" if there is one, else "cpu".
    random_state : int, RandomState or None, default=None
        None takes a fresh key of the operating system.  A seed makes the fit reproducible
        on one device and version, and the noise predictable: for research only.
    verbose : int, default=0
        1 shows a progress bar on a terminal; elsewhere, at most one line every 30 s.
    classes : list or None, default=None
        The public set of classes, the positive one of two last.  None reads at most 30 from y, and
        statements say so.
    pos_label : label or None, default=None
        The positive one of two classes, to which selection rates, true-positive rates, thresholds
        and constraints refer.  None: the last of ``classes``, or else of the sorted labels.
    logit_scale : float > 0 or "auto", default="auto"
        Public factor of the logits in predictions; it does not change the predicted classes, and 1
        changes nothing.  Clipping makes the logits of two classes too large, and probabilities too
        close to 0 and 1.  "auto" is the factor of the method if ``lr`` and the number of steps are
        at their defaults, else 1.
    attack : callable or None, default=None
        Adversarial training: :class:`skdpfair.augmentations.PGD`, or any
        ``attack(module, x, y)`` that returns the inputs to train on, each made from its own record.
    class_weight : dict or None, default=None
        Fixed public weights of the classes, 1 by default.  They multiply clipped gradients, after
        division by the largest weight.
    validation_data : tuple (X, y) or None, default=None
        PUBLIC records; ``net_.history`` has scores after each epoch, of the model that the fit
        would return if it ended there, with averaged weights and scaled logits.
    distributed : "auto" or None, default=None
        "auto": the processes of `torch.distributed`, as torchrun starts them, train one model
        together.  Each calls ``fit`` with its own records, and all end with the same model.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The classes, sorted.
    pos_label_ : label or None
        The positive class of two; None with more.
    levels_ : ndarray of shape (n_groups,) or None
        The groups, tuples for intersections; None without groups.
    n_features_in_ : int
        Number of columns of X in ``fit``, group columns included.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of these columns, if they are all texts.
    privacy_ : PrivacyReport
        The privacy cost of the fit, and its assumptions.
    features_ : Scattering2D or None
        The public features of pictures that ``net_`` takes; None if it takes the records.
    net_ : PrivateNet
        The trained skorch net; after unpickling, a net that can only predict.
    method_ : Method
        The method with its numbers resolved.
    lr_ : float
        Learning rate of the optimizer.
    batch_size_ : int
        Expected number of records in a batch, or of persons, rounded.
    n_steps_ : int
        Number of steps on the data in the last fit, warm-up included.
    n_iter_ : int
        Number of epochs in the last fit, at least 1.
    signal_to_noise_ : float
        Number of records, or of persons, times mu, the privacy parameter of Gaussian DP; infinite
        without noise.
    logit_scale_ : float
        Factor of the logits in predictions.
    diagnostics_ : DataFrame with columns step, group, n_samples, loss, gradient_norm, ...
        The table of a recorder among ``callbacks``; never pickled.
    reference_ : DPFairClassifier
        The non-private reference model, if ``keep_reference``; never pickled.

    References
    ----------
    Esipova et al., "Disparate Impact in Differential Privacy from Gradient Misalignment", 2023.

    Examples
    --------
    >>> from skdpfair import DPFairClassifier
    >>> from skdpfair.datasets import make_two_groups
    >>> data = make_two_groups(2000, random_state=0)
    >>> clf = DPFairClassifier("dpsgd", epsilon=3.0)
    >>> clf = clf.fit(data.data, data.target, sensitive_features=data.sensitive_features)
    >>> clf.privacy_.epsilon <= 3.0
    True
    """

    classes: Sequence[Any] | None = None
    pos_label: Any = None
    logit_scale: float | str = "auto"
    attack: Attack | None = None
    class_weight: Mapping[Any, float] | None = None
    validation_data: tuple[Any, Any] | None = None
    distributed: str | None = None

    @property
    def pos_label_(self) -> Any:
        """The positive one of two classes, to which rates such as selection refer; else None."""
        return target.positive_class(self.classes_, self.classes, self.pos_label)

    def predict(self, X: Any) -> np.ndarray:
        """Return the most probable class of each row.

        A loaded classifier that :class:`skdpfair.model_selection.DPThresholdClassifier` saved
        predicts ``pos_label_`` from its threshold on.

        Parameters
        ----------
        X : DataFrame or array of shape (n_samples, n_features, ...)
            Rows like those of ``fit``; the group columns may be absent.

        Returns
        -------
        ndarray of shape (n_samples,)
            Class labels, as in ``classes_``.

        Raises
        ------
        NotFittedError
            If the classifier was not fitted.
        ValueError
            If X does not have the columns that ``fit`` saw.
        """
        if (cut := getattr(self, "_cut", None)) is not None:
            logits = self._logits(X)
            other, positive = target.positive_last(self.classes_, self.pos_label_)
            is_positive = logits[:, positive] - logits[:, other] >= cut
            codes = np.where(is_positive, positive, other)
        else:
            codes = self._outputs(X).argmax(axis=1)  # raises NotFittedError
        return np.asarray(self.classes_[codes])

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return class probabilities.

        Parameters
        ----------
        X : see `predict`
            The rows.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Probabilities in [0, 1], columns in the order of ``classes_``.
        """
        return np.asarray(softmax(self._logits(X), axis=1))

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Return the logarithms of class probabilities.

        Parameters
        ----------
        X : see `predict`
            The rows.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Columns in the order of ``classes_``.
        """
        return np.asarray(log_softmax(self._logits(X), axis=1))

    def decision_function(self, X: Any) -> np.ndarray:
        """Return logits, from which the probabilities are made.

        Parameters
        ----------
        X : see `predict`
            The rows.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_classes)
            For two classes, the logit of ``classes_[1]`` minus that of ``classes_[0]``.
        """
        logits = self._logits(X)
        return logits[:, 1] - logits[:, 0] if len(self.classes_) == 2 else logits

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the accuracy on labelled rows.

        Parameters
        ----------
        X : see `predict`
            The rows.
        y : array of shape (n_samples,)
            Their class labels.
        sample_weight : array of shape (n_samples,), optional
            Weight of each row; equal weights by default.

        Returns
        -------
        float
            Share of the rows, in [0, 1], whose predicted class is right.
        """
        check_indexes(X=X, y=y, sample_weight=sample_weight, warns_of="y")
        check_consistent_length(X, y, sample_weight)
        return float(accuracy(target.read_labels(y), self.predict(X), sample_weight=sample_weight))

    def _logits(self, X: Any) -> np.ndarray:
        return np.asarray(self._outputs(X) * self.logit_scale_)  # raises NotFittedError

    def _read_target(self, y: Any) -> tuple[np.ndarray, np.ndarray | None, np.ndarray]:
        y = target.read_labels(y)
        classes, codes = target.classes_of(y, self.classes)
        target.positive_class(classes, self.classes, self.pos_label)  # raises
        return y, classes, codes

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        # a method that fit would refuse
        with suppress(ValueError, TypeError):
            tags.classifier_tags.multi_class = not get_method(self.method).binary
        # noise, on as few records as scikit-learn's checks
        tags.classifier_tags.poor_score = self.epsilon is not None
        return tags


def classifier_of(estimator: Any) -> DPFairClassifier:
    """Return the classifier at the end of a pipeline."""
    while isinstance(estimator, Pipeline):
        estimator = estimator.steps[-1][1]
    if not isinstance(estimator, DPFairClassifier):
        raise TypeError(
            "estimator must be a DPFairClassifier or a Pipeline that ends in one, got "
            f"{validate.safe_repr(estimator)}. Make the DPFairClassifier the last step, and "
            "search over other models separately."
        )
    return estimator


def private_logits(model: Any, X: Any) -> np.ndarray:
    """Return logits (n_samples, n_classes) of PRIVATE records, which are counted with noise.

    The classifier at the end of a pipeline computes each from its own record alone. The steps
    before it have to transform each row by itself, see :func:`lint_pipeline`.
    """
    while isinstance(model, Pipeline):
        X = model[:-1].transform(X) if len(model.steps) > 1 else X
        model = model.steps[-1][1]
    logits: np.ndarray = model.net_.private_logits(table.read_for_prediction(model, X))
    logits *= model.logit_scale_
    return logits


def persons_of(model: Any, X: Any, n_samples: int, persons: Any) -> _persons.PersonCodes:
    """Return the person of each record.

    ``X`` is what ``model.fit`` will be given; ``persons`` are the persons, if ``persons`` of the
    classifier names no column.
    """
    classifier = classifier_of(model)
    if classifier is model:
        return _persons.encode(
            X, n_samples, persons, _persons.Persons.of(classifier.persons), classifier.group_col
        )
    if (column := _persons.Persons.of(classifier.persons).column) is not None:
        raise ValueError(
            f"persons={validate.safe_repr(column)} names a column of the output of the pipeline's "
            "steps, which is unknown before they are fitted. Leave out column=, and pass the "
            "persons of all records as fit(..., persons=...)."
        )
    return _persons.encode(None, n_samples, persons, _persons.Persons.of(classifier.persons))


def routed(model: Any, sensitive_features: Any, persons: Any = None) -> dict[str, Any]:
    """Return the keywords of fit that pass groups and persons to the classifier in a pipeline."""
    prefix, step = "", model
    while isinstance(step, Pipeline) and not get_config()["enable_metadata_routing"]:
        last, step = step.steps[-1]
        prefix += f"{last}__"
    columns = {"sensitive_features": sensitive_features, "persons": persons}
    return {prefix + name: value for name, value in columns.items() if value is not None}
