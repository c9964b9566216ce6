"""A network for features of photographs that is trained on made-up pictures only.

python -m benchmarks.random_process_prior --output prior.safetensors [--compare test]

The idea is that of Tang et al. (2023): the statistics of small patches of photographs resemble
those of random processes, so that a network can be trained without any photograph, and costs no
privacy.  Pictures are dead leaves: discs, rectangles and triangles of random sizes (density
proportional to r^-2), colours and textures, which hide each other.  Their patches of 6 x 6 pixels,
normalised for brightness and contrast and whitened, are clustered by directions (Coates and Ng,
2012).  The network compares each patch of a picture with the centres, and takes means over 3 x 3
places and over the picture and its mirror image.

The file is made in about a minute, and is used in this way:

    from benchmarks.random_process_prior import network_of
    from skdpfair.features import FrozenFeatures

    features = FrozenFeatures(network_of("prior.safetensors"))
    make_pipeline(features, DPFairClassifier(module="logistic", epsilon=3, delta=1e-5))

On CIFAR-10 (``--compare``), these features are 2 to 3 points better than scattering features at
epsilon 1 and 3, and both side by side (``make_union``) 3.5 to 4 points, but they take 7 times as
long to compute: see ``benchmarks/results/random_process_prior.md``.

The same seed, sizes and number of threads give the same file on the same machine.  For a quick
trial: ``--pictures 200 --epochs 1``.

References
----------
Tang, Panda, Sehwag and Mittal, "Differentially private image classification by learning priors
from random processes", 2023.
Coates and Ng, "Learning feature representations with k-means", 2012.
"""

import argparse
import time
import warnings

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn.functional import avg_pool2d, conv2d, layer_norm, relu

from benchmarks import pages
from benchmarks.papers.images import fetch_cifar10
from skdpfair import DPFairClassifier
from skdpfair.features import FrozenFeatures, Scattering2D

SIZE, LEAVES, AT_ONCE = 32, 48, 500
SMALLEST, LARGEST = 2, 20  # radii of leaves in pixels
PATCH, FILTERS, PLACES = 6, 256, 3
PATCHES_EACH = 10  # of each picture, for the centres
MIN_VARIANCE = 0.006  # added to that of a patch, for pixels in [0, 1]
MIN_EIGENVALUE = 0.1  # added to those of normalised patches before whitening
THRESHOLD = 0.5  # similarities below do not count
NORM = 30.0  # about that of scattering features, so that both can be used side by side
HEAD, EPSILONS = {"module": "logistic", "delta": 1e-5}, (1.0, 3.0)


class PatchNet(nn.Module):
    """Features of colour pictures of 32 x 32 pixels in [0, 1]: similarities to patches.

    A patch has two similarities to each centre, to itself and to its negative.  The features of a
    picture are standardised with means and deviations of made-up pictures, which the network holds,
    and then have mean 0 and the Euclidean norm 30.

    Parameters
    ----------
    n_filters : int, default=256
        Number of centres; the number of features is 18 times as large.
    """

    def __init__(self, n_filters=FILTERS):
        super().__init__()
        self.register_buffer("filters", torch.zeros(n_filters, 3, PATCH, PATCH))
        self.register_buffer("offsets", torch.zeros(n_filters, 1, 1))
        self.register_buffer("means", torch.zeros(2 * n_filters, PLACES, PLACES))
        self.register_buffer("scales", torch.ones(2 * n_filters, 1, 1))

    def forward(self, x):
        """Return the features (batch, 18 n_filters) of pictures (batch, 3, 32, 32)."""
        found = ((self.similarities(x) - self.means) / self.scales).flatten(1)
        return layer_norm(found, found.shape[1:]) * (NORM / found.shape[1] ** 0.5)

    def similarities(self, x):
        """Return means (batch, 2 n_filters, 3, 3) over pictures and their mirror images."""
        return (self._pooled(x) + self._pooled(x.flip(3))) / 2

    def _pooled(self, x):
        mean = avg_pool2d(x.mean(1, keepdim=True), PATCH, 1)
        square = avg_pool2d((x * x).mean(1, keepdim=True), PATCH, 1)
        deviation = (relu(square - mean * mean) + MIN_VARIANCE).sqrt()
        alike = conv2d(x - 0.5, self.filters) / deviation - self.offsets
        side = alike.shape[-1] // PLACES
        parts = [avg_pool2d((one - THRESHOLD).relu_(), side) for one in (alike, -alike)]
        return torch.cat(parts, 1)


def pictures(n, seed):
    """Return n pictures (n, 3, 32, 32) of dead leaves, float32 in [0, 1]."""
    rng = np.random.default_rng(seed)
    out = np.empty((n, 3, SIZE, SIZE), np.float32)
    for start in range(0, n, AT_ONCE):
        part = _dead_leaves(min(AT_ONCE, n - start), rng)
        out[start : start + AT_ONCE] = part
        print(f"\rpictures: {start + len(part):,} of {n:,}", end="", flush=True)
    print()
    return out


def _dead_leaves(n, rng):
    def uniform(low, high, channels=1):
        return rng.uniform(low, high, (n, channels, 1, 1)).astype(np.float32)

    def normal(channels=1):
        return rng.standard_normal((n, channels, 1, 1), np.float32)

    rows, columns = np.mgrid[:SIZE, :SIZE].astype(np.float32)
    base = uniform(0.2, 0.8) + 0.1 * normal(3)
    spread = uniform(0.05, 0.35)
    out = base + spread * normal() + np.zeros((n, 3, SIZE, SIZE), np.float32)
    for _ in range(LEAVES):
        radius = 1 / uniform(1 / LARGEST, 1 / SMALLEST)
        down, right = rows - uniform(0, SIZE), columns - uniform(0, SIZE)
        angle = uniform(0, np.pi)
        along = np.cos(angle) * right + np.sin(angle) * down
        across = np.cos(angle) * down - np.sin(angle) * right
        across = across / uniform(0.35, 1)
        disc = along**2 + across**2 < radius**2
        box = np.maximum(np.abs(along), np.abs(across)) < 0.85 * radius
        triangle = (across > -0.6 * radius) & (1.7 * np.abs(along) + across < radius)
        form = uniform(0, 1)
        shown = np.where(form < 0.5, disc, np.where(form < 0.8, box, triangle))
        turn = 3 * uniform(-1, 1)
        wave = np.cos(turn) * along + np.sin(turn) * across
        wave = np.sin(2 * uniform(0, 1) ** 2 * wave + uniform(0, 2 * np.pi)) * uniform(-0.2, 0.2)
        wave = wave * uniform(0.6, 1, 3) * (uniform(0, 1) < 0.5)
        shade = 0.15 * (along * uniform(-1, 1) + across * uniform(-1, 1)) / radius
        colour = base + spread * (0.35 * normal(3) + normal())
        out = np.where(shown, colour + shade + wave, out)
    weight = uniform(0, 0.6)
    for axis in (2, 3):  # blur
        ends = [(1, 1) if i == axis else (0, 0) for i in range(4)]
        wide = np.pad(out, ends, mode="edge")
        beside = wide.take(range(SIZE), axis) + wide.take(range(2, SIZE + 2), axis)
        out = (out + weight * beside / 2) / (1 + weight)
    return (out + uniform(0, 0.04) * rng.standard_normal(out.shape, np.float32)).clip(0, 1)


def trained(x, n_filters, epochs, seed):
    """Return a PatchNet whose centres and standardisation come from pictures."""
    torch.manual_seed(seed)
    x = torch.from_numpy(x)
    patches = _patches(x)
    mean = patches.mean(0)
    values, vectors = torch.linalg.eigh(torch.cov(patches.T))
    whiten = vectors @ torch.diag((values.clamp_min(0) + MIN_EIGENVALUE) ** -0.5) @ vectors.T
    centres = _centres((patches - mean) @ whiten, n_filters, epochs)
    # whitening, and the mean over a patch, are linear: a filter carries them out
    filters = centres @ whiten
    net = PatchNet(n_filters).eval()
    net.offsets.copy_((filters @ mean)[:, None, None])
    net.filters.copy_((filters - filters.mean(1, keepdim=True)).reshape(net.filters.shape))
    seen = torch.cat([net.similarities(part) for part in x[:2000].split(100)])
    net.means.copy_(seen.mean(0))
    net.scales.copy_(seen.std((0, 2, 3))[:, None, None] + 1e-6)
    return net


def _patches(x):
    """Return normalised patches (n, 108), a few random ones of each picture."""
    windows = x.unfold(2, PATCH, 1).unfold(3, PATCH, 1)
    record = torch.arange(len(x)).repeat(PATCHES_EACH)
    row, column = torch.randint(SIZE - PATCH + 1, (2, len(record)))
    out = windows[record, :, row, column].flatten(1)
    out = out - out.mean(1, keepdim=True)
    return out / (out.square().mean(1, keepdim=True) + MIN_VARIANCE).sqrt()


def _centres(patches, n_centres, epochs):
    """Return unit vectors by k-means of directions, where a patch and its negative are one."""
    out = patches[torch.randperm(len(patches))[:n_centres]]
    for epoch in range(epochs):
        out = out / out.norm(dim=1, keepdim=True)
        alike = patches @ out.T
        nearest = alike.abs().argmax(1)
        sign = alike.gather(1, nearest[:, None]).sign()
        sums = torch.zeros_like(out).index_add_(0, nearest, patches * sign)
        out = torch.where(sums.norm(dim=1, keepdim=True) > 0, sums, out)
        print(f"\rcentres: pass {epoch + 1} of {epochs}", end="", flush=True)
    print()
    return out / out.norm(dim=1, keepdim=True)


def network_of(path, n_filters=FILTERS):
    """Return the network with the weights of a file."""
    network = PatchNet(n_filters=n_filters)
    network.load_state_dict(load_file(path))
    return network


def compare(path, n_filters, part, n_seeds):
    """Print accuracies on CIFAR-10, on the test part or on 2,000 records of the training part."""
    found = fetch_cifar10(subset="train")
    x, y = found.data, found.target.to_numpy()
    if part == "test":
        found = fetch_cifar10(subset="test")
        x_test, y_test = found.data, found.target.to_numpy()
    else:
        order = np.random.default_rng(0).permutation(len(x))
        x_test, y_test = x[order[8000:]], y[order[8000:]]
        x, y = x[order[:8000]], y[order[:8000]]
    prior = FrozenFeatures(network_of(path, n_filters), verbose=1)
    print(prior.fit(x[:1]).described)
    sets = {}
    for name, features in (("scattering", Scattering2D(verbose=1)), ("prior", prior)):
        start = time.perf_counter()
        sets[name] = np.array(features.fit_transform(x)), np.array(features.transform(x_test))
        print(f"{name}: {time.perf_counter() - start:.0f} s for {len(x) + len(x_test):,} pictures")
    sets["both"] = tuple(np.hstack(two) for two in zip(*sets.values(), strict=True))
    body = []
    for name, (z, z_test) in sets.items():
        cells = []
        for epsilon in EPSILONS:
            right = []
            for seed in range(n_seeds):
                clf = DPFairClassifier(**HEAD, epsilon=epsilon, random_state=seed)
                right.append(100 * np.mean(clf.fit(z, y).predict(z_test) == y_test))
            cells.append(f"{np.mean(right):.1f} ({min(right):.1f} to {max(right):.1f})")
            print(name, epsilon, cells[-1], flush=True)
        body.append((name, f"{z.shape[1]:,}", *cells))
    print(*pages.table(("features", "number", *EPSILONS), body), sep="\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", required=True, help="the safetensors file to write")
    parser.add_argument("--pictures", type=int, default=20_000)
    parser.add_argument("--filters", type=int, default=FILTERS)
    parser.add_argument("--epochs", type=int, default=15, help="passes of k-means")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--compare", choices=("validation", "test"), help="measure on CIFAR-10")
    parser.add_argument("--seeds", type=int, default=3, help="fits of each kind")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    start = time.perf_counter()
    net = trained(pictures(args.pictures, args.seed), args.filters, args.epochs, args.seed)
    save_file(net.state_dict(), args.output)
    print(f"{args.output}: made in {time.perf_counter() - start:.0f} s")
    if args.compare:
        compare(args.output, args.filters, args.compare, args.seeds)


if __name__ == "__main__":
    main()
