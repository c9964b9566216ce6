"""Thresholds and parity between groups, paid for together with the fit."""

import warnings
from copy import copy
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

import numpy as np
from scipy.special import expit, logit
from sklearn.base import ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.metrics import accuracy_score
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_consistent_length, check_is_fitted, validate_data

from skdpfair._utils import validate
from skdpfair._utils.keystream import Keystream
from skdpfair._utils.validate import Parametrised, is_auto, number, one_of, safe_repr
from skdpfair.estimators.classifier import classifier_of, persons_of, private_logits, routed
from skdpfair.exceptions import PrivacyAccountingError
from skdpfair.inputs import groups as _groups
from skdpfair.inputs import persons as _persons
from skdpfair.inputs import target as _target
from skdpfair.inputs.columns import check_indexes
from skdpfair.model_selection import _threshold_choice as choosing
from skdpfair.model_selection._score_counts import EDGES, N_BINS, SENSITIVITY, score_counts
from skdpfair.model_selection._threshold_choice import CONSTRAINTS, OBJECTIVES, best_cut
from skdpfair.preprocessing._learners import refuse_resamplers
from skdpfair.privacy.one_time_noise import generator_of
from skdpfair.training import sklearn_callbacks as _tasks
from skdpfair.training.plan import SCORE_COUNTS
from skdpfair.training.spec import SCORE_BUDGET_FRACTIONS

_LARGE_LOSS = 0.05  # of accuracy, from which it is reported
# groups that are counted under one threshold, which has the noise of all their counts: with 8, it
# is as good on Adult as without groups, by paired fits to 3,000 and to all records
_MOST_REPORTED = 8
_BUDGET_SHARE, _BUDGET_SHARE_BY_GROUP = 0.05, 0.2
ALL = "all"  # name of the records where thresholds do not depend on the group


@dataclass(repr=False, eq=False)
class DPThresholdClassifier(_tasks.LedgerAware, ClassifierMixin, MetaEstimatorMixin, Parametrised):
    """Classifier whose decision threshold is chosen within the privacy budget, or costs least.

    The estimator is fitted, and the records are counted once by class, score and group, if it has
    groups, with Gaussian noise. Thresholds follow from these counts. The fit and the counts are
    calibrated together: both cost the ``epsilon`` of the estimator.

    Parameters
    ----------
    estimator : DPFairClassifier or Pipeline that ends in one
        The classifier to fit, for two classes; rates refer to the positive one, ``pos_label_``.
        With ``costs``, it may have more.
    objective : str or array of shape (2, 2), default="balanced_accuracy"
        Objective of the threshold: "balanced_accuracy"; "accuracy"; "true_positive_rate", the
        fewest false positives with a true-positive rate of at least ``target``; "selection_rate", a
        share ``target`` of predicted positives; or the costs by true and predicted class, the
        positive one second.
    target : float in [0, 1] or None, default=None
        See ``objective``. For "selection_rate", None is the noisy share of positive records.
    constraint : str or None, default=None
        "demographic_parity" (equal selection rates of all groups), "equal_opportunity" (equal
        true-positive rates) or "equalized_odds" (equal true- and false-positive rates). Rates of
        small groups are as for ``by_group``.
    tolerance : float in [0, 1], default=0.0
        Largest difference between groups in the noisy rates that ``constraint`` compares.
    by_group : bool, default=False
        Whether each group has a threshold of its own, which serves the objective within the group.
        It follows from the rates of the group as far as noise and chance allow, else from those of
        all groups. With a ``constraint``, thresholds always depend on the group.
    budget_share : float in (0, 1) or "auto", default="auto"
        Share of the budget for the counts, in terms of mu squared of Gaussian DP. "auto" is .05, or
        .2 if thresholds depend on the group, because groups are smaller.
    costs : array of shape (n_classes, n_classes) or None, default=None
        Public costs by true class (rows) and predicted class (columns), in the order of
        ``classes_``. A record gets the class of the least cost that the predicted probabilities let
        expect. This needs no counts, so the fit gets the whole budget. It replaces ``objective``,
        and there is no ``constraint`` and no ``by_group``.
    random_state : int or None, default=None
        None draws the noise of the counts from fresh entropy of the operating system. A seed
        makes it predictable: for research only.

    Attributes
    ----------
    estimator_ : DPFairClassifier or Pipeline
        The fitted classifier.
    thresholds_ : dict
        For each group, or for "all", a list of pairs: a threshold of the probability that
        ``estimator_`` predicts for ``pos_label_``, and the probability of using it. It is .5 if the
        noisy counts of a class are too small to choose another. It is empty with ``costs``.
    privacy_ : PrivacyReport
        The cost of fit and counts together; ``releases`` has an entry "score counts" for counts.
    classes_ : ndarray of shape (n_classes,)
    n_features_in_ : int
        Number of columns of X; ``feature_names_in_`` holds their names if X has names.

    Notes
    -----
    The score of a record depends on the record and on released weights only. Under zero-out
    adjacency a record therefore changes one cell of the histogram by one, and a person with several
    records changes some cells by one together. The release, of L2 sensitivity 1.62, gives
    cumulative counts over 128 bins of scores.

    Thresholds under a ``constraint`` are mixtures that a linear programme finds on the noisy
    counts [1]_. Where a group has two thresholds, predictions are drawn at random.

    To cross-validate thresholds by group, name their column by ``group_col`` of the classifier, or
    enable metadata routing and pass ``params={"sensitive_features": ...}`` with ``scoring=None`` or
    :class:`skdpfair.model_selection.GroupScorer`.

    References
    ----------
    .. [1] M. Hardt, E. Price, N. Srebro, "Equality of Opportunity in Supervised Learning",
       NeurIPS 2016.

    Examples
    --------
    >>> from skdpfair import DPFairClassifier
    >>> from skdpfair.datasets import make_two_groups
    >>> from skdpfair.model_selection import DPThresholdClassifier
    >>> data = make_two_groups(5000, random_state=0)
    >>> model = DPThresholdClassifier(DPFairClassifier(epsilon=1.0), objective="accuracy")
    >>> model = model.fit(data.data, data.target)
    >>> model.privacy_.epsilon <= 1.0, list(model.thresholds_)
    (True, ['all'])
    """

    __metadata_request__fit = {"sensitive_features": True, "persons": True}
    __metadata_request__predict = {"sensitive_features": True}
    __metadata_request__score = {"sensitive_features": True}

    estimator: Any
    objective: Any = "balanced_accuracy"
    _: KW_ONLY
    target: float | None = None
    constraint: str | None = None
    tolerance: float = 0.0
    by_group: bool = False
    budget_share: float | str = "auto"
    costs: Any = None
    random_state: Any = None

    @property
    def pos_label_(self):
        """The positive class, to which rates and thresholds refer."""
        return classifier_of(self.estimator_).pos_label_

    def planned_estimator(self):
        """Return the unfitted estimator that `fit` trains, which leaves budget for the counts."""
        self._check()
        estimator, share = clone(self.estimator), self.budget_share
        if self.costs is not None:
            return estimator
        if is_auto(share):
            share = _BUDGET_SHARE_BY_GROUP if self._is_by_group else _BUDGET_SHARE
        SCORE_BUDGET_FRACTIONS[classifier_of(estimator)] = float(share)
        return estimator

    @_tasks.with_callbacks
    def fit(self, X, y, *, sensitive_features=None, persons=None):
        """Fit the estimator, and choose thresholds from one noisy release.

        Parameters
        ----------
        X : DataFrame or array of shape (n_samples, ...)
            The records.
        y : array of shape (n_samples,)
            Class labels, of two classes; with ``costs``, of as many as it has rows.
        sensitive_features : array, Series or DataFrame of n_samples rows, optional
            The groups, if they are not columns of X that ``group_col`` of the classifier names.
        persons : array of shape (n_samples,), optional
            The person of each record, if ``persons`` of the classifier names no column.
            The counts of a person are the mean of those of her records.

        Returns
        -------
        DPThresholdClassifier
            The fitted classifier.

        Raises
        ------
        ValueError, TypeError
            If a parameter or the data cannot be used; nothing has been fitted then.
        BudgetExceededError
            If an open `PrivacyLedger` has no room for fit and counts together.

        Warns
        -----
        UserWarning
            By the noisy counts: if thresholds lower the accuracy of a group by 5 points or more
            (under one threshold for all, of at most 8 groups); if a group is too small to tell its
            rates, which are then those of all; or if a class is too small to choose thresholds,
            which then stay at .5.
        """
        objective = self._check()
        refuse_resamplers(self.estimator)
        estimator = self.planned_estimator()
        classifier = classifier_of(estimator)
        validate_data(self, X, y, skip_check_array=True)  # number and names of the columns
        extra = {"sensitive_features": sensitive_features, "persons": persons}
        check_indexes(X=X, y=y, **extra, warns_of="y")
        if hasattr(X, "index") and hasattr(y, "set_axis"):
            y = y.set_axis(X.index)  # steps of a pipeline may drop that of X
        labels = _target.read_labels(y)
        check_consistent_length(X, labels, sensitive_features)
        classes, codes = _target.public_classes(labels, classifier.classes, classifier.pos_label)
        if self.costs is None and len(classes) != 2:
            raise ValueError(
                f"Only binary classification is supported, but y has {len(classes)} classes. Use "
                "the estimator without thresholds, or costs."
            )
        if self.costs is not None and len(classes) != len(objective):
            raise ValueError(
                f"costs must have a row and a column for each of the {len(classes)} classes, got "
                f"the shape {objective.shape}."
            )
        groups = self._counted_groups(classifier, X, labels, sensitive_features)
        share = _persons.share_of(persons_of(estimator, X, len(labels), persons).code)
        sklearn_task = _tasks.begin(self, X, y, 0)
        estimator.fit(X, y, **routed(estimator, sensitive_features, persons))
        report, thresholds = classifier.privacy_, {}
        if self.costs is None:
            seeded = report.seeded or self.random_state is not None
            report = replace(report, what="fitted weights and thresholds", seeded=seeded)
            noise, logits = _paid_noise(report), private_logits(estimator, X)
            other, positive = _target.positive_last(classifier.classes_, classifier.pos_label_)
            scores, generator = logits[:, positive] - logits[:, other], Keystream.fresh()
            if noise:
                settings = codes.tobytes(), groups.code.tobytes(), noise
                generator = generator_of(self.random_state, scores, settings, stacklevel=3)
            records = scores, codes, groups.code, groups.n_groups
            counts = score_counts(*records, noise, generator, classifier.noise_sampler, share)
            thresholds, clear = self._thresholds(objective, counts, groups.levels, noise, classes)
            choices = ((f"threshold of {name}", clear, 1.0) for name in thresholds)
            report = replace(report, choices=(*report.choices, *choices))
        classifier.privacy_ = report
        fitted = {"estimator_": estimator, "classes_": classifier.classes_}
        fitted |= {"thresholds_": thresholds, "privacy_": report}
        fitted["_costs"] = None if self.costs is None else objective
        self.__dict__.update(fitted)  # at once: a failed fit leaves the fit before as it was
        if sklearn_task.end is not None:
            sklearn_task.end()
        return self

    def save_release(self, path, *, schema=None):
        """Write the classifier with its threshold to one file, for `skdpfair.load_release`.

        The file is as `skdpfair.DPFairClassifier.save_release` writes it, and ``schema`` is as
        there; the classifier that is loaded predicts by the threshold, and its report covers the
        counts. ValueError is raised if thresholds depend on the group.
        """
        check_is_fitted(self, "thresholds_")
        if list(self.thresholds_) != [ALL]:
            raise ValueError(
                "A file holds one threshold. Fit without by_group, constraint and costs, or pickle "
                "the classifier."
            )
        ((threshold, _),) = self.thresholds_[ALL]
        classifier = copy(classifier_of(self.estimator_))
        classifier._cut = float(_cuts_of([threshold])[0])
        classifier.save_release(path, schema=schema)

    def predict(self, X, *, sensitive_features=None, random_state=None):
        """Return the predicted class (n_samples,) of each row of X.

        ``sensitive_features`` are the groups, if thresholds depend on them and X lacks the columns;
        ``random_state`` seeds the draw of a threshold for each row, if a group has more than one.
        """
        check_is_fitted(self, "thresholds_")
        check_indexes(X=X, sensitive_features=sensitive_features)
        if self._costs is not None:
            return self.classes_[(self.predict_proba(X) @ self._costs).argmin(axis=1)]
        low, high = EDGES[[0, -1]]
        other, positive = _target.positive_last(self.classes_, self.pos_label_)
        scores = self.decision_function(X) * (positive - other)
        scores = np.clip(scores, low, np.nextafter(high, low))
        groups = np.zeros(len(scores), dtype=np.int64)
        if (levels := list(self.thresholds_)) != [ALL]:
            classifier = classifier_of(self.estimator_)
            groups = self._groups_of(classifier, X, scores, sensitive_features, levels).code
        draw = check_random_state(random_state)
        thresholds = np.empty(len(scores))
        for code, pairs in enumerate(self.thresholds_.values()):
            rows = np.flatnonzero(groups == code)
            values, weights = zip(*pairs, strict=True)
            thresholds[rows] = draw.choice(_cuts_of(values), size=len(rows), p=weights)
        return self.classes_[np.where(scores >= thresholds, positive, other)]

    def predict_proba(self, X):
        """Return the class probabilities (n_samples, n_classes) of ``estimator_``."""
        check_is_fitted(self, "thresholds_")
        return self.estimator_.predict_proba(X)

    def predict_log_proba(self, X):
        """Return the logarithms (n_samples, n_classes) of the class probabilities."""
        check_is_fitted(self, "thresholds_")
        return self.estimator_.predict_log_proba(X)

    def decision_function(self, X):
        """Return the logits of the probabilities, for two classes (n_samples,) of the second."""
        check_is_fitted(self, "thresholds_")
        return self.estimator_.decision_function(X)

    def score(self, X, y, sample_weight=None, *, sensitive_features=None):
        """Return the accuracy on labelled rows, with the groups as in ``predict``."""
        extra = {"sample_weight": sample_weight, "sensitive_features": sensitive_features}
        check_indexes(X=X, y=y, **extra, warns_of="y")
        predicted = self.predict(X, sensitive_features=sensitive_features)
        return float(accuracy_score(_target.read_labels(y), predicted, sample_weight=sample_weight))

    def _check(self):
        """Check the parameters, and return the objective, a name or a matrix of costs."""
        classifier_of(self.estimator)  # raises on others
        objective = self.objective
        if self.costs is not None:
            objective = _matrix(
                "costs", self.costs, "finite numbers of shape (n_classes, n_classes)"
            )
            for name in ("objective", "target", "constraint", "by_group"):
                value, default = getattr(self, name), getattr(type(self), name)
                if not isinstance(value, type(default)) or value != default:
                    raise ValueError(
                        f"{name} must be left out with costs, got {safe_repr(value)}: costs alone "
                        "decide."
                    )
        elif isinstance(objective, str):
            one_of("objective", objective, OBJECTIVES)
        else:
            objective = _matrix("objective", objective, "a name, or costs of shape (2, 2)", 2)
        if self.target is not None:
            number("target", self.target, low=0, high=1)
        elif isinstance(objective, str) and objective == "true_positive_rate":
            raise ValueError(
                "target must be the smallest true-positive rate for objective="
                "'true_positive_rate', got None. Set target=0.8, for instance."
            )
        if self.constraint is not None:
            one_of("constraint", self.constraint, CONSTRAINTS)
        number("tolerance", self.tolerance, low=0, high=1)
        validate.flag("by_group", self.by_group)
        if self.random_state is not None:
            validate.integer("random_state", self.random_state, low=0)
        if not is_auto(self.budget_share):
            number("budget_share", self.budget_share, low=0, high=1, low_open=True, high_open=True)
        return objective

    @property
    def _is_by_group(self):
        return self.by_group or self.constraint is not None

    def _counted_groups(self, classifier, X, y, sensitive_features):
        """Return the groups of labelled rows; one, where thresholds need none and no few are given.

        ``group_col`` gives them if it names columns of X itself, before the steps of a pipeline.
        """
        names = _groups.as_columns(classifier.group_col)
        of_rows = {name for name in names if isinstance(name, str)} - {_groups.TARGET}
        is_given = bool(names) and of_rows == set(names) <= set(getattr(X, "columns", ()))
        if self._is_by_group or sensitive_features is not None or is_given:
            groups = self._groups_of(classifier, X, y, sensitive_features)
            if self._is_by_group or groups.n_groups <= _MOST_REPORTED:
                return groups
        return _groups.GroupCodes(np.zeros(len(y), dtype=np.int64), np.array([ALL]), True)

    def _groups_of(self, classifier, X, y, sensitive_features, levels=None):
        column = classifier.group_col if sensitive_features is None else None
        in_pipeline = classifier is not self.estimator and hasattr(self.estimator, "steps")
        names = _groups.as_columns(column)
        if sensitive_features is None and not names:
            raise ValueError(
                "Thresholds by group need groups. Give fit, predict and score sensitive_features=, "
                "or set group_col of the classifier. With "
                "sklearn.set_config(enable_metadata_routing=True), scoring=None and GroupScorer "
                "pass sensitive_features on to predict; scorers of scikit-learn do not."
            )
        is_by_place = not all(isinstance(name, str) for name in names)
        if _groups.TARGET in names or (in_pipeline and is_by_place):
            raise ValueError(
                f"group_col={safe_repr(column)} is no column of rows to predict: these have no "
                "labels, and other steps may change the position of a column. Give fit and predict "
                "sensitive_features=."
            )
        levels = _groups.Groups.of(classifier.group_col).levels if levels is None else levels
        return _groups.encode(
            X, y, group_col=names or None, levels=levels, sensitive_features=sensitive_features
        )

    def _thresholds(self, objective, counts, levels, noise, classes):
        cuts, deviation = expit(EDGES), noise * SENSITIVITY**2
        groups, edges = choosing.pooled(counts, deviation), np.eye(len(EDGES))
        aim = objective if isinstance(objective, str) else "costs"
        compared = self.constraint or aim
        names = levels.tolist() if self._is_by_group else [ALL]
        clear = min(choosing.clearness(counts, m, deviation, self.target) for m in {aim, compared})
        if clear < 1:
            spread, (n_0, n_1) = deviation * len(counts) ** 0.5, counts[:, :, 0].sum(axis=0)
            warnings.warn(
                f"The threshold stays at 0.5: by noisy counts (standard deviation {spread:.0f}), "
                f"there are about {n_0:.0f} records of class {classes[0]} and {n_1:.0f} of class "
                f"{classes[1]}, too few of one to choose another threshold. More records, "
                "a larger epsilon or budget_share, or a smaller target would help.",
                UserWarning,
                stacklevel=4,
            )
            return {name: [(0.5, 1.0)] for name in names}, clear
        few = levels[choosing.few_to_tell(counts, compared, deviation)]
        if self._is_by_group and len(few):
            warnings.warn(
                f"By noisy counts, the group(s) {', '.join(map(str, few))} have too few records to "
                f"tell all of their rates: {self.constraint or 'by_group'} uses the rates of all "
                "records for them.",
                UserWarning,
                stacklevel=4,
            )
        if self.constraint is not None:
            parity = self.constraint, self.tolerance
            mixed = choosing.best_mixtures(groups, objective, self.target, *parity)
            remedy = " A larger tolerance costs less."
        else:
            chosen = groups if self.by_group else counts.sum(axis=0, keepdims=True)
            mixed = edges[[best_cut(each, objective, self.target) for each in chosen]]
            remedy = " objective='accuracy' costs less." * (aim != "accuracy")
        mixtures = np.broadcast_to(mixed, (len(groups), len(cuts)))
        _warn_of_losses(levels.tolist(), counts, deviation, mixtures, remedy)
        chosen = {
            name: [(float(cuts[i]), float(row[i])) for i in np.flatnonzero(row)]
            for name, row in zip(names, mixed, strict=True)
        }
        return chosen, clear

    def __getstate__(self):
        """Drop seeds, and records that the classifier was given."""
        state = super().__getstate__().copy()
        if "estimator_" in state:
            unfitted = clone(self.estimator)
            hidden = {"random_state": None, "validation_data": None, "callbacks": None}
            classifier_of(unfitted).set_params(**hidden)
            state |= {"random_state": None, "estimator": unfitted}
            state.pop("_skl_callbacks", None)
        return state

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = self.costs is not None
        tags.input_tags.sparse = True
        tags.non_deterministic = True
        return tags


def _matrix(name, costs, what, n_classes=None):
    """Return costs as a square matrix of finite numbers, of so many classes if that is given."""
    with validate.error_context(name, f"must be {what}"):
        matrix = np.asarray(costs, dtype=np.float64)
        shape = (n_classes or len(matrix),) * 2
        if matrix.shape != shape or len(matrix) < 2 or not np.isfinite(matrix).all():
            raise ValueError(f"got {safe_repr(costs)}")
    return matrix


def _warn_of_losses(names, counts, deviation, mixed, remedy):
    """Warn of the groups whose accuracy, by noisy counts, thresholds lower by much.

    The counts are those of each group alone: rates of all would hide what a small one loses.
    ``mixed`` (n_groups, n_edges) is the probability with which each edge is the threshold.
    """
    losses = []
    for name, (negatives, positives), row in zip(names, counts, mixed, strict=True):
        size = max(negatives[0] + positives[0], 1.0)
        right = np.clip((negatives[0] - negatives + positives) / size, 0, 1)
        before, after = right[N_BINS // 2], right @ row
        # of two standard deviations of the noise, at least
        if before - after >= max(_LARGE_LOSS, 2 * deviation / size):
            losses.append(
                f"{name}: {100 * before:.0f} % to {100 * after:.0f} % of about {size:.0f} records "
                f"(noise ± {200 * deviation / size:.0f})"
            )
    if losses:
        warnings.warn(
            "The chosen thresholds lower the accuracy, relative to a threshold of 0.5 and by noisy "
            f"counts, for {'; '.join(losses)}.{remedy}",
            UserWarning,
            stacklevel=5,
        )


def _cuts_of(thresholds):
    """Return thresholds of the probability as logits, which tell apart what rounds to equal ones.

    Scores beyond the edges were counted as at them: there, all or none are positive.
    """
    edges = dict(zip(expit(EDGES), EDGES, strict=True))
    edges |= {expit(EDGES[0]): -np.inf, expit(EDGES[-1]): np.inf}
    return [edges.get(threshold, logit(threshold)) for threshold in thresholds]


def _paid_noise(report):
    """Return the noise multiplier that the report holds for the counts; 0 without privacy."""
    if not report.is_private:
        return 0.0
    paid = [e.noise_multipliers for e in report.releases if e.what == SCORE_COUNTS]
    if not paid:
        raise PrivacyAccountingError("The fit has not paid for the counts of scores.")
    return paid[-1][0]
