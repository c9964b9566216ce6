"""Pictures: private accuracy by features, data set and epsilon, and what each group pays.

python -m benchmarks.bench_images [--seeds 3] [--data mnist cifar10 faces rare]

All models are `DPFairClassifier` with its defaults.  "pixels" is a linear model or an MLP on the
pixels, "scattering" what ``module="auto"`` trains on pictures.  "rare" repeats the experiment of
Esipova et al. (2023) with 9 % of the eights of MNIST.  A run that is in the results is not
repeated.
"""

import argparse
import json
import resource
import tempfile
import time
import warnings
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from benchmarks import pages
from benchmarks.papers import data as splits
from benchmarks.papers.images import fetch_cifar10, fetch_faces, fetch_mnist
from skdpfair import MLP, DPFairClassifier
from skdpfair.features import Scattering2D

RESULTS = Path(__file__).parent / "results" / "images.jsonl"
DELTA, EPSILONS = 1e-5, (1.0, 3.0, 8.0)
NAMES = {"mnist": "MNIST", "cifar10": "CIFAR-10, 10,000 pictures", "faces": "UTKFace, sex"}
WORST = {"mnist": "worst class", "cifar10": "worst class", "faces": "worst race"}
FEATURES = ("pixels", "scattering")
# what "auto" takes for a table of this size
PIXELS = {"mnist": {"module": MLP((32,), zero_output=True)}}
RARE = ("sgd", "dpsgd", "dpsgd_f", "global_adapt")
RARE_EPSILON = 5.9  # as printed
PAGES = {
    "images": ("images.md",),
    "faces by group": ("evidence/measurements.md",),
    "rare eights": ("evidence/reproducibility.md",),
}
AGES = [0, 16, 30, 45, 60, 200]


def load(name, seed=0):
    """Return pictures, labels and groups to train on, and to test on."""
    if name == "rare":
        split = splits.mnist(seed)
        return split.x, split.y, split.group, split.x_test, split.y_test, split.group_test
    fetch = {"mnist": fetch_mnist, "cifar10": fetch_cifar10, "faces": fetch_faces}[name]
    parts = []
    for subset in ("train", "test"):
        found = fetch(subset=subset)
        group = found.sensitive_features.iloc[:, 0].astype(str).to_numpy()
        parts += [found.data, found.target.to_numpy(), group]
        if name == "faces":
            parts[-1] = found.attributes.assign(race=group)[["race", "age"]].to_numpy()
    return parts


def prepared(name, kind, seed=0):
    """Return the parts of a data set with features in the place of pictures."""
    x, y, group, x_test, y_test, group_test = load(name, seed)
    start = time.perf_counter()
    if kind == "pixels":
        x, x_test = x.reshape(len(x), -1), x_test.reshape(len(x_test), -1)
    else:
        transformer = Scattering2D(verbose=1)
        x, x_test = transformer.fit_transform(x), transformer.transform(x_test)
    return (x, y, group, x_test, y_test, group_test), time.perf_counter() - start


def measured(parts, params, seed):
    """Fit and test once; return accuracies by class and by group."""
    x, y, group, x_test, y_test, group_test = parts
    clf = DPFairClassifier(**params, delta=DELTA, random_state=seed)
    start = time.perf_counter()
    given = {} if group is None else {"sensitive_features": group}
    clf.fit(x, y, **given)
    seconds = time.perf_counter() - start
    right = clf.predict(x_test) == y_test
    by = {"class": pd.Series(y_test).astype(str)}
    if np.ndim(group_test) == 2:
        by["race"] = pd.Series(group_test[:, 0])
        by["age"] = pd.cut(pd.Series(group_test[:, 1].astype(int)), AGES, right=False).astype(str)
    out = {"accuracy": float(right.mean()), "seconds": seconds, "n_features": x.shape[1]}
    for what, group in by.items():
        out[what] = pd.Series(right).groupby(group.to_numpy()).mean().to_dict()
    return out


def jobs(names, n_seeds):
    """Yield name, features, parameters and seed of each fit."""
    seeds = range(n_seeds)
    for name in names:
        if name == "rare":
            for seed, method in product(seeds, RARE):
                budget = {"epsilon": None if method == "sgd" else RARE_EPSILON}
                yield name, "scattering", {"method": method, "module": "logistic", **budget}, seed
            continue
        for kind, seed, epsilon in product(reversed(FEATURES), seeds, EPSILONS):
            network = PIXELS.get(name) if kind == "pixels" else None
            yield name, kind, {"epsilon": epsilon, **(network or {"module": "logistic"})}, seed


def run(names, n_seeds):
    """Carry out the fits that the results lack, and keep each at once."""
    held = done()
    loaded = {}
    for name, kind, params, seed in jobs(names, n_seeds):
        key = {"data": name, "features": kind, "seed": seed} | params
        key = json.loads(json.dumps(key, default=repr))  # of networks
        if any(key.items() <= row.items() for row in held):
            continue
        at = name, kind, seed if name == "rare" else 0
        if at not in loaded:
            loaded = {at: prepared(name, kind, at[2])}
        parts, extraction = loaded[at]
        if name != "rare":  # groups take no part in the training of the default method
            parts = (*parts[:2], None, *parts[3:])
        found = key | {"extraction": extraction} | measured(parts, params, seed)
        print(json.dumps({k: found[k] for k in (*key, "accuracy", "seconds")}), flush=True)
        with RESULTS.open("a") as file:
            file.write(json.dumps(found) + "\n")


def done():
    """Return the fits that the results hold."""
    lines = RESULTS.read_text().splitlines() if RESULTS.exists() else []
    return [json.loads(line) for line in lines]


def percent(values):
    """Return a mean in percent."""
    return f"{100 * np.mean(list(values)):.1f}"


def tables(rows):
    """Return the tables of the documentation by name."""
    out = {"images": [], "faces by group": [], "rare eights": []}
    body = []
    for name, title in NAMES.items():
        by = "race" if name == "faces" else "class"
        for kind in FEATURES:
            own = [r for r in rows if r["data"] == name and r["features"] == kind]
            cells = []
            for epsilon in EPSILONS:
                at = [r for r in own if r["epsilon"] == epsilon]
                worst = percent(min(r[by].values()) for r in at)
                cells.append(f"{percent(r['accuracy'] for r in at)} ({worst})" if at else "")
            seconds = f"{np.mean([r['seconds'] for r in own]):.0f}" if own else ""
            width = f"{own[0]['n_features']:,}" if own else ""
            body.append((title, kind, width, *cells, seconds))
    heads = ("data (in brackets: worst class or race)", "features", "number")
    out["images"] = pages.table(
        (*heads, *(f"epsilon {e:g}" for e in EPSILONS), "seconds a fit"), body, left=(0, 1)
    )
    own = [r for r in rows if r["data"] == "faces" and r["features"] == "scattering"]
    groups = [(by, g) for by in ("race", "age") for g in (own[0][by] if own else ())]
    body = [
        (
            f"{by} {group}",
            *(percent(r[by][group] for r in own if r["epsilon"] == e) for e in EPSILONS),
        )
        for by, group in sorted(groups, key=lambda at: (at[0] == "age", _start(at[1])))
    ]
    out["faces by group"] = pages.table(("group", *(f"epsilon {e:g}" for e in EPSILONS)), body)
    body = []
    for method in RARE:
        own = [r for r in rows if r["data"] == "rare" and r["method"] == method]
        digits = [percent(r["class"][d] for r in own) if own else "" for d in ("2", "8")]
        body.append((f"`{method}`", percent(r["accuracy"] for r in own) if own else "", *digits))
    out["rare eights"] = pages.table(("method", "accuracy", "class 2", "class 8"), body)
    return out


def times():
    """Print how long features and a head take on MNIST, once in memory and once in a file."""
    torch.set_num_threads(1)
    x, y, _, _, _, _ = load("mnist")
    start = time.perf_counter()
    features = Scattering2D().fit_transform(x)
    seconds = time.perf_counter() - start
    print(f"features: {seconds:.1f} s, {1e3 * seconds / len(x):.2f} ms a picture")
    with tempfile.TemporaryDirectory() as folder:
        np.save(f"{folder}/features.npy", features)
        mapped = np.load(f"{folder}/features.npy", mmap_mode="r")
        head = DPFairClassifier(module="logistic", epsilon=3.0, delta=DELTA, random_state=0)
        for what, records in (("file", mapped), ("memory", features)):
            start, cpu = time.perf_counter(), time.process_time()
            head.fit(records, y)
            spent = time.perf_counter() - start, time.process_time() - cpu
            most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
            print(f"fit, features in a {what}: {spent[0]:.0f} s, {spent[1]:.0f} s of the processor")
            print(f"largest memory so far, mapped pages included: {most:.2f} GiB", flush=True)


def _start(group):
    """Return a key that sorts names by letters, and intervals by where they begin."""
    return (int(group[1:].split(",")[0]), "") if group.startswith("[") else (0, group)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--data", nargs="*", default=[*NAMES, "rare"])
    parser.add_argument("--write", action="store_true", help="put the tables into the pages")
    parser.add_argument("--times", action="store_true", help="measure times only")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    if args.times:
        times()
        return
    run(args.data, args.seeds)
    found = tables(done())
    for name, places in PAGES.items():
        print(f"\n{name}\n", *found[name], sep="\n")
        for page in places if args.write else ():
            pages.put(page, name, found[name])


if __name__ == "__main__":
    main()
