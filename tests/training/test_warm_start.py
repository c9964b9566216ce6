"""A fit that goes on from another: data of the same form, and what was spent before."""

import numpy as np
import pytest

from tests.quick_fits import QUIET, TABLE, X, Y, quick

pytestmark = QUIET


PICTURES = np.random.default_rng(0).uniform(size=(60, 8, 8)).astype(np.float32)


@pytest.mark.parametrize(
    ("params", "first", "change", "second", "what"),
    [
        ({}, (X, Y), {}, (X[X.columns[::-1]], Y), "names of the features"),
        ({}, (X.to_numpy(), Y), {}, (X.to_numpy()[:, 1:], Y), "number of features"),
        ({}, (X, Y), {}, (X, Y + 1), "classes"),
        ({"group_col": "group"}, (TABLE, Y), {"group_col": None}, (TABLE[[*X]], Y), "groups"),
        (
            {"module": "scattering"},
            (PICTURES, np.arange(60) % 2),
            {"module__mirror": True},
            (PICTURES, np.arange(60) % 2),
            "features of pictures",
        ),
    ],
)
def test_previous_fit_refuses_data_of_another_form(params, first, change, second, what):
    model = quick(warm_start=True, max_steps=2, **params).fit(*first)
    report = model.privacy_
    with pytest.raises(ValueError, match=f"the {what} changed"):
        model.set_params(**change).fit(*second)
    assert model.privacy_ is report
