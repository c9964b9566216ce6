"""A fit of the command line: the records that it reads, the classifier, and the file it writes."""

import json
import os
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import clone

from skdpfair import DPFairClassifier, Groups, Persons
from skdpfair._networks import network_of
from skdpfair._utils.validate import nearest, one_of
from skdpfair.budget.charging import entry_of
from skdpfair.cli._shell import Unusable
from skdpfair.cli._sources import LabelledTable, Parquet, part_of, source_of
from skdpfair.cli._study import Study
from skdpfair.methods import METHODS
from skdpfair.model_selection import DPRandomizedSearch, DPThresholdClassifier
from skdpfair.model_selection._forecast import planned_fit
from skdpfair.release._file import require_safetensors
from skdpfair.training.defaults import check_network, network_for
from skdpfair.training.processes import launched
from skdpfair.training.spec import FitSpec

RESERVED = {  # parameters of the classifier that options, the schema or the launcher set
    *("epsilon", "delta", "method", "random_state", "noise_multiplier", "group_col", "classes"),
    *("persons", "verbose", "distributed", "keep_reference"),
}


@dataclass(frozen=True)
class Job:
    """Records to fit, as one of several processes reads them."""

    source: Any
    records: LabelledTable
    rank: int
    n_processes: int

    @classmethod
    def read(cls, data, path, epsilon):
        """Return the job of this process on DATA, as a schema file describes it."""
        require_safetensors()  # before anything is spent
        rank, n_processes = launched()
        source = part_of(source_of(*data), rank, n_processes)
        return cls(source, source.read(Study.read(path).schema, epsilon), rank, n_processes)

    @property
    def schema(self):
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
        return DPFairClassifier(
            method,
            classes=self.schema.classes,
            group_col=Groups(levels=self.schema.group_levels),
            persons=Persons(max_records=self.schema.max_records),
            distributed="auto" if self.n_processes > 1 else None,
        ).set_params(**params)

    def check_plan(self, clf, ledger):
        """Raise if a fit would be refused; return what limits guesses about a private search."""
        schema, n_examples = self.schema, self.records.n_examples
        n_groups, classes = len(schema.group_levels or [None]), schema.classes
        tried = getattr(clf, "param_distributions", {})
        alone = [{name: v} for name in ("module", "method") for v in tried.get(name, ())]
        for params in alone or [{}]:
            one = clone(getattr(clf, "estimator", clf)).set_params(**params)
            check_network(network_of(one.module), (len(schema.feature_names),), len(classes))
            FitSpec.of(one).check_data(classes, n_groups)
        about = {"persons": schema.person, "protects": "person" if schema.person else "record"}
        limit, releases = None, ()
        if isinstance(clf, DPRandomizedSearch):
            forecast = clf.forecast(n_examples, n_groups=n_groups)
            limit, about["curve"] = forecast.reasons[1], forecast.curve
        else:
            if isinstance(clf, DPThresholdClassifier):
                if len(classes) > 2:
                    raise Unusable(f"--threshold is for two classes, and there are {len(classes)}.")
                clf = clf.planned_estimator()
            network = network_for(schema.feature_names)
            about["private"], releases = planned_fit(clf, n_examples, n_groups, network)
        if ledger is not None:
            ledger.check([entry_of(releases, **about)])
        return limit

    def fit(self, clf, ledger):
        X, y, groups, persons = self.records[1:5]
        persons = None if persons is None else pd.Series(persons, name=self.schema.person)
        records = {"X": X, "y": y, "sensitive_features": groups, "persons": persons}
        clf.fit(**records) if ledger is None else ledger.fit(clf, **records)

    def save(self, model, output):
        """Write a model; return its path, and the reason if that is not ``output``."""
        # a memory map of Parquet files has no names
        if isinstance(self.source, Parquet):
            names = np.asarray(self.schema.feature_names, dtype=object)
            getattr(model, "estimator_", model).feature_names_in_ = names
        try:
            model.save_release(output, schema=self.schema)
        except OSError as error:
            # what has cost budget is not lost with a full disk
            other = f"{output.stem[:200]}-{os.urandom(4).hex()}{output.suffix}"
            path = Path(tempfile.gettempdir()) / other
            model.save_release(path, schema=self.schema)
            return path, (
                f"{output} cannot be written: {error.strerror or error}. The model, which has cost "
                f"budget, is {path}."
            )
        return output, None


def winner_of(clf):
    """Return the classifier to write, and the settings that a search chose, if it was one."""
    if not isinstance(clf, DPRandomizedSearch):
        return clf, {}
    if not hasattr(clf.best_estimator_, "save_release"):
        raise ValueError(
            "the search drew no trial, which happens by chance, so there is no model. Its cost is "
            "spent. Run it again, with a larger --trials to make this rarer."
        )
    return clf.best_estimator_, clf.best_params_


def check_names(params, where, reserved=RESERVED):
    clf = DPFairClassifier()
    for name, value in sorted(params.items(), key=lambda item: "__" in item[0]):
        if name.partition("__")[0] in reserved:
            others = "another option or entry, the schema or torchrun"
            raise Unusable(f"{where} {name}: it is set by {others}.")
        try:
            clf.set_params(**{name: value})
        except (AttributeError, TypeError, ValueError) as error:
            known = re.findall(r"'(\w+)'", str(error).partition("Valid parameters are")[2])
            hint = nearest(name.split("__")[-1], known) or f" There are {', '.join(known)}."
            problem = f"there is no such parameter.{hint}" if known else error
            raise Unusable(f"{where} {name}: {problem}") from None


def pairs_of(texts, option) -> dict:
    for text in texts:
        if not text.partition("=")[2]:
            raise Unusable(f"{option} {text!r} must be NAME=VALUE.")
    return dict(text.split("=", 1) for text in texts)


def parameters_of(settings) -> dict:
    """Return the values of --set; each is JSON, or else a text."""
    params = {name: _value(text) for name, text in pairs_of(settings, "--set").items()}
    check_names(params, "--set")
    return params


def space_of(candidates, params) -> dict:
    """Return the values of --try by parameter; ``params`` are parameters with one value."""
    pairs = pairs_of(candidates, "--try").items()
    space = {name: [_value(text) for text in texts.split(",")] for name, texts in pairs}
    one = {name: values[0] for name, values in space.items()}
    check_names(params | one, "--try", RESERVED - {"method"})
    return space


def _value(text):
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text
