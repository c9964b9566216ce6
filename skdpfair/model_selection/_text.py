"""A sweep's means in words: cells of text for a paper, and blocks for a terminal."""

import numpy as np
import pandas as pd

from skdpfair.model_selection._frames import OVERALL

_HEADS = {"accuracy": "accuracy (%)", "privacy_cost": "privacy cost (percentage points)"}
_MOST_GROUPS = 7  # that a terminal has room for
_FEWEST = "fewest test records"


def text_table(table, frame):
    """Return means and standard errors as text, and the least n of each group.

    Parameters
    ----------
    table : pandas.DataFrame
        Numbers, of `TradeoffResults.table`.
    frame : pandas.DataFrame
        The frame of the results.
    """
    groups = [g for g in frame["group"].unique() if g != OVERALL]
    cells = {}
    for measure, head in _HEADS.items():
        columns = {OVERALL: measure, **{g: f"{measure}[{g}]" for g in groups}}
        for name, column in (columns | {"gap": f"{measure}_difference"}).items():
            pairs = zip(table[column, "mean"], table[column, "se"], strict=True)
            cells[head, name] = [_written(mean, se) for mean, se in pairs]
    fewest = frame.groupby(["method", "epsilon", "group"])["n"].min().unstack("group")
    for group in groups:
        cells[_FEWEST, group] = fewest[group].reindex(table.index).tolist()
    return pd.DataFrame(cells, index=table.index)


def as_blocks(text, frame):
    """Return the text table as one block a measure, and a line on the groups' sizes."""
    n_runs = len(frame[["seed", "fold"]].drop_duplicates())
    over = f"mean ± standard error of {n_runs} runs" if n_runs > 1 else "one run"
    groups = list(text[_FEWEST].columns)
    blocks, many = [], len(groups) > _MOST_GROUPS
    for head in _HEADS.values():
        block = (text[head].drop(columns=groups) if many else text[head]).reset_index()
        block["epsilon"] = [f"{e:g}" if np.isfinite(e) else "-" for e in block["epsilon"]]
        blocks.append(f"{head}, {over}\n{block.to_string(index=False)}")
    least, empty = text[_FEWEST].min(), empty_runs(frame)
    if many:
        sizes = f"{int(least.min())} (of {least.idxmin()!r})"
        each = f"{len(groups)} groups, which .table() and the report show one by one"
        return "\n\n".join([*blocks, f"{each}; {_FEWEST} of a run: {sizes}"])
    sizes = [f"{group} {n}{_where(empty.get(group))}" for group, n in least.items()]
    return "\n\n".join([*blocks, f"{_FEWEST} of a run: {', '.join(sizes)}"])


def empty_runs(frame):
    """Return, by group, the seeds in which it had no test record."""
    rows = frame[frame["n"] == 0]
    return {group: sorted(part["seed"].unique()) for group, part in rows.groupby("group")}


def _where(seeds):
    if not seeds:
        return ""
    return f" (seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))})"


def _written(mean, se):
    if np.isnan(mean):
        return "-"
    return f"{round(100 * mean, 1) + 0.0:.1f}" + ("" if np.isnan(se) else f" ± {100 * se:.1f}")
