"""One fit: its spec and plan, randomness, processes, ledger, the fit before."""

import os
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from skdpfair._utils.describe import describe, digest
from skdpfair.engine import Streams
from skdpfair.inputs.rows import SparseRows
from skdpfair.inputs.table import Table
from skdpfair.privacy import NoisyRelease
from skdpfair.privacy.one_time_noise import noisy
from skdpfair.training.plan import Plan
from skdpfair.training.processes import Processes
from skdpfair.training.sklearn_callbacks import SklearnTask
from skdpfair.training.spec import FitSpec
from skdpfair.training.warm_start import PreviousFit


@dataclass
class Run:
    """One fit."""

    spec: FitSpec
    plan: Plan  # what is counted with noise before the steps is set then
    streams: Streams  # where randomness comes from; of this process alone
    processes: Processes  # that train the module together
    sklearn_task: SklearnTask  # its place within the fit that called it
    previous: PreviousFit | None  # the fit that it continues
    column_names: Any = None  # of the features, if they have names
    releases: list[NoisyRelease] = field(init=False)  # by the fits before it, too
    pid: int = field(default_factory=os.getpid)
    # how it went
    stop: str = ""  # when the fit stopped, and which steps the ledger counts
    is_interrupted: bool = False  # whether it stopped early, and no callback ended it
    # what noisy counts decided, the number that decided it, and from where on it is taken
    choices: list[tuple[str, float, float]] = field(default_factory=list)
    ledger_fit: str | None = None  # name of the fit in the `PrivacyLedger` that was charged

    def __post_init__(self) -> None:
        previous, streams, processes = self.previous, self.streams, self.processes
        self.releases = [] if previous is None else list(previous.privacy.releases)
        # what is drawn for one part of the records must change with all of them
        entropy = processes.sum(streams.entropy) if self.is_seeded else streams.entropy
        streams = Streams(entropy, processes.broadcast(streams.init_entropy))
        self.streams = streams.of_process(processes.rank)

    @property
    def is_seeded(self) -> bool:
        """Whether the noise follows from a seed."""
        return self.spec.random_state is not None

    def noisy_counts(
        self, counts: np.ndarray, release: NoisyRelease | None, sensitivity: float = 1.0
    ) -> np.ndarray:
        """Return the counts of all processes, the first of which draws the noise of a release.

        ``sensitivity`` is by how much one record, or person, moves them, as an L2 norm.
        """
        if release is not None:
            self.releases.append(release)
            noise = 0.0 if self.processes.rank else release.joint_noise_multiplier
            generator = self.streams.releases(release.what)
            counts = noisy(counts, sensitivity, noise, generator, self.spec.noise_sampler)
        return self.processes.sum(counts)

    def check_process(self) -> None:
        """Raise RuntimeError in a copy of the process, which would draw the same noise again."""
        if os.getpid() != self.pid:
            raise RuntimeError(
                "This process was forked in the middle of a fit, and two models with the same "
                "noise reveal records. Start processes before or after a fit."
            )


def seeded_streams(spec: FitSpec, table: Table, previous: PreviousFit | None) -> Streams:
    """Return streams that follow from ``random_state`` and from all that a fit reads."""
    state = spec.random_state
    if isinstance(state, np.random.RandomState):
        state = state.randint(2**31 - 1)
    elif isinstance(state, np.random.Generator):
        state = state.integers(2**63 - 1)
    facts = spec.described_choices()
    # declared or discovered, they act by the codes of the records, and by those that no record has
    known = {"groups": (table.groups.n_groups, table.groups.code)}
    if table.classes is not None:
        known["classes"] = table.n_outputs, table.y
    facts |= {k: str(None if n == len(np.unique(c)) else n) for k, (n, c) in known.items()}
    x = table.x.numpy(force=True) if torch.is_tensor(table.x) else table.x
    if isinstance(x, SparseRows):
        rows = [x.shape, x.matrix.indptr, x.matrix.indices, x.matrix.data]
    else:
        rows = [np.asarray(x)]
    more: list[Any] = [column for column in (table.weight, table.person) if column is not None]
    if previous is not None:
        # no two fits in a row share their noise
        more += [w.numpy(force=True) for w in previous.module.state_dict().values()]
        more += [describe((previous.n_fits, previous.method, previous.privacy.releases))]
    mixed = digest(*rows, table.y, table.groups.code, sorted(facts.items()), *more)
    return Streams.seeded(int(state), digest=mixed)
