"""Places of values in an artefact: their paths, and what these say of them."""

import re
from dataclasses import dataclass

SHOWN = re.compile(r"[A-Za-z_][\w.\-]{0,60}|\d{1,3}|(\d{1,3}\.)+[A-Za-z_]\w{0,60}")
_LONGEST = 400  # of a path; a hostile one would go on


@dataclass(frozen=True)
class Place:
    """Where a value lies: its path, and what that says of it."""

    where: str = ""
    name: str | None = None
    inside: str | None = None  # the kind of what it lies in
    depth: int = 0
    listed: bool = False  # an item of a list
    fitted: bool = True  # not of an estimator that has seen no data
    within: bool = False  # an estimator that has seen data
    in_module: bool = False
    attached: bool = False  # to a tensor
    scale: int = 1  # how many times more plain values are few

    def but(self, **changes):
        """Return the place with some things changed."""
        place = object.__new__(Place)  # dataclasses.replace takes ten times as long
        place.__dict__.update(self.__dict__, **changes)
        return place

    def attribute(self, name, **changes):
        """Return the place of an attribute."""
        shown = name if isinstance(name, str) and SHOWN.fullmatch(name) else "(attribute)"
        joint = "" if not self.where else "!" if self.where.endswith("\0") else "."
        return self._below(f"{joint}{shown}", name=name, listed=False, **changes)

    def item(self, key, index, **changes):
        """Return the place of an item, a dict's if it has a key."""
        shown = isinstance(key, str) and SHOWN.fullmatch(key)
        joint = "!" if self.where.endswith("\0") else ""
        end = f"{joint}[{key!r}]" if shown else f"{joint}[{index}]"
        return self._below(end, name=key if isinstance(key, str) else self.name, **changes)

    def _below(self, end, **changes):
        where = self.where.rstrip("\0") + end if len(self.where) < _LONGEST else self.where
        return self.but(where=where, depth=self.depth + 1, **changes)

    @property
    def path(self) -> str:
        """The path as it is shown."""
        return self.where.rstrip("\0")
