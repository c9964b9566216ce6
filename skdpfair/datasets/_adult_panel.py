"""Adult with simulated persons, each of whom has several records."""

import numpy as np
import pandas as pd

from skdpfair._validate import generator, integer, number
from skdpfair.datasets._adult import load_adult

# the rows of a person agree in _SAME and are neighbours in the order of _NEAR
_SAME = ["sex", "race", "native_country", "usual_income"]
_NEAR = ["education_num", "marital_status", "age"]

_DESCRIPTION = """\
Adult with simulated persons
============================

The 45222 complete rows of Adult, unchanged, and a simulated person for each row: Adult has one row
for each person, and no identifiers. Rows of a simulated person are rows of different real persons
who agree in sex, race and native country, and mostly in education, marital status and age. With a
persistence above 0, their incomes agree more often than those features explain.

Use it to try out privacy of persons with several records. It says nothing about how real persons
change from one interview to the next: their other features change less often, and their age never
by decades.

"""


def make_adult_panel(*, max_records=8, persistence=0.7, random_state=None):
    """Simulate repeated interviews: Adult, with several records for each person.

    Features and target are those of ``load_adult(dropna=True)``, row by row, so its public facts
    ``ADULT_BOUNDS`` and ``ADULT_CATEGORIES`` hold. Only the assignment of rows to persons is
    simulated.

    Parameters
    ----------
    max_records : int, default=8
        Largest number of records of a person, from 1 to 100. The default is the number of
        interviews of a household in the Current Population Survey.
    persistence : float, default=0.7
        How much the incomes of one person agree, in [0, 1]. With 1 they all agree; with 0 they
        agree as far as the features that a person's records share explain.
    random_state : int, numpy.random.RandomState, numpy.random.Generator or None, default=None
        Seed or generator. None uses a fresh generator, never numpy's global one.

    Returns
    -------
    sklearn.utils.Bunch
        As that of ``load_adult(dropna=True)``, of 45222 records, and with

        units : Series of shape (45222,)
            The person of each record, an integer from 0; its name is ``person``. It is not in
            ``data`` or ``frame``. All records of a person have the same sex and race.

    Raises
    ------
    TypeError, ValueError
        If a parameter is not a number, or is out of range.

    Notes
    -----
    Each row has a usual income: its own with probability ``persistence``, otherwise that of a
    random row. Rows are sorted by sex, race, native country, usual income, education, marital
    status and age. The sorted rows are cut into persons, at each change of one of the first four,
    and after numbers of records that are uniform on 1, ..., ``max_records``.

    Examples
    --------
    >>> from skdpfair.datasets import make_adult_panel
    >>> panel = make_adult_panel(random_state=0)
    >>> panel.data.shape, panel.units.nunique()
    ((45222, 14), 10293)
    >>> panel.units.value_counts().agg(["min", "max"]).to_list()
    [1, 8]
    """
    # the sum of 45222 such numbers is far from overflow
    max_records = integer("max_records", max_records, high=100)
    persistence = number("persistence", persistence, low=0, high=1)
    rng = generator("random_state", random_state)
    panel = load_adult(dropna=True)
    income, n = panel.target.to_numpy(), len(panel.target)
    usual = np.where(rng.uniform(size=n) < persistence, income, rng.permutation(income))
    rows = panel.data.assign(usual_income=usual).sort_values(_SAME + _NEAR, kind="stable")
    same = rows[_SAME].astype(str)
    ends = rng.integers(1, max_records, size=n, endpoint=True).cumsum()
    is_first = (same != same.shift()).any(axis=1).to_numpy() | np.isin(np.arange(n), ends)
    names = rng.permutation(is_first.sum())  # the order of the persons tells their incomes
    persons = pd.Series(names[is_first.cumsum() - 1], index=rows.index, name="person")
    panel.units = persons.sort_index()
    panel.DESCR = _DESCRIPTION + panel.DESCR
    return panel
