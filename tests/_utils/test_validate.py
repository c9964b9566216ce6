"""Validators, which name the parameter and the offending value."""

from functools import partial

import numpy as np
import pandas as pd
import pytest
from sklearn.utils._param_validation import StrOptions

from skdpfair._utils.validate import (
    MAX_TEXT,
    check_parameter,
    error_context,
    error_context_without_data,
    flag,
    generator,
    integer,
    listed,
    number,
    one_of,
    safe_repr,
    visible,
)


@pytest.mark.parametrize(
    ("check", "value", "match"),
    [
        (partial(number, low=0, low_open=True), 0, "number > 0, got 0.0"),
        (partial(number, low=0, high=1), float("nan"), "number >= 0 and <= 1, got nan"),
        (integer, 1.5, r"integer >= 1, got 1.5 \(float\)"),
        (integer, 2**70, r"integer <= 2\*\*63, got"),
        (generator, -1, "integer >= 0 .*got -1"),
        (partial(one_of, options=["mean", "b[x]"]), "meen", r"'b\[GROUP\]'.*mean 'mean'\?"),
        (flag, 1, "True or False, got 1"),
        (partial(listed, of="names"), "xy", "list of names, got 'xy'"),
        (partial(check_parameter, constraints=[StrOptions({"b"}), None]), 3, "'b'.* got 3"),
    ],
)
def test_validators_name_the_parameter_and_the_value(check, value, match):
    with pytest.raises((ValueError, TypeError), match=f"^a must be .*{match}") as caught:
        check("a", value)
    assert caught.value.parameter == "a"


def test_safe_repr_is_short_and_outlines_data():
    frame, text = pd.DataFrame({"a": ["cell"]}), "x" * 2 * MAX_TEXT
    assert safe_repr({"a": (frame, [np.float64(1)])}) == "{'a': (DataFrame of shape (1, 1), [1.0])}"
    assert len(safe_repr(text)) == MAX_TEXT + 3
    assert visible("a\u202eb\x00\n") == "a\\u202eb\\u0000\n"


@pytest.mark.parametrize(
    ("context", "quotes"), [(error_context, True), (error_context_without_data, False)]
)
def test_error_contexts_quote_reasons_but_no_data(context, quotes):
    with pytest.raises(TypeError, match=r"^y cannot be used") as caught, context("y"):
        raise TypeError("cell")
    assert ("cell" in str(caught.value)) == quotes
