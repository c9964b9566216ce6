"""Training of one model by several processes, each with its own part of the records."""

import logging
import os
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import reduce
from operator import add
from traceback import clear_frames
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from sklearn.base import BaseEstimator
from torch import Tensor

from skdpfair.budget.charging import current_ledger
from skdpfair.engine import Noise
from skdpfair.inputs.table import Table
from skdpfair.training.spec import APART, FitSpec
from skdpfair.training.warm_start import PreviousFit

T = TypeVar("T")

_BY_LAUNCHER = {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}  # environment variables
# the process that they are for; those that it starts inherit them
_MARK = "SKDPFAIR_LAUNCHED"
if os.environ.keys() >= _BY_LAUNCHER:
    os.environ.setdefault(_MARK, str(os.getpid()))
_PATIENCE = 60.0  # seconds, after which a process says for whom it waits
_ONE_FIT = threading.Lock()  # of this process: of several, each process could join another
log = logging.getLogger("skdpfair")


class _Failure(str):
    """The error of a process, in words."""


class Processes:
    """The processes that train a model: those of a group of `torch.distributed`, or one."""

    def __init__(self, group: "dist.ProcessGroup | None" = None) -> None:
        self.group = group  # until the fit ends
        self.size, self.rank = (1, 0) if group is None else (group.size(), group.rank())
        self._announces = True

    @contextmanager
    def shared_errors(self) -> Iterator["Processes"]:
        """Announce an error of this process to the others, which raise one where they wait for it.

        After the barrier they wait for tensors, and notice the end of the group.
        """
        try:
            yield self
        except Exception as error:
            if self.size > 1 and self._announces:
                # the others have ended, too
                with suppress(RuntimeError):
                    self._exchanged(_Failure(f"{type(error).__name__}: {error}"))
            raise

    def barrier(self) -> None:
        """Wait until all processes are ready to train; from here on, errors are not announced."""
        self.all_gather(None)
        self._announces = False

    def all_gather(self, value: T) -> list[T]:
        """Return a value of each process."""
        values = self._exchanged(value) if self.size > 1 else [value]
        for rank, other in enumerate(values):
            if isinstance(other, _Failure):
                self._announces = False  # all know
                raise RuntimeError(f"Process {rank} of {self.size} cannot fit. {other}")
        return values

    def sum(self, value: T) -> T:
        """Return the sum over all processes: of numbers, of arrays, or tuples in a row."""
        return reduce(add, self.all_gather(value))

    def broadcast(self, value: T) -> T:
        """Return the value of process 0."""
        return self.all_gather(value)[0]

    def check_same(self, facts: dict[str, Any]) -> None:
        """Raise ValueError if values, compared by their reprs, differ between processes."""
        all_facts = self.all_gather({name: repr(value) for name, value in facts.items()})
        for name, first in all_facts[0].items():
            for rank, others in enumerate(all_facts):
                if others[name] != first:
                    raise ValueError(
                        f"The processes that train one model differ in {name}: {first} in process "
                        f"0, {others[name]} in process {rank}. Give all of them the same "
                        "parameters and columns, and declare classes and levels of groups, which a "
                        "part of the records may lack."
                    )

    def all_reduce_(self, tensor: Tensor, op: str = "SUM") -> Tensor:
        """Overwrite a tensor with its sum, or its "MAX", over all processes, and return it."""
        if self.group is not None:
            with _naming_others():
                dist.all_reduce(tensor, getattr(dist.ReduceOp, op), self.group)
        return tensor

    def broadcast_(self, tensor: Tensor) -> Tensor:
        """Overwrite a tensor with that of process 0, and return it."""
        if self.group is not None:
            with _naming_others():
                dist.broadcast(tensor, group=self.group, group_src=0)
        return tensor

    def noise(self, noise: Noise) -> Noise:
        """Return the noise of sums over all processes."""
        return noise if self.size == 1 else SharedNoise(noise, self)

    def _exchanged(self, value: Any) -> list[Any]:
        values: list[Any] = [None] * self.size
        with _naming_others():
            dist.all_gather_object(values, value, self.group)
        return values


SINGLE = Processes()


class SharedNoise(Noise):
    """Noise of sums over several processes: process 0 draws all of it, the others none.

    The sum over the processes of a sum and its noise then has the noise once, of full size.
    """

    def __init__(self, noise: Noise, processes: Processes) -> None:
        self._noise, self._processes = noise, processes

    def fill_(
        self, out: Tensor, sensitivity: float | Tensor, noise_multiplier: float = 1.0
    ) -> Tensor:
        """Overwrite a tensor with Gaussian noise in process 0, with zeros in the others."""
        if self._processes.rank:
            return out.zero_()
        return self._noise.fill_(out, sensitivity, noise_multiplier)

    def all_reduce_(self, sums: Tensor) -> Tensor:
        """Overwrite a noisy sum of this process with that of all, and return it."""
        return self._processes.all_reduce_(sums)


@contextmanager
def process_group(distributed: str | None) -> Iterator[Processes]:
    """Return the processes that train one model, for the time of a block.

    "auto" takes those of `torch.distributed`'s default group, or of the launcher that started this
    process, as torchrun does; None takes this process alone.  The group is one of their own, which
    ends with the block: a process that leaves it with an error ends the block in all others, too.
    """
    if not (isinstance(distributed, str) and distributed == "auto" and _is_one_of_many()):
        yield SINGLE
        return
    if not _ONE_FIT.acquire(blocking=False):
        raise ValueError(
            'distributed="auto" trains one model at a time, but another thread of this process '
            "trains one now. Fit one after the other, with n_jobs=None."
        )
    try:
        with _all_here():
            processes = Processes(dist.new_group())
        try:
            with processes.shared_errors():
                yield processes
        finally:
            dist.destroy_process_group(processes.group)
            # an error that is kept must not keep its connections
            processes.group = None
    finally:
        _ONE_FIT.release()


def launched() -> tuple[int, int]:
    """Return the rank of this process, and how many a launcher such as torchrun started."""
    if os.environ.keys() >= _BY_LAUNCHER:
        return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    return 0, 1


def _is_one_of_many() -> bool:
    if not dist.is_available():
        return False
    if not dist.is_initialized() and os.environ.keys() >= _BY_LAUNCHER:
        if os.environ.get(_MARK) != str(os.getpid()):
            raise ValueError(
                'distributed="auto" trains in the processes of a launcher such as torchrun, but '
                "this process was started by one of them, as n_jobs=2 does. Set n_jobs=None, or "
                "distributed=None to train each model in one process."
            )
        with _all_here():
            dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
        if torch.cuda.is_available():
            torch.cuda.set_device(dist.get_rank() % torch.cuda.device_count())
    return dist.is_initialized() and dist.get_world_size() > 1


def check_parts(
    processes: Processes,
    estimator: BaseEstimator,
    spec: FitSpec,
    table: Table,
    previous: PreviousFit | None,
) -> None:
    """Raise ValueError if processes cannot train one model on their parts of the records.

    ``estimator`` has read the ``table`` of this process.
    """
    spec.check(APART)
    names = getattr(estimator, "feature_names_in_", None)
    # each process may log for itself
    facts = spec.with_params(callbacks=None).described() | {
        "the number of columns of X": estimator.n_features_in_,
        "the names of the columns of X": None if names is None else list(names),
        "the shape of a record": tuple(table.x.shape[1:]),
        "whether X holds pictures of bytes": estimator._scale == "bytes",
        "classes": None if table.classes is None else table.classes.tolist(),
        "groups": None if table.groups.levels is None else list(table.groups.levels),
        "sample_weight": table.weight is not None,
        "the fits before": previous and (previous.n_fits, previous.privacy.releases),
        "whether random_state is given": spec.random_state is not None,
        "keep_reference": spec.keep_reference,
    }
    processes.check_same(facts)
    ledger = current_ledger()
    # the first process charges for all
    ledgers = processes.all_gather(ledger and (ledger.id, ledger.data))
    for rank, each in enumerate(ledgers):
        if each not in (None, ledgers[0]):
            raise ValueError(
                f"Process {rank} has a PrivacyLedger that is not open in process 0, which charges "
                "for all. Open the same file there."
            )
    # the curator compares keyed digests, and only of parts that may be equal
    counts = processes.all_gather(np.bincount(table.y).tolist())
    is_alone = counts.count(counts[processes.rank]) == 1
    key = processes.broadcast(secrets.token_bytes(32))
    digests = processes.all_gather(processes.rank if is_alone else table.digest(key))
    if len(set(digests)) < processes.size:
        both = [i for i, each in enumerate(digests) if digests.count(each) > 1][:2]
        raise ValueError(
            f"Processes {both[0]} and {both[1]} hold the same records, each of which would count "
            "twice, so that epsilon would be too small. Give each process its own part, for "
            "instance X[rank::world_size]."
        )


@contextmanager
def _all_here() -> Iterator[None]:
    """Log, in a block that waits for all processes, that some have not come for a while."""
    text = (
        'distributed="auto" waits for a process that has not called fit, or has ended. All '
        "processes that the launcher started must call fit equally often."
    )
    late = threading.Timer(_PATIENCE, log.warning, (text,))
    late.daemon = True
    late.start()
    try:
        with _naming_others():
            yield
    finally:
        late.cancel()


@contextmanager
def _naming_others() -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        # frames hold the connections
        clear_frames(error.__traceback__)
        if not isinstance(error, RuntimeError):
            raise
        raise RuntimeError(
            "Another process of this fit has ended or cannot be reached, so that the fit ends "
            "here, too. Its own message says why, unless it was killed, as for lack of memory."
        ) from error
