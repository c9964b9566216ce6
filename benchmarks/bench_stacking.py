"""Speed of training K models as one stack in one process, against one after another.

The arithmetic of a private step alone (gather, logits, residuals, lengths, clipping, weighted
sum, noise), for logistic models on the Dutch census at the batch sizes of the default settings:
K Poisson samples, padded to one size, in batched products, against the same in a loop.

SKDPFAIR_DATA=folder python -m benchmarks.bench_stacking
"""

import statistics
import time

import torch

from benchmarks.bench_sweep import load

MODELS, REPEATS, BOUND = (1, 2, 5, 20), 30, 1.0


def step(x, y, rows, real, weight, noise):
    """Return the noisy clipped sums of K models, from `rows` (K, batch)."""
    inputs = x[rows]
    logits = torch.einsum("kbd,kcd->kbc", inputs, weight)
    residual = torch.softmax(logits, -1) - torch.nn.functional.one_hot(y[rows], 2)
    length = residual.norm(dim=-1) * (inputs.norm(dim=-1).square() + 1).sqrt()
    residual *= (real * BOUND / length.clamp(min=BOUND))[..., None]
    return torch.einsum("kbc,kbd->kcd", residual, inputs) + noise


def seconds(work):
    """Return the median time of `work`."""
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    X, labels, _ = load()
    x, y = torch.tensor(X, dtype=torch.float32), torch.tensor(labels == labels.max()).long()
    print("batch models  ms a model: loop  stacked  stacked/loop")
    for batch in (500, 2300, 4000):
        for k in MODELS:
            samples = [torch.where(torch.rand(len(x)) < batch / len(x))[0] for _ in range(k)]
            longest = max(map(len, samples))
            rows = torch.stack([torch.cat([s, s.new_zeros(longest - len(s))]) for s in samples])
            real = torch.stack([(torch.arange(longest) < len(s)).float() for s in samples])
            weight, noise = torch.zeros(k, 2, x.shape[1]), torch.randn(k, 2, x.shape[1])

            def loop(samples=samples, weight=weight, noise=noise):
                for i, s in enumerate(samples):
                    step(x, y, s[None], torch.ones(1, len(s)), weight[i : i + 1], noise[i])

            def stacked(rows=rows, real=real, weight=weight, noise=noise):
                step(x, y, rows, real, weight, noise)

            a, b = seconds(loop) / k * 1e3, seconds(stacked) / k * 1e3
            print(f"{batch:5d} {k:6d} {a:17.3f} {b:8.3f} {b / a:13.2f}")


if __name__ == "__main__":
    main()
