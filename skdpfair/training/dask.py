"""Training of one model on the workers of a dask cluster, where its records lie."""

import os
import socket
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from itertools import islice
from typing import Any
from urllib.parse import urlparse

import numpy as np
import pandas as pd
import torch
import torch.distributed as dist
from sklearn.base import BaseEstimator, clone

from skdpfair._utils.describe import digest
from skdpfair.budget.charging import current_ledger
from skdpfair.budget.privacy_ledger import PrivacyLedger

__all__ = ["fit_on_dask"]
# between two looks at the workers
_SECONDS = 5


def fit_on_dask(
    client: Any,
    estimator: BaseEstimator,
    X: Any,
    y: Any,
    *,
    sensitive_features: Any = None,
    sample_weight: Any = None,
) -> Any:
    """Fit one model on all partitions of a dask collection, which stay on their workers.

    Each worker that holds partitions trains on these, as a process of a fit with
    ``distributed="auto"``.

    Parameters
    ----------
    client : dask.distributed.Client
        Client of a cluster whose workers are processes with a free thread for the fit.
    estimator : DPFairClassifier
        It is not changed.  Declare ``classes`` and ``Groups(levels=...)``: a partition may lack
        some.
    X : dask.dataframe.DataFrame or dask.array.Array of shape (n_samples, n_features, ...)
        Finite numbers; the group columns may hold anything.
    y : dask.dataframe.Series or dask.array.Array of shape (n_samples,)
        Class labels.  Partitions must match those of X: as many, of the same lengths, and with the
        same indexes if they are frames.
    sensitive_features, sample_weight : likewise, optional
        As in ``fit``.

    Returns
    -------
    DPFairClassifier
        A fitted copy, as a pickle holds it.

    Raises
    ------
    TypeError, ValueError
        If the partitions differ, workers are threads of one process, or the fit refuses the
        parameters or the data.
    RuntimeError
        If a worker ends.

    Notes
    -----
    A :class:`skdpfair.budget.PrivacyLedger` that is open is charged once, by a worker, which must
    reach its file.

    Examples
    --------
    >>> import dask.array as da
    >>> from dask.distributed import Client
    >>> from skdpfair import DPFairClassifier
    >>> X, y = da.random.random((10**6, 20)), da.random.randint(0, 2, 10**6)
    >>> model = DPFairClassifier(epsilon=1.0, classes=[0, 1])
    >>> fit_on_dask(Client(), model, X, y)  # doctest: +SKIP
    DPFairClassifier(classes=[0, 1], distributed='auto')
    """
    if not hasattr(estimator, "distributed"):
        remedy = " Transform the partitions, X.map_partitions(steps.transform), and fit the end."
        raise TypeError(
            f"estimator must be a DPFairClassifier, got {type(estimator).__name__}."
            f"{remedy * hasattr(estimator, 'steps')}"
        )
    optional = {"sensitive_features": sensitive_features, "sample_weight": sample_weight}
    columns = {"X": X, "y": y} | {name: c for name, c in optional.items() if c is not None}
    parts = {name: _partitions(name, column) for name, column in columns.items()}
    counts = {name: len(partitions) for name, partitions in parts.items()}
    if len(set(counts.values())) > 1:
        raise ValueError(
            f"X, y and what belongs to them must have the same partitions, got {counts}. Rechunk "
            "or repartition them alike."
        )
    # at once, so that what the columns come from is computed once
    computed = iter(client.compute([part for partitions in parts.values() for part in partitions]))
    futures = {name: list(islice(computed, n)) for name, n in counts.items()}
    # errors come here
    rows = {n: client.gather(client.map(_rows, c, pure=False)) for n, c in futures.items()}
    _check_rows(rows)
    where = client.who_has(futures["X"])
    by_worker: dict[str, list[int]] = defaultdict(list)
    for i, part in enumerate(futures["X"]):
        by_worker[sorted(where[part.key])[0]].append(i)
    processes = client.run(lambda: (socket.gethostname(), os.getpid()), workers=list(by_worker))
    if len(set(processes.values())) < len(by_worker):
        raise ValueError(
            "client has workers that are threads of one process, which train as one only. Make "
            "each a process: Client(processes=True)."
        )
    first = next(iter(by_worker))
    port = client.submit(_free_port, workers=[first], pure=False).result()
    address = f"tcp://{urlparse(first).hostname}:{port}"
    model = clone(estimator).set_params(distributed="auto")
    fits = []
    for rank, (worker, indices) in enumerate(by_worker.items()):
        columns = {name: [column[i] for i in indices] for name, column in futures.items()}
        ledger = current_ledger() if rank == 0 else None
        arguments = model, columns, ledger, rank, len(by_worker), address
        here = {"workers": [worker], "allow_other_workers": False, "pure": False, "retries": 0}
        fits.append(client.submit(_fit, *arguments, **here))
    try:
        return _first_of(fits, client, set(by_worker))
    finally:
        client.cancel(fits)


def _partitions(name: str, column: Any) -> list[Any]:
    """Return the partitions of a collection as delayed objects, each with whole rows."""
    if not hasattr(column, "to_delayed"):
        raise TypeError(
            f"{name} must be a dask DataFrame, Series or Array, got {type(column).__name__}."
        )
    if hasattr(column, "rechunk") and column.ndim > 1:
        column = column.rechunk(dict.fromkeys(range(1, column.ndim), -1))
    return list(np.ravel(column.to_delayed()))


def _rows(part: Any) -> tuple[int, bytes | None]:
    """Return the number of rows of a partition, and a digest of the index that a frame has."""
    if not isinstance(part, (pd.DataFrame, pd.Series)):
        return len(part), None
    return len(part), digest(pd.util.hash_pandas_object(part.index).to_numpy())


def _check_rows(rows: dict[str, list[tuple[int, bytes | None]]]) -> None:
    """Raise ValueError if rows of a partition would be paired with those of other records."""
    for i, parts in enumerate(zip(*rows.values(), strict=True)):
        lengths = {name: n for name, (n, _) in zip(rows, parts, strict=True)}
        n_indexes = len({index for _, index in parts} - {None})
        if len(set(lengths.values())) > 1 or n_indexes > 1:
            raise ValueError(
                f"Partition {i} has {lengths} rows{', of different indexes' * (n_indexes > 1)}: "
                "records would get the values of others. Rechunk or repartition all alike, and "
                "give column.to_dask_array() where the order is right and an index is not."
            )


def _free_port() -> int:
    with socket.create_server(("", 0)) as server:
        return int(server.getsockname()[1])


def _first_of(fits: Sequence[Any], client: Any, workers: set[str]) -> Any:
    """Return the result of the first fit, or raise the first error of any."""
    from distributed import wait

    running = fits
    while running:
        try:
            done, running = wait(running, timeout=_SECONDS, return_when="FIRST_COMPLETED")
        except TimeoutError:
            # fits would wait for workers that are gone
            if gone := workers - client.nthreads().keys():
                raise RuntimeError(f"The workers {sorted(gone)} of this fit have ended.") from None
            continue
        for fit in done:
            fit.result()
    return fits[0].result()


def _fit(
    model: Any,
    columns: dict[str, list[Any]],
    ledger: PrivacyLedger | None,
    rank: int,
    size: int,
    address: str,
) -> Any:
    """Fit on the partitions of this worker; return the model on the first one."""
    arguments = {name: _joined(partitions) for name, partitions in columns.items()}
    X, y = arguments.pop("X"), arguments.pop("y")
    fit = model.fit if ledger is None else partial(ledger.fit, model)
    if size == 1:
        model.set_params(distributed=None)
        fit(X, y, **arguments)
        return model
    backend = "nccl" if torch.cuda.is_available() else "gloo"
    dist.init_process_group(backend, init_method=address, rank=rank, world_size=size)
    try:
        fit(X, y, **arguments)
    finally:
        dist.destroy_process_group()
    return model if rank == 0 else None


def _joined(parts: list[Any]) -> Any:
    if isinstance(parts[0], (pd.DataFrame, pd.Series)):
        return pd.concat(parts)
    return np.concatenate(parts)
