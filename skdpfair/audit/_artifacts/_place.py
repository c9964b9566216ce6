"""Where a node lies in an artefact, and what that says of it."""

import re
from dataclasses import dataclass

from skdpfair.audit._artifacts._graph import Global
from skdpfair.audit._artifacts._tally import Tally

_LONGEST = 400  # of a path; a hostile one would go on
SHOWN = re.compile(  # other keys may be data
    r"[A-Za-z_][\w.\-]{0,60}|\d{1,3}|(\d{1,3}\.)+[A-Za-z_]\w{0,60}"
)


@dataclass(frozen=True)
class Place:
    """Where a node lies: its path, and what that says of it."""

    where: str
    name: str | None = None
    owner: Global | None = None
    facts: dict | None = None
    fitted: bool = True
    inside: str | None = None
    tally: Tally | None = None
    depth: int = 0
    packed: int = 0
    in_estimator: bool = False
    in_module: bool = False
    attached: bool = False
    within: bool = False  # of something fitted

    def but(self, **changes):
        """Return the place with some things changed."""
        place = object.__new__(Place)  # dataclasses.replace takes ten times as long
        place.__dict__.update(self.__dict__, **changes)
        return place

    def attribute(self, name, **changes):
        """Return the place of an attribute."""
        shown = name if isinstance(name, str) and SHOWN.fullmatch(name) else "(attribute)"
        if len(self.where) > _LONGEST:
            return self.but(name=name, **changes)
        joint = "" if self.where == "" else "!" if self.where.endswith("\0") else "."
        where = f"{self.where.rstrip(chr(0))}{joint}{shown}"
        return self.but(where=where, name=name, **changes)

    def item(self, key, index, named=False, **changes):
        """Return the place of an item, a dict's if it has a key."""
        short = isinstance(key, str) and SHOWN.fullmatch(key) and named
        if len(self.where) > _LONGEST:
            return self.but(**changes)
        text = f"[{key!r}]" if short else f"[{index}]"
        joint = "!" if self.where.endswith("\0") else ""
        where = f"{self.where.rstrip(chr(0))}{joint}{text}"
        return self.but(where=where, name=key if short else self.name, **changes)

    @property
    def path(self) -> str:
        """The path as it is shown."""
        return self.where.rstrip("\0")
