"""The privacy report of a fit as a model card, as JSON, and in the form of a checklist."""

import json
import os
from importlib.metadata import version
from types import SimpleNamespace

from sklearn.base import is_regressor
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from skdpfair._utils.validate import error_context, one_of, safe_repr
from skdpfair.privacy.statement import ADJACENCY_IN_WORDS, PROTECTED, PrivacyReport, rounded_up
from skdpfair.release._file import decode
from skdpfair.release._read_statement import origin_of, read_report, read_statement, statement
from skdpfair.release._release import load_release, schema_in
from skdpfair.report import _model_page as page
from skdpfair.report._rendering import environment, plain
from skdpfair.report._spent_before import beside

KINDS = ("card", "json", "nist")
_NO_RECORDS = (
    "X, y, sensitive_features and measures must be None for kind='json', which holds no figures of "
    "records, for regressors, and for reports, which do not predict. Pass a fitted classifier, or "
    "its file, to 'card' or 'nist'."
)
_NO_USE = "intended_use must be None for kind='json', which holds the fields of the report alone."


def export_statement(
    model,
    kind,
    X=None,
    y=None,
    *,
    sensitive_features=None,
    intended_use=None,
    measures=None,
    released_table=None,
    ledger=None,
):
    """Return a model card, or the privacy report of a fit in the form of a public template.

    Parameters
    ----------
    model : fitted estimator, PrivacyReport, str or Path
        The fitted classifier or regressor, its ``privacy_``, or a file written by
        ``save_release``, whose SHA-256 is then stated. A report alone does not describe the
        model, whose items then stay open. A card needs a classifier, or what `model_page` takes.
    kind : {"card", "json", "nist"}
        - "card": Markdown, a model card: privacy statement, intended use, limits, and groups.
        - "json": the fields of the report, an infinite epsilon as the text "inf"; of a file, with
          one more, ``release``, on the file, and with a ledger one more, ``all_fits``. Use it to
          check files, as no code of them runs.
        - "nist": Markdown, a checklist after NIST SP 800-226, Guidelines for Evaluating
          Differential Privacy Guarantees.
    X, y : DataFrame or array, and array, optional
        Test records of a classifier, as it takes them, for "card" and "nist"; with them, the text
        has a group table and is NOT private.
    sensitive_features : array, Series or DataFrame, optional
        Their groups, if they are not columns of X.
    intended_use : str or None, default=None
        The intended use, for "card" and "nist"; None gives a card a general text.
    measures : list of str or None, default=None
        As in `model_page`.
    released_table : DataFrame or None, default=None
        For "card": a private group table from `skdpfair.metrics.release_group_table`, to show
        instead of test records, with its privacy statement.
    ledger : PrivacyLedger or None, default=None
        The ledger of the data set, which tells what all fits on it spent.

    Returns
    -------
    str
        Markdown or JSON. Items that the report cannot answer are marked as open. In Markdown,
        epsilon and delta are rounded up.

    Raises
    ------
    ValueError
        If ``kind`` is unknown, X is given where no group table is possible or beside
        ``released_table``, which is no private table, or the file is damaged.
    TypeError
        If ``model`` is none of the above.

    Examples
    --------
    >>> import json
    >>> from skdpfair import DPFairClassifier
    >>> from skdpfair.report import export_statement
    >>> X, y = [[0.0], [1.0]] * 1500, [0, 1] * 1500
    >>> clf = DPFairClassifier("dpsgd", epsilon=3.0, module="logistic", max_steps=5).fit(X, y)
    >>> json.loads(export_statement(clf, "json"))["delta"]
    1e-05
    >>> export_statement(clf.privacy_, "nist").count("- [ ]") > 10
    True
    >>> clf.privacy_.plain_statement in export_statement(clf, "card")
    True
    """
    one_of("kind", kind, KINDS)
    if intended_use is not None and not isinstance(intended_use, str):
        raise TypeError(f"intended_use must be a text or None, got {safe_repr(intended_use)}.")
    tested = (X, y, sensitive_features, measures)
    if kind == "card":
        options = {"intended_use": intended_use, "released_table": released_table}
        return page.model_card(model, *tested, **options, ledger=ledger)
    if released_table is not None:
        raise ValueError(f"released_table must be None for kind={kind!r}: only cards show it.")
    if kind == "json" and any(value is not None for value in (*tested, intended_use)):
        raise ValueError(_NO_RECORDS if intended_use is None else _NO_USE)
    privacy, facts, fits = _described(model)
    before = beside(ledger, privacy, fits)
    if kind == "json":
        is_file = isinstance(model, (str, os.PathLike))
        fields = read_statement(model) if is_file else statement(privacy)
        return json.dumps(fields | ({} if before is None else {"all_fits": before["all_fits"]}))
    table = names = None
    if any(given is not None for given in tested):
        model = load_release(model) if isinstance(model, (str, os.PathLike)) else model
        if isinstance(model, PrivacyReport) or is_regressor(model):
            raise ValueError(_NO_RECORDS)
        classifier = page.classifier_in(model)
        table, names = page.tested(model, classifier, *tested)
    answers = _answers(privacy, facts) | {
        "intended_use": intended_use,
        "metrics": names,
        "group_table": None if table is None else page.group_rows(classifier, table, names),
        "ledger": None if before is None else plain(" ".join(before["sentences"])),
    }
    return environment().get_template("nist.md").render(answers).rstrip("\n") + "\n"


def _described(model):
    """Return the privacy report, facts on the model by name, and its fits in ledgers."""
    if isinstance(model, PrivacyReport):
        return model, {}, None
    if isinstance(model, (str, os.PathLike)):
        privacy, (facts, _, sha256, n_bytes) = read_report(model)
        day, fits = origin_of(facts)
        with error_context(str(model), "holds no description of a model that can be read"):
            kept = ("method_", "_variables")
            fitted = {k: decode(v) for k, v in facts["fitted"].items() if k in kept}
            if (schema := schema_in(facts, model)) is not None:
                fitted["_variables"] = (schema.target, *schema.all_groups)
            known = _facts(SimpleNamespace(**fitted, _day=day), facts.get("skdpfair_version"))
        known["file"] = f"file of {n_bytes:,} bytes with SHA-256 {sha256}"
        return privacy, known, fits
    check_is_fitted(model)
    end = model[-1] if isinstance(model, Pipeline) else model
    is_private = is_regressor(end) and hasattr(end, "privacy_")
    inner = end if is_private else page.classifier_in(end)
    facts = _facts(inner, version("skdpfair"))
    return inner.privacy_, facts, getattr(inner, "_ledger_fits", None)


def _facts(fitted, release):
    """Return what the form says on the model, by name."""
    facts = {"version": plain(str(release)), "columns": page.variables(fitted)[1:]}
    if (method := getattr(fitted, "method_", None)) is not None:  # a file may leave it out
        facts["method"] = method.name
    if (day := getattr(fitted, "_day", None)) is not None:
        facts["day"] = f"trained on {day} (UTC)"
    return facts


def _answers(privacy, facts):
    """Return what the form asks for, by name, as Markdown takes it; None if it is not known."""
    of_person = page._of_person(privacy)
    taken = (*privacy.assumptions, privacy.values_read.rstrip("."))
    assumed = [plain(str(text)) for text in taken if text]
    not_covered = [plain(str(text)) for text in page._not_accounted(privacy, of_person)]
    by_group = page.named_epsilons(privacy, facts.get("columns", ()))
    return {
        "privacy": privacy,
        "model": facts,
        "epsilon": rounded_up(privacy.epsilon),
        "delta": rounded_up(privacy.delta, 3),
        "mu": rounded_up(privacy.mu) if privacy.is_private else None,
        "mu_from": rounded_up(privacy.mu_from) if privacy.mu_from else None,
        "method": plain(page.method_of(facts.get("method"), privacy)),
        "protected": PROTECTED[privacy.protects],
        "adjacency": ADJACENCY_IN_WORDS[privacy.adjacency],
        "releases": _released(privacy),
        "of_person": of_person,
        "by_group": [f"{plain(group)}: {rounded_up(epsilon)}" for group, epsilon in by_group],
        "assumed": assumed,
        "not_covered": not_covered,
        "side_channels": [t for t in not_covered if "float" in t or "noise generator" in t],
        "released": None,
    }


def _released(privacy):
    """Return what the fit released, each as one text."""
    if selection := page.selection_of(privacy):
        return [selection.rstrip(".")]
    return [
        f"{e.steps:,} × {plain(e.what)} with sampling rate {e.sample_rate:.4g} and noise "
        f"{page.noises(e.noise_multipliers)}"
        for e in privacy.releases
    ]
