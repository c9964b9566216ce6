"""Count plain numbers and texts that lie together, wherever they are nested."""

import re
from dataclasses import dataclass, field

from skdpfair.audit._artifacts._names import GENERATOR, INDICES, LOSSES, NUMBERS, SEED, kind_of_name
from skdpfair.audit._artifacts._text import is_path, judge_text, judge_words, tells_loss

FEW_FLOATS, FEW_INTEGERS, FEW_TEXTS, FEW_FLAGS = 4, 8, 512, 24
_NUMBER = re.compile(r"[-+]?(\d+\.\d*|\.\d+|\d{5,40})([eE][-+]?\d+)?")
_DECIMAL = re.compile(r"\d\.\d")
_REPEATED = 24  # texts, of which many are the same: a column, not a list of names


@dataclass(eq=False)
class Tally:
    """The plain values under one attribute.

    Parameters
    ----------
    where : str
    name : str or None
        Of the attribute.
    inside : str or None
        The kind of what it lies in.
    scale : int
        How many times more numbers are few: 1 but for the attributes of an unknown object.
    outer : Tally or None
        What it counts for, too, unless it is too much by itself.
    """

    where: str
    name: str | None
    inside: str | None = None
    scale: int = 1
    integers: int = 0
    floats: int = 0
    texts: int = 0
    flags: int = 0
    losses: int = 0
    distinct: set = field(default_factory=set)
    outer: "Tally | None" = None

    def add(self, value):
        """Count a value."""
        if isinstance(value, bool):
            self.flags += 1
        elif isinstance(value, int):
            self.integers += 1
        elif isinstance(value, float):
            self.floats += 1
        elif isinstance(value, str):
            if _NUMBER.fullmatch(value):
                self.floats += 1
            elif 8 < len(value) < 1000 and sum(map(str.isalpha, value)) < len(value) / 4:
                self.floats += len(_DECIMAL.findall(value))
            self.texts += 1
            self.losses += tells_loss(value)
            if len(self.distinct) <= FEW_TEXTS:
                self.distinct.add(hash(value))

    def add_array(self, array):
        """Count the numbers of an array that is too small to tell by itself."""
        if array.letter == "f":
            self.floats += array.size
        elif array.letter == "b":
            self.flags += array.size
        else:
            self.integers += array.size

    def judge(self, reader):
        """Note what is too much."""
        before = len(reader.findings)
        self._judge(reader)
        if self.outer is not None and len(reader.findings) == before:
            self.outer.integers += self.integers
            self.outer.floats += self.floats
            self.outer.texts += self.texts
            self.outer.flags += self.flags
            self.outer.losses += self.losses
            self.outer.distinct |= self.distinct

    def _judge(self, reader):
        n = self.integers + self.floats
        kind = kind_of_name(self.name)
        few = FEW_INTEGERS if self.floats * 2 <= n else FEW_FLOATS
        if kind in (LOSSES, INDICES) and n > 1:
            few = 1
        if n > few * self.scale:
            if self.integers in range(620, 630) and self.floats <= 1:
                kind = GENERATOR
            what = "numbers in lists, dicts or attributes"
            reader.add(kind or self.inside or NUMBERS, self.where, what, shape=(n,))
        if self.flags > FEW_FLAGS * self.scale:
            what = "yes or no, many times in lists, dicts or attributes"
            reader.add(kind or self.inside or NUMBERS, self.where, what, shape=(self.flags,))
        if self.losses > 1:
            reader.add(LOSSES, self.where, "texts that tell losses", shape=(self.losses,))
        repeated = self.texts >= _REPEATED and len(self.distinct) < 0.6 * self.texts
        if repeated or self.texts > FEW_TEXTS:
            what = "many texts, as in a column of a table"
            reader.add(
                kind or self.inside or "unexplained text", self.where, what, shape=(self.texts,)
            )


def judge_value(value, where, name, fitted, reader):
    """Note a single value that tells by itself, such as a seed, a path or encoded bytes.

    Returns the bytes that a text encodes, or None.
    """
    kind = kind_of_name(name)
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int):
        if fitted and _is_seed(name):
            reader.add(SEED, where, "an integer that seeds a random generator")
        elif value.bit_length() > 64:
            found = kind if kind == GENERATOR else SEED
            reader.add(found, where, f"an integer of {value.bit_length()} bits, as seeds are")
    elif isinstance(value, float):
        if kind == LOSSES:
            reader.add(LOSSES, where, "a loss on the data")
        elif fitted and _is_seed(name):
            reader.add(SEED, where, "a number that seeds a random generator")
    elif isinstance(value, str):
        if fitted and _is_seed(name) and value.strip().isdigit():
            reader.add(SEED, where, "the digits of a seed")
        if len(value) > 8:
            judge_words(reader, value, where)
        if is_path(value):
            reader.add("file path", where, "text that names a file")
        why, inner = judge_text(value)
        if why is not None:
            reader.add("unexplained text", where, why, len(value))
        return inner
    return None


def _is_seed(name):
    return kind_of_name(name) == SEED or (
        isinstance(name, str) and name.strip("_") == "random_state"
    )


def is_source(name, value):
    """Tell whether a text says where a function's source was."""
    return name in ("__file__", "__path__", "co_filename") and str(value).endswith(".py")
