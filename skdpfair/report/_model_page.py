"""Page and model card of one classifier: privacy, settings, groups, and what is not accounted."""

from html import escape
from importlib.metadata import version

import numpy as np
import pandas as pd
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.utils.validation import check_is_fitted

from skdpfair._validate import safe_repr
from skdpfair.budget.files import path_of, replace_file
from skdpfair.inputs.groups import encode, group_name
from skdpfair.metrics._compare_groups import difference
from skdpfair.metrics._group_tables import accuracy_interval
from skdpfair.plotting import ShapeDisplay
from skdpfair.privacy.statement import ADJACENCY_IN_WORDS, rounded_up
from skdpfair.release import release
from skdpfair.report._page_facts import learned
from skdpfair.report._rendering import findings, isolated, points, readable, render

_LEVEL = 0.95
_N_POINTS = 25  # of a curve; the knots of 2, 4 and 8 intervals are among them
_FLAG = (
    "NOT private: computed on real people without noise. It is for people who may see the data; "
    "no ε covers its publication."
)
_USE = (
    "Support of decisions about people who are similar to the training data, by users who have "
    "checked its effect on each group with their own data."
)
_LIMITS = (
    "The guarantee is for one training record and for this fit only, not for other uses of the "
    "records.",
    "Differential privacy does not make a model fair or accurate: rare groups may lose more "
    "accuracy to the noise.",
    "The model may not be valid for people who differ from the training data.",
)


def model_page(classifier, X=None, y=None, *, sensitive_features=None, title=None, pipeline=None):
    """Return the report of a fitted classifier as one HTML page.

    Parameters
    ----------
    classifier : DPFairClassifier
        The fitted classifier.
    X, y : DataFrame or array, and array, optional
        Test records; with them, the page has a group table and is NOT private.
    sensitive_features : array, Series or DataFrame, optional
        Their groups, if they are not columns of X.
    title : str or None, default=None
        Title of the page.
    pipeline : estimator, PipelineReport or None, default=None
        The pipeline that prepared the features; the page lists its `check_pipeline` findings. If
        it is a fitted `public_preprocessor`, or begins with one, and the classifier adds one
        function of each column, the page shows these functions.

    Returns
    -------
    str
        The page as HTML.

    Raises
    ------
    ImportError
        If jinja2 is missing: ``pip install "skdpfair[report]"``.
    ValueError
        If X is given without y, or the groups differ from those of the fit.

    Examples
    --------
    >>> from skdpfair import DPFairClassifier
    >>> from skdpfair.datasets import make_two_groups
    >>> from skdpfair.report import model_page
    >>> data = make_two_groups(3000, random_state=0)
    >>> clf = DPFairClassifier("dpsgd", epsilon=3.0, max_steps=20).fit(data.data, data.target)
    >>> page = model_page(clf)
    >>> "contains no figures that are not private" in page
    True
    """
    check_is_fitted(classifier, "net_")
    if title is not None and not isinstance(title, str):
        raise TypeError(f"title must be a text or None, got {safe_repr(title)}.")
    table = _tested(classifier, X, y, sensitive_features)
    privacy = classifier.privacy_
    context = {
        "title": title or f"A classifier trained with {privacy.method}",
        "facts": _facts(classifier),
        "privacy": privacy,
        "epsilon": rounded_up(privacy.epsilon),
        "delta": rounded_up(privacy.delta, 3),
        "adjacency": ADJACENCY_IN_WORDS[privacy.adjacency],
        "group_epsilons": {
            group_name(g): rounded_up(e) for g, e in (privacy.group_epsilons or {}).items()
        },
        "ledger": [
            (e.what, f"{e.steps:,}", f"{e.sample_rate:.4g}", _noises(e.noise_multipliers))
            for e in privacy.ledger.entries
        ],
        "groups": None if table is None else _cells(table),
        "classes": [str(c) for c in classifier.classes_],
        "difference": _difference(table),
        "findings": findings(pipeline),
        "learned": _learned(classifier, pipeline),
        "version": version("skdpfair"),
    }
    return render("model.html", context)


def model_card(
    classifier,
    X=None,
    y=None,
    *,
    sensitive_features=None,
    intended_use=None,
    released_table=None,
    path=None,
):
    """Return a skops model card: privacy statement, intended use, limits, and a group table.

    Parameters
    ----------
    classifier : DPFairClassifier
        The fitted classifier.
    X, y : DataFrame or array, and array, optional
        Test records; with them, the card has a group table, marked as NOT private.
    sensitive_features : array, Series or DataFrame, optional
        Their groups, if they are not columns of X.
    intended_use : str or None, default=None
        Text of the section; None uses a general text.
    released_table : DataFrame or None, default=None
        A private group table from `skdpfair.metrics.release_group_table`, to show instead with
        its privacy statement.
    path : path-like or None, default=None
        Markdown file to write in addition.

    Returns
    -------
    skops.card.Card
        ``card.render()`` is Markdown; ``card.add(...)`` adds sections.

    Raises
    ------
    ImportError
        If skops is missing: ``pip install "skdpfair[report]"``.
    ValueError
        If X is given with ``released_table`` or without y, or the table is not a private one.

    Examples
    --------
    >>> from skdpfair import DPFairClassifier
    >>> from skdpfair.datasets import make_two_groups
    >>> from skdpfair.report import model_card
    >>> data = make_two_groups(3000, random_state=0)
    >>> clf = DPFairClassifier("dpsgd", epsilon=3.0, max_steps=20).fit(data.data, data.target)
    >>> card = model_card(clf)
    >>> card.select("Privacy").content == clf.privacy_.statement
    True
    """
    check_is_fitted(classifier, "net_")
    if released_table is not None and "privacy" not in getattr(released_table, "attrs", {}):
        raise ValueError(
            "released_table must come from skdpfair.metrics.release_group_table, which keeps its "
            f"cost in attrs, got {safe_repr(released_table)}. Pass X and y for a table that is "
            "marked as not private."
        )
    if X is not None and released_table is not None:
        raise ValueError(
            "X and released_table must not both be given: the card has one group table."
        )
    table = _tested(classifier, X, y, sensitive_features)
    card = _card(release(classifier))
    privacy = classifier.privacy_
    facts = "\n".join(f"- {name}: {_plain(value)}" for name, value in _facts(classifier))
    card.add(**{"Model": facts, "Intended use": intended_use or _USE, "Privacy": privacy.statement})
    card.add(
        **{
            "Privacy/Released": _listed(
                f"{e.steps:,} × {e.what}, sampling rate {e.sample_rate:.4g}, noise "
                f"{_noises(e.noise_multipliers)}"
                for e in privacy.ledger.entries
            ),
            "Privacy/Assumed": _listed(privacy.assumptions),
            "Privacy/Not accounted": _listed(privacy.not_accounted),
            "Limits": _listed(_LIMITS),
        }
    )
    _add_groups(card, table, released_table)
    if path is not None:
        replace_file(path_of(path), card.render().encode())
    return card


def _card(classifier):
    try:
        from skops.card import Card
    except ImportError as error:
        raise ImportError('model cards need skops: pip install "skdpfair[report]".') from error
    return Card(classifier, model_diagram=False, template=None)


def _add_groups(card, table, released):
    if released is not None:
        said = f"**Released.** {released.attrs['privacy']['statement']}"
        rows = released.rename_axis("group").reset_index().round(4)
    elif table is not None:
        said, rows = f"**{_FLAG}**", table.rename_axis("group").reset_index().round(4)
    else:
        card.add(Groups="No group table was requested.")
        return
    columns = {_plain(name): [_plain(v) for v in values] for name, values in rows.items()}
    card.add_table(folded=False, description=said, Groups=columns)


def _plain(cell):
    """Return a text that Markdown takes as it is."""
    return escape(isolated(cell)).replace("|", "&#124;") if isinstance(cell, str) else cell


def _tested(classifier, X, y, sensitive_features):
    """Return one row for all records and for each group, None without records: NOT private.

    The columns are ``n``, ``accuracy`` with Wilson's 95 % interval ``low`` and ``high``, and for
    each class ``predicted[class]``, its share of the predictions.
    """
    if X is None:
        return None
    if y is None:
        raise ValueError("y must be given with X: a group table needs labels of test records.")
    y, predicted = np.asarray(y), classifier.predict(X)
    parts = {"all": np.ones(len(y), dtype=bool)}
    if sensitive_features is not None or classifier.group_col is not None:
        found = encode(
            X,
            y,
            group_col=classifier.group_col if sensitive_features is None else None,
            groups=None if classifier.groups_ is None else list(classifier.groups_),
            sensitive_features=sensitive_features,
        )
        assert found.levels is not None
        parts |= {group_name(level): found.code == i for i, level in enumerate(found.levels)}
    masks = pd.DataFrame(parts)
    counts = masks.sum().rename("n")
    right = masks[predicted == y].sum()
    accuracy, low, high = accuracy_interval(right, counts - right, 0.0, _LEVEL)
    shares = {
        f"predicted[{label}]": masks[predicted == label].sum() / counts
        for label in classifier.classes_
    }
    rows = {"n": counts, "accuracy": accuracy, "low": low, "high": high} | shares
    return pd.DataFrame(rows, index=counts.index)


def _learned(classifier, pipeline):
    """Return the curves of an additive model, and its logits by category; None without any."""
    first = pipeline[0] if isinstance(pipeline, Pipeline) else pipeline
    try:
        model = make_pipeline(first, classifier)
        display = ShapeDisplay.from_estimator(model, n_points=_N_POINTS)
    except (ValueError, NotFittedError):  # another pipeline, more classes, or columns interact
        return None
    curves, categories = {}, []
    for column, rows in display.frame.groupby("column", sort=False):
        pairs = list(zip(rows["value"], rows["logit"], strict=True))
        if isinstance(pairs[0][0], str):
            categories += [(column, value, f"{logit:+.3f}") for value, logit in pairs]
        else:
            rounded = {float(f"{v:.6g}"): float(f"{logit:.3f}") for v, logit in pairs}
            curves[column] = list(rounded.items())
    return learned(curves, display.log_columns, categories)


def _difference(table):
    """Return the difference in accuracy as text, or None unless two groups have test records."""
    accuracies = [] if table is None else table["accuracy"][1:].dropna()
    return points(difference(accuracies)) if len(accuracies) > 1 else None


def _facts(classifier):
    privacy = classifier.privacy_
    rows = [
        ("method", privacy.method),
        ("classes", ", ".join(map(str, classifier.classes_))),
        ("features", f"{classifier.n_features_in_:,}"),
    ]
    if classifier.groups_ is not None:
        rows.append(("groups", ", ".join(map(group_name, classifier.groups_))))
    if privacy.n_samples is not None:
        rows.append(("records trained on", f"{privacy.n_samples:,}"))
    rows += [
        ("steps", f"{classifier.n_steps_:,}"),
        ("expected batch size", f"{privacy.expected_batch_size:.4g}"),
        ("learning rate", f"{classifier.lr_:.4g}"),
        ("written by", f"skdpfair {version('skdpfair')}"),
    ]
    return rows


def _cells(table):
    """Return rows of text: group, count, accuracy with its interval, shares of predictions."""
    rows = []
    named = table.rename(index=readable)
    for name, row in (named if named.index.is_unique else table).iterrows():
        shares = [points(v) for k, v in row.items() if k.startswith("predicted[")]
        interval = "" if row["n"] == 0 else f"{points(row['low'])} to {points(row['high'])}"
        rows.append((name, f"{int(row['n']):,}", points(row["accuracy"]), interval, shares))
    return rows


def _noises(multipliers):
    return ", ".join(f"{m:.4g}" for m in multipliers)


def _listed(items):
    return "\n".join(f"- {item}" for item in items) or "Nothing."
