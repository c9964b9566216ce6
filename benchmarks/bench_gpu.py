"""Steps, fits and features on a GPU, in elapsed time; `make gpu` runs this after the tests.

Steps are measured as they are and compiled by torch, with and without privacy.

    python -m benchmarks.bench_gpu [--device cuda] [--rounds 5] [--output benchmarks/results]

Results are written after each row, so that a run that is cut off keeps what it has measured.
Steps come last, since compiling them takes minutes.
"""

import argparse
import json
import statistics
import tempfile
import time
import warnings
from functools import partial
from pathlib import Path

import numpy as np
import torch
from scipy import sparse

from benchmarks import pages
from benchmarks.bench_training import interleave
from benchmarks.engines import BASELINES
from benchmarks.papers.images import fetch_mnist
from benchmarks.workloads import WORKLOADS, Workload
from skdpfair import DPFairClassifier, Persons
from skdpfair.engine import Noise, Streams
from skdpfair.exceptions import DataIntegrityError
from skdpfair.features import Scattering2D

TIGHT = "tight torch, not private"
EAGER = (TIGHT, "dpsgd", "Opacus ghost clipping")
COMPILED = {f"{name}, torch.compile": name for name in (TIGHT, "dpsgd")}
ENGINES = (*EAGER, *COMPILED)
SIZES = (1_000, 10_000, 100_000, 1_000_000)  # records of fits
MODULES = ("logistic", "mlp")
# the noise of a step, by torch's generator and from a CPU
NOISE = ("torch", "AES-256, copied")
MOST = 0.05  # of a step that the second may cost
WARM = 50  # steps before the clock starts: libraries choose their algorithms in the first ones


def finished():
    """Return the time once the GPU, if there is one, has done its work."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def steps(name, device, rounds, warm=WARM):
    """Return milliseconds of a step of a workload by engine, and their ratio to a tight one."""
    work = Workload.named(name, device=device)
    engines = {engine: BASELINES[engine](work) for engine in EAGER}
    for engine, eager in COMPILED.items():
        step = torch.compile(BASELINES[eager](work), dynamic=True)  # batches differ in size
        try:
            step()
        except Exception as error:  # where the compiler lacks what it needs
            print(f"{engine} is not measured: {str(error).partition(chr(10))[0]}", flush=True)
        else:
            engines[engine] = step
    out = interleave(engines, rounds, clock=finished, warm=warm)
    print(name, {e: round(row["ratio"], 2) for e, row in out.items()}, flush=True)
    return out


def noise(name, device, rounds, warm=WARM):
    """Return milliseconds of the noise of a step and of the step, and what AES-256 would add."""
    work = Workload.named(name, device=device)
    out = torch.empty(work.n_parameters, device=device)
    pinned = torch.empty(work.n_parameters, pin_memory=out.is_cuda)
    there, here = Streams.fresh().noise(device), Streams.fresh().noise()
    sources = {
        "dpsgd": BASELINES["dpsgd"](work),
        "torch": partial(there.fill_, out, 1.0),
        "AES-256, copied": lambda: out.copy_(here.fill_(pinned, 1.0)),
    }
    found = interleave(sources, rounds, clock=finished, warm=warm)
    times = {source: row["ms"] for source, row in found.items()}
    added = (times["AES-256, copied"] - times["torch"]) / times["dpsgd"]
    print(f"{name}: AES-256 from a CPU would add {added:.1%} to a step", flush=True)
    return times | {"added": added}


def fits(module, n, device, rounds):
    """Return seconds of a default fit to ``n`` records by device."""
    rng, out = np.random.default_rng(0), {}
    x = rng.standard_normal((n, 50), dtype=np.float32)
    y = (x[:, 0] + rng.standard_normal(n) > 0).astype(int)
    for where in ("cpu", device):
        model = DPFairClassifier(module=module, epsilon=1.0, device=where)
        out[where] = statistics.median(_seconds(model.fit, x, y) for _ in range(rounds))
    print(module, n, out, flush=True)
    return out


def rows(device):
    """Return seconds of a fit of the same steps by kind of rows and by device."""
    rng, out = np.random.default_rng(0), {}
    x = rng.standard_normal((20_000, 50), dtype=np.float32)
    y = (x[:, 0] + rng.standard_normal(len(x)) > 0).astype(int)
    persons, group = np.arange(len(x)) // 4, rng.integers(0, 3, len(x))
    with tempfile.TemporaryDirectory() as folder:
        np.save(f"{folder}/rows.npy", x)
        on_disk = np.load(f"{folder}/rows.npy", mmap_mode="r")
        kinds = {
            "dense": (x, {}),
            "persons": (x, {"persons": persons}),
            "sparse": (sparse.csr_array(x * (x > 1)), {}),
            "weights": (x, {"sample_weight": np.linspace(0.5, 2, len(x))}),
            "counted groups": (x, {"sensitive_features": group}),
            "on disk": (on_disk, {}),
            "persons on disk": (on_disk, {"persons": persons}),
        }
        for kind, (given, columns) in kinds.items():
            model = DPFairClassifier(
                "dp_is_sgd" if "sensitive_features" in columns else "dpsgd",
                module="logistic",
                persons=Persons(max_records=4) if "persons" in columns else None,
                max_sample_weight=2.0 if "sample_weight" in columns else None,
                max_steps=200,
            )
            out[kind] = {
                where: _seconds(partial(model.set_params(device=where).fit, given, y, **columns))
                for where in ("cpu", device)
            }
    print("rows", out, flush=True)
    return out


def pictures(device):
    """Return seconds of features and a head on MNIST, and its accuracy; None without the data."""
    try:
        train, test = (fetch_mnist(subset=subset, as_frame=False) for subset in ("train", "test"))
    except DataIntegrityError as error:
        print(f"MNIST is not measured: {error}", flush=True)
        return None
    features = Scattering2D(device=device).fit(train.data)
    head = DPFairClassifier(module="logistic", epsilon=3.0, delta=1e-5, device=device)
    start = finished()
    x = features.transform(train.data)
    middle = finished()
    head.fit(x, train.target)
    end = finished()
    accuracy = float(head.score(features.transform(test.data), test.target))
    return {"features": middle - start, "head": end - middle, "accuracy": accuracy}


def _seconds(function, *given):
    start = finished()
    function(*given)
    return finished() - start


def _ms(row):
    return "-" if row is None else f"{row['ms']:.3f}"


def markdown(results):
    """Return the lines of the tables of the parts that were measured."""
    device = results["machine"]["device"]
    lines = [f"On {results['machine']['gpu']}, with torch {results['machine']['torch']}:"]
    if "steps" in results:
        measured = results["steps"]
        rows = [
            [name, *(_ms(row.get(e)) for e in ENGINES), f"{row['dpsgd']['ratio']:.2f}"]
            for name, row in measured.items()
        ]
        heads = ["milliseconds of a step", *ENGINES, "dpsgd over tight"]
        lines += ["", *pages.table(heads, rows)]
    if "noise" in results:
        rows = [
            [name, *(f"{row[source]:.3f}" for source in ("dpsgd", *NOISE)), f"{row['added']:.1%}"]
            for name, row in results["noise"].items()
        ]
        heads = ["milliseconds", "a step", *(f"noise, {source}" for source in NOISE), "added"]
        lines += ["", *pages.table(heads, rows)]
        cheap = all(row["added"] < MOST for row in results["noise"].values())
        lines += ["", f"AES-256 from a CPU adds {'less' if cheap else 'more'} than {MOST:.0%}."]
    for part, what in (("fits", "default fit"), ("rows", "fit of 200 steps")):
        if part in results:
            rows = [
                [name, f"{row['cpu']:.2f}", f"{row[device]:.2f}"]
                for name, row in results[part].items()
            ]
            lines += ["", *pages.table([f"seconds of a {what}", "CPU", "GPU"], rows)]
    if results.get("pictures"):
        found = results["pictures"]
        row = [f"{found[k]:.1f}" for k in ("features", "head")] + [f"{found['accuracy']:.1%}"]
        heads = ["MNIST, epsilon 3", "features, seconds", "head, seconds", "accuracy"]
        lines += ["", *pages.table(heads, [["scattering", *row]])]
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    device = options.device
    results = {
        "machine": {
            "device": device,
            "gpu": torch.cuda.get_device_name(device),
            "torch": torch.__version__,
        }
    }
    Noise.fill_ = torch.compiler.disable(Noise.fill_)  # generators stay as they are
    parts = [("pictures", None, partial(pictures, device))]
    parts += [
        ("fits", f"{module}, n = {n:,}", partial(fits, module, n, device, 3))
        for n in SIZES
        for module in MODULES
    ]
    parts += [("noise", name, partial(noise, name, device, options.rounds)) for name in WORKLOADS]
    parts.append(("rows", None, partial(rows, device)))
    parts += [("steps", name, partial(steps, name, device, options.rounds)) for name in WORKLOADS]
    options.output.mkdir(parents=True, exist_ok=True)
    for part, row, measure in parts:
        if row is None:
            results[part] = measure()
        else:
            results.setdefault(part, {})[row] = measure()
        (options.output / "gpu.json").write_text(json.dumps(results, indent=2) + "\n")
        pages.put("evidence/performance.md", "results on a GPU", markdown(results))
    print(*markdown(results), sep="\n")


if __name__ == "__main__":
    main()
