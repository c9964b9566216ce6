"""What the cost of all fits on a data set says of itself."""

import math

from skdpfair.budget.spending import REFERENCE, SCORES, UNKNOWN, Spending


def spending(n_private, reasons, n_plain=0):
    total = math.inf if reasons else 1.5
    n_fits = n_private + n_plain
    return Spending(1.5, total, 1e-5, "rdp", reasons, n_fits, n_private=n_private)


def test_spending_repr_has_the_total_unless_it_is_unknown():
    unknown, scored = spending(2, (UNKNOWN,)), spending(2, (SCORES,))
    assert (unknown.known, scored.known) == (False, True)
    assert "unknown" in repr(unknown) and "inf" not in repr(unknown)
    assert "epsilon=inf" in repr(scored) and SCORES in repr(scored)
    assert repr(spending(1, ())).splitlines()[0] == "Spending: 1 fit, protecting one record"


def test_spending_sentences_have_the_cost_then_what_it_does_not_cover():
    for n_private in (0, 1, 2):
        (cost,) = spending(n_private, ()).sentences("a.jsonl", budget=2.0)
        assert ("1.5 of a budget of 2 at delta" in cost) == (n_private > 0) and "a.jsonl" in cost
    cost, plain, scores = spending(2, (REFERENCE, SCORES), 3).sentences("it", names=("ε", "δ"))
    assert "at most ε = 1.5 at δ" in cost and "(3 fits): no ε" in plain
    assert SCORES[1:] in scores
