"""What one fit has besides its spec and its plan: randomness, processes, ledger, the fit before."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace

import numpy as np

from skdpfair.engine import Streams
from skdpfair.inputs.table import Table
from skdpfair.privacy import NoisyRelease
from skdpfair.privacy.one_time_noise import noisy
from skdpfair.training.processes import Processes
from skdpfair.training.seeds import streams_of
from skdpfair.training.sklearn_callbacks import FitContext
from skdpfair.training.spec import FitSpec
from skdpfair.training.warm_start import PreviousFit


@dataclass(frozen=True)
class Run:
    """One fit."""

    spec: FitSpec
    processes: Processes  # that train the module together
    context: FitContext  # its place within the fit that called it
    previous: PreviousFit | None  # the fit that it continues
    streams: Streams  # where randomness comes from; of this process alone
    is_seeded: bool  # whether the noise follows from a seed
    releases: list[NoisyRelease]  # in order, by the fits before this one, too
    pid: int = field(default_factory=os.getpid)

    @classmethod
    def of(
        cls,
        spec: FitSpec,
        table: Table,
        processes: Processes,
        context: FitContext,
        previous: PreviousFit | None,
        init_entropy: tuple[int, ...] | None,
    ) -> Run:
        """Return the run of a fit to a table.

        ``init_entropy`` is that of the initial weights, where they are to be those of another fit.
        """
        streams, is_seeded = streams_of(spec, table, previous)
        # what is drawn for one part of the records must change with all of them
        entropy = processes.sum(streams.entropy) if is_seeded else streams.entropy
        init_entropy = processes.broadcast(init_entropy or streams.init_entropy)
        streams = replace(streams, entropy=entropy, init_entropy=init_entropy)
        releases = [] if previous is None else list(previous.privacy.releases)
        streams = streams.of_process(processes.rank)
        return cls(spec, processes, context, previous, streams, is_seeded, releases)

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
        total: np.ndarray = self.processes.sum(counts)
        return total

    def check_process(self) -> None:
        """Raise RuntimeError in a copy of the process, which would draw the same noise again."""
        if os.getpid() != self.pid:
            raise RuntimeError(
                "This process was forked in the middle of a fit, and two models with the same "
                "noise would tell the records apart. Start processes before or after a fit."
            )
