"""Adult, the census income data set, bundled with the package."""

import gzip
import io
import zlib
from pathlib import Path

import pandas as pd
from sklearn.utils import Bunch

from skdpfair._validate import one_of
from skdpfair.datasets._adult_facts import ADULT_CATEGORIES, ADULT_COLUMNS, DESCRIPTION
from skdpfair.datasets._files import check_digest
from skdpfair.exceptions import DataIntegrityError

_FOLDER = Path(__file__).parent / "data"
_MD5 = {
    "train": ("adult.data.gz", "5d7c39d7b8804f071cdd1f2a7c460872"),
    "test": ("adult.test.gz", "35238206dfdf7f1fe215bbb874adecdc"),
}
_TARGETS = ["<=50K", ">50K"]


def load_adult(*, subset="all", dropna=False, as_frame=True, return_X_y=False):
    """Load Adult, where a person's yearly income exceeds 50,000 dollars or does not.

    The files are part of the package; nothing is downloaded. Their md5 digests are checked at
    every load.

    Parameters
    ----------
    subset : {"all", "train", "test"}, default="all"
        The publisher's training rows (32561), its test rows (16281), or both (48842).
    dropna : bool, default=False
        Drop the rows with a missing value (45222 of all rows remain).
    as_frame : bool, default=True
        Return pandas objects; else numpy arrays of dtype object.
    return_X_y : bool, default=False
        Return ``(data, target)`` instead of a Bunch.

    Returns
    -------
    sklearn.utils.Bunch or tuple
        With the attributes

        data : DataFrame of shape (n_samples, 14)
            6 integer columns and 8 of dtype category, whose categories are the public lists in
            ``ADULT_CATEGORIES``, whatever the rows hold. Missing values are NaN.
        target : Series of shape (n_samples,)
            ``"<=50K"`` or ``">50K"``; its name is ``income``.
        frame : DataFrame of shape (n_samples, 15) or None
            ``data`` and ``target`` together; None unless ``as_frame``.
        sensitive_features : DataFrame of shape (n_samples, 2)
            The columns ``sex`` and ``race``, which are in ``data`` as well.
        feature_names, target_names : list of str
            The names of the features, and the two values of the target.
        DESCR : str
            What the data are, where they come from, their licence.

    Raises
    ------
    DataIntegrityError
        If a bundled file is missing or its digest is not the recorded one.
    ValueError
        If ``subset`` is not one of the three names.

    Examples
    --------
    >>> from skdpfair.datasets import load_adult
    >>> adult = load_adult(dropna=True)
    >>> adult.data.shape
    (45222, 14)
    >>> adult.target.value_counts().to_dict()
    {'<=50K': 34014, '>50K': 11208}
    >>> adult.sensitive_features["sex"].value_counts().to_dict()
    {'Male': 30527, 'Female': 14695}
    """
    subset = one_of("subset", subset, ("all", "train", "test"))
    parts = ("train", "test") if subset == "all" else (subset,)
    frame = pd.concat([_read(part) for part in parts], ignore_index=True)
    if dropna:
        frame = frame.dropna().reset_index(drop=True)
    data, target = frame.drop(columns="income"), frame["income"]
    sensitive = data[["sex", "race"]]
    if not as_frame:
        frame = None
        data, target, sensitive = (part.to_numpy(object) for part in (data, target, sensitive))
    if return_X_y:
        return data, target
    return Bunch(
        data=data,
        target=target,
        frame=frame,
        sensitive_features=sensitive,
        feature_names=list(ADULT_COLUMNS[:-1]),
        target_names=list(_TARGETS),
        DESCR=DESCRIPTION,
    )


def _read(part):
    """Return the rows of one file as a frame of 15 columns."""
    name, md5 = _MD5[part]
    text = _bundled_bytes(_FOLDER / name, md5)
    frame = pd.read_csv(
        io.BytesIO(text),
        header=None,
        names=list(ADULT_COLUMNS),
        skipinitialspace=True,
        na_values="?",
        comment="|",  # adult.test opens with "|1x3 Cross validator"
    )
    frame["income"] = frame["income"].str.rstrip(".")  # adult.test ends its labels with a dot
    for column, categories in ADULT_CATEGORIES.items():
        frame[column] = pd.Categorical(frame[column], categories=categories)
    return frame


def _bundled_bytes(path, md5):
    """Return the uncompressed bytes of a bundled file, once their digest is checked."""
    try:
        content = gzip.decompress(path.read_bytes())
    except FileNotFoundError:
        raise DataIntegrityError(
            f"{path} is missing, expected a file with md5 {md5}: install skdpfair again."
        ) from None
    except (OSError, EOFError, zlib.error) as error:
        raise DataIntegrityError(
            f"{path} is not a readable gzip file ({error}), expected one whose uncompressed "
            f"bytes have md5 {md5}: install skdpfair again."
        ) from None
    check_digest(path, content, md5, "md5")
    return content
