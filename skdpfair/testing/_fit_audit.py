"""End-to-end audit of one fit: canaries put in or left out, and guesses which."""

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import sparse
from sklearn.base import clone
from sklearn.pipeline import Pipeline
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import _num_samples

from skdpfair._utils.validate import integer, is_integer, number, one_of, safe_repr
from skdpfair.estimators.classifier import classifier_of
from skdpfair.inputs import groups as _groups
from skdpfair.inputs import persons as _persons
from skdpfair.inputs.columns import check_indexes, in_pandas
from skdpfair.preprocessing._learners import refuse_resamplers
from skdpfair.testing._lower_bounds import describe_bound, guesses_excess, least_epsilon

_NO_CLAIM = (
    "estimator claims no finite epsilon: nothing to audit. Give it an epsilon and a private method."
)
_SHARES = (0.1, 0.2, 0.5)  # of the canaries that are guessed


@dataclass(frozen=True)
class FitAudit:
    """Result of an audit of one fit, by guesses about canaries."""

    method: str
    epsilon_claimed: float
    epsilon_lower: float
    delta: float
    confidence: float
    n_canaries: int
    n_guesses: int
    n_correct: int
    protects: str = "record"
    epsilon_at_best: float = math.inf

    @property
    def passed(self) -> bool:
        """Whether the lower bound is not above the claim."""
        return self.epsilon_lower <= self.epsilon_claimed

    def __str__(self):
        canaries = "canaries" if self.protects == "record" else "canary persons"
        about = f"guesses about {self.n_canaries} {canaries}"
        evidence = f"{self.n_correct} of {self.n_guesses} {about} right"
        return describe_bound(self, "the fit", evidence, self.epsilon_at_best, canaries)


def audit_fit(
    estimator,
    X,
    y,
    n_canaries=1000,
    *,
    sensitive_features=None,
    persons=None,
    kind="feature",
    confidence=0.95,
    random_state=None,
) -> FitAudit:
    """Fit once on records or persons, some of them canaries, and guess which took part.

    Parameters
    ----------
    estimator : DPFairClassifier or Pipeline that ends in one
        The private model, of which a clone is fitted.  Other steps of a pipeline are fitted first,
        on all records, also those that become canaries, and are not audited: for these see
        :func:`~skdpfair.preprocessing.lint_pipeline`.
    X : DataFrame or array of shape (n_samples, n_features) or (n_samples, ...)
        The records, before the pipeline.
    y : array of shape (n_samples,)
        Their class labels.
    n_canaries : int in [10, n_samples / 2], default=1000
        Number of records of X that become canaries; a fair coin decides for each whether the fit
        sees it.  With persons, it is a number of persons, at most half of them: all records of a
        person become canaries and share one coin.
    sensitive_features : array, Series or DataFrame of n_samples rows, optional
        Passed on to ``fit``.
    persons : array of shape (n_samples,), optional
        The person of each record, passed on to ``fit``, if ``persons`` of the classifier does
        not name a column.
    kind : {"feature", "mislabelled"}, default="feature"
        "feature" gives each canary a random label and one further feature of its own, in place of
        the numbers of its record; all records of a person have both in common.  This attack is
        strong, and for tables.  "mislabelled" changes the label alone: it is weak, and for any
        records.
    confidence : float in (0, 1), default=0.95
        Probability that an audit of correct code passes.
    random_state : int or None, default=None
        Seed of canaries and coins; the fit has its own.

    Returns
    -------
    FitAudit
        ``passed`` tells whether the lower bound ``epsilon_lower`` is at most ``epsilon_claimed``,
        which the fit reports, both at ``delta``.  The bound rests on ``n_correct`` right guesses of
        ``n_guesses`` about ``n_canaries`` records or persons, as ``protects`` says.  If
        ``epsilon_lower`` is 0, ``epsilon_at_best`` would be the bound if all guesses were right.
        ``str`` is a sentence.

    Notes
    -----
    The attacker sees the fitted model.  The score of a canary is the log-odds that the model gives
    its label, for "feature" minus those of a record without any feature; the score of a person is
    the mean of the scores of her records.  The attacker guesses that the canaries with the highest
    scores took part and those with the lowest did not; the bound allows for the three numbers of
    guesses that are tried.  The results of the audit are not private.

    The hypotheses are that the fit is as private as the steps it released, with the noise of each
    multiplied by one factor.  The lower bound is the epsilon of the smallest factor that guesses
    refute, by the f-DP bound for one run, which lets guesses depend on each other.  It exceeds the
    claim of a correct fit with probability at most 1 - ``confidence``.

    A canary that does not take part is left out, so that the number of records or persons, which
    is public, differs as well; the claim is about one that is replaced by null records.

    References
    ----------
    Mahloujifar, Melis and Chaudhuri, "Auditing f-Differential Privacy in One Run", 2024.

    Examples
    --------
    >>> from skdpfair import DPFairClassifier
    >>> from skdpfair.datasets import make_two_groups
    >>> data = make_two_groups(1000, random_state=0)
    >>> clf = DPFairClassifier("dpsgd", epsilon=4.0)
    >>> audit = audit_fit(clf, data.data, data.target, 100, random_state=0)
    >>> audit.passed, audit.n_canaries
    (True, 100)
    """
    check_indexes(X=X, y=y, sensitive_features=sensitive_features, persons=persons)
    n_samples = _n_records(X, y, sensitive_features)
    integer("n_canaries", n_canaries, low=10)
    one_of("kind", kind, tuple(_PLANT))
    number("confidence", confidence, low=0, high=1, low_open=True, high_open=True)
    if random_state is not None:
        integer("random_state", random_state, low=0)
    rng, y = np.random.default_rng(random_state), np.asarray(y)
    classifier = classifier_of(estimator)
    if classifier.epsilon is None and not classifier.noise_multiplier:
        raise ValueError(_NO_CLAIM)
    refuse_resamplers(estimator)
    while isinstance(estimator, Pipeline):
        X = clone(estimator[:-1]).fit_transform(X, y) if len(estimator) > 1 else X
        estimator = estimator.steps[-1][1]
    X = in_pandas(X) if hasattr(X, "shape") else np.asarray(X)
    declared = _persons.Persons.of(classifier.persons)
    person = _persons.encode(X, n_samples, persons, declared, classifier.group_col).code
    protects = "record" if person is None else "person"
    code = np.arange(n_samples) if person is None else person
    n_examples = int(code.max()) + 1
    if 2 * n_canaries > n_examples:
        raise ValueError(
            f"n_canaries={safe_repr(n_canaries)} is more than half of the {n_examples} "
            f"{protects}s. Take fewer, or pass more {protects}s."
        )
    of = np.full(n_examples, -1)
    of[rng.permutation(n_examples)[:n_canaries]] = np.arange(n_canaries)
    took_part = rng.random(n_canaries) < 0.5
    # the canary whose record it is, -1 for none
    of = of[code]
    chosen = np.argsort(of, kind="stable")[np.sum(of < 0) :]
    of = of[chosen]
    rows_kept = np.setdiff1d(np.arange(n_samples), chosen[~took_part[of]])
    model, X, labels, blank = _PLANT[kind](clone(classifier), X, y, chosen, of, rng)
    of_kept = {  # by position: canaries get a new index
        name: _safe_indexing(rows.to_numpy() if hasattr(rows, "to_numpy") else rows, rows_kept)
        for name, rows in (("sensitive_features", sensitive_features), ("persons", persons))
        if rows is not None
    }
    model.fit(_safe_indexing(X, rows_kept), labels[rows_kept], **of_kept)
    report = model.privacy_
    if np.isinf(report.epsilon):
        raise ValueError(_NO_CLAIM)
    score = _log_odds(model, _safe_indexing(X, chosen), labels[chosen])
    if blank is not None:
        repeated = _safe_indexing(blank, np.zeros_like(chosen))
        score = score - _log_odds(model, repeated, labels[chosen])
    guesses = _guesses(np.bincount(of, score) / np.bincount(of), took_part, rng)
    failure = (1 - confidence) / len(guesses)

    def bound(guesses):
        return refuted(report, [guesses_excess(n_canaries, n, k, failure) for n, k in guesses])

    lower, best = bound(guesses)
    at_best = lower or bound([(n, n) for n, _ in guesses])[0]
    n_guesses, n_correct = guesses[best]
    claim = report.epsilon, lower, report.delta, confidence
    return FitAudit(report.method, *claim, n_canaries, n_guesses, n_correct, protects, at_best)


def refuted(report, tests):
    """Return the least epsilon that tests of releases do not refute, and the deciding test."""
    # that of the noise tried last, which is close to that of the bound
    best = 0

    def excess(releases):
        nonlocal best
        values = [test(releases) for test in tests]
        best = int(np.argmax(values))
        return values[best]

    return least_epsilon(report.releases, report.delta, excess), best


def _n_records(X, y, sensitive_features):
    if np.ndim(y) != 1 or np.ndim(X) == 0:
        raise ValueError(
            "X must be a table or array of records and y one label for each, got shapes "
            f"{np.shape(X)} and {np.shape(y)}. Pass y as a single column."
        )
    n_samples = _num_samples(X)
    for name, column in (("y", y), ("sensitive_features", sensitive_features)):
        if column is not None and _num_samples(column) != n_samples:
            raise ValueError(
                f"{name} must have one entry for each of the {n_samples} records of X, got "
                f"{_num_samples(column)}."
            )
    if len(pd.unique(np.asarray(y))) < 2:
        raise ValueError("y must hold at least two classes: canaries get labels by chance.")
    return n_samples


def _numbers(features):
    """Return a table as float32; an error names columns of other values, and never shows these."""
    try:
        return features.to_numpy(np.float32, copy=True)
    except (TypeError, ValueError):
        named = [str(c) for c in features if not pd.api.types.is_numeric_dtype(features[c])]
    raise ValueError(
        f"X must hold numbers for kind='feature', got others in {safe_repr(named)}. Encode these "
        "columns before, as by public_preprocessor in a Pipeline, or use kind='mislabelled'."
    )


def _mislabelled(model, X, y, chosen, of, rng):
    classes, labels = np.unique(y), y.copy()
    others = rng.integers(1, len(classes), len(chosen))
    labels[chosen] = classes[(np.searchsorted(classes, y[chosen]) + others) % len(classes)]
    return model, X, labels, None


def _with_features(model, X, y, chosen, of, rng):
    """Return the model; records with a feature for each canary; labels; one without features."""
    if np.ndim(X) != 2:
        raise ValueError(
            f"kind='feature' adds columns to a table, got X of shape {np.shape(X)}. Use "
            "kind='mislabelled'."
        )
    if sparse.issparse(X):
        raise TypeError(
            "X must be dense for kind='feature', got a sparse matrix. Pass X.toarray(), or let the "
            "pipeline's steps give dense output."
        )
    classes, labels, n_canaries = np.unique(y), y.copy(), of.max() + 1
    labels[chosen] = classes[rng.integers(0, len(classes), n_canaries)[of]]
    frame = X if isinstance(X, pd.DataFrame) else pd.DataFrame(np.asarray(X))
    hidden = _groups.positions(X, model.group_col)
    hidden = [*hidden, *_persons.positions_of(X, model.persons, model.group_col)]
    visible = [i for i in range(frame.shape[1]) if i not in hidden]
    numbers = _numbers(frame.iloc[:, visible])
    marks = np.zeros((len(frame), n_canaries), np.float32)
    marks[chosen, of] = np.linalg.norm(numbers, axis=1).max()
    numbers[chosen] = 0.0
    features = pd.DataFrame(numbers, frame.index, frame.columns[visible])
    table = pd.concat([features, frame.iloc[:, hidden]], axis=1)
    table = table.iloc[:, np.argsort([*visible, *hidden])]
    planted = pd.concat([table, pd.DataFrame(marks, frame.index)], axis=1)
    names = [f"canary {i}" for i in range(n_canaries)]
    has_names = all(isinstance(name, str) for name in frame)
    planted.columns = [*frame, *names] if has_names else range(planted.shape[1])
    blank = planted.iloc[chosen[:1]].copy()
    blank.iloc[:, frame.shape[1] :] = np.float32(0.0)
    model = _counted_from_the_front(model, X)
    if hidden or isinstance(X, pd.DataFrame):
        return model, planted, labels, blank
    return model, planted.to_numpy(np.float32), labels, blank.to_numpy(np.float32)


def _counted_from_the_front(model, X):
    """Return the model, whose numbers of columns hold when columns are added at the end."""
    groups, persons = _groups.Groups.of(model.group_col), _persons.Persons.of(model.persons)

    def counted(column, name):
        return _groups.position(X, column, name) if is_integer(column) else column

    columns = [counted(column, "group_col") for column in _groups.as_columns(groups)]
    return model.set_params(
        group_col=groups.set_params(columns=columns or None),
        persons=persons.set_params(column=counted(persons.column, "persons")),
    )


_PLANT = {"feature": _with_features, "mislabelled": _mislabelled}


def _log_odds(model, X, y):
    codes = np.searchsorted(model.classes_, y)
    p = np.clip(model.predict_proba(X)[np.arange(len(codes)), codes], 1e-15, 1 - 1e-15)
    return np.log(p) - np.log1p(-p)


def _guesses(score, took_part, rng):
    """Return numbers of guesses, and of the right ones among them."""
    # ties carry no information
    order = rng.permutation(len(score))
    order = order[np.argsort(score[order], kind="stable")]
    guesses = []
    for share in _SHARES:
        half = max(1, round(share * len(score) / 2))
        right = int(took_part[order[-half:]].sum() + (~took_part[order[:half]]).sum())
        guesses.append((2 * half, right))
    return guesses
