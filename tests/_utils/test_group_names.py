"""Names of groups and classes for readers."""

import pytest

from skdpfair._utils.group_names import (
    class_names,
    display_names,
    escape_reserved,
    group_names,
)


@pytest.mark.parametrize(
    ("levels", "names"),
    [
        (["F", "x, y", 1, 0.5, None], ["F", "x, y", "1", "0.5", "None"]),
        ([1, "1"], ["1", "'1'"]),
        ([1.0, "1"], ["1.0", "'1'"]),
        ([True, "True", "F"], ["True", "'True'", "F"]),
        ([None, "None"], ["None", "'None'"]),
        ([1, "1", "'1'"], ["1", "'1'", "\"'1'\""]),
        (["F", "F ", "M"], ["'F'", "'F '", "M"]),
        (["F", "\u200bF"], ["'F'", "'\\u200bF'"]),
        (["\xe5", "a\u030a"], ["'\\xe5'", "'a\\u030a'"]),
        ([("F", "a"), ("M", "a")], ["F, a", "M, a"]),
        ([("x, y", "z"), ("x", "y, z"), ("x", "y")], ["'x, y', z", "x, 'y, z'", "x, y"]),
        ([("a", 1), ("a", "1")], ["a, 1", "a, '1'"]),
    ],
)
def test_group_names_are_all_different(levels, names):
    assert group_names(levels) == names and len(set(names)) == len(levels)
    assert group_names(levels[::-1]) == names[::-1]


def test_display_names_have_the_names_of_variables():
    levels = [("F", " "), ("M", "b")]
    named = ["sex “F”, ward “(missing)”", "sex “M”, ward “b”"]
    assert display_names(levels, ["sex", "ward"]) == named
    assert display_names(["Female", "no", 1, "18-25"], ["sex"]) == [
        *("Female", "sex “no”"),
        *("sex “1”", "sex “18-25”"),
    ]
    assert class_names(["yes", ">50K"], "income") == ["income “yes”", "income “>50K”"]
    assert class_names([0, 1], "") == ["“0”", "“1”"]
    assert display_names(levels, ["sex"]) == ["F, (missing)", "M, b"]
    assert escape_reserved(["all", "F", 1], ["all"]) == ["'all'", "F", 1]
