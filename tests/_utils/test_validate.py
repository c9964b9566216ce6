"""Validators, which name the parameter and the offending value; tests/robustness has many more."""

import pandas as pd
import pytest

from skdpfair._utils.validate import (
    MAX_TEXT,
    error_context,
    error_context_without_data,
    generator,
    number,
    one_of,
    safe_repr,
    visible,
)


def test_validators_name_the_parameter_and_the_value():
    for check, value, options, match in (
        (number, float("nan"), {"low": 0, "high": 1}, "number >= 0 and <= 1, got nan"),
        (generator, -1, {}, "integer >= 0 .*got -1"),
        (one_of, "meen", {"options": ["mean", "b[x]"]}, r"'b\[GROUP\]'.*mean 'mean'\?"),
    ):
        with pytest.raises(ValueError, match=f"^a must be .*{match}") as caught:
            check("a", value, **options)
        assert caught.value.parameter == "a"


def test_safe_repr_is_short_and_outlines_data():
    frame, text = pd.DataFrame({"a": ["cell"]}), "x" * 2 * MAX_TEXT
    assert safe_repr({"a": (frame, [1.0])}) == "{'a': (DataFrame of shape (1, 1), [1.0])}"
    assert len(safe_repr(text)) == MAX_TEXT + 3
    assert visible("a\u202eb\x00\n") == "a\\u202eb\\u0000\n"


def test_error_contexts_quote_reasons_but_no_data():
    for context in (error_context, error_context_without_data):
        with pytest.raises(TypeError, match=r"^y cannot be used") as caught, context("y"):
            raise TypeError("cell")
        assert ("cell" in str(caught.value)) == (context is error_context)
