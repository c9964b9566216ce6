"""Minutes of a sweep on the Dutch census: 5 methods, 4 budgets, 5 seeds, logistic models.

SKDPFAIR_DATA=folder python -m benchmarks.bench_sweep [--n-jobs 2] [--seeds 5]
"""

import argparse
import time
import warnings

from skdpfair.datasets import fetch_dutch, public_facts
from skdpfair.model_selection import sweep
from skdpfair.preprocessing import public_preprocessor

METHODS = ["dpsgd", "global", "global_adapt", "dpsgd_f", "dp_sat"]
EPSILONS = [0.5, 1.0, 2.0, 4.0]


def load():
    data = fetch_dutch()
    categories = {k: v for k, v in public_facts("dutch")["categories"].items() if k != "sex"}
    X = public_preprocessor({}, categories).fit_transform(data.data).to_numpy()
    return X, data.target.to_numpy(), data.sensitive_features["sex"].to_numpy()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n-jobs", type=int, default=2)
    parser.add_argument("--seeds", type=int, default=5)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    X, y, sex = load()
    start = time.perf_counter()
    results = sweep(
        X,
        y,
        sensitive_features=sex,
        methods=METHODS,
        epsilons=EPSILONS,
        seeds=args.seeds,
        module="logistic",
        n_jobs=args.n_jobs,
    )
    minutes = (time.perf_counter() - start) / 60
    cells = results.frame.query("group == 'overall'")
    print(results)
    print(
        f"{len(cells)} fits of {X.shape[0] * 8 // 10} rows x {X.shape[1]}, "
        f"{cells['fit_seconds'].median():.2f} s each (median), {args.n_jobs} processes: "
        f"{minutes:.1f} minutes"
    )


if __name__ == "__main__":
    main()
