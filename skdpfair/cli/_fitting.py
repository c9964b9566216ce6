"""A fit of the command line: the records that it reads, the classifier, and the file it writes."""

import json
import os
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from skdpfair import DPFairClassifier, Groups, Persons
from skdpfair._utils.validate import one_of
from skdpfair.cli._input import Unusable
from skdpfair.cli._sources import Parquet, Records, part_of, source_of
from skdpfair.cli._study import Study, person_question
from skdpfair.methods import METHODS
from skdpfair.model_selection import DPRandomizedSearch, DPThresholdClassifier
from skdpfair.release._file import require_safetensors
from skdpfair.training import plan
from skdpfair.training.processes import launched

_RESERVED = {  # parameters of the classifier that options, the schema or the launcher set
    *("epsilon", "delta", "method", "random_state", "noise_multiplier", "group_col", "classes"),
    *("persons", "verbose", "distributed", "keep_reference"),
}


@dataclass(frozen=True)
class Job:
    """Records to fit, as one of several processes reads them."""

    source: Any
    records: Records
    rank: int
    n_processes: int

    @classmethod
    def read(cls, data, path, pictures, epsilon):
        """Return the job of this process on DATA, as a schema file describes it."""
        require_safetensors()  # before anything is spent
        rank, n_processes = launched()
        source = part_of(source_of(*data, **pictures), rank, n_processes)
        return cls(source, source.read(Study.read(path).schema, epsilon), rank, n_processes)

    @property
    def schema(self):
        """The schema, with the number of intervals that the records decide."""
        return self.records.schema

    def check_methods(self, names):
        """Raise if a method is not private, or lacks the groups that it needs."""
        private = sorted(name for name, method in METHODS.items() if method.private)
        for name in names:
            one_of("method", name, private)
            if METHODS[name].needs_groups and not self.schema.all_groups:
                raise Unusable(
                    f"Method {name} needs groups: name their column under [groups] of the schema."
                )

    def classifier(self, method, params):
        """Return the unfitted classifier of these records."""
        return DPFairClassifier(
            method,
            classes=self.schema.classes,
            group_col=Groups(levels=self.schema.group_levels),
            persons=Persons(max_records=self.schema.max_records_per_unit),
            distributed="auto" if self.n_processes > 1 else None,
        ).set_params(**params)

    def person_question(self):
        """Return the question whether a row is a person, if it is open."""
        return person_question(self.source.columns(), self.schema.unit)

    def check_plan(self, clf):
        """Raise if a fit would be refused; return what limits guesses about a private search."""
        n_groups = len(self.schema.group_levels or [None])
        if isinstance(clf, DPRandomizedSearch):
            return clf.forecast(self.records.n_units, n_groups=n_groups).reasons[1]
        if isinstance(clf, DPThresholdClassifier):
            clf = clf.planned_estimator()
        plan.check(clf, self.records.n_units, n_groups)
        return None

    def fit(self, clf, ledger):
        """Fit an estimator, charged to an open ledger if there is one."""
        fitted = clf.fit if ledger is None else partial(ledger.fit, clf)
        units = self.records.units
        persons = None if units is None else pd.Series(units, name=self.schema.unit)
        fitted(
            self.records.X, self.records.y, sensitive_features=self.records.groups, units=persons
        )

    def save(self, model, output):
        """Write a model, which has cost budget; return where, and why elsewhere if it is so."""
        # a memory map of Parquet files has no names
        if isinstance(self.source, Parquet):
            getattr(model, "estimator_", model).feature_names_in_ = np.asarray(
                self.schema.feature_names, dtype=object
            )
        other = f"{output.stem[:200]}-{os.urandom(4).hex()}{output.suffix}"  # replaces nothing
        problem = None
        for path in (output, Path.cwd() / other, Path(tempfile.gettempdir()) / other):
            try:
                model.save_release(path, schema=self.schema)
            except OSError as error:
                problem = problem or f"{output} cannot be written: {error.strerror or error}."
                continue
            if problem is not None:
                problem += f" The model, which has cost budget, is {path}."
            return path, problem
        raise OSError(f"{problem} Nor can the current folder and that for temporary files.")


def search_of(clf, space, mean_trials):
    """Return the private search whose budget is that of the classifier."""
    budget = {name: getattr(clf, name) for name in ("epsilon", "delta", "random_state")}
    clf = clf.set_params(random_state=None)
    return DPRandomizedSearch(clf, space, mean_trials=mean_trials, **budget)


def winner_of(clf):
    """Return the classifier to write, and the settings that a search chose, if it was one."""
    if not isinstance(clf, DPRandomizedSearch):
        return clf, {}
    if not hasattr(clf.best_estimator_, "save_release"):
        raise ValueError(
            "the search drew no trial, as it must do now and then, so there is no model. Its cost "
            "is spent. Run it again, with a larger --trials to make this rarer."
        )
    return clf.best_estimator_, clf.best_params_


def parameters_of(settings) -> dict:
    """Return NAME=VALUE pairs as a dict; a value is JSON, or else a text."""
    out = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals:
            raise Unusable(f"--set {setting!r} must be NAME=VALUE.")
        _check_reserved(name, f"--set {setting!r}")
        out[name] = _value(value)
    return out


def space_of(candidates) -> dict:
    """Return the values to choose from, by parameter."""
    space = {}
    for candidate in candidates:
        name, _, values = candidate.partition("=")
        choices = [_value(value) for value in values.split(",")]
        if name in space or len(choices) < 2:
            raise Unusable(
                f"--try {candidate!r} must be NAME=VALUE,VALUE, once for each name. For one value, "
                "use --set, or --method."
            )
        if name != "method":
            _check_reserved(name, f"--try {candidate!r}")
        space[name] = choices
    return space


def _check_reserved(name, option):
    """Raise if a parameter is set elsewhere."""
    if name.partition("__")[0] in _RESERVED:
        raise Unusable(f"{option}: an option of its own, the schema or torchrun sets {name}.")


def _value(text):
    """Return JSON, or else the text."""
    try:
        return json.loads(text)
    except (json.JSONDecodeError, RecursionError):
        return text
