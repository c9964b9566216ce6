"""Page and model card of one classifier: privacy, settings, groups, and what is not accounted."""

import math
import os
import re
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import expit
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

import skdpfair
from skdpfair._utils.validate import safe_repr
from skdpfair.inputs import groups as _groups
from skdpfair.inputs import labels
from skdpfair.inputs.columns import check_indexes
from skdpfair.inputs.groups import apart, as_columns, is_word, named, variables_of
from skdpfair.metrics._arguments import check_kind
from skdpfair.metrics._compare_groups import NOT_COMPARED, difference, ratio
from skdpfair.metrics._intervals import wilson
from skdpfair.metrics._measures import (
    LEVEL,
    MEASURES,
    RATIOS,
    chosen_measures,
    described,
    leading_measures,
    level_of,
    n_trials,
    rarest_class,
    simple_measures,
    values_by_group,
)
from skdpfair.privacy.statement import (
    ADJACENCY_IN_WORDS,
    PROTECTED,
    SEVERAL_RECORDS,
    rounded_up,
)
from skdpfair.release._closed_list import (
    MAX_LEVELS,
    are_texts_of_levels,
    is_features,
    is_report,
    passes,
)
from skdpfair.release._facts import record_shape
from skdpfair.release._release import loaded, schema_in
from skdpfair.report._page_facts import (
    DAY,
    FEATURES,
    FILE,
    POSITIVE,
    SELECTION,
    SIZE,
    THRESHOLD,
    attacker,
)
from skdpfair.report._recommendation import FEW
from skdpfair.report._rendering import (
    environment,
    error_in_words,
    findings,
    in_words,
    interval_of_share,
    markdown_rows,
    points,
    render,
    written,
)
from skdpfair.report._same_table import check_same, table_of
from skdpfair.report._spent_before import beside
from skdpfair.report._summary import costs_beside

_RELEASES = {  # in words
    "above_z": "count of gradients above the threshold",
    "counts": "counts by group",
    "groups": "statistics by group",
}
# the row of all records, beside those of the groups
_ALL = "all"
_ERRORS = ("false_positive_rate", "false_negative_rate")
_NO_FINDINGS = (None, {"steps": [], "notes": []})  # others have names and texts of any kind
_MAX_FITS = 16  # of the ledger of a page


def model_page(
    classifier,
    X=None,
    y=None,
    *,
    sensitive_features=None,
    title=None,
    pipeline=None,
    measures=None,
    results=None,
    ledger=None,
):
    """Return the report of a fitted classifier as one HTML page.

    Parameters
    ----------
    classifier : DPFairClassifier, DPThresholdClassifier, DPRandomizedSearch, Pipeline or path
        The fitted classifier, or a fitted pipeline that ends with it, or a file written by
        ``save_release``, whose SHA-256 the page then states.
    X, y : DataFrame or array, and array, optional
        Test records, as the pipeline takes them if it is one; with them, the page has a group
        table and is NOT private.
    sensitive_features : array, Series or DataFrame, optional
        Their groups, if they are not columns of X.
    title : str or None, default=None
        Title of the page.
    pipeline : estimator, PipelineReport or None, default=None
        The pipeline that prepared the features, by default ``classifier`` if it is one; the page
        lists its `lint_pipeline` findings.
    measures : list of str or None, default=None
        Measures of the group table, as in `skdpfair.metrics.group_table`, those against a
        reference model excepted. None is ``accuracy``, after ``balanced_accuracy`` and
        ``rarest_class_recall`` if a class has less than 30 % of the test records (of K > 2
        classes, 0.6 / K), and for two classes the ``false_positive_rate`` and the
        ``false_negative_rate``. Requires X.
    results : TradeoffResults or None, default=None
        A sweep of the same data, from which the page tells what privacy costs each group for the
        method of the classifier at the budget that is nearest to its own; NOT private.
    ledger : PrivacyLedger or None, default=None
        The ledger of the data set; the page tells how many fits it has recorded, what they cost
        together, and whether that of the classifier is among them.

    Returns
    -------
    str
        The page as HTML.

    Raises
    ------
    ImportError
        If jinja2 is missing: ``pip install "skdpfair[report]"``.
    ValueError
        If X is given without y, the groups differ from those of the fit, or a measure is unknown.

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
    if title is not None and not isinstance(title, str):
        raise TypeError(f"title must be a text or None, got {safe_repr(title)}.")
    subject = _subject(classifier, X, y, sensitive_features, measures, pipeline)
    classifier, table, names = subject.classifier, subject.table, subject.names
    if results is not None:
        check_same("results", subject.described(), _table_of_sweep(results))
    facts = subject.facts(title, ledger)
    figures = {} if results is None else {"costs": _costs(results, classifier)}
    if table is not None:
        classes = _class_names(classifier)
        figures |= {
            "groups": _cells(table, names),
            "measures": [_head(name, classes) for name in names],
            "rare": _rare(classifier, table),
            "verdict": _verdict(table),
            "classes": classes,
            "differences": _differences(table, names, classes),
        }
    if not figures and facts["findings"] in _NO_FINDINGS and not passes(_is_public, facts):
        raise ValueError(
            "title, or names of groups, classes or methods, cannot stand on a page to publish: "
            "they are longer than 100 characters or may be values of records, such as decimal "
            "numbers. Use short names."
        )
    context = dict.fromkeys(("costs", "groups", "rare", "verdict")) | _context(facts)
    return render("model.html", context | figures)


@dataclass(frozen=True)
class _Subject:
    """A fitted classifier, and what a page or card on it shows besides its own facts."""

    model: Any  # the last step of a pipeline
    classifier: Any  # the DPFairClassifier that it is or holds
    file: Any  # the content of the file that it was read from, or None
    pipeline: Any
    table: pd.DataFrame | None  # of test records: NOT private
    names: list  # of its measures

    def facts(self, title=None, ledger=None) -> dict:
        """Return what is stated of the fit."""
        privacy, columns = self.classifier.privacy_, variables(self.classifier)[1:]
        before = beside(ledger, privacy, getattr(self.classifier, "_ledger_fits", None))
        stated = replace(
            privacy,
            not_accounted=_not_accounted(privacy, _of_person(privacy)),
            group_epsilons=dict(named_epsilons(privacy, columns)) or None,
        )
        return {
            "title": title or f"A classifier trained with {privacy.method}",
            "rows": _facts(self.classifier, self.file),
            "privacy": stated,
            "before": before and before["sentences"],
            "findings": findings(self.pipeline),
            "version": skdpfair.__version__,
        }

    def described(self) -> dict:
        """Return what is known of the table of the fit."""
        clf, privacy = self.classifier, self.classifier.privacy_
        return table_of(
            variables(clf),
            classes=clf.classes_,
            groups=() if clf.levels_ is None else clf.levels_,
            protects=privacy.protects,
            n_examples=privacy.n_samples if self.model is clf else None,  # a search holds some out
            schema=self.file and schema_in(self.file.facts, "The file"),
            n_features=math.prod(record_shape(clf)),
        )


def _subject(classifier, X, y, sensitive_features, measures, pipeline=None) -> _Subject:
    """Return what a page is on: a classifier, pipeline or file, and test records if given."""
    is_path = isinstance(classifier, (str, os.PathLike))
    model, file = loaded(classifier) if is_path else (classifier, None)
    if isinstance(model, Pipeline):
        check_is_fitted(model)
        pipeline = model if pipeline is None else pipeline
    while isinstance(model, Pipeline):
        X = X if X is None or len(model) == 1 else model[:-1].transform(X)
        model = model[-1]
    classifier = classifier_in(model)
    table, names = tested(model, classifier, X, y, sensitive_features, measures)
    return _Subject(model, classifier, file, pipeline, table, names)


def _context(facts):
    """Return what the templates of page and card read, from the facts of a fit."""
    privacy = facts["privacy"]
    return {
        **{name: facts[name] for name in ("title", "findings", "version", "before")},
        "has_findings": facts["findings"] not in _NO_FINDINGS,
        "facts": facts["rows"],
        "privacy": privacy,
        "epsilon": rounded_up(privacy.epsilon),
        "delta": rounded_up(privacy.delta, 3),
        "mu_from": rounded_up(privacy.mu_from, 2) if privacy.is_private else None,
        "adjacency": ADJACENCY_IN_WORDS[privacy.adjacency],
        "protected": PROTECTED[privacy.protects],
        "attacker": attacker(privacy) if privacy.is_private else None,
        "of_person": _of_person(privacy),
        "selection": selection_of(privacy),
        "group_epsilons": {k: rounded_up(e) for k, e in (privacy.group_epsilons or {}).items()},
        "ledger": [
            (
                _released(e.what),
                f"{e.steps:,}",
                f"{e.sample_rate:.4g}",
                noises(e.noise_multipliers),
            )
            for e in privacy.releases
        ],
    }


def _is_public(facts) -> bool:
    """Return whether facts of a fit are those of a public set, and no values of records."""
    rows, privacy = dict(facts["rows"]), facts["privacy"]
    features = rows.pop(FEATURES, None)
    values = [rows.pop(name, "") for name in ("classes", POSITIVE, "groups")]
    levels = [v for text in values for v in re.split("[,;] ", text)]
    return (
        is_report(privacy, n_fits=_MAX_FITS)
        and is_features(features)
        and all(map(is_word, [facts["title"], *rows.values()]))
        and len(levels) <= MAX_LEVELS
        and are_texts_of_levels(levels)
    )


def model_card(classifier, *tested, intended_use, released_table, ledger):
    """Return a model card as Markdown, see `export_statement`."""
    if released_table is not None and "privacy" not in getattr(released_table, "attrs", {}):
        raise ValueError(
            "released_table must come from skdpfair.metrics.release_group_table, which keeps its "
            f"cost in attrs, got {safe_repr(released_table)}. Pass X and y for a table that is "
            "marked as not private."
        )
    if tested[0] is not None and released_table is not None:
        raise ValueError(
            "X and released_table must not both be given: the card has one group table."
        )
    subject = _subject(classifier, *tested)
    rows = None
    if subject.table is not None:
        rows = group_rows(subject.classifier, subject.table, subject.names)
    elif released_table is not None:
        released = released_table.rename_axis("group").reset_index().round(4)
        rows = markdown_rows(list(released), released.to_numpy(object).tolist())
    context = _context(subject.facts("Model card", ledger)) | {
        "intended_use": intended_use,
        "released": released_table is not None and released_table.attrs["privacy"]["statement"],
        "group_table": rows,
    }
    return environment().get_template("card.md").render(context).rstrip("\n") + "\n"


def classifier_in(model):
    """Return the fitted DPFairClassifier that a model is or holds; its report is the model's."""
    check_is_fitted(model)
    while isinstance(model, Pipeline):
        model = model[-1]
    inner = getattr(model, "estimator_", getattr(model, "best_estimator_", model))
    while inner is not model and isinstance(inner, Pipeline):
        inner = inner[-1]
    if not hasattr(model, "privacy_") or not (
        hasattr(inner, "net_") and hasattr(inner, "classes_")
    ):
        holds = "" if inner is model else f" that holds a {type(inner).__name__}"
        raise TypeError(
            "classifier must be a fitted DPFairClassifier, DPThresholdClassifier or "
            f"DPRandomizedSearch, or a pipeline that ends with one, got a {type(model).__name__}"
            f"{holds}. No statement covers what else learns from records, such as calibration, a "
            "threshold, or a choice by scores: let DPThresholdClassifier set thresholds, and "
            "DPRandomizedSearch choose, within the budget."
        )
    return inner


def variables(classifier):
    """Return the names of the target and of the columns of the groups, "" if they are not known."""
    return getattr(classifier, "_variables", ("",))


def _class_names(classifier):
    """Return the names of the classes, the positive one of two last."""
    classes = classifier.classes_[labels.order_of(classifier)]
    return named(classes, variables(classifier)[:1])


def _table_of_sweep(results):
    spec = results.spec
    return table_of(
        results.variables,
        classes=spec.classes,
        groups=spec.groups,
        protects=spec.protects if spec.is_known else "",
        n_examples=spec.n_examples,
        schema=results.schema,
        n_features=spec.n_features,
    )


def _of_person(privacy):
    """Return the epsilon of a person in a fit on records, and the number of her records."""
    n = privacy.records_per_person or 1
    if n == 1 or not privacy.is_private:
        return None
    return rounded_up(privacy.epsilon_for(n)), str(n)


def selection_of(privacy):
    """Return what a private search released, None for a fit."""
    if privacy.method != "private selection":
        return None
    facts = f"{privacy.steps:,}", f"{privacy.sample_rate:.4g}", f"{privacy.noise_multiplier:.4g}"
    return SELECTION.format(*facts)


def method_of(name, privacy):
    """Return the method that trained a model, and that a private search chose it, if one did."""
    chosen = name is not None and selection_of(privacy) is not None
    return f"{name}, by {privacy.method}" if chosen else privacy.method


def _not_accounted(privacy, of_person):
    covered = () if of_person is None else (SEVERAL_RECORDS,)
    return tuple(text for text in privacy.not_accounted if text not in covered)


def named_epsilons(privacy, columns):
    """Return the name of each group that has an epsilon of its own, and that epsilon."""
    found = privacy.group_epsilons or {}
    return zip(named(found, columns), found.values(), strict=True)


def _costs(results, classifier):
    """Return what a sweep tells of models such as this one; a search has trials at their own ε."""
    privacy = classifier.privacy_
    if not privacy.is_private:
        raise ValueError("results needs a private classifier, whose cost it tells. Leave it out.")
    return costs_beside(results, classifier.method_.name, classifier.epsilon or privacy.epsilon)


def tested(model, classifier, X, y, sensitive_features, measures):
    """Return a table for all records and for each group, and its measures: NOT private.

    The columns are ``n``, the simple measures and, for each class, ``predicted[class]``, its share
    of the predictions. Without records, the table is None.
    """
    if X is None:
        if measures is not None:
            raise ValueError(
                f"measures={safe_repr(measures)} need test records, but X is None. Pass X and y; "
                "the table that they give is not private."
            )
        return None, []
    if y is None:
        raise ValueError("y must be given with X: a group table needs labels of test records.")
    by_group = hasattr(model, "thresholds_") and sensitive_features is not None
    given = {"sensitive_features": sensitive_features} if by_group else {}
    check_indexes(X=X, y=y, sensitive_features=sensitive_features)
    by = classifier.group_col if sensitive_features is None else None
    own, columns = variables(classifier), variables(classifier)[1:]
    check_same("X, y", table_of(own), table_of(variables_of(y, X, by, sensitive_features)))
    y, predicted = labels.read(y), model.predict(X, **given)
    check_kind("y", y, predicted, like="the fit")
    code, levels = None, []
    if sensitive_features is not None or as_columns(classifier.group_col):
        found = _groups.encode(
            X,
            y,
            group_col=by,
            levels=None if classifier.levels_ is None else list(classifier.levels_),
            sensitive_features=sensitive_features,
            most=_groups.MAX_GROUPS,
        )
        assert found.levels is not None
        code, levels = found.code, apart(named(found.levels, columns), [_ALL])
    order = labels.order_of(classifier)
    classes, likely = classifier.classes_[order], model.predict_proba(X)[:, order]
    table = values_by_group(y, predicted, likely, classes=classes, code=code, levels=levels)
    table = table.set_axis([_ALL, *levels])
    codes = labels.positions(classes, y)
    table.attrs["rarest"] = rarest_class(codes[codes >= 0], len(classes))
    table.attrs["constant"] = np.bincount(codes[codes >= 0]).max() / len(codes)
    leading = leading_measures(table["rarest_class_share"].iloc[0], len(classes))
    names = chosen_measures(
        measures, simple_measures(len(classes)), [*leading, "accuracy", *_ERRORS]
    )
    parts = [np.full(len(y), True), *(code == i for i in range(len(levels)))]
    for label, name in zip(classes, named(classes, own[:1]), strict=True):
        hits = [predicted[rows] == label for rows in parts]
        table[f"predicted[{name}]"] = [h.mean() if len(h) else np.nan for h in hits]
    return table, names


def _verdict(table):
    """Return accuracy beside that of predicting one class, and groups with few test records."""
    few = [group for group, n in table["n"].iloc[1:].items() if n < FEW]
    accuracy, constant = table["accuracy"].iloc[0], table.attrs["constant"]
    return {
        "n": f"{int(table['n'].iloc[0]):,}",
        "accuracy": points(accuracy),
        "constant": points(constant),
        "is_better": accuracy > constant,
        "few": "; ".join(few),
        "least": FEW,
    }


def _rare(classifier, table):
    """Return what the page says first if a class is rare, else None."""
    classes, share = _class_names(classifier), table["rarest_class_share"].iloc[0]
    if len(leading_measures(share, len(classes))) == 1:
        return None
    recall = table["rarest_class_recall"]
    by_group = recall[1:].dropna()
    return {
        "label": classes[table.attrs["rarest"]],
        "share": points(share),
        "recall": points(recall.iloc[0]),
        "group": None if by_group.empty else by_group.idxmin(),
        "least": None if by_group.empty else points(by_group.min()),
    }


def _differences(table, names, classes):
    """Return the largest difference between two groups in each measure, as text by name.

    ``higher`` and ``lower`` are the two groups, and ``records`` says how many of each, of the class
    that the measure is about.
    """
    rows = []
    for name in names:
        values, column = table[name].to_numpy()[1:], f"{name}_difference"
        n_groups, error = np.isfinite(values).sum(), error_in_words(name, classes)
        what = error or in_words(name, classes)
        row = {"measure": what, "interval": "", "may_be_chance": False}
        if n_groups < 2 <= len(values):
            absent = dict.fromkeys(("unit", "higher", "lower", "records"), "")
            rows.append(row | {"value": NOT_COMPARED} | absent)
        elif n_groups > 1:
            high, low = (table.iloc[1 + at(values)] for at in (np.nanargmax, np.nanargmin))
            level = level_of(column, n_groups)
            row |= _of_difference(high, low, name, table.attrs["rarest"], classes, level)
            value = written(difference(values[np.isfinite(values)]), name)
            unit = described(column)[1].replace("percentage points", "points")
            rows.append(row | {"value": value, "unit": unit})
            if name in RATIOS:
                of_two = f"{what}, smallest over largest"
                share = written(ratio(values[np.isfinite(values)]), f"{name}_ratio")
                no_interval = {"interval": "", "may_be_chance": False}
                rows.append(row | no_interval | {"measure": of_two, "value": share, "unit": "%"})
    return rows


def _of_difference(high, low, name, rarest, classes, level=LEVEL):
    """Return two groups, and Newcombe's interval of the difference of two shares of records."""
    n = [n_trials(name, int(row["n"]), row["rarest_class_share"], rarest) for row in (high, low)]
    trials, of_class = MEASURES[name].trials, ""
    if trials not in ("all", None):
        of_class = f" of {classes[rarest if trials == 'rarest' else trials]}"
    sizes = n if all(n) else [int(row["n"]) for row in (high, low)]
    records = " and ".join(f"{size:,}" for size in sizes) + of_class
    pair = {"higher": high.name, "lower": low.name, "records": records}
    if high[name] == low[name]:
        pair = dict.fromkeys(pair, "")
    if not all(n):
        return pair
    shares = high[name], low[name]
    (l1, u1), (l2, u2) = (wilson(p, k, level) for p, k in zip(shares, n, strict=True))
    gap = shares[0] - shares[1]
    least = gap - np.hypot(shares[0] - l1, u2 - shares[1])
    most = gap + np.hypot(u1 - shares[0], shares[1] - l2)
    interval = f"{points(least)} to {points(most)}"
    return pair | {"interval": interval, "may_be_chance": least <= 0}


def group_rows(classifier, table, names):
    """Return the group table of a page as rows of texts for Markdown, the head first."""
    classes = _class_names(classifier)
    heads = ["group", "n", *(_head(name, classes) for name in names)]
    heads += [f"predicted {label}" for label in classes]
    rows = [
        [group, n, *(f"{v} ({i})" if i else v for v, i in values), *shares]
        for group, n, values, shares in _cells(table, names)
    ]
    return markdown_rows(heads, rows)


def _facts(classifier, file=None):
    privacy, (target, *columns) = classifier.privacy_, variables(classifier)
    rows = [] if file is None else [(FILE, file.sha256), (SIZE, f"{file.n_bytes:,} bytes")]
    if day := getattr(classifier, "_day", None):
        rows.append((DAY, f"{day} (UTC)"))
    rows += [
        ("method", method_of(classifier.method_.name, privacy)),
        ("classes", ", ".join(named(classifier.classes_, [target]))),
        *[(POSITIVE, _class_names(classifier)[1])] * (len(classifier.classes_) == 2),
        ("features", f"{math.prod(classifier.net_.module.in_shape):,}"),
    ]
    if (cut := getattr(classifier, "_cut", None)) is not None:
        rows.append((THRESHOLD, f"{expit(cut):.4f}"))
    if privacy.features is not None:
        rows.append((FEATURES, privacy.features))
    if classifier.levels_ is not None:
        rows.append(("groups", "; ".join(named(classifier.levels_, columns))))
    done, size = " trained on", f"{privacy.expected_batch_size:.4g}"
    # some are held out, and trials have batches of their own
    if selection_of(privacy) is not None:
        done, size = "", f"{classifier.batch_size_:,}"
    if privacy.n_samples is not None:
        rows.append((f"{privacy.protects}s{done}", f"{privacy.n_samples:,}"))
    if most := privacy.max_records or privacy.records_per_person:
        rows.append(("records of a person", f"at most {most:,}"))
    if privacy.protects == "person":
        size += " persons"
    rows += [
        ("steps", f"{classifier.n_steps_:,}"),
        ("expected batch size", size),
        ("learning rate", f"{classifier.lr_:.4g}"),
        ("logit scale", f"{classifier.logit_scale_:.4g}"),
        ("written by", f"skdpfair {skdpfair.__version__}"),
    ]
    return rows


def _head(name, classes):
    title, unit, _ = described(name, classes)
    title = error_in_words(name, classes) or title
    return title if unit == "%" else f"{title}, {unit}"


def _cells(table, names):
    """Return rows of text: group, count, measures with intervals, shares of predictions."""
    rows = []
    for group, row in table.iterrows():
        values = [
            (written(row[name], name), interval_of_share(row, name, table.attrs["rarest"]))
            for name in names
        ]
        shares = [points(v) for k, v in row.items() if k.startswith("predicted[")]
        rows.append((group, f"{int(row['n']):,}", values, shares))
    return rows


def _released(what):
    """Return the name of a release in words."""
    return " + ".join(_RELEASES.get(part, part) for part in what.split(" + "))


def noises(multipliers):
    return ", ".join(f"{m:.4g}" for m in multipliers)
