"""The privacy report of a fit in the forms that reviewers, registries and authorities ask for."""

import json
import math
import os
from importlib.metadata import version
from types import SimpleNamespace

from sklearn.base import is_regressor
from sklearn.utils.validation import check_is_fitted

from skdpfair._validate import error_context, one_of, safe_repr
from skdpfair.inputs.groups import named
from skdpfair.privacy import PrivacyReport
from skdpfair.privacy.statement import ADJACENCY_IN_WORDS, PROTECTED, rounded_up
from skdpfair.release._encode import decode
from skdpfair.release._facts import module_facts
from skdpfair.release._read_statement import CLASSIFIER, origin_of, read_report
from skdpfair.release._release import load_release, schema_in
from skdpfair.report import _model_page as page
from skdpfair.report._spent_before import beside
from skdpfair.training.inference import weights_of

KINDS = ("nist", "registry", "annex-iv")
OPEN = "open: a person must answer."
# the version of the schema to which the fields of a record belong
REGISTRY_SCHEMA = (
    "https://github.com/opendp/deployments-registry-data/blob/"
    "057e5d81cf60150dd3307e0cf4504b957802fb3b/schemas/deployments-schema.yaml"
)
_LEGEND = (
    "`[x]` is answered from the privacy report of the fit, `[ ]` must be answered by a person. The "
    "answers are facts about the fit, not a judgement of them. Bounds are rounded up."
)
_CURATOR = (
    "Whoever runs the fit sees the training records without noise and must be trusted with them. "
    "Recipients of the weights need not be trusted."
)
_POST_PROCESSING = (
    "Everything that is computed from the noisy sums is post-processing: the steps of the "
    "optimizer, the weights and the predictions for new records."
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
    """Return the privacy report of a fit in the form of a public template.

    Parameters
    ----------
    model : fitted estimator, PrivacyReport, str or Path
        The fitted classifier or regressor, its ``privacy_``, or a file written by
        ``save_release``, whose SHA-256 is then stated. A report alone does not describe the
        model, whose items then stay open.
    kind : {"nist", "registry", "annex-iv"}
        - "nist": Markdown, a checklist after NIST SP 800-226, Guidelines for Evaluating
          Differential Privacy Guarantees.
        - "registry": JSON, a record for the Differential Privacy Deployments Registry of OpenDP.
        - "annex-iv": Markdown, the items of Annex IV of Regulation (EU) 2024/1689 (AI Act). It is
          not legal advice.
    X, y : DataFrame or array, and array, optional
        Test records for "nist" and "annex-iv" of a classifier, as it takes them; with them, the
        text has a group table and is NOT private.
    sensitive_features : array, Series or DataFrame, optional
        Their groups, if they are not columns of X.
    intended_use : str or None, default=None
        Answer to the items on the intended use; None leaves them open.
    measures : list of str or None, default=None
        As in `model_page`.
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
        If ``kind`` is unknown, X is given where no group table is possible, the file is damaged,
        or ``kind`` is "registry" and the fit is not private.
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
    """
    one_of("kind", kind, KINDS)
    if intended_use is not None and not isinstance(intended_use, str):
        raise TypeError(f"intended_use must be a text or None, got {safe_repr(intended_use)}.")
    privacy, facts, fits = _described(model)
    before = beside(ledger, privacy, fits)
    table = names = None
    tested = (X, y, sensitive_features, measures)
    if any(given is not None for given in tested):
        predicts, classifier = _predicting(model, kind)
        table, names = page._tested(predicts, classifier, *tested)
    if kind == "registry":
        return _record(privacy, facts, intended_use, before)
    form = _nist if kind == "nist" else _annex_iv
    title, about, sections = form(privacy, facts, intended_use, names, before)
    return _markdown(title, about, sections, _group_table(privacy, table, names))


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
    inner = model if is_regressor(model) else page._classifier_in(model)
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
        raise ValueError(
            "X, y, sensitive_features and measures must be None for kind='registry', whose records "
            "are public, for regressors, and for reports, which do not predict. Pass a fitted "
            "classifier, or its file, to 'nist' or 'annex-iv'."
        )
    return model, page._classifier_in(model)


def _facts(fitted, kind, module, weights, release):
    """Return what a form says on the model, as text by name."""
    facts = {
        "estimator": page._plain(str(kind)),
        "network": page._plain(str(module["name"] or module["custom"])),
        "weights": f"{sum(w.size for w in weights.values()):,}",
        "features": (n := f"{math.prod(module['in_shape']):,}"),
        "inputs": f"{n} features",
        "records": f"{n} finite numbers for each record",
        "version": page._plain(str(release)),
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
    return "; ".join(map(page._plain, named(values, variables)))


def _noted(privacy, facts):
    """Return the texts that the forms share, as Markdown takes them."""
    person = privacy.unit == "person"
    return SimpleNamespace(
        method=page._plain(page.method_of(facts.get("method"), privacy)),
        released=_released(privacy),
        unit=PROTECTED[privacy.unit]
        + (f", of which at most {privacy.max_records_per_unit:,} take part" if person else ""),
        assumed=[page._plain(str(text)) for text in privacy.assumptions],
        not_covered=[
            page._plain(str(text))
            for text in page._not_accounted(privacy, page._of_person(privacy))
        ],
        features=[page._plain(text) for text in (privacy.features,) if text],
    )


def _released(privacy):
    """Return what the fit released, each as one text."""
    if selection := page._selection(privacy):
        return [selection.rstrip(".")]
    return [
        f"{e.steps:,} × {page._plain(e.what)} with sampling rate {e.sample_rate:.4g} and noise "
        f"{page._noises(e.noise_multipliers)}"
        for e in privacy.ledger.entries
    ]


def _parameters(privacy):
    """Return the guarantee with its numbers, or that there is none."""
    if not privacy.is_private:
        return "None: ε is infinite. The fit is NOT differentially private."
    return f"ε = {rounded_up(privacy.epsilon)} at δ = {rounded_up(privacy.delta, 3)}"


def _nist(privacy, facts, intended_use, names, before):
    """Return title, introduction and sections of a checklist after NIST SP 800-226."""
    noted, private = _noted(privacy, facts), privacy.is_private
    n = privacy.n_samples
    tested = "See the group table below, which is NOT private." if names else None
    sections = [
        (
            "Top of the pyramid (Section 2): privacy parameters",
            [
                ("Which guarantee holds, with which parameters?", _parameters(privacy)),
                (
                    "Which releases were composed, and by which accountant?",
                    f"By the {privacy.accountant} accountant: {'; '.join(noted.released)}."
                    if private
                    else None,
                ),
                (
                    "How does δ compare with the number n of protected units?",
                    f"δ = {rounded_up(privacy.delta, 3)}; n = {n:,}, 1/n = {1 / n:.3g} and "
                    f"1/n² = {n**-2:.3g}."
                    if n and private
                    else None,
                ),
                ("What can an attacker learn about one unit at most?", _attacker(privacy)),
                ("Is ε small enough for this use, and who decided so?", None),
                (
                    "What else was released from the same data, and do the sums stay within the "
                    "budget?",
                    _told(before),
                ),
            ],
        ),
        (
            "Top of the pyramid (Section 2): unit of privacy",
            [
                ("What does the guarantee protect?", _sentence([noted.unit])),
                (
                    "Which data sets are neighbours?",
                    f"{privacy.adjacency}: {ADJACENCY_IN_WORDS[privacy.adjacency]}.",
                ),
                ("How is a person protected who has several records?", _persons(privacy)),
                *_group_epsilons(privacy, facts),
            ],
        ),
        (
            "Middle of the pyramid (Section 3): algorithms and correctness",
            [
                ("Which algorithm was used?", _algorithm(privacy, noted)),
                ("Which file is described?", _sentence(_known(facts, "file"))),
                ("When was the model trained?", _sentence(_known(facts, "day"))),
                (
                    "Which library implements it?",
                    f"skdpfair {facts['version']}." if facts else None,
                ),
                (
                    "Why does no record affect the gradient of another?",
                    f"Gradients are {page._plain(privacy.proof)}." if privacy.proof else None,
                ),
                ("Which facts does the guarantee assume to be public?", _sentence(noted.assumed)),
                ("Are these facts public?", None),
                ("Was preprocessing done without looking at the data, or paid for?", None),
                (
                    "Were the settings chosen without looking at results on this data, or was the "
                    "choice paid for?",
                    None,
                ),
                ("Was this fit, or one like it, attacked by an audit (`skdpfair audit`)?", None),
            ],
        ),
        (
            "Middle of the pyramid (Section 3): utility",
            [
                ("How accurate is the model?", tested),
                ("Is this enough for the intended use?", None),
            ],
        ),
        (
            "Middle of the pyramid (Section 3): bias",
            [
                ("How accurate is the model for each group?", tested),
                ("Do small groups lose more accuracy to clipping and noise than large ones?", None),
                ("Were results changed to look plausible, such as by rounding?", None),
            ],
        ),
        (
            "Bottom of the pyramid (Section 4): query model and trust model",
            [
                (
                    "Which query model?",
                    f"Data release: the {page._plain(privacy.what)} are released, and "
                    "predictions are computed from them alone.",
                ),
                ("Which trust model?", f"Central. {_CURATOR}"),
                ("Who is the curator, and why is it trusted?", None),
            ],
        ),
        (
            "Bottom of the pyramid (Section 4): side channels",
            [
                ("Is the noise secret?", _seed(privacy)),
                ("Which side channels does the guarantee leave out?", _side_channels(noted)),
                ("Could anybody observe the time or the memory of the fit?", None),
            ],
        ),
        (
            "Bottom of the pyramid (Section 4): data security and access control",
            [
                ("What does the released object hold besides what is private?", _held(privacy)),
                ("How are the training records stored, and who may read them?", None),
                ("Were the records, or scores on them, written anywhere during the work?", None),
            ],
        ),
        (
            "Bottom of the pyramid (Section 4): data collection exposure",
            [
                ("Was no more collected than the purpose needs?", None),
                ("When are the records deleted?", None),
            ],
        ),
        ("Not covered by ε", noted.not_covered if private else ["Nothing is covered."]),
    ]
    about = (
        "Checklist after NIST SP 800-226, *Guidelines for Evaluating Differential Privacy "
        "Guarantees* (March 2025, <https://doi.org/10.6028/NIST.SP.800-226>). The headings are the "
        "blocks of its differential privacy pyramid, in which each block depends on those below "
        f"it; the questions are worded by skdpfair, not by NIST. {_LEGEND}"
    )
    if intended_use:
        about += f"\n\nIntended use: {page._plain(intended_use)}"
    return "Evaluation of a differential privacy guarantee", about, sections


def _attacker(privacy):
    """Return the bounds on attackers, None without any."""
    if not privacy.is_private:
        return None
    text = f"{page._plain(privacy.plain_statement)} In Gaussian differential privacy, μ = "
    text += rounded_up(privacy.mu)
    if privacy.mu_from:
        text += f", at error rates from {rounded_up(privacy.mu_from)} on"
    return f"{text}."


def _persons(privacy):
    if privacy.unit == "person":
        return "The guarantee is for all records of a person."
    known = page._of_person(privacy)
    if known is None:
        return None
    return (
        f"A person with at most {known[1]} records is protected with ε = {known[0]} at the same δ."
    )


def _group_epsilons(privacy, facts):
    """Return the question on groups with epsilons of their own, if there are any."""
    by_group = [
        f"{page._plain(name)}: {rounded_up(epsilon)}"
        for name, epsilon in page.named_epsilons(privacy, facts.get("columns", ()))
    ]
    return [("Which ε holds for each group?", f"{'; '.join(by_group)}.")] if by_group else []


def _algorithm(privacy, noted):
    if not privacy.is_private:
        return f"Method {noted.method}, {privacy.steps:,} steps."
    return (
        f"Method {noted.method}. {privacy.sampling} The sum of the clipped gradients of the "
        f"{privacy.unit}s has Gaussian noise with multiplier {privacy.noise_multiplier:.4g}."
    )


def _known(facts, *names):
    """Return those of the facts that are known."""
    return [facts[name] for name in names if name in facts]


def _told(before):
    """Return what a ledger tells, None without one."""
    return None if before is None else page._plain(" ".join(before["sentences"]))


def _seed(privacy):
    if not privacy.is_private:
        return None
    if privacy.seeded:
        return "No: the noise was seeded. Whoever knows or guesses the seed can remove it."
    return "Yes: it was drawn from the entropy of the operating system."


def _side_channels(noted):
    return _sentence([t for t in noted.not_covered if "float" in t or "noise generator" in t])


def _held(privacy):
    if privacy.holds:
        return f"{_sentence(map(page._plain, privacy.holds))} A release leaves them out."
    return "Nothing. A file written by `save_release` holds weights and public facts, and no code."


def _sentence(texts):
    """Return texts as one sentence, None without any."""
    text = "; ".join(texts)
    return f"{text[0].upper()}{text[1:]}." if text else None


def _annex_iv(privacy, facts, intended_use, names, before):
    """Return title, introduction and sections after Annex IV of the AI Act."""
    noted, private = _noted(privacy, facts), privacy.is_private
    known = facts.get
    tested = "See the group table below, which is NOT private." if names else None
    guarantee = page._plain(privacy.statement)
    protects = PROTECTED[privacy.unit]
    sections = [
        (
            "1. General description of the AI system",
            [
                (
                    "(a) Intended purpose",
                    None if intended_use is None else page._plain(intended_use),
                ),
                ("(a) Name of the provider; version, and its relation to earlier ones", None),
                ("(a) File of the model", _sentence(_known(facts, "file"))),
                ("(a) Day of the training", _sentence(_known(facts, "day"))),
                ("(b) Interaction with hardware, software and other AI systems", None),
                (
                    "(c) Versions of software",
                    f"skdpfair {known('version')}." if facts else None,
                ),
                ("(c) Requirements on updates", None),
                ("(d) Forms in which the system is placed on the market", None),
                ("(e) Hardware on which the system is to run", None),
                ("(f) Illustrations of products of which the system is a component", None),
                ("(g) User interface provided to the deployer", None),
                ("(h) Instructions for use for the deployer", None),
            ],
        ),
        (
            "2. Elements of the AI system and process of its development",
            [
                ("(a) Methods and steps of development", _algorithm(privacy, noted)),
                (
                    "(a) Use of pre-trained systems or tools of third parties",
                    _sentence(
                        [f"features are those of {text}" for text in noted.features]
                        + [text for text in noted.assumed if text.startswith("frozen")]
                    ),
                ),
                (
                    "(b) General logic of the system and of its algorithms",
                    f"A {known('estimator')}, a network trained with method {noted.method}, "
                    f"predicts {known('target')} from {known('inputs')}."
                    if facts
                    else None,
                ),
                (
                    "(b) Trade-offs in the technical solutions",
                    f"Noise and clipping limit what the model reveals about {protects}, and cost "
                    f"accuracy: {_parameters(privacy)}."
                    if private
                    else None,
                ),
                (
                    "(b) What the system is designed to optimise; rationale of the design choices; "
                    "persons or groups concerned",
                    None,
                ),
                (
                    "(c) System architecture",
                    f"Network {known('network')} with {known('weights')} numbers."
                    if facts
                    else None,
                ),
                ("(c) Computational resources for development, training, testing", None),
                ("(d) Training data: size and groups", _data(privacy, facts)),
                ("(d) Training data: provenance, selection, labelling, cleaning", None),
                ("(e) Human oversight measures under Article 14", None),
                ("(f) Pre-determined changes to the system and its performance", None),
                ("(g) Validation and testing: results, and effects on groups", tested),
                ("(g) Testing data; test logs and reports, dated and signed", None),
                ("(h) Cybersecurity measures: protection of the training data", guarantee),
                ("(h) Other models trained on the same data, by a ledger", _told(before)),
                ("(h) Other cybersecurity measures", None),
            ],
        ),
        (
            "3. Monitoring, functioning and control",
            [
                ("Accuracy overall and for groups of persons", tested),
                (
                    "Limitations in performance",
                    " ".join(text.format(protects) for text in page._LIMITS) if private else None,
                ),
                (
                    "Foreseeable risks: what the privacy guarantee does not cover",
                    _sentence(noted.not_covered) if private else guarantee,
                ),
                ("Other foreseeable unintended outcomes and sources of risks", None),
                ("Human oversight measures, and interpretation of the outputs", None),
                (
                    "Specifications on input data",
                    f"{known('records')}." if facts else None,
                ),
            ],
        ),
        (
            "4. Appropriateness of the performance metrics",
            [
                ("Metrics used", f"{', '.join(names)}." if names else None),
                ("Why they are appropriate for this system", None),
            ],
        ),
        (
            "5. Risk management system under Article 9",
            [
                ("Risk that the model reveals training data", _attacker(privacy)),
                ("Description of the risk management system", None),
            ],
        ),
        ("6. Changes made through the lifecycle", [("Relevant changes by the provider", None)]),
        (
            "7. Standards",
            [("Harmonised standards applied, other solutions and specifications", None)],
        ),
        ("8. EU declaration of conformity under Article 47", [("Copy of the declaration", None)]),
        (
            "9. Performance in the post-market phase under Article 72",
            [("System of evaluation, and post-market monitoring plan", None)],
        ),
    ]
    about = (
        "Items of Annex IV of Regulation (EU) 2024/1689 (AI Act, "
        "<https://eur-lex.europa.eu/eli/reg/2024/1689/oj>), shortened by skdpfair, as far as the "
        "privacy report of a fit answers them. **This is not legal advice.** It does not say "
        "whether the Act applies, whether the text of the Annex has changed, or whether the "
        f"answers are sufficient. {_LEGEND}"
    )
    return "Technical documentation after Annex IV", about, sections


def _data(privacy, facts):
    parts = []
    if privacy.n_samples is not None:
        parts.append(f"{privacy.n_samples:,} {privacy.unit}s")
    if "groups" in facts:
        parts.append(f"groups {facts['groups']}")
    return _sentence(parts)


def _markdown(title, about, sections, table):
    lines = [f"# {title}", "", about]
    for heading, items in sections:
        lines += ["", f"## {heading}", ""]
        lines += [
            f"- {item}"
            if isinstance(item, str)
            else f"- [{' ' if item[1] is None else 'x'}] **{item[0]}** {item[1] or OPEN}"
            for item in items
        ]
    return "\n".join([*lines, *table, ""])


def _group_table(privacy, table, names):
    """Return the lines of the section with figures, none without them."""
    if table is None:
        return []
    rows = page._card_table(table, names).rename_axis("group").reset_index().round(4)
    several = privacy.unit == "person" or page._of_person(privacy)
    return [
        "",
        "## Group table",
        "",
        f"**{page._FLAG}**{page._NARROW if several else ''}",
        "",
        *(
            f"| {' | '.join(str(page._plain(cell)) for cell in row)} |"
            for row in [list(rows), ["---"] * rows.shape[1], *rows.to_numpy(object).tolist()]
        ),
    ]


def _record(privacy, facts, intended_use, before):
    """Return a record for the registry, and the fields that are open, as JSON."""
    if not privacy.is_private:
        raise ValueError(
            "kind='registry' is for differentially private releases, and this fit is not private. "
            "Fit with epsilon or noise_multiplier."
        )
    noted = _noted(privacy, facts)
    description = None
    if facts:
        description = (
            f"A {facts['estimator']} that predicts {facts['target']} from {facts['inputs']}. "
            f"Network: {facts['network']}."
        )
    details = f"Accountant: {privacy.accountant}. {_attacker(privacy)}"
    for question, answer in _group_epsilons(privacy, facts):
        details += f" {question} {answer}"
    more = " ".join(filter(None, (_sentence(_known(facts, "file", "day")), _told(before))))
    record = {
        "url_slug": None,
        "deployment": {
            "basic": {
                "name": None,
                "data_curators": None,
                "description": description,
                "intended_use": intended_use,
                "data_product_type": "Machine learning model",
                "data_product_region": None,
                "data_product_sector": None,
                "publication_date": None,
            },
            "dp_variant": {
                "variant_name": "Approximate DP",
                "data_domain": None,
                "unprotected_quantities": _sentence(noted.assumed),
            },
            "privacy_loss": {
                "privacy_unit": f"{privacy.unit}-level",
                "privacy_unit_details": f"{noted.unit}: {ADJACENCY_IN_WORDS[privacy.adjacency]}.",
                "number_of_privacy_units": privacy.n_samples,
                "privacy_parameters": {
                    "epsilon": float(rounded_up(privacy.epsilon)),
                    "delta": float(rounded_up(privacy.delta, 3)),
                },
                "privacy_parameters_details": details,
            },
            "deployment_model": {
                "model_name": "Central",
                "model_name_details": None,
                "trust_assumptions": _CURATOR,
                "actors": None,
                "release_type": None,
                "release_type_details": None,
                "data_source_type": None,
                "data_source_type_details": None,
                "access_type": "Non-interactive",
                "access_type_details": None,
            },
            "implementation": {
                "preprocessing_and_hyperparameter_tuning": None,
                "mechanisms": " ".join(
                    text
                    for text in (
                        _algorithm(privacy, noted),
                        f"Library: skdpfair {facts['version']}." if facts else None,
                        f"Is the noise secret? {_seed(privacy)}",
                        _side_channels(noted),
                    )
                    if text
                ),
                "composition": f"Composed by the {privacy.accountant} accountant: "
                f"{'; '.join(noted.released)}.",
                "post_processing": _POST_PROCESSING,
                "justification": None,
                "utility": None,
                "additional_information": more or None,
            },
            "administrative": {
                "evidence_sources": None,
                "status": "Draft",
                "registry_authors": None,
                "tier": None,
            },
        },
    }
    out = {"schema": REGISTRY_SCHEMA, "open_fields": list(_open(record)), "record": record}
    return json.dumps(out, indent=2, ensure_ascii=False, allow_nan=False)


def _open(record, above=""):
    """Give the paths of the fields that are null."""
    for name, value in record.items():
        if value is None:
            yield f"{above}{name}"
        elif isinstance(value, dict):
            yield from _open(value, f"{above}{name}.")
