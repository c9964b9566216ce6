"""The privacy report of a fit as JSON, and in the form of a checklist."""

import json
import os
from types import SimpleNamespace

from sklearn.base import is_regressor
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from skdpfair._utils.validate import error_context, one_of
from skdpfair.privacy.privacy_report import PrivacyReport
from skdpfair.release._file import decode
from skdpfair.release._read_statement import read_report, read_statement, statement
from skdpfair.release._release import schema_in
from skdpfair.report._model_facts import model_facts
from skdpfair.report._model_page import classifier_in, described, markdown
from skdpfair.report._rendering import check_text

_NO_RECORDS = (
    "X, y, sensitive_features and measures must be None for kind='json', which holds no figures of "
    "records, for regressors, and for reports, which do not predict. Pass a fitted classifier, or "
    "its file, to 'nist'."
)


def export_statement(
    model,
    kind,
    X=None,
    y=None,
    *,
    sensitive_features=None,
    intended_use=None,
    measures=None,
    ledger=None,
):
    """Return the privacy report of a fit as JSON, or in the form of a public template.

    Parameters
    ----------
    model : fitted estimator, PrivacyReport, str or Path
        The fitted classifier or regressor, its ``privacy_``, or a file written by
        ``save_release``, whose SHA-256 is then stated. A report alone does not describe the
        model, whose items then stay open.
    kind : {"json", "nist"}
        - "json": the fields of the report, an infinite epsilon as the text "inf"; of a file, with
          one more, ``release``, on the file, and with a ledger one more, ``all_fits``. Use it to
          check files, as no code of them runs.
        - "nist": Markdown, a checklist after NIST SP 800-226, Guidelines for Evaluating
          Differential Privacy Guarantees.
    X, y : DataFrame or array, and array, optional
        Test records of a classifier, as it takes them, for "nist"; with them, the text has a group
        table and is NOT private.
    sensitive_features : array, Series or DataFrame, optional
        Their groups, if they are not columns of X.
    intended_use : str or None, default=None
        The intended use, for "nist".
    measures : list of str or None, default=None
        As in `model_page`.
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
        If ``kind`` is unknown, X is given where no group table is possible, or the file is damaged.
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
    """
    one_of("kind", kind, ("json", "nist"))
    check_text("intended_use", intended_use)
    tests = (X, y, sensitive_features, measures)
    is_tested = any(given is not None for given in tests)
    if kind == "json" and is_tested:
        raise ValueError(_NO_RECORDS)
    if kind == "json" and intended_use is not None:
        raise ValueError("intended_use must be None for kind='json', which holds the report alone.")
    facts = _facts(model, ledger)
    if kind == "json":
        is_file = isinstance(model, (str, os.PathLike))
        fields = read_statement(model) if is_file else statement(facts["report"])
        if spent := facts["all_fits"]:
            spent["statement"] = " ".join(spent.pop("sentences"))
            fields["all_fits"] = spent
        return json.dumps(fields)
    facts |= {"intended_use": intended_use, "group_table": None, "released": None}
    if is_tested:
        if isinstance(model, PrivacyReport) or facts["is_regression"]:
            raise ValueError(_NO_RECORDS)
        facts["group_table"] = described(model, *tests).markdown_table
    return markdown("nist.md", facts)


def _facts(model, ledger):
    """Return what is stated of a report, a fitted estimator or a file, without its weights."""
    if isinstance(model, PrivacyReport):
        return model_facts(model, ledger=ledger) | {"report": model}
    if isinstance(model, (str, os.PathLike)):
        privacy, (facts, _, sha256, n_bytes) = read_report(model)
        with error_context(str(model), "holds no description of a model that can be read"):
            names = ("method_", "_variables", "_day", "_ledger_fits")
            fitted = {k: decode(v) for k, v in facts["fitted"].items() if k in names}
            if (schema := schema_in(facts, model)) is not None:
                fitted["_variables"] = (schema.target, *schema.all_groups)
            model = SimpleNamespace(**fitted)
            version, file = facts.get("skdpfair_version"), (n_bytes, sha256)
            stated = model_facts(privacy, model, version=version, file=file, ledger=ledger)
        return stated | {"report": privacy, "is_regression": "estimator" in facts}
    check_is_fitted(model)
    end = model
    while isinstance(end, Pipeline):
        end = end[-1]
    is_regression = is_regressor(end) and hasattr(end, "privacy_")
    inner = end if is_regression else classifier_in(end)
    stated = model_facts(inner.privacy_, inner, ledger=ledger)
    return stated | {"report": inner.privacy_, "is_regression": is_regression}
