"""Judge text: numbers written out, and bytes dressed as text."""

import base64
import binascii
import re

_ODD = dict.fromkeys((*range(9), *range(14, 32), *range(127, 256)))
_MANY = 9  # numbers in a row that are data, not prose
_TOKEN = re.compile(r"[-+]?\d[\d.]*(?:[eE][-+]?\d+)?")
_BETWEEN = re.compile(r"[\s,;|:\[\](){}]{1,8}|, ?-?")
_ENCODED = re.compile(r"[A-Za-z0-9+/=_\-]{96,}")
_PATH = re.compile(
    r"(?:[A-Za-z]:[\\/]|(?:file:)?/{1,3}|~/|\.\.?/|\\\\|(?:s3|gs|gcs|abfss?|hdfs|ftp)://)[^\s/\\<>|*?\"]+(?:[\\/][^\s/\\<>|*?\"]+)+"
)
_SEED = re.compile(
    r"(?<![A-Za-z])(?:\w*seed(?!s\b)|random_?state)\w*[\"']?\s*[:=]\s*[\"']?\d", re.IGNORECASE
)
_NOT_PRIVATE = re.compile(  # as pages and cards mark it
    r"<strong>This page contains non-private figures|\*\*NOT private: computed on real people"
)
_LOSS = re.compile(r"loss(?:es)?\w*[\"']?\W{0,4}\d*\.\d", re.IGNORECASE)
_DATA_FILE = re.compile(
    r"[^\n]{1,400}\.(?:npy|npz|dat|bin|raw|mmap|memmap|csv|tsv|parquet|feather|arrow|h5|hdf5|pkl|"
    r"pickle|joblib|pt|pth|ckpt|sqlite|db|jsonl|xlsx?|zarr|sas7bdat|dta)(?:\.(?:gz|bz2|xz|zip|zst))?",
    re.IGNORECASE,
)


def as_text(data: bytes) -> str | None:
    """Return bytes as text if they are text."""
    encoding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8"
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError:
        return None
    control = sum(text.count(chr(c)) for c in range(32) if chr(c) not in "\t\n\r\f")
    return text if text and control <= len(text) / 100 else None


def judge_words(reader, text, where):
    """Note seeds and losses that a text tells, as logs do, and what calls itself not private."""
    if _NOT_PRIVATE.search(text) and "{%" not in text:  # no template
        reader.add("non-private figures", where, "text that says so, as reports do", len(text))
    if _SEED.search(text):
        reader.add("seed", where, "text that tells a seed", len(text))
    if len(_LOSS.findall(text)) > 1:
        reader.add("loss history", where, "text that tells losses", len(text))


def tells_loss(text) -> bool:
    """Tell whether a text tells a loss."""
    return len(text) > 8 and bool(_LOSS.search(text))


def is_path(text: str) -> bool:
    """Tell whether text names a file of data, or an absolute path."""
    if len(text) > 1000 or "\n" in text or text.endswith((".py", ".pyi", ".ipynb")):
        return False
    return bool(_PATH.fullmatch(text) or _DATA_FILE.fullmatch(text))


def judge_text(text: str):
    """Return why text is not just words, or None, and the bytes that it encodes, or None."""
    if len(text) < 24:
        return None, None
    if _n_in_a_row(text) >= _MANY:
        return "numbers written as text", None
    if _is_table(text):
        return "a table written as text", None
    odd = len(text) - len(text.translate(_ODD))
    if odd > 8 and odd > len(text) / 10:
        return "bytes kept as text", text.encode("latin-1", "ignore")
    return _judge_encoded(text)


def _judge_encoded(text):
    compact = re.sub(r"\s", "", text) if len(text.split()) * 60 < len(text) else text
    if " " in compact or len(compact) < 96:
        return None, None
    inner = _decoded(compact)
    if inner is not None:
        return "bytes encoded as text", inner
    dense = len(set(compact)) >= 24 and not re.search(r"[A-Za-z]{24,}", compact)
    long = len(set(compact)) > 1 and _ENCODED.search(compact)
    return ("text without words, which may hold anything" if dense or long else None), None


def _decoded(text):
    if re.fullmatch(r"(?:[0-9a-fA-F]{2})+", text):
        return bytes.fromhex(text)
    if not _ENCODED.fullmatch(text) or not (re.search(r"[A-Z]", text) and re.search(r"\d", text)):
        return None
    try:
        standard = text.replace("-", "+").replace("_", "/").rstrip("=")
        return base64.b64decode(standard + "=" * (-len(standard) % 4), validate=True)
    except (binascii.Error, ValueError):
        return None


def _n_in_a_row(text):
    """Return the most numbers that follow one another with nothing but separators between."""
    best = run = 0
    end = None
    for token in _TOKEN.finditer(text):
        between = "" if end is None else text[end : token.start()]
        close = end is not None and len(between) <= 8 and _BETWEEN.fullmatch(between)
        run = run + 1 if close else 1
        end = token.end()
        if len(token.group()) > 48:  # a number that long is many
            return _MANY
        best = max(best, run)
        if best >= _MANY:
            break
    return best


def _is_table(text):
    lines = text.strip().split("\n", 400)[:400]
    if len(lines) < 8:
        words = text.split()[:2000]
        return len(words) >= 64 and len(set(words)) <= len(words) / 10
    for delimiter in (",", "\t", ";", "|"):
        counts = [line.count(delimiter) for line in lines]
        common = max(set(counts), key=counts.count)
        alike = [line for line, n in zip(lines, counts, strict=True) if n == common]
        numbers = sum(1 for line in alike if re.search(r"\d", line))
        if common == 0 or len(alike) < 0.8 * len(lines):
            continue
        cells = [cell for line in alike for cell in line.split(delimiter)]
        repeated = len(lines) >= 16 and len(set(cells)) < 0.5 * len(cells)
        if (common >= 2 and numbers >= 0.8 * len(alike)) or repeated:
            return True
        if len(lines) >= 16 and numbers == len(alike) and _are_short(cells):
            return True
    return False


def _are_short(cells):
    return sum(map(len, cells)) < 12 * len(cells)
