"""A linter of pipelines: the steps that learn from private rows outside the budget."""

import re
import textwrap
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from inspect import currentframe
from numbers import Number

import numpy as np
from sklearn.base import clone

from skdpfair._utils import cards
from skdpfair._utils.validate import safe_repr
from skdpfair.budget.privacy_ledger import linter
from skdpfair.budget.spending import ELSEWHERE, LEAKS
from skdpfair.exceptions import PrivacyLeakWarning
from skdpfair.inputs.groups import as_columns
from skdpfair.preprocessing import _learners
from skdpfair.preprocessing._learners import OTHER_PROTECTION, REFERENCE, is_estimator, params_of

_GRIDS = ("param_grid", "param_distributions")
_WIDTH = 96  # characters of a printed report
PERSON_QUESTION = (
    "Is a row a person? The guarantee is for one row, and the column {} may name persons with "
    "several: then {}"
)
# whole words of a column's name: what tells persons apart; persons, as the last word or numbered
_APART = re.compile("id|uid|uuid|guid|nhs|ssn|mrn")
_NUMBER = re.compile("no|nr|nbr|num|number|name|code|key|hash")
_PERSON = re.compile(
    "person|individual|subject|participant|respondent|patient|customer|cust|client|borrower|debtor|"
    "applicant|user|member|subscriber|insured|employee|worker|student|pupil|citizen|resident|"
    "taxpayer|voter|tenant|household|family|account|(card|policy)?holder|owner|donor|passenger"
)
_INNER_CAPITAL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


@dataclass(frozen=True)
class PipelineFinding:
    """A step that learns from the rows outside the budget.

    Parameters
    ----------
    path, name : str
        Names of steps and parameters that lead to it, with dots, and its class.
    learns, instead : str
        What it learns, and what to use instead.
    """

    path: str
    name: str
    learns: str
    instead: str

    @property
    def step(self) -> str:
        """Path and class, ``columns.numeric: StandardScaler``."""
        return f"{self.path}: {self.name}" if self.path else self.name

    def __str__(self):
        return f"{self.step} learns {self.learns}; instead: {self.instead}"


@dataclass(frozen=True, repr=False)
class PipelineReport:
    """The findings of :func:`lint_pipeline`.

    Parameters
    ----------
    findings : list of PipelineFinding
        Empty if no step learns from the rows outside the budget.
    notes : list of str
        Facts that the parameters do not show, or that another budget covers.
    spending : list of estimator
        Steps, other than a DPFairClassifier, with their own budget, such as DPQuantileScaler.
    """

    findings: list[PipelineFinding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    spending: list = field(default_factory=list)

    def warn(self, stacklevel=2) -> None:
        """Emit one `PrivacyLeakWarning` that names all findings; none if there are none."""
        if self.findings:
            named = "".join(f"\n  - {finding}" for finding in self.findings)
            warnings.warn(
                f"These steps learn from private rows outside the budget:{named}",
                PrivacyLeakWarning,
                stacklevel=stacklevel,
            )

    @property
    def _head(self):
        n = len(self.findings)
        learn = f"{cards.count(n, 'step')} learn{'s' * (n < 2)}"
        notes = cards.count(len(self.notes), "note")
        reservation = f", as far as can be seen; {notes}" * bool(self.notes)
        return f"PipelineReport: {learn} from private rows outside the budget{reservation}"

    def __repr__(self):
        texts = []
        for f in self.findings:
            texts += [("  ", f.step), ("    learns   ", f.learns), ("    instead  ", f.instead)]
        texts += [("  note: ", note) for note in self.notes]
        fill = partial(textwrap.fill, width=_WIDTH, break_long_words=False, break_on_hyphens=False)
        lines = [fill(text, initial_indent=s, subsequent_indent=" " * len(s)) for s, text in texts]
        return "\n".join([self._head, *lines])

    def _repr_html_(self):
        rows = [(f.step, f.learns, f.instead) for f in self.findings]
        table = cards.table(rows, ("step", "learns", "instead")) if rows else ""
        return cards.card(self._head, table, cards.items(self.notes))


def lint_pipeline(pipe) -> PipelineReport:
    """List the steps of a pipeline that learn from private rows outside the budget.

    The check fits nothing on your rows; it reads parameters, even of a fitted pipeline.

    Parameters
    ----------
    pipe : estimator
        A Pipeline, ColumnTransformer, FeatureUnion, search, ensemble or wrapper, nested in any
        way, or a single step. All values in the grids of a search are checked.

    Returns
    -------
    PipelineReport
        ``findings`` is empty if no step learns from the rows outside the budget.

    Notes
    -----
    A step is a finding unless its class is known to learn nothing with its parameters; a subclass
    that defines ``fit`` is unknown. The function of a FunctionTransformer is noted: it must treat
    each row by itself. The check cannot detect bounds or categories that were computed from the
    rows. If a column has a name such as "patient_id" and a
    DPFairClassifier has no ``persons``, a note asks whether each row is a person.

    Examples
    --------
    >>> from sklearn.compose import make_column_transformer
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import OneHotEncoder, StandardScaler
    >>> from skdpfair import DPFairClassifier
    >>> from skdpfair.preprocessing import lint_pipeline, public_preprocessor
    >>> encode = OneHotEncoder(categories=[["F", "M"]])
    >>> columns = make_column_transformer((StandardScaler(), ["age"]), (encode, ["sex"]))
    >>> lint_pipeline(make_pipeline(columns, DPFairClassifier()))
    PipelineReport: 1 step learns from private rows outside the budget
      columntransformer.standardscaler: StandardScaler
        learns   statistics of its columns
        instead  public_preprocessor with public bounds and categories, or DPQuantileScaler, whose
                 quantiles are private
    >>> columns = public_preprocessor({"age": (0, 120)}, {"sex": ["F", "M"]})
    >>> lint_pipeline(make_pipeline(columns, DPFairClassifier())).findings
    []
    """
    if not is_estimator(pipe):
        raise TypeError(
            f"pipe must be an estimator, got {pipe!r}. Pass an object that has fit: a Pipeline, "
            "a search, or a single step."
        )
    walk = _Walk(pipe)
    walk.findings += walk.payers if walk.has_persons else []
    findings, notes = (list(dict.fromkeys(every)) for every in (walk.findings, walk.notes))
    names = [*_learners.declared_columns(pipe), *getattr(pipe, "feature_names_in_", ())]
    if walk.hidden is not None and (raw := [c for c in walk.raw if c not in walk.hidden]):
        notes.append(
            f"{safe_repr(raw)} under passthrough: each number becomes a feature as it is, of any "
            "size. List it under bounds, or name the column of a group by group_col="
        )
    name = next(iter(columns_of_persons(names)), None)
    if walk.by_row and name is not None:
        remedy = f"keep it, and set persons=Persons({safe_repr(name)}, max_records=...)"
        notes.append(f"{PERSON_QUESTION.format(safe_repr(name), remedy)}; else drop it")
    return PipelineReport(findings, notes, walk.spending)


def columns_of_persons(names) -> list[str]:
    """Return the names of columns that suggest that they name persons."""
    return [name for name in names if isinstance(name, str) and _names_persons(name)]


def _names_persons(name):
    words = re.findall(r"[^\W\d_]+", _INNER_CAPITAL.sub(" ", name).lower())
    has = {kind: any(map(kind.fullmatch, words)) for kind in (_APART, _NUMBER, _PERSON)}
    is_last = has[_PERSON] and _PERSON.fullmatch(words[-1])
    return has[_APART] or is_last or (has[_PERSON] and has[_NUMBER])


@linter
def warn_of_leaks(estimator, params=()) -> None:
    """Warn of what a fit with these keywords learns outside the budget; refuse other protection."""
    refuse_other_protection(estimator, _have_persons(params))
    # a fit names its reference model itself; the stack level is that of the call of `fit`
    PipelineReport(_leaks(lint_pipeline(estimator))).warn(stacklevel=4)


def reasons_of(report: PipelineReport) -> list[str]:
    """Return why steps reveal more than the private fits, which name their own reference models."""
    # whose budget the open ledger counts
    others = [s for s in report.spending if not _is(s, "DPQuantileScaler")]
    steps_of_reason = {LEAKS: [f.step for f in _leaks(report)]}
    steps_of_reason |= {ELSEWHERE: [type(s).__name__ for s in others]}
    return [
        reason.format(", ".join(dict.fromkeys(steps)), "s" * (len(set(steps)) == 1))
        for reason, steps in steps_of_reason.items()
        if steps
    ]


def _leaks(report):
    return [f for f in report.findings if f.learns not in (REFERENCE, OTHER_PROTECTION.learns)]


def _is(estimator, name):
    return any(c.__name__ == name for c in type(estimator).__mro__)


def refuse_other_protection(estimator, of_persons: bool) -> None:
    """Raise ValueError if steps protect records, and a classifier, or ``persons``, persons."""
    walk = _Walk(estimator)
    if walk.spending and (of_persons or walk.has_column):
        raise ValueError(f"{walk.payers[0]}. Nothing more was fitted.")


def _have_persons(params):
    return any(name.split("__")[-1] == "persons" for name in params)


def refuse_persons_around(protects: str) -> None:
    """Raise ValueError if a fit of ``protects`` is part of one that protects records and persons.

    A pipeline tells a step nothing of the others; the frames of the fits that run in this thread
    do.  A step in another thread or process finds none, and the classifier refuses.
    """
    frame = currentframe()
    while frame is not None:
        if frame.f_code.co_name.startswith(("fit", "_fit")):
            around, params = frame.f_locals.get("self"), frame.f_locals.get("params")
            # a search fits other candidates, too
            if hasattr(around, "get_params") and grids_of(around) is None:
                routed = params if isinstance(params, dict) else ()
                refuse_other_protection(around, protects == "person" or _have_persons(routed))
        frame = frame.f_back


class _Walk:
    """Goes through an estimator and collects what it finds.

    ``declared`` are the columns that the pipeline names, and ``pays`` is whether a step's own
    budget is counted, which a private search does not.
    """

    def __init__(self, estimator):
        self.findings, self.notes, self.spending = [], [], []
        self.payers = []  # findings on the steps with a budget, if the classifier protects persons
        self.by_row = False  # whether some classifier takes each row for a person
        self.has_persons = self.has_column = False  # whether one names persons, and in a column
        # columns that are kept, and those that no model sees; None without a DPFairClassifier
        self.raw, self.hidden = [], None
        self.into(estimator, (), _learners.declared_columns(estimator))

    def into(self, estimator, path, declared, pays=True, columns=None):
        name, params = type(estimator).__name__, params_of(estimator)
        step = f"{'.'.join(path)}: {name}" if path else name
        if grids_of(estimator) is not None:
            self._search(estimator, step, path, declared, pays)
            return
        # a classifier without such a parameter says nothing of persons
        persons = params.get("persons", "no such parameter")
        limits = getattr(persons, "column", None), getattr(persons, "max_records", None)
        if "group_col" in params:
            self.hidden = [*(self.hidden or ()), *as_columns(params["group_col"]), limits[0]]
        protects = getattr(getattr(estimator, "privacy_", None), "protects", None)  # once fitted
        self.has_column |= limits[0] is not None
        # with persons, the fit protects persons
        is_bounded = limits[1] is not None and protects is None
        self.has_persons |= limits[0] is not None or is_bounded or protects == "person"
        self.by_row |= persons is None or (not isinstance(persons, str) and limits == (None, None))
        outcome = _learners.verdict(estimator)
        if outcome.spends:
            self.spending.append(estimator)
            texts = OTHER_PROTECTION.learns, OTHER_PROTECTION.instead
            self.payers.append(PipelineFinding(".".join(path), name, *texts))
            if pays:
                self.notes.append(f"{step} spends its own epsilon in addition to the classifier's")
            else:
                learns = "with its own budget, which DPRandomizedSearch does not count"
                outcome = _learners.Verdict(learns, _learners.SCALE.partition(",")[0])
        elif not outcome.learns:
            self._note_function(params, step)
        if outcome.learns:
            finding = PipelineFinding(".".join(path), name, outcome.learns, outcome.instead)
            self.findings.append(finding)
        if name in _learners.FROZEN:
            self.notes.append(
                f"{step} learns nothing more, but its content must come from public rows, or be "
                "covered by a budget"
            )
        elif not outcome.spends:
            self._parts(estimator, path, declared, pays)

    def _parts(self, estimator, path, declared, pays):
        self.raw += _learners.columns_kept(estimator)
        for name, part, columns in _learners.parts_of(estimator):
            self.into(part, (*path, name), declared, pays, columns)
            if type(columns).__name__ == "CategoryColumns":
                self.notes.append(
                    f"{'.'.join((*path, name))}: the categories are those of types, which must be "
                    'public: astype("category") reads them from the rows'
                )
            elif callable(columns) and type(columns).__name__ != "make_column_selector":
                self.notes.append(
                    f"{'.'.join((*path, name))}: its columns are chosen by a function, which must "
                    "not use the values"
                )

    def _search(self, search, step, path, declared, pays):
        is_private = _is(search, "DPRandomizedSearch")
        for candidate in models_of(search):
            columns = declared | _learners.declared_columns(candidate)
            self.into(candidate, (*path, "estimator"), columns, pays and not is_private)
        if not is_private:
            self.notes.append(
                f"{step} selects by scores on private records, which are not private: see "
                "skdpfair.model_selection.forecast and DPRandomizedSearch"
            )

    def _note_function(self, params, step):
        """Note a function of the user's, which nothing here can see into."""
        function = params.get("func")
        # an elementwise function of numpy cannot see other rows
        is_ufunc = isinstance(function, np.ufunc) and function.nargs == 2
        if callable(function) and not (is_ufunc and function.signature is None):
            self.notes.append(f"{step} was not checked: its function must treat each row by itself")


def grids_of(estimator) -> list | None:
    """Return the grids of a search, None of anything else."""
    params = params_of(estimator)
    grids = next((params[name] for name in _GRIDS if name in params), None)
    if grids is None or not is_estimator(params.get("estimator")):
        return None
    grids = grids if isinstance(grids, (list, tuple)) else [grids]
    return [grid for grid in grids if isinstance(grid, Mapping)]


def models_of(search) -> list:
    """Return what a search may fit, with the first values of each grid and each other in turn."""
    estimator, out = params_of(search)["estimator"], []
    for grid in grids_of(search) or []:
        axes = {name: _candidates(values) for name, values in grid.items()}
        first = {name: values[0] for name, values in axes.items() if values}
        every = [first, *(first | {name: v} for name, values in axes.items() for v in values[1:])]
        out += [model for params in every if (model := _with(estimator, params)) is not None]
    return out or [estimator]


def _candidates(values):
    """Return listed values, or a draw from a distribution; numbers but 0 stand for each other."""
    try:
        values = [values.rvs(random_state=0)] if hasattr(values, "rvs") else list(values)
    except TypeError:  # the search will refuse it as well
        return []
    is_number = [isinstance(v, Number) and not isinstance(v, bool) and v != 0 for v in values]
    return [v for i, v in enumerate(values) if not (is_number[i] and any(is_number[:i]))]


def _with(estimator, params):
    try:
        model = clone(estimator, safe=False)
        return model.set_params(**{k: clone(v, safe=False) for k, v in params.items()})
    except (AttributeError, TypeError, ValueError):  # the search will refuse it as well
        return None
