"""The papers' tables, as printed."""

from importlib.resources import files

import pandas as pd


def printed(name) -> pd.DataFrame:
    """Return a table in print.

    Parameters
    ----------
    name : str
        Of a CSV file in ``skdpfair/reproduce/tables``.

    Examples
    --------
    >>> table = printed("esipova2023").set_index(["dataset", "method"])
    >>> float(table.loc[("adult", "dpsgd"), "accuracy_a"])
    69.9
    """
    return pd.read_csv(files("skdpfair.reproduce") / "tables" / f"{name}.csv")
