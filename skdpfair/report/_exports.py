"""The privacy report of a fit in the forms that reviewers, registries and authorities ask for."""

import json
import math
import os
from importlib.metadata import version
from types import SimpleNamespace

from sklearn.base import is_regressor
from sklearn.utils.validation import check_is_fitted

from skdpfair._utils.validate import error_context, one_of, safe_repr
from skdpfair.inputs.groups import named
from skdpfair.privacy.statement import ADJACENCY_IN_WORDS, PROTECTED, PrivacyReport, rounded_up
from skdpfair.release._facts import module_facts
from skdpfair.release._file import decode
from skdpfair.release._read_statement import (
    CLASSIFIER,
    origin_of,
    read_report,
    read_statement,
    statement,
)
from skdpfair.release._release import load_release, schema_in
from skdpfair.report import _model_page as page
from skdpfair.report._rendering import environment, plain
from skdpfair.report._spent_before import beside
from skdpfair.training.inference import weights_of

KINDS = ("card", "json", "nist", "registry", "annex-iv")
_FORMS = {"nist": "nist.md", "registry": "registry.json", "annex-iv": "annex-iv.md"}
_NO_RECORDS = (
    "X, y, sensitive_features and measures must be None for kind='json' and kind='registry', which "
    "hold no figures of records, for regressors, and for reports, which do not predict. Pass a "
    "fitted classifier, or its file, to 'card', 'nist' or 'annex-iv'."
)
_NO_USE = "intended_use must be None for kind='json', which holds the fields of the report alone."
# the version of the schema to which the fields of a record belong
REGISTRY_SCHEMA = (
    "https://github.com/opendp/deployments-registry-data/blob/"
    "057e5d81cf60150dd3307e0cf4504b957802fb3b/schemas/deployments-schema.yaml"
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
    kind : {"card", "json", "nist", "registry", "annex-iv"}
        - "card": Markdown, a model card: privacy statement, intended use, limits, and groups.
        - "json": the fields of the report, an infinite epsilon as the text "inf"; of a file, with
          one more, ``release``, on the file, and with a ledger one more, ``all_fits``. Use it to
          check files, as no code of them runs.
        - "nist": Markdown, a checklist after NIST SP 800-226, Guidelines for Evaluating
          Differential Privacy Guarantees.
        - "registry": JSON, a record for the Differential Privacy Deployments Registry of OpenDP.
        - "annex-iv": Markdown, the items of Annex IV of Regulation (EU) 2024/1689 (AI Act). It is
          not legal advice.
    X, y : DataFrame or array, and array, optional
        Test records of a classifier, as it takes them, for "card", "nist" and "annex-iv"; with
        them, the text has a group table and is NOT private.
    sensitive_features : array, Series or DataFrame, optional
        Their groups, if they are not columns of X.
    intended_use : str or None, default=None
        Answer to the items on the intended use; None leaves them open, and a card has a general
        text.
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
        Markdown or JSON. Items that the report cannot answer are marked as open; in a record they
        are null and listed in ``open_fields``. Epsilon and delta are rounded up.

    Raises
    ------
    ValueError
        If ``kind`` is unknown, X is given where no group table is possible or beside
        ``released_table``, which is no private table, the file is damaged, or ``kind`` is
        "registry" and the fit is not private.
    TypeError
        If ``model`` is none of the above.

    Examples
    --------
    >>> import json
    >>> from skdpfair import DPFairClassifier
    >>> from skdpfair.report import export_statement
    >>> X, y = [[0.0], [1.0]] * 1500, [0, 1] * 1500
    >>> clf = DPFairClassifier("dpsgd", epsilon=3.0, module="logistic", max_steps=5).fit(X, y)
    >>> exported = json.loads(export_statement(clf, "registry"))
    >>> exported["record"]["deployment"]["privacy_loss"]["privacy_parameters"]["delta"]
    1e-05
    >>> exported["open_fields"][:2]
    ['url_slug', 'deployment.basic.name']
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
        predicts, classifier = _predicting(model, kind)
        table, names = page.tested(predicts, classifier, *tested)
    if kind == "registry" and not privacy.is_private:
        raise ValueError(
            "kind='registry' is for differentially private releases, and this fit is not private. "
            "Fit with epsilon or noise_multiplier."
        )
    answers = _answers(privacy, facts) | {
        "intended_use": intended_use,
        "metrics": names,
        "group_table": None if table is None else page.group_rows(classifier, table, names),
        "ledger": None if before is None else plain(" ".join(before["sentences"])),
    }
    text = environment().get_template(_FORMS[kind]).render(answers)
    if kind != "registry":
        return text.rstrip("\n") + "\n"
    record = json.loads(text)
    out = {"schema": REGISTRY_SCHEMA, "open_fields": list(_open(record)), "record": record}
    return json.dumps(out, indent=2, ensure_ascii=False, allow_nan=False)


def _described(model):
    """Return the privacy report, facts on the model by name, and its fits in ledgers."""
    if isinstance(model, PrivacyReport):
        return model, {}, None
    if isinstance(model, (str, os.PathLike)):
        privacy, content = read_report(model)
        facts, weights, sha256, n_bytes = content
        day, fits = origin_of(facts)
        with error_context(str(model), "holds no description of a model that can be read"):
            kept = ("classes_", "y_range_", "groups_", "method_", "_variables")
            fitted = {k: decode(v) for k, v in facts["fitted"].items() if k in kept}
            if (schema := schema_in(facts, model)) is not None:
                fitted["_variables"] = (schema.target, *schema.all_groups)
            kind, release = facts.get("estimator", CLASSIFIER), facts.get("skdpfair_version")
            known = _facts(SimpleNamespace(**fitted), kind, facts["module"], weights, release)
        known["file"] = f"file of {n_bytes:,} bytes with SHA-256 {sha256}"
        known |= _of_day(day)
        if schema is not None and schema.has_features:
            n_columns, inputs = len({*schema.bounds, *schema.categories}), known["features"]
            columns = f"{n_columns:,} column{'s' * (n_columns != 1)}"
            known["inputs"] = f"{columns}, which become{'s' * (n_columns == 1)} {inputs} inputs"
            known["records"] = (
                f"{columns}, whose limits and categories are in the file, which turns them into "
                f"{inputs} finite numbers for each record"
            )
        return privacy, known, fits
    check_is_fitted(model)
    inner = model if is_regressor(model) else page.classifier_in(model)
    module = module_facts(inner.net_.module)
    kind, weights = type(model).__name__, weights_of(inner.net_)
    facts = _facts(inner, kind, module, weights, version("skdpfair"))
    facts |= _of_day(getattr(inner, "_day", None))
    return inner.privacy_, facts, getattr(inner, "_ledger_fits", None)


def _of_day(day):
    return {} if day is None else {"day": f"trained on {day} (UTC)"}


def _predicting(model, kind):
    """Return the estimator that predicts test records, and the classifier that it is or holds."""
    if kind != "registry" and isinstance(model, (str, os.PathLike)):
        model = load_release(model)
    if kind == "registry" or isinstance(model, PrivacyReport) or is_regressor(model):
        raise ValueError(_NO_RECORDS)
    return model, page.classifier_in(model)


def _facts(fitted, kind, module, weights, release):
    """Return what a form says on the model, as text by name."""
    facts = {
        "estimator": plain(str(kind)),
        "network": plain(str(module["name"] or module["custom"])),
        "weights": f"{sum(w.size for w in weights.values()):,}",
        "features": (n := f"{math.prod(module['in_shape']):,}"),
        "inputs": f"{n} features",
        "records": f"{n} finite numbers for each record",
        "version": plain(str(release)),
    }
    if (method := getattr(fitted, "method_", None)) is not None:  # a file may leave it out
        facts["method"] = method.name
    target, *columns = page.variables(fitted)
    if getattr(fitted, "y_range_", None) is not None:
        facts["target"] = "a number from {:g} to {:g}".format(*fitted.y_range_)
    else:
        facts["target"] = "classes " + _named(fitted.classes_, [target])
    if fitted.groups_ is not None:
        facts["groups"] = _named(fitted.groups_, columns)
        facts["columns"] = columns
    return facts


def _named(values, variables):
    return "; ".join(map(plain, named(values, variables)))


def _answers(privacy, facts):
    """Return what the forms ask for, by name, as Markdown takes it; None if it is not known."""
    of_person = page._of_person(privacy)
    taken = (*privacy.assumptions, privacy.values_read.rstrip("."))
    assumed = [plain(str(text)) for text in taken if text]
    not_covered = [plain(str(text)) for text in page._not_accounted(privacy, of_person)]
    features = [f"features are those of {plain(text)}" for text in (privacy.features,) if text]
    by_group = page.named_epsilons(privacy, facts.get("columns", ()))
    return {
        "privacy": privacy,
        "model": facts,
        "epsilon": rounded_up(privacy.epsilon),
        "delta": rounded_up(privacy.delta, 3),
        "mu": rounded_up(privacy.mu) if privacy.is_private else None,
        "mu_from": rounded_up(privacy.mu_from) if privacy.mu_from else None,
        "method": plain(page.method_of(facts.get("method"), privacy)),
        "protected": PROTECTED[privacy.unit],
        "adjacency": ADJACENCY_IN_WORDS[privacy.adjacency],
        "releases": _released(privacy),
        "of_person": of_person,
        "by_group": [f"{plain(group)}: {rounded_up(epsilon)}" for group, epsilon in by_group],
        "assumed": assumed,
        "not_covered": not_covered,
        "side_channels": [t for t in not_covered if "float" in t or "noise generator" in t],
        "pretrained": [*features, *(text for text in assumed if text.startswith("frozen"))],
        "released": None,
    }


def _released(privacy):
    """Return what the fit released, each as one text."""
    if selection := page.selection_of(privacy):
        return [selection.rstrip(".")]
    return [
        f"{e.steps:,} × {plain(e.what)} with sampling rate {e.sample_rate:.4g} and noise "
        f"{page.noises(e.noise_multipliers)}"
        for e in privacy.ledger.entries
    ]


def _open(record, above=""):
    """Give the paths of the fields that are null."""
    for name, value in record.items():
        if value is None:
            yield f"{above}{name}"
        elif isinstance(value, dict):
            yield from _open(value, f"{above}{name}.")
