"""A sweep, test records and a model must be of one table, else both sides are named."""

import re

import numpy as np
import pytest

from skdpfair.model_selection import sweep
from skdpfair.report import export_statement, model_card, model_page
from skdpfair.report._same_table import check_same, table_of, table_of_sweep


def nist(model, *tests, **options):
    return export_statement(model, "nist", *tests, **options)


def swept(X, y, groups, **settings):
    few = {"methods": ["dpsgd"], "epsilons": [30.0], "seeds": 1, "max_steps": 1}
    return sweep(X, y, sensitive_features=groups, module="logistic", **few, **settings)


@pytest.mark.parametrize(
    ("other", "both"),
    [
        (lambda X, y, g: (X, y.rename("grant"), g["black"]), ["'grant'", "'deny'"]),
        (lambda X, y, g: (X, y, g["sex"]), ["'sex'", "'black'"]),
        (lambda X, y, g: (X, y, g["black"].replace("no", "white")), ["'white'", "'no'"]),
        (lambda X, y, g: (X, y.replace("no", "maybe"), g["black"]), ["'maybe'", "'no'"]),
        (lambda X, y, g: (X[:500], y[:500], g["black"][:500]), ["500", "600"]),
        (lambda X, y, g: (X.assign(c=0.0), y, g["black"]), ["features 3", "2"]),
    ],
)
def test_model_page_refuses_a_sweep_of_another_table(variables, other, both):
    clf, *table = variables
    found = swept(*other(*table))
    with pytest.raises(ValueError, match=r"^results ") as error:
        model_page(clf, results=found)
    assert all(side in str(error.value) for side in both)


def test_model_page_takes_a_sweep_of_the_same_table_and_unit(variables):
    clf, X, y, groups = variables
    same = swept(X, y, groups["black"])
    model_page(clf, results=same)
    facts = table_of_sweep(same)
    assert (facts["protects"], facts["number of examples"]) == ("record", 600)
    of_persons = swept(X, y, groups["black"], persons=np.arange(600) // 2, persons__max_records=2)
    with pytest.raises(ValueError, match=r"protects 'person', .*'record'"):
        model_page(clf, results=of_persons)


def test_test_records_of_other_variables_are_refused(variables):
    clf, X, y, groups = variables
    by_sex = groups[["sex"]].replace({"0": "no", "1": "yes"})
    for function in (model_page, model_card, nist):
        with pytest.raises(ValueError, match=r"target 'grant', .*'deny'"):
            function(clf, X, y.rename("grant"), sensitive_features=groups["black"])
        with pytest.raises(ValueError, match=r"'sex'.*, of the model .*'black'"):
            function(clf, X, y, sensitive_features=by_sex)


def test_check_same_compares_facts_of_both_and_names_intersections_whole():
    levels = [("a, b", "c"), ("d", "e, f")]
    own, other = (table_of(("t", "u", "v"), groups=groups) for groups in (levels, levels[:1]))
    with pytest.raises(ValueError, match=re.escape(str(["a, b, c", "d, e, f"]))):
        check_same("results", own, other)
    check_same("results", own, table_of(("t", "")))
