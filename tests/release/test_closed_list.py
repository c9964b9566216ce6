"""The closed list names each fact that a release may not hold, by its name or by its values."""

from copy import deepcopy

import numpy as np
import pytest

from skdpfair.release._closed_list import are_texts_of_levels, unlisted
from skdpfair.release._facts import rebuilt

pytestmark = pytest.mark.filterwarnings("ignore::skdpfair.exceptions.LowSignalWarning")
PLANTED = {  # of a fit by groups: values that may be records, and a name of none
    "levels_": np.linspace(0, 1, 9),
    "classes_": np.array(["Ada Lovelace", "0.125"]),
    "_variables": ("target", "0.125"),
    "_n_fits": 65,
    "_cut": 0.1,
    "notes": "Ada",
}


@pytest.mark.parametrize("name", [None, *PLANTED])
def test_unlisted_names_facts_that_may_be_records(name, fits):
    model, facts, weights = deepcopy(fits["groups"])
    estimator = rebuilt(type(model), facts, weights)
    if name is not None:
        setattr(estimator, name, PLANTED[name])
        facts["fitted"].setdefault(name)
    assert unlisted(estimator, facts)[:1] == [name] * (name is not None)


def test_are_texts_of_levels_refuses_decimals_and_long_texts():
    found = [are_texts_of_levels(t) for t in (["F", "", "1.0", "[18, 65)"], ["0.125"], ["x" * 101])]
    assert found == [True, False, False]
