"""What reading one artefact may cost, so that a hostile one costs no more."""

import time


class Exhausted(Exception):
    """More was asked for than the budget holds."""


class Budget:
    """Bytes, opcodes, files and seconds that are left.

    Parameters
    ----------
    n_bytes : int
        Read or unpacked, in all.
    operations : int
        Opcodes and nodes.
    parts : int
        Files and archive members.
    seconds : float
        Of wall time.
    """

    def __init__(self, n_bytes=2**29, operations=5_000_000, parts=20_000, seconds=120.0):
        self.left, self.operations, self.parts = n_bytes, operations, parts
        self.end = time.monotonic() + seconds

    def take_bytes(self, n: int) -> None:
        """Spend bytes."""
        if n > self.left:
            raise Exhausted("it unpacks to more bytes than are read")
        self.left -= n

    def take_operation(self, n=1) -> None:
        """Spend an opcode or a node, or what costs as much as ``n``."""
        before = self.operations >> 12
        self.operations -= n
        if self.operations < 0:
            raise Exhausted("it has more opcodes than are read")
        if self.operations >> 12 != before and time.monotonic() > self.end:
            raise Exhausted("it takes longer than is waited")

    def take_part(self) -> None:
        """Spend a file or a member."""
        self.parts -= 1
        if self.parts < 0:
            raise Exhausted("it has more parts than are read")

    def read(self, file) -> bytes:
        """Return all of a binary file, if the budget holds it."""
        pieces = []
        while piece := file.read(min(self.left + 1, 1 << 22)):
            self.take_bytes(len(piece))
            pieces.append(piece)
        return b"".join(pieces)
