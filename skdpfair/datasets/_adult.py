"""Adult, the census income data set, bundled with the package."""

from pathlib import Path

import pandas as pd

from skdpfair._utils.validate import one_of
from skdpfair.datasets._local import table_bunch

_FOLDER = Path(__file__).parent / "data"
_FILES = {"train": "adult.data.gz", "test": "adult.test.gz"}

# what is publicly known of the columns; nothing here was computed from the rows

# the 15 fields of a row, in the order of the files; the last one is the target
_COLUMNS = (
    "age workclass fnlwgt education education_num marital_status occupation relationship race sex "
    "capital_gain capital_loss hours_per_week native_country income"
)

# from the census form and its coding: ages above 16, top-coded at 90; 16 levels of education; gains
# top-coded in five digits; hours in two digits; fnlwgt is a survey weight, not a feature
BOUNDS = {
    "age": (17.0, 90.0),
    "education_num": (1.0, 16.0),
    "capital_gain": (0.0, 99999.0),
    "capital_loss": (0.0, 5000.0),
    "hours_per_week": (1.0, 99.0),
}

_CATEGORIES = {
    "workclass": (
        "Federal-gov Local-gov Never-worked Private Self-emp-inc Self-emp-not-inc State-gov "
        "Without-pay"
    ),
    "education": (
        "10th 11th 12th 1st-4th 5th-6th 7th-8th 9th Assoc-acdm Assoc-voc Bachelors Doctorate "
        "HS-grad Masters Preschool Prof-school Some-college"
    ),
    "marital_status": (
        "Divorced Married-AF-spouse Married-civ-spouse Married-spouse-absent Never-married "
        "Separated Widowed"
    ),
    "occupation": (
        "Adm-clerical Armed-Forces Craft-repair Exec-managerial Farming-fishing "
        "Handlers-cleaners Machine-op-inspct Other-service Priv-house-serv Prof-specialty "
        "Protective-serv Sales Tech-support Transport-moving"
    ),
    "relationship": "Husband Not-in-family Other-relative Own-child Unmarried Wife",
    "race": "Amer-Indian-Eskimo Asian-Pac-Islander Black Other White",
    "sex": "Female Male",
    "native_country": (
        "Cambodia Canada China Columbia Cuba Dominican-Republic Ecuador El-Salvador England "
        "France Germany Greece Guatemala Haiti Holand-Netherlands Honduras Hong Hungary India "
        "Iran Ireland Italy Jamaica Japan Laos Mexico Nicaragua Outlying-US(Guam-USVI-etc) "
        "Peru Philippines Poland Portugal Puerto-Rico Scotland South Taiwan Thailand "
        "Trinadad&Tobago United-States Vietnam Yugoslavia"
    ),
}

# every category that the data description, adult.names, lists
CATEGORIES = {column: names.split() for column, names in _CATEGORIES.items()}

_DESCRIPTION = """\
Adult (census income)
=====================

48842 persons of the 1994 US census: 32561 in adult.data ("train"), 16281 in adult.test ("test").
14 features; the target is whether the yearly income exceeds 50,000 dollars (11687 do).
Sensitive features: sex (32650 Male, 16192 Female) and race (5 categories).
Missing values (NaN): workclass 2799, occupation 2809, native_country 857; 45222 rows have none.
education and education_num say the same thing; fnlwgt is a survey weight, not a property of the
person. 52 rows repeat an earlier one.

The target mirrors who earned how much in 1994, with that time's inequalities; it measures no merit.

Source: Becker, B. and Kohavi, R. (1996). Adult. UCI Machine Learning Repository.
https://doi.org/10.24432/C5XW20. Licence: CC BY 4.0; only compressed, otherwise unchanged.
"""


def load_adult(*, subset="all", dropna=False, as_frame=True, return_X_y=False):
    """Load the Adult data set (predict whether a yearly income exceeds 50,000 dollars).

    The files are part of the package; nothing is downloaded.

    Parameters
    ----------
    subset : {"all", "train", "test"}, default="all"
        The published training rows (32561), the test rows (16281), or both (48842).
    dropna : bool, default=False
        Drop the rows with a missing value (45222 of all rows remain).
    as_frame, return_X_y : bool
        As in scikit-learn's loaders: pandas objects or arrays; ``(data, target)`` or a Bunch.

    Returns
    -------
    sklearn.utils.Bunch or tuple
        ``data`` (14 columns, 6 of integers and 8 of dtype category, whose categories are always
        those of ``public_facts("adult")``), ``target`` (``"<=50K"`` or ``">50K"``), ``frame``
        (both, or None unless ``as_frame``), ``sensitive_features`` (the columns ``sex`` and
        ``race``, which are in ``data`` as well), ``feature_names``, ``target_names`` and ``DESCR``.
        Missing values are NaN.

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
    return table_bunch(
        frame, "income", ["sex", "race"], ["<=50K", ">50K"], _DESCRIPTION, as_frame, return_X_y
    )


def _read(part):
    """Return the rows of one file as a frame of 15 columns."""
    frame = pd.read_csv(
        _FOLDER / _FILES[part],
        header=None,
        names=_COLUMNS.split(),
        skipinitialspace=True,
        na_values="?",
        comment="|",  # adult.test opens with "|1x3 Cross validator"
    )
    frame["income"] = frame["income"].str.rstrip(".")  # adult.test ends its labels with a dot
    for column, categories in CATEGORIES.items():
        frame[column] = pd.Categorical(frame[column], categories=categories)
    return frame
