"""Verification of a release file: read, held against the closed list, and written again."""

from hashlib import sha256

from sklearn.base import is_regressor

from skdpfair._utils.validate import safe_repr
from skdpfair.release import _file
from skdpfair.release._closed_list import unlisted
from skdpfair.release._facts import module_facts
from skdpfair.release._read_statement import REGRESSOR, statement
from skdpfair.release._release import loaded
from skdpfair.training.inference import weights_of


def verify_release(path) -> None:
    """Raise ValueError unless a file holds a release, and nothing more.

    Parameters
    ----------
    path : str or Path
        A file written by ``save_release``.  A page is not verified: write it again from the file,
        by :func:`skdpfair.report.model_page`.

    Raises
    ------
    ValueError
        If the file is of another kind or damaged, if it holds anything else, such as a value that
        no fit has, or if its weights are not private.  The message names what is wrong, never its
        value.
    ImportError
        If the extra ``release`` is not installed.

    Notes
    -----
    The file is read as data: no code of it runs.  Its facts are decoded and held against the list
    of what a release holds: parameters with values that ``fit`` takes, fitted attributes that
    agree with each other, weights of the shapes of the network, and the statement of the privacy
    report.  They are then written again, and the bytes must be those of the file.  A release with
    a network of the author's own is refused, as only its code can tell which weights are data.

    This shows that nothing was added, and that epsilon follows from the releases that the file
    lists.  It does not show that the list is true: whoever makes a file can write any list into it.

    Examples
    --------
    >>> import tempfile
    >>> from skdpfair import DPFairClassifier
    >>> from skdpfair.testing import verify_release
    >>> clf = DPFairClassifier("dpsgd", epsilon=3.0, module="logistic", max_steps=5)
    >>> path = tempfile.mkdtemp() + "/model.safetensors"
    >>> clf.fit([[0.0], [1.0]] * 1500, [0, 1] * 1500).save_release(path)
    >>> verify_release(path)
    """
    facts = _file.opened(path).facts
    if isinstance(module := facts.get("module"), dict) and module.get("name") is None:
        raise ValueError(
            f"{path} cannot be verified: it holds the weights of the custom module "
            f"{str(module.get('custom'))[:80]!r}, and only its code tells which of them are data."
        )
    estimator, content = loaded(path)
    facts, privacy = content.facts, estimator.privacy_
    if wrong := unlisted(estimator, facts):
        raise ValueError(
            f"{path} holds values that no release has, in {safe_repr(wrong)}: they may be records. "
            "Do not share it; write it again by save_release."
        )
    if not privacy.epsilon < float("inf"):
        raise ValueError(
            f"{path} holds weights without differential privacy (epsilon is infinite), which may "
            "reveal records. Do not share it; fit with an epsilon."
        )
    again = {
        "parameters": {n: _file.encode(getattr(estimator, n)) for n in facts["parameters"]},
        "fitted": {n: _file.encode(getattr(estimator, n)) for n in facts["fitted"]},
        "module": module_facts(estimator.net_.module),
        "privacy_statement": statement(privacy),
        **{name: facts[name] for name in ("skdpfair_version", "schema") if name in facts},
        **({"estimator": REGRESSOR} if is_regressor(estimator) else {}),
    }
    written = _file.file_bytes(again, weights_of(estimator.net_))
    if sha256(written).hexdigest() != content.sha256:
        raise ValueError(
            f"{path} holds more than its weights and facts: save_release of this version writes "
            f"other bytes for them. Do not share it; write it again, or verify it with skdpfair "
            f"{facts['skdpfair_version']}, which it names."
        )
