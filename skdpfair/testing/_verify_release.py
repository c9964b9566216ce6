"""Whether a file that leaves holds what this package writes, and nothing else."""

from skdpfair._utils.files import path_of
from skdpfair.release._verify import check_release


def verify_release(path) -> None:
    """Raise ValueError unless a file holds a release or a model page, and nothing more.

    Parameters
    ----------
    path : str or Path
        A file written by ``save_release``, or a page of :func:`skdpfair.report.model_page`.

    Raises
    ------
    ValueError
        If the file is of another kind or damaged, if it holds anything else, such as a value that
        no fit takes or leaves, or if its weights or figures are not private.  The message names
        what is wrong, never its value.
    ImportError
        If the extra ``release``, or ``report`` for a page, is not installed.

    Notes
    -----
    The file is read as data: no code of it runs.  Its facts are decoded and held against the list
    of what a release holds: parameters with values that ``fit`` takes, fitted attributes that
    agree with each other, weights of the shapes of the network, and the statement of the privacy
    report.  They are then written again, and the bytes must be those of the file.  A release with
    a network of the author's own is refused, as only its code can tell which weights are data.

    It shows that nothing was added, not that the guarantee is true: whoever makes a file can write
    any numbers into it.

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
    if path_of(path).read_bytes().lstrip().startswith(b"<"):
        from skdpfair.report._model_page import check_page  # it needs jinja2

        check_page(path)
    else:
        check_release(path)
