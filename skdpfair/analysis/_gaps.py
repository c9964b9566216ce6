"""How much more one group than another is hurt by clipping, and the lower bounds on it."""

from itertools import permutations

import numpy as np
import pandas as pd
import torch


def gaps(found, gradients, batches, rows, eigenvalues, lr):
    """Return the gaps of each ordered pair of groups, and the bounds on them."""
    own = torch.linalg.vector_norm(gradients, dim=1).cpu().numpy()
    turned = rows["cosine"] - rows["clipped_cosine"]
    # without a gradient there is no direction, and so no error of it
    aligned = own * np.nan_to_num(batches.lengths * turned).mean(axis=1)  # NaN if absent
    square = (batches.lengths**2).mean()
    condition = lr * np.nanmax(eigenvalues) <= 1
    shares = (found.sizes / found.sizes.sum()).cpu().numpy()
    plain = (batches.frame["gradient_norm"] ** 2).mean()
    bound = batches.frame["sensitivity"].max() * batches.fullest
    table = []
    for a, b in permutations(range(len(own)), 2):
        linear = lr * (aligned[a] - aligned[b])
        table.append(
            {
                "group_a": found.levels[a],
                "group_b": found.levels[b],
                "clip_gap": (rows["clip"][a] - rows["clip"][b]).mean(),
                "direction_gap": (rows["direction"][a] - rows["direction"][b]).mean(),
                "linear_direction_gap": linear,
                "prop3_bound": linear - lr * square,
                "tran_bound": _tran(own, shares, a, b, bound, plain, lr),
                "condition": bool(condition and not (found.absent[a] or found.absent[b])),
            }
        )
    columns = list(table[0]) if table else _PAIR
    return pd.DataFrame(table, columns=columns)


_PAIR = ["group_a", "group_b", "clip_gap", "direction_gap", "linear_direction_gap"]
_PAIR += ["prop3_bound", "tran_bound", "condition"]


def _tran(own, shares, a, b, bound, plain, lr):
    everyone = float(np.nansum(shares * own))
    first = own[a] * (2 * shares[a] * own[a] - everyone) - own[b] * everyone
    first -= (own[a] + own[b]) * bound
    return lr * first - lr / 2 * (plain + bound**2)
