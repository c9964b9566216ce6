"""Page and model card of one classifier: privacy, settings, groups, and what is not accounted."""

import math
import os
from dataclasses import dataclass
from typing import Any

import pandas as pd
from scipy.special import expit
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

import skdpfair
from skdpfair._utils.group_names import display_names, is_word
from skdpfair._utils.validate import safe_repr
from skdpfair.privacy.privacy_report import FALSE_ALARMS, MEMBERS, percent
from skdpfair.release._closed_list import MAX_LEVELS, are_texts_of_levels, is_report, passes
from skdpfair.release._facts import record_shape
from skdpfair.release._release import loaded, schema_in
from skdpfair.report._group_figures import class_names, figures_of, markdown_table, measured
from skdpfair.report._model_facts import attacker_chart, model_facts, variables
from skdpfair.report._rendering import check_text, environment, lint_report, markdown_rows, render
from skdpfair.report._same_table import check_same, table_of, table_of_sweep
from skdpfair.report._summary import costs_beside

_FEATURES, _POSITIVE = "public features", "positive class"  # rows of facts


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
    >>> "All figures on this page are private" in page
    True
    """
    check_text("title", title)
    fit = described(classifier, X, y, sensitive_features, measures, pipeline)
    absent = ("costs", "groups", "rare", "verdict", "worse", "group_chart")
    facts, privacy = fit.facts(title, ledger) | dict.fromkeys(absent), fit.classifier.privacy_
    if results is not None and not privacy.is_private:
        raise ValueError("results needs a private classifier, whose cost it tells. Leave it out.")
    if results is not None:
        check_same("results", fit.known_table(), table_of_sweep(results))
        own = fit.classifier.epsilon or privacy.epsilon  # trials of a search are at their own
        facts["costs"] = costs_beside(results, fit.classifier.method_.name, own)
    if fit.table is not None:
        facts |= figures_of(fit.classifier, fit.table, fit.names, fit.judged_by)
    is_open = results is None and fit.table is None and not facts["has_findings"]
    if is_open and not passes(_is_public, facts, fit.classifier):
        raise ValueError(
            "title, or names of groups, classes or methods, cannot stand on a page to publish: "
            "they are longer than 100 characters or may be values of records, such as decimal "
            "numbers. Use short names."
        )
    facts["attacker"] = attacker_chart(privacy) if privacy.is_private else None
    attack = percent(privacy.detection_rate()), MEMBERS[privacy.protects], percent(FALSE_ALARMS)
    return render("model.html", facts | {"attack": attack})


def model_card(
    classifier,
    X=None,
    y=None,
    *,
    sensitive_features=None,
    intended_use=None,
    measures=None,
    released_table=None,
    ledger=None,
):
    """Return a model card: the page of `model_page` in Markdown, with intended use and limits.

    Parameters
    ----------
    classifier, X, y, sensitive_features, measures, ledger
        As in `model_page`.
    intended_use : str or None, default=None
        The intended use; None gives a general text.
    released_table : DataFrame or None, default=None
        A private group table from `skdpfair.metrics.release_group_table`, to show instead of test
        records, with its privacy statement.

    Returns
    -------
    str
        The card in Markdown.

    Examples
    --------
    >>> from skdpfair import DPFairClassifier
    >>> from skdpfair.report import model_card
    >>> X, y = [[0.0], [1.0]] * 1500, [0, 1] * 1500
    >>> clf = DPFairClassifier("dpsgd", epsilon=3.0, module="logistic", max_steps=5).fit(X, y)
    >>> clf.privacy_.plain_statement in model_card(clf)
    True
    """
    check_text("intended_use", intended_use)
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
    fit = described(classifier, X, y, sensitive_features, measures)
    facts = fit.facts("Model card", ledger) | {"group_table": fit.markdown_table}
    facts |= {"intended_use": intended_use, "released": None}
    if released_table is not None:
        rows = released_table.rename_axis("group").reset_index().round(4)
        facts["group_table"] = markdown_rows(list(rows), rows.to_numpy(object).tolist())
        facts["released"] = released_table.attrs["privacy"]["statement"]
    return markdown("card.md", facts)


def markdown(template, facts):
    return environment().get_template(template).render(facts).rstrip("\n") + "\n"


@dataclass(frozen=True)
class _Fit:
    """A fitted classifier, and what a page or card on it shows besides its own facts."""

    model: Any  # the last step of a pipeline
    classifier: Any  # the DPFairClassifier that it is or holds
    file: Any  # the content of the file that it was read from, or None
    pipeline: Any
    table: pd.DataFrame | None  # of test records: NOT private
    names: list  # of its measures

    def facts(self, title, ledger) -> dict:
        facts = model_facts(self.classifier.privacy_, self.classifier, ledger=ledger)
        lint = lint_report(self.pipeline)  # it has names and texts of any kind
        return facts | {
            "title": title or f"A classifier trained with {facts['method'].partition(',')[0]}",
            "facts": _rows(self.model, self.classifier, self.file, facts),
            "lint": lint,
            "has_findings": bool(lint and (lint.findings or lint.notes)),
        }

    @property
    def judged_by(self) -> str:
        """Balanced accuracy for a threshold that serves it, else accuracy.

        A file does not tell what its threshold serves.
        """
        is_cut = getattr(self.classifier, "_cut", None) is not None
        serves = getattr(self.model, "objective", "balanced_accuracy" if is_cut else "accuracy")
        return "balanced_accuracy" if str(serves) == "balanced_accuracy" else "accuracy"

    def known_table(self) -> dict:
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

    @property
    def markdown_table(self):
        """The group table for Markdown, None without one."""
        if self.table is None:
            return None
        return markdown_table(self.classifier, self.table, self.names)


def described(classifier, X, y, sensitive_features, measures, pipeline=None) -> _Fit:
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
    table, names = measured(model, classifier, X, y, sensitive_features, measures)
    return _Fit(model, classifier, file, pipeline, table, names)


def _is_public(facts, classifier) -> bool:
    """Return whether the names on a page are those of a public set, and no values of records."""
    other = (_FEATURES, "classes", _POSITIVE, "groups")
    texts = [text for name, text in facts["facts"] if name not in other]
    groups = [] if classifier.levels_ is None else classifier.levels_
    each = (v if isinstance(v, tuple) else (v,) for v in [*classifier.classes_, *groups])
    levels = [str(value) for values in each for value in values]
    is_known = is_report(classifier.privacy_, classifier.levels_, classifier._n_fits)
    are_short = all(map(is_word, [facts["title"], *texts])) and len(levels) <= MAX_LEVELS
    return is_known and are_short and are_texts_of_levels(levels)


def classifier_in(model):
    """Return the fitted DPFairClassifier that a model is or holds; its report is the model's."""
    check_is_fitted(model)
    inner = getattr(model, "estimator_", getattr(model, "best_estimator_", model))
    while isinstance(inner, Pipeline):
        inner = inner[-1]
    is_classifier = hasattr(inner, "net_") and hasattr(inner, "classes_")
    if not hasattr(model, "privacy_") or not is_classifier:
        inner_text = "" if inner is model else f" that holds a {type(inner).__name__}"
        raise TypeError(
            "classifier must be a fitted DPFairClassifier, DPThresholdClassifier or "
            f"DPRandomizedSearch, or a pipeline that ends with one, got a {type(model).__name__}"
            f"{inner_text}. No statement covers what else learns from records, such as "
            "calibration, a threshold, or a choice by scores: let DPThresholdClassifier set "
            "thresholds, and DPRandomizedSearch choose, within the budget."
        )
    return inner


def _rows(model, classifier, file, facts):
    """Return the known facts on a model as pairs of name and text."""
    privacy, (_, *columns) = classifier.privacy_, variables(classifier)
    classes, cut, n = class_names(classifier), getattr(classifier, "_cut", None), privacy.n_samples
    pairs = [pair for group in getattr(model, "thresholds_", {}).values() for pair in group]
    # (threshold, share), which only a single number words
    one = pairs[0][0] if len(pairs) == 1 else cut and expit(cut)
    levels, max_records = classifier.levels_, privacy.max_records or privacy.records_per_person
    done, size = " trained on", f"{privacy.expected_batch_size:,.0f}"
    if facts["selection"]:  # some are held out, and trials have batches of their own
        done, size = "", f"{classifier.batch_size_:,}"
    rows = {
        "SHA-256 of the file": file and file.sha256,
        "size of the file": file and f"{file.n_bytes:,} bytes",
        "day of training": facts["day"] and f"{facts['day']} (UTC)",
        "method": facts["method"],
        "classes": ", ".join(classes),
        _POSITIVE: classes[1] if len(classes) == 2 else None,
        "features": f"{math.prod(classifier.net_.module.in_shape):,}",
        "threshold of the probability": None if one is None else f"{one:.4f}",
        _FEATURES: privacy.features,
        "groups": None if levels is None else "; ".join(display_names(levels, columns)),
        f"{privacy.protects}s{done}": None if n is None else f"{n:,}",
        "records of a person": f"at most {max_records:,}" if max_records else None,
        "steps": f"{classifier.n_steps_:,}",
        "expected batch size": size + " persons" * (privacy.protects == "person"),
        "learning rate": f"{classifier.lr_:.4g}",
        "logit scale": f"{classifier.logit_scale_:.4g}",
        "written by": f"skdpfair {skdpfair.__version__}",
    }
    return [(name, text) for name, text in rows.items() if text is not None]
