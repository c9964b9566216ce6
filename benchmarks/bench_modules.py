"""Private steps of networks as people write them, over a tight step without privacy.

Ratios are medians over interleaved rounds on one thread, of CPU time, at batches of about 256.

    python -m benchmarks.bench_modules [--rounds 7] [--write]
"""

import argparse
import json
from functools import partial
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

from benchmarks import pages
from benchmarks.bench_training import interleave
from benchmarks.engines import BASELINES
from benchmarks.workloads import Workload

RESULTS = Path(__file__).parent / "results" / "modules.json"
TIGHT = "tight torch, not private"
ENGINES = {name: BASELINES[name] for name in (TIGHT, "dpsgd", "torch.func vmap")}
ROWS, SEQUENCES, PICTURES = (16,), (6, 8), (3, 16, 16)


class Net(nn.Module):
    """Layers and parameters by name, put together by a function."""

    def __init__(self, run, **parts):
        super().__init__()
        self.run = run
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x):
        """Return the logits."""
        return self.run(self, x)


def weight(*shape):
    return nn.Parameter(nn.init.xavier_uniform_(torch.empty(shape)))


def encoder(norm_first):
    layer = partial(nn.TransformerEncoderLayer, 32, 4, 64, dropout=0.0, batch_first=True)
    blocks = nn.TransformerEncoder(layer(norm_first=norm_first), 2, enable_nested_tensor=False)
    return Net(
        lambda m, x: m.out(m.blocks(m.a(x)).mean(1)),
        a=nn.Linear(8, 32),
        blocks=blocks,
        out=nn.Linear(32, 2),
    )


def tokens():
    """Return an FT-Transformer of 16 numbers."""
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True, norm_first=True)

    def run(m, x):
        rows = torch.cat([m.first.expand(len(x), -1, -1), x[:, :, None] * m.scale + m.shift], 1)
        return m.out(m.block(rows)[:, 0])

    parts = {"scale": weight(16, 16), "shift": weight(16, 16), "first": weight(1, 1, 16)}
    return Net(run, **parts, block=layer, out=nn.Linear(16, 2))


def attention(**options):
    layer = nn.MultiheadAttention(8, 2, batch_first=True, **options)
    masked = lambda m, x: m.a(x, x, x, key_padding_mask=x.sum(-1) < -4)[0]  # noqa: E731
    return Net(lambda m, x: m.out(masked(m, x).mean(1)), a=layer, out=nn.Linear(8, 2))


def members():
    """Return eight members that share weights, each with scales of its own (BatchEnsemble)."""

    def run(m, x):
        rows = torch.relu(m.a(x[:, None] * m.first) * m.second)
        return (torch.einsum("bkh,kho->bko", rows, m.heads) + m.shift).mean(1)

    parts = {"first": weight(8, 16), "second": weight(8, 32), "heads": weight(8, 32, 2)}
    return Net(run, **parts, shift=weight(8, 2), a=nn.Linear(16, 32))


def adapted():
    run = lambda m, x: m.out(torch.relu(m.a(x) + x @ m.down @ m.up))  # noqa: E731
    parts = {"down": weight(16, 4), "up": weight(4, 32), "out": nn.Linear(32, 2)}
    return Net(run, **parts, a=nn.Linear(16, 32))


def recurrent(kind, **options):
    layer, width = kind(8, 16, batch_first=True, **options), 16 * (1 + bool(options))
    return Net(lambda m, x: m.out(m.a(x)[0].mean(1)), a=layer, out=nn.Linear(width, 2))


def convnext():
    def run(m, x):
        x = m.a(x)
        rows = m.down(F.gelu(m.up(m.norm(m.b(x).permute(0, 2, 3, 1)))))
        return m.out((x + (m.scale * rows).permute(0, 3, 1, 2)).mean((2, 3)))

    wide, scale = nn.Conv2d(16, 16, 7, padding=3, groups=16), weight(1, 16)
    layers = {"up": nn.Linear(16, 64), "down": nn.Linear(64, 16), "norm": nn.LayerNorm(16)}
    return Net(run, a=nn.Conv2d(3, 16, 4, 4), b=wide, scale=scale, **layers, out=nn.Linear(16, 2))


def unet():
    def run(m, x):
        rows = torch.cat([x, F.relu(m.up(F.relu(m.down(x))))], 1)
        return m.out(F.relu(m.last(rows)).mean((2, 3)))

    layers = {"down": nn.Conv2d(3, 8, 3, 2, 1), "up": nn.ConvTranspose2d(8, 3, 2, 2)}
    return Net(run, **layers, last=nn.Conv2d(6, 4, 3, padding=1), out=nn.Linear(4, 2))


def parametrised(of):
    return nn.Sequential(of(nn.Linear(16, 16)), nn.ReLU(), nn.Linear(16, 2))


OF = nn.utils.parametrizations
MODULES = {
    "encoder layers, norm first": (SEQUENCES, partial(encoder, True)),
    "encoder layers, norm last": (SEQUENCES, partial(encoder, False)),
    "FT-Transformer": (ROWS, tokens),
    "attention with a mask": (SEQUENCES, attention),
    "attention with bias_kv": (SEQUENCES, partial(attention, add_bias_kv=True)),
    "LSTM, two directions": (SEQUENCES, partial(recurrent, nn.LSTM, bidirectional=True)),
    "GRU": (SEQUENCES, partial(recurrent, nn.GRU)),
    "ConvNeXt block": (PICTURES, convnext),
    "U-Net": (PICTURES, unet),
    "BatchEnsemble": (ROWS, members),
    "low-rank adapter": (ROWS, adapted),
    "weight norm": (ROWS, partial(parametrised, OF.weight_norm)),
    "spectral norm": (ROWS, partial(parametrised, OF.spectral_norm)),
    "orthogonal weight": (ROWS, partial(parametrised, OF.orthogonal)),
    "PReLU and RMSNorm": (
        ROWS,
        lambda: nn.Sequential(nn.Linear(16, 64), nn.PReLU(64), nn.RMSNorm(64), nn.Linear(64, 2)),
    ),
}


def measured(rounds):
    """Return the ratio of each engine, by module; None where it does not take the module."""
    out = {}
    for name, (shape, make) in MODULES.items():
        work, functions = Workload(4096, shape, 256, 2, make), {}
        for engine, of in ENGINES.items():
            try:
                functions[engine] = of(work)
                functions[engine]()
            except (RuntimeError, ValueError) as error:
                functions.pop(engine, None)
                print(f"{name}: {engine} fails: {error}"[:200], flush=True)
        rows = interleave(functions, rounds)
        out[name] = {
            engine: rows[engine]["ratio"] if engine in rows else None for engine in ENGINES
        }
        print(name, out[name], flush=True)
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--write", action="store_true", help="also write the page of docs/")
    args = parser.parse_args()
    torch.set_num_threads(1)
    found = measured(args.rounds)
    heads = ["network", "dpsgd", "torch.func vmap"]
    cells = lambda row: [f"{row[e]:.2f}" if row[e] else "fails" for e in heads[1:]]  # noqa: E731
    table = pages.table(heads, [[name, *cells(row)] for name, row in found.items()])
    print(*table, sep="\n")
    if args.write:
        RESULTS.write_text(json.dumps(found, indent=1) + "\n")
        pages.put("evidence/performance.md", "modules", table)


if __name__ == "__main__":
    main()
