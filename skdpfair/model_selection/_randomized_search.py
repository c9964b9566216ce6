"""Private random search, whose total cost is known and close to the cost of one fit."""

import math
import warnings
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, replace
from datetime import UTC, datetime
from itertools import product
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin, MetaEstimatorMixin
from sklearn.dummy import DummyClassifier
from sklearn.model_selection import ParameterGrid, ParameterSampler
from sklearn.pipeline import Pipeline
from sklearn.utils import _safe_indexing, check_consistent_length
from sklearn.utils.validation import _num_samples, check_is_fitted, validate_data

from skdpfair._networks import Curves, network_of
from skdpfair._utils.validate import Parametrised, integer, number, one_of, safe_repr
from skdpfair.budget.charging import charged
from skdpfair.budget.spending import SCORES
from skdpfair.estimators.classifier import DPFairClassifier, classifier_of, persons_of, routed
from skdpfair.exceptions import InfeasibleBudgetError, InsecureSeedWarning
from skdpfair.inputs import persons as _persons
from skdpfair.inputs import target as _target
from skdpfair.inputs.columns import by_index, check_indexes
from skdpfair.inputs.groups import Groups
from skdpfair.inputs.persons import Persons
from skdpfair.inputs.provenance import rows_of
from skdpfair.model_selection import _forecast, _trials
from skdpfair.model_selection._forecast import Forecast, PlannedFit, configured
from skdpfair.preprocessing._learners import refuse_resamplers
from skdpfair.privacy import privacy_report, renyi
from skdpfair.privacy.gdp import delta_for
from skdpfair.privacy.privacy_report import (
    ASSUMPTIONS,
    PROTECTS,
    PrivacyReport,
    in_words_of,
    percent,
)
from skdpfair.privacy.renyi import curve_epsilon, rdp_curve
from skdpfair.privacy.tradeoff import trade_off_from_curve
from skdpfair.training import sklearn_callbacks as _tasks
from skdpfair.training.defaults import check_network

_ONLY = {
    "keep_reference": False,
    "warm_start": False,
    "callbacks": None,
    "distributed": None,
    "verbose": 0,
}
_OWN = ("n", "sets", "classes", "groups", "counts")  # facts of which a search has its own
_LEAST_SHARE = 64  # a trial may have no less than this part of the budget of a search
_TIGHT = 1.002  # ratio of bounds of the epsilon of a trial
_MIDDLE = 60  # position of an order near 7, by which curves are ranked for display
# which of them "auto" takes, names of columns say, which only the fit sees
_COLUMNS = (0, 1), (1, 1)
_COUNTED = product(((), (0,)), ((), _COLUMNS))
_AUTO_NETWORKS = "auto", "logistic", *(Curves(a, columns=c) for a, c in _COUNTED if a or c)


@dataclass(frozen=True)
class _Selection:
    """The configurations that a search draws from, and what its trials and all of it cost."""

    pool: list
    classifiers: list  # one for each
    trial: PlannedFit  # the costliest
    curve: np.ndarray  # the largest Renyi curve of any trial
    noise: float  # of the number of correct predictions, the least that adds nothing to the curve
    whole: np.ndarray  # the Renyi curve of the search


@dataclass(repr=False, eq=False)
class DPRandomizedSearch(_tasks.LedgerAware, ClassifierMixin, MetaEstimatorMixin, Parametrised):
    """Random search that releases only the best of a random number of private trials.

    The search draws a secret number K of configurations, trains and scores each of them, and keeps
    the model with the best score, without a refit.  It keeps neither K nor any score.

    Parameters
    ----------
    estimator : DPFairClassifier or Pipeline that ends in one
        The model to train; its epsilon is the cost of one trial, unless ``epsilon`` is set.
    param_distributions : dict or list of dict
        Lists of values, or distributions with ``rvs``, as in RandomizedSearchCV.
    mean_trials : float >= 1, default=10.0
        Mean of K.
    trials : {"poisson", "geometric", "logarithmic"}, default="poisson"
        Distribution of K: a Poisson number stays near its mean; the others are at least 1 and cost
        less, but often are small.
    holdout : float in (0, 1), default=0.2
        Share of the records, or of the persons, that are held out to score all trials.
    n_candidates : int, default=100
        Number of configurations to draw if ``param_distributions`` has distributions; the trials
        choose among these.  The draw uses no records and is the same in every unseeded search.
    delta : float in (0, 1/n) or "auto", default="auto"
        Delta of the whole search.
    epsilon : float > 0 or None, default=None
        Privacy budget of the whole search.  It replaces the epsilon of the estimator: each trial
        gets the largest epsilon with which the search costs no more, to within 0.2 %.
    random_state : int or None, default=None
        None takes a fresh key of the operating system, and overrides the estimator's
        seed.  A seed makes K and the noise predictable: for research only.

    Attributes
    ----------
    best_estimator_ : estimator
        The model with the best score.
    best_params_ : dict
        Its configuration.
    privacy_ : PrivacyReport
        The report of the whole search, which is also the ``privacy_`` of the best model.
    classes_ : ndarray of shape (n_classes,)
    n_features_in_ : int
        Number of columns of X; ``feature_names_in_`` holds their names if X has names.

    Notes
    -----
    The cost follows Papernot and Steinke (2022) for a trial with the pointwise largest Renyi curve
    of all configurations.  A record is either trained on or held out, and the Renyi curve of the
    noisy score is no larger than that of a trial, so the score costs nothing.  With persons, all
    records of a person are on one side, and she counts by the share of her records that are
    predicted correctly.  The Poisson distribution may draw K = 0, with probability
    ``exp(-mean_trials)``; the search then returns a model that depends on no record and predicts
    all classes with equal probability, as the theorem requires.

    The run time of the search, what steps print or log, and counters of the process depend on K: do
    not publish them.  Trials give no warnings, and while they run, other threads cannot fit private
    models.  An open ledger is charged once.

    Other steps of a pipeline are fitted on private records without accounting: use public bounds
    and categories.  Steps that fit a model of this package are refused, even in another thread or
    process.  Steps must treat each row independently, also in prediction: the score relies on it.

    References
    ----------
    Papernot and Steinke, "Hyperparameter Tuning with Renyi Differential Privacy", 2022.

    Examples
    --------
    >>> from skdpfair import DPFairClassifier
    >>> clf = DPFairClassifier("dpsgd")
    >>> search = DPRandomizedSearch(clf, {"lr": [0.1, 1.0]}, trials="geometric")
    >>> search.forecast(20_000)
    Forecast: 1 fit, protecting one record
      private fits   epsilon=1.08... at delta=1e-06 (rdp)
      as a whole     epsilon=2.14...
        - the best of 10 trials on average is released
        - a guess whether a record was used is right in at most 81.9 % of equally likely cases...
    >>> search.set_params(epsilon=1.0).forecast(20_000).epsilon_total
    0.99...
    """

    __metadata_request__fit = {"sensitive_features": True, "persons": True}

    score = by_index(ClassifierMixin.score)

    estimator: Any
    param_distributions: Any
    _: KW_ONLY
    mean_trials: float = 10.0
    trials: str = "poisson"
    holdout: float = 0.2
    n_candidates: int = 100
    delta: float | str = "auto"
    epsilon: float | None = None
    random_state: Any = None

    def forecast(self, n_samples, *, n_groups=1, delta=None) -> Forecast:
        """Return the Forecast of the search on so many records, or persons, without a fit.

        ``n_groups`` is the number of groups, and ``delta`` that of the search, unless it is given.
        """
        self._check()
        delta = delta_for(self.delta, n_samples) if delta is None else delta
        selection = self._selection(n_samples, n_groups, delta)
        every = selection.classifiers
        has_persons = any(Persons.of(c.persons).max_records for c in every) or None
        protects = _forecast.protection_of(every, has_persons)
        guess = trade_off_from_curve(tuple(selection.whole), delta).total_variation
        why = (
            f"the best of {self.mean_trials:g} trials on average is released",
            f"a guess whether a {protects} was used is right in at most "
            f"{percent((1 + guess) / 2)} % of equally likely cases, more than for a "
            "single fit of that epsilon",
        )
        spent = curve_epsilon(selection.curve, delta), curve_epsilon(selection.whole, delta)
        about = {"protects": protects, "fits": (selection.trial,), "curve": selection.whole}
        return Forecast(*spent, delta, "rdp", why, 1, n_private=1, **about)

    @_tasks.with_callbacks
    def fit(self, X, y, *, sensitive_features=None, persons=None):
        """Run the search, and keep the best model.

        Parameters
        ----------
        X : DataFrame or array of shape (n_samples, ...)
            The records.
        y : array of shape (n_samples,)
            Class labels.
        sensitive_features : array, Series or DataFrame of n_samples rows, optional
            Passed to the classifier.
        persons : array of shape (n_samples,), optional
            The person of each record, if ``persons`` of the classifier names no column.

        Returns
        -------
        self

        Raises
        ------
        BudgetExceededError
            If a privacy ledger is open and the search would exceed its budget.
        ValueError, TypeError
            If a parameter cannot be used.
        KeyboardInterrupt
            On Ctrl-C; nothing is kept, and the whole search stays charged.
        """
        self._check()
        extra = {"sensitive_features": sensitive_features, "persons": persons}
        check_indexes(X=X, y=y, **extra, warns_of="y")
        n_samples = _num_samples(X)
        person, _, column = persons_of(self.estimator, X, n_samples, persons)
        n_examples = n_samples if person is None else 1 + int(person.max())
        delta = delta_for(self.delta, n_examples)
        selection = self._selection(n_examples, 1, delta)
        own = classifier_of(self.estimator)
        max_records = _max_records([own, *selection.classifiers], person)
        if self.random_state is not None:
            warnings.warn(
                f"random_state={self.random_state!r} makes the noise and the number of trials "
                "reproducible: whoever knows the seed can reconstruct them. Leave it out for a "
                "model that you release.",
                InsecureSeedWarning,
                stacklevel=3,
            )
        validate_data(self, X, skip_check_array=True)  # number and names of the columns
        named, y = y, _target.read_labels(y)
        check_consistent_length(X, y, sensitive_features)
        public, read = _trials.public_sets(self.estimator, X, y, sensitive_features, named)
        if isinstance(self.estimator, DPFairClassifier):
            for classifier in selection.classifiers:
                network = network_of(classifier.module)
                check_network(network, np.shape(X)[1:], len(public["classes"]))
        sklearn_task = _tasks.begin(self, X, y, 0)
        day = datetime.now(UTC).date().isoformat()  # that of the end would tell of the trials
        with charged(
            (),
            [],
            curve=selection.whole,
            reasons=[SCORES] * sklearn_task.is_in_search,
            what="private selection",
            protects="record" if person is None else "person",
            persons=column,
        ) as charge:
            records = X, y, sensitive_features, persons
            best, error = self._best(records, person, selection, public)
        if error is not None:  # the frame that held the generator is gone
            raise error
        report = report_of(self, selection, delta, max_records, n_examples)
        origin = {"_day": day, "_ledger_fits": (charge,)}
        self._keep(best, public["classes"], replace(report, read_from_rows=read), origin)
        if sklearn_task.end is not None:
            sklearn_task.end()
        return self

    def predict(self, X):
        """Return the class (n_samples,) that the best model predicts for each row of X."""
        return self._fitted.predict(X)

    def predict_proba(self, X):
        """Return the probabilities (n_samples, n_classes) of ``classes_`` by the best model."""
        return self._fitted.predict_proba(X)

    def predict_log_proba(self, X):
        """Return the logarithms (n_samples, n_classes) of ``predict_proba``."""
        return self._fitted.predict_log_proba(X)

    @property
    def _fitted(self):
        check_is_fitted(self, "best_estimator_")
        return self.best_estimator_

    def _check(self):
        classifier_of(self.estimator)  # raises on others
        spaces = self.param_distributions
        listed = spaces if isinstance(spaces, list) else [spaces]
        if not listed or not all(isinstance(s, Mapping) and len(s) for s in listed):
            raise TypeError(
                "param_distributions must be a dict or a list of dicts, got "
                f"{safe_repr(self.param_distributions)}."
            )
        one_of("trials", self.trials, _trials.SHAPES)
        renyi.check_law(self.mean_trials, _trials.SHAPES[self.trials])
        integer("n_candidates", self.n_candidates)
        number("holdout", self.holdout, low=0, high=1, low_open=True, high_open=True)
        if self.epsilon is not None:
            number("epsilon", self.epsilon, low=0, low_open=True, high_open=True)
        if self.random_state is not None:
            integer("random_state", self.random_state, low=0)

    def _selection(self, n_samples, n_groups, delta) -> _Selection:
        """Return what the search chooses among, at its budget if it has one."""
        pool = pool_of(self)
        if self.epsilon is None:
            return selection_of(self, pool, n_samples, n_groups)
        name, last = "epsilon", self.estimator
        while isinstance(last, Pipeline):
            step, last = last.steps[-1]
            name = f"{name.removesuffix('epsilon')}{step}__epsilon"
        for params in pool:
            candidate = classifier_of(configured(self.estimator, params))
            if name in params or candidate.noise_multiplier is not None:
                raise ValueError(
                    f"epsilon={self.epsilon!r} is the budget of the whole search and sets the "
                    "noise of each trial. Remove epsilon and noise_multiplier from "
                    "param_distributions and noise_multiplier from the estimator, or set "
                    "epsilon=None."
                )

        def at(epsilon):
            trials = [params | {name: epsilon} for params in pool]
            return selection_of(self, trials, n_samples, n_groups)

        def cost(epsilon):
            try:
                return curve_epsilon(at(epsilon).whole, delta)
            except InfeasibleBudgetError:  # it is too small for a trial
                return 0.0

        low, high = self.epsilon / _LEAST_SHARE, self.epsilon
        if cost(low) > self.epsilon:
            raise ValueError(
                f"epsilon={self.epsilon!r} is too small for this search: even with trials at "
                f"epsilon {low:.3g}, it costs more. Raise epsilon, or lower mean_trials."
            )
        guess = self.epsilon / 2
        while high > _TIGHT * low:
            spent = cost(guess)
            low, high = (guess, high) if spent <= self.epsilon else (low, guess)
            if self.epsilon / _TIGHT <= spent <= self.epsilon:
                break
            guess *= self.epsilon / spent / math.sqrt(_TIGHT) if spent else 0.0  # nearly linear
            if not low < guess < high:
                guess = math.sqrt(low * high)
        return at(low)

    def _best(self, records, person, selection, public):
        """Return the result of `_trials.run`; nothing else keeps the generator of its secrets."""
        parts = records if records[3] is not None else records[:3]
        rng = _trials.generator_of(self, selection.pool, parts)
        scored, inner = self._split(rng, _num_samples(records[0]), person)
        share = None if person is None else _persons.share_of(person[scored])
        rows, labels = (_safe_indexing(part, scored) for part in records[:2])
        *data, groups, persons = (r if r is None else rows_of(r, inner) for r in records)
        routing = routed(self.estimator, groups, persons)
        seeded = self.random_state is not None
        train = _trials.trainer(self.estimator, data, routing, selection.curve, rng, seeded, public)
        score = _trials.scorer(rows, labels, selection.noise, rng, share)
        law = self.mean_trials, _trials.SHAPES[self.trials]
        return _trials.run(rng, law, selection.pool, train, score)

    def _split(self, rng, n_samples, person):
        """Return the positions of held-out records and of the others; no person has both."""
        person = np.arange(n_samples) if person is None else person
        order = rng.random(1 + person.max()).argsort()
        is_scored = np.isin(person, order[: n_scored(self, len(order))])
        return np.flatnonzero(is_scored), np.flatnonzero(~is_scored)

    @property
    def pos_label_(self):
        """The positive class of two; None with more."""
        last = classifier_of(self.estimator)
        return _target.positive_class(self.classes_, last.classes, last.pos_label)

    def _keep(self, best, classes, report, origin):
        params, model = best
        if model is None:  # one that predicts all classes alike
            model = DummyClassifier(strategy="prior").fit(np.zeros((len(classes), 1)), classes)
        else:
            winner = classifier_of(model)
            # when each epoch began and how long it took would tell a trial's position
            winner.net_.callbacks_ = []
            for epoch in winner.net_.history:
                epoch.pop("dur", None)
            report = winner.privacy_ = _with_public_facts(report, winner.privacy_)
            winner.__dict__.update(origin)
        self.best_estimator_, self.best_params_ = model, params or {}
        self.classes_, self.privacy_ = model.classes_, report

    def __getstate__(self):
        """Drop attributes that would reveal the number of trials."""
        state = super().__getstate__().copy()
        if "best_estimator_" in state:
            state["random_state"] = None
            state.pop("_skl_callbacks", None)
        return state

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.non_deterministic = self.random_state is None
        return tags


def pool_of(search):
    """Return the configurations, each of which must be private and silent."""
    spaces = search.param_distributions
    spaces = [spaces] if isinstance(spaces, Mapping) else list(spaces)
    if any(hasattr(values, "rvs") for space in spaces for values in space.values()):
        seed = 0 if search.random_state is None else search.random_state
        pool = list(ParameterSampler(spaces, search.n_candidates, random_state=seed))
    else:
        pool = list(ParameterGrid(spaces))
    for params in pool:
        candidate = configured(search.estimator, params)
        _forecast.refuse_other_fits(candidate)
        refuse_resamplers(candidate)
        classifier = classifier_of(candidate)
        for name, only in _ONLY.items():
            if getattr(classifier, name) not in (only, None):
                raise ValueError(
                    f"{name}={safe_repr(getattr(classifier, name))} would reveal trials, which "
                    f"must stay secret. Set {name}={only!r} in the estimator and in "
                    "param_distributions."
                )
        for part in _forecast.parts_within(candidate):
            # a memory stores trials, and callbacks hear of each
            store = getattr(part, "memory", None) or getattr(part, "_skl_callbacks", None)
            if store:
                raise ValueError(
                    f"The {type(part).__name__} in estimator has memory or callbacks, "
                    f"{safe_repr(store)}, which would store or observe trials that must stay "
                    "secret. Set memory=None, and call set_callbacks on the DPRandomizedSearch."
                )
    return pool


def selection_of(search, pool, n_samples, n_groups=1) -> _Selection:
    n_train = n_samples - n_scored(search, n_samples)
    every = [configured(search.estimator, params) for params in pool]
    curves = {}
    for (params, candidate), network in product(zip(pool, every, strict=True), _AUTO_NETWORKS):
        private, releases = _forecast.planned_fit(candidate, n_train, n_groups, network)
        if not private:
            raise ValueError(
                f"{safe_repr(params)} trains without privacy, so the search has no privacy. "
                "Remove epsilon=None, noise_multiplier=0 and methods without noise from "
                "param_distributions and the estimator."
            )
        if releases not in curves:
            curves[releases] = rdp_curve(releases)
    curve = np.max(list(curves.values()), axis=0)
    worst = max(curves, key=lambda releases: curves[releases][_MIDDLE])
    trial = PlannedFit(0, "fit", n_train, 1, True, worst)
    whole = renyi.selection_curve(curve, search.mean_trials, _trials.SHAPES[search.trials])
    classifiers = [classifier_of(candidate) for candidate in every]
    return _Selection(pool, classifiers, trial, curve, renyi.free_score_noise(curve), whole)


def n_scored(search, n_samples):
    """Return the number of records that are held out to score the trials."""
    return min(max(1, round(search.holdout * n_samples)), n_samples - 1)


def _max_records(classifiers, person):
    """Return the most records that a person has in a trial; None if each record is a person."""
    persons, *others = (Persons.of(classifier.persons) for classifier in classifiers)
    for other in others:
        if other.get_params() != persons.get_params():
            raise ValueError(
                f"param_distributions must not change persons, got {other!r} and "
                f"{persons!r}: all trials must protect the same persons."
            )
    if person is None and persons.max_records is not None:
        raise ValueError(
            f"max_records={persons.max_records} of persons needs the person of each record here: "
            "pass persons to fit, or name their column."
        )
    return persons.max_records


def _with_public_facts(report, trial):
    """Return the report with what that of the released trial takes as public or leaves out."""
    replaced = {t for name in _OWN for t in in_words_of([ASSUMPTIONS[name]], trial.protects)}
    texts = {
        "read_from_rows": [*report.read_from_rows, *trial.read_from_rows],
        "assumptions": [*report.assumptions, *(t for t in trial.assumptions if t not in replaced)],
        "not_accounted": [*report.not_accounted, *trial.not_accounted],
    }
    distinct = {name: tuple(dict.fromkeys(values)) for name, values in texts.items()}
    return replace(report, features=trial.features, **distinct)


def report_of(search, selection, delta, max_records, n_examples):
    """Return the report of the search: the same whichever trial won, or whether one did."""
    trial, whole = selection.trial, selection.whole
    steps, epsilon = trial.releases[-1], curve_epsilon(whole, delta)
    adjacency = "zero_out" if max_records is None else "zero_out_person"
    sets = ["sets"]
    if max_records is not None:
        last = classifier_of(search.estimator)
        undeclared = {"classes": last.classes, "groups": Groups.of(last.group_col).levels}
        sets = ["n", *(name for name, value in undeclared.items() if value is None)]
    return PrivacyReport(
        method="private selection",
        epsilon=epsilon,
        delta=delta,
        accountant="rdp",
        noise_multiplier=steps.joint_noise_multiplier,
        sample_rate=steps.sample_rate,
        steps=steps.steps,
        expected_batch_size=steps.sample_rate * trial.n_samples,
        is_private=epsilon < math.inf,
        selection_curve=tuple(whole.tolist()),
        seeded=search.random_state is not None,
        n_samples=n_examples,
        max_records=max_records,
        adjacency=adjacency,
        assumptions=in_words_of(
            [ASSUMPTIONS[name] for name in (*sets, "held out", "trials")], PROTECTS[adjacency]
        ),
        not_accounted=in_words_of(privacy_report.NOT_ACCOUNTED, PROTECTS[adjacency]),
    )
