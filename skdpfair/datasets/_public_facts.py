"""Public facts about the columns of the tables."""

from copy import deepcopy

from skdpfair._utils.validate import one_of
from skdpfair.datasets import _adult, _dutch

_FACTS = {
    "adult": {"bounds": _adult.BOUNDS, "categories": _adult.CATEGORIES},
    "dutch": {"bounds": {}, "categories": _dutch.CATEGORIES},
}


def public_facts(name):
    """Return public facts about a table's columns; nothing was computed from its rows.

    Parameters
    ----------
    name : {"adult", "dutch"}
        The table of :func:`load_adult` or :func:`fetch_dutch`.

    Returns
    -------
    dict
        ``bounds`` (dict from a numeric column to its smallest and largest value) and
        ``categories`` (dict from a column to the list of its values), the arguments of
        :func:`skdpfair.preprocessing.public_preprocessor`.

    Examples
    --------
    >>> public_facts("adult")["bounds"]["age"], public_facts("adult")["categories"]["sex"]
    ((17.0, 90.0), ['Female', 'Male'])
    """
    return deepcopy(_FACTS[one_of("name", name, _FACTS)])
