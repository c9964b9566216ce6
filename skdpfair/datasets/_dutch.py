"""The Dutch census of 2001, from a local folder; never bundled or made up."""

import pandas as pd

from skdpfair.datasets._local import fetch, table_bunch

_NAME = "dutch_census_2001.arff"
_SHA256 = {_NAME: "0e7e3f32668919c239db820f625815e1ea834c71402cdea595e03ef08c8616ef"}
_SOURCE = (
    " Obtain it from the authors of Le Quy et al. 2022, 'A survey on datasets for fairness-aware "
    "machine learning' (GitHub repository tailequy/fairness_dataset)."
)
_CATEGORIES = {
    "sex": "1 2",
    "age": "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17",
    "household_position": "1110 1121 1122 1131 1132 1140 1210 1220",
    "household_size": "111 112 113 114 125 126",
    "prev_residence_place": "1 2 9",
    "citizenship": "1 2 3",
    "country_birth": "1 2 3",
    "edu_level": "0 1 2 3 4 5 9",
    "economic_status": "111 112 120 210 221 222 223 224",
    "cur_eco_activity": "111 122 124 131 132 133 134 135 136 137 138 139 200",
    "Marital_status": "1 2 3 4",
}

# every code that the file's header declares; the rows use fewer, and learning which ones would be
# learning from private rows
CATEGORIES = {column: codes.split() for column, codes in _CATEGORIES.items()}

_DESCRIPTION = """\
Dutch census 2001
=================

60420 persons, 11 nominal features; the target is whether the occupation is high-level ("2_1":
28763 persons) or low-level ("5_4_9": 31657). Sensitive feature: sex, "1" male (30147 persons, of
whom 62.56 % high-level), "2" female (30273, 32.71 %). No missing value. All values are codes, save
that the codes of age (five-year bands) and edu_level are ordered. 41982 rows repeat an earlier one.

Source: the Dutch Virtual Census of 2001 (Statistics Netherlands; IPUMS-International) as processed
by Le Quy, Roy, Iosifidis, Zhang and Ntoutsi, "A survey on datasets for fairness-aware machine
learning", 2022. For research use under the terms of IPUMS-International; not bundled.
"""


def fetch_dutch(*, data_home=None, as_frame=True, return_X_y=False):
    """Load the Dutch census of 2001 from a local folder, and check its digest.

    The data are for research use and not bundled, and no permanent public address is known.
    Request ``dutch_census_2001.arff`` from the authors of the publication, and pass its folder.

    Parameters
    ----------
    data_home : path-like or None, default=None
        The folder that holds ``dutch_census_2001.arff`` or ``dutch_census_2001.arff.gz``, itself
        or in a subfolder ``dutch``. None means the folder that the environment variable
        ``SKDPFAIR_DATA`` names, else ``~/scikit_learn_data/skdpfair``.
    as_frame, return_X_y : bool
        As in scikit-learn's loaders: pandas objects or arrays; ``(data, target)`` or a Bunch.

    Returns
    -------
    sklearn.utils.Bunch or tuple
        As for `load_adult`, with 60420 rows and 11 features. The target, ``occupation``, is
        ``"2_1"`` (high level) or ``"5_4_9"`` (low level), and the sensitive feature is ``sex``.

    Examples
    --------
    >>> from skdpfair.datasets import fetch_dutch
    >>> fetch_dutch(data_home="no-such-folder")
    Traceback (most recent call last):
    ...
    skdpfair.exceptions.DataIntegrityError: dutch_census_2001.arff is not in no-such-folder...
    """
    content = fetch(_SHA256, "dutch", data_home, _SOURCE)[_NAME]
    frame, targets = _parse(content.decode()), ("5_4_9", "2_1")
    return table_bunch(frame, "occupation", ["sex"], targets, _DESCRIPTION, as_frame, return_X_y)


def _parse(text):
    """Return the rows of the arff text as a frame of 12 columns."""
    lines = [line.strip() for line in text.splitlines()]
    names = [line.split()[1] for line in lines if line.lower().startswith("@attribute")]
    rows = [line.split(",") for line in lines[lines.index("@data") + 1 :] if line]
    frame = pd.DataFrame(rows, columns=names)
    for column, categories in CATEGORIES.items():
        frame[column] = pd.Categorical(frame[column], categories=categories)
    return frame
