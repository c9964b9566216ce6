"""Persons with several records: what privacy for persons costs in accuracy and in time.

python -m benchmarks.bench_persons [--seeds 8] [--output benchmarks/results]

Adult with simulated persons of up to 5 records.  There are two ways to guarantee epsilon 1 to a
person: batches of persons, whose mean gradients are clipped; and batches of records, with so little
epsilon for a record that a person with 5 records has epsilon 1.
"""

import argparse
import warnings
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from scipy.optimize import brentq
from sklearn.metrics import balanced_accuracy_score, roc_auc_score
from sklearn.model_selection import GroupShuffleSplit

from benchmarks import pages
from benchmarks.bench_training import interleave
from benchmarks.workloads import Workload
from skdpfair import DPFairClassifier, Persons, get_method
from skdpfair.datasets import load_adult, public_facts
from skdpfair.engine import PoissonSampler, Streams, private_step, select_strategy
from skdpfair.engine.mechanism import Mechanism, Task
from skdpfair.model_selection import forecast
from skdpfair.preprocessing import public_preprocessor
from skdpfair.privacy import NoisyRelease, calibrate_noise, compute_epsilon
from skdpfair.training.batches import records_at, rows_on

K, EPSILON, DELTA = 5, 1.0, 1e-5


def persons(data, persistence, rng):
    """Return a simulated person for each row of Adult, of 1 to K rows that resemble each other.

    Each row has a usual income: its own with probability ``persistence``, otherwise that of a
    random row. The rows of a person agree in it, sex, race and country, and are neighbours in
    education, marital status and age.
    """
    income, n = data.target.to_numpy(), len(data.target)
    usual = np.where(rng.uniform(size=n) < persistence, income, rng.permutation(income))
    same = ["sex", "race", "native_country", "usual_income"]
    near = ["education_num", "marital_status", "age"]
    rows = data.data.assign(usual_income=usual).sort_values(same + near, kind="stable")
    ends = rng.integers(1, K, size=n, endpoint=True).cumsum()
    shared = rows[same].astype(str)
    is_first = (shared != shared.shift()).any(axis=1).to_numpy() | np.isin(np.arange(n), ends)
    names = rng.permutation(is_first.sum())  # the order of the persons tells their incomes
    return pd.Series(names[is_first.cumsum() - 1], index=rows.index).sort_index().to_numpy()


def panel(seed):
    """Return simulated persons whose records resemble each other, a fifth of them for the test."""
    data = load_adult(dropna=True)
    unit = persons(data, 0.7, np.random.default_rng(seed))
    split = GroupShuffleSplit(1, test_size=0.2, random_state=seed)
    train, test = next(split.split(data.target, data.target, unit))
    every = data.data, data.target
    return _encoded(
        *(part.iloc[train] for part in every), unit[train], *(part.iloc[test] for part in every)
    )


def dealt(n_persons):
    """Return a function that deals K records to each of so many persons, at random."""

    def made(seed):
        train, test = load_adult(subset="train"), load_adult(subset="test")
        rows = np.random.default_rng(seed).permutation(len(train.target))[: n_persons * K]
        unit = np.arange(len(rows)) // K
        every = train.data.iloc[rows], train.target.iloc[rows], unit, test.data, test.target
        return _encoded(*every)

    return made


def _encoded(rows, y, unit, test, y_test):
    features = public_preprocessor(**public_facts("adult"), epsilon=EPSILON)
    features.fit(rows.iloc[: len(np.unique(unit))])  # finer the more persons there are
    x, x_test = (features.transform(part).to_numpy(np.float32) for part in (rows, test))
    return (x, y.to_numpy(), unit), (x_test, y_test.to_numpy())


def by_default(n_records):
    """Return the settings of batches of persons and of records, but for epsilon the defaults."""
    return {"epsilon": EPSILON}, {"epsilon": record_epsilon(n_records)}


def by_hand(n_records):
    """Return the same for 500 steps on 512 records each."""
    own = {"max_steps": 500, "accountant": "pld", "method": "dpsgd", "module": "mlp"}
    both = []
    for batch, k in ((512 // K, 1), (512, K)):
        n = n_records // (K // k)
        steps = [NoisyRelease("steps", batch / n, (1.0,), 500)]
        (steps,) = calibrate_noise(steps, EPSILON, DELTA, records_per_person=k)
        noise = steps.joint_noise_multiplier
        both.append(own | {"epsilon": None, "noise_multiplier": noise, "batch_size": batch})
    return both


CASES = {
    f"{n:,} persons, {K} records each, which differ": (dealt(n), by_default)
    for n in (500, 1000, 2000, 6000)
}
CASES["the same 6,000 persons, an MLP by DPSGD in 500 steps"] = dealt(6000), by_hand
CASES[f"about 12,000 persons, 1 to {K} records, which resemble each other"] = panel, by_default


def record_epsilon(n_records):
    """Return the epsilon of a record with which a person of K records has EPSILON."""

    def excess(log_epsilon):
        model = DPFairClassifier(epsilon=float(np.exp(log_epsilon)), delta=DELTA)
        releases = [release for fit in forecast(model, n_records).fits for release in fit.releases]
        return compute_epsilon(releases, DELTA, records_per_person=K) - EPSILON

    return float(np.exp(brentq(excess, np.log(EPSILON / 20), np.log(EPSILON), xtol=1e-3)))


def worth(n_seeds):
    """Return rows: measures of models of both kinds."""
    found = []
    for name, (make, settings) in CASES.items():
        for seed in range(n_seeds):
            (x, y, unit), (x_test, y_test) = make(seed)
            by_person, by_record = settings(len(y))
            kinds = {
                "persons": (by_person | {"persons": Persons(max_records=K)}, {"persons": unit}),
                "records": (by_record, {}),
            }
            for kind, (params, given) in kinds.items():
                model = DPFairClassifier(delta=DELTA, random_state=seed, **params)
                predicted = model.fit(x, y, **given).predict(x_test)
                score = model.decision_function(x_test)
                measured = {
                    "accuracy": 100 * (predicted == y_test).mean(),
                    "balanced": 100 * balanced_accuracy_score(y_test, predicted),
                    "AUC": 100 * roc_auc_score(y_test, score),
                }
                found.append({"data": name, "batches of": kind} | measured)
                print(found[-1], flush=True)
    return pd.DataFrame(found).groupby(["data", "batches of"], sort=False).mean()


def costs(rounds):
    """Return rows: the time of a step on persons over that of a step on as many records."""
    rows = []
    for name in ("Adult MLP", "Dutch logistic"):
        for batch in (256, 2048, 8192):
            found = interleave(_steps(Workload.named(name), batch), rounds)
            ratios = [f"{found[kind]['ratio']:.2f}" for kind in _KINDS]
            rows.append((name, batch, *ratios))
            print(rows[-1], flush=True)
    return rows


_KINDS = {"4 records each": (4, 4), "1 to 7 records": (1, 7)}


def _steps(work, batch):
    steps = {"records": _step(work, None, batch / work.n)}
    for kind, (least, most) in _KINDS.items():
        size = np.random.default_rng(0).integers(least, most + 1, work.n)
        steps[kind] = _step(work, np.arange(work.n).repeat(size)[: work.n], batch / work.n)
    return steps


def _step(work, unit, rate):
    n = work.n if unit is None else int(unit.max()) + 1
    data = rows_on("cpu", work.x, work.y, np.zeros(work.n, dtype=np.int64), person=unit)
    model = select_strategy(work.module(), torch.from_numpy(work.x[:1]), work.n_classes)
    mechanism = Mechanism(get_method("dpsgd", max_grad_norm=1.0), Task(n, 1, rate), 1.0)
    noise, out = Streams.fresh().noise(), model.flat()
    select = partial(records_at, data) if unit is None else data.select
    batches = PoissonSampler(rate, n, np.random.default_rng(1)).draw(60)
    turn = iter(lambda: batches, None)
    position = iter(range(10**9))

    def step():
        index = next(turn)[next(position) % len(batches)]
        private_step(model, select(index), mechanism, None, noise, out=out)

    return step


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    columns = ["step", "expected batch", *_KINDS]
    lines = pages.table(columns, costs(options.rounds), left=(0,))
    table = worth(options.seeds).round(1).reset_index()
    lines += ["", *pages.table(list(table), table.to_numpy().tolist(), left=(0, 1)), ""]
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "persons.md").write_text("\n".join(lines))


if __name__ == "__main__":
    main()
