"""Cards of notebooks: texts are typeset and escaped, and every tag is closed."""

import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skdpfair import DPFairClassifier
from skdpfair._utils import cards
from skdpfair.model_selection import forecast
from skdpfair.preprocessing import lint_pipeline
from tests.report.conftest import Page

EVIL = "<script>alert('1')</script>"


@pytest.mark.parametrize(
    ("text", "typeset"),
    [
        ("at delta 1e-05 (pld)", "at δ = 10⁻⁵ (pld)"),
        ("delta = 1.25e-12.", "δ = 1.25 · 10⁻¹²."),
        ("epsilon 2, mu = 0.5", "ε = 2, μ = 0.5"),
        ("epsilon=None, mean, ab1e-05, 1e5", "epsilon=None, mean, ab1e-05, 1e5"),
        ('name "a"', 'name "a"'),
    ],
)
def test_typeset_writes_powers_and_greek_letters(text, typeset):
    assert cards.typeset(text) == typeset


def test_count_writes_a_number_of_things():
    counts = [cards.count(n, "fact") for n in (0, 1, 2, 1234)]
    assert counts == ["no fact", "1 fact", "2 facts", "1,234 facts"]


def test_cards_close_their_tags_and_escape_names():
    rows, tile = [(EVIL, "a"), ("b", EVIL)], (EVIL, EVIL, None)
    parts = cards.tiles(tile), cards.table(rows, (EVIL, "x")), cards.items([EVIL])
    page = Page(cards.card(EVIL, *parts, cards.fold(EVIL, parts[0]), cards.warning(EVIL)))
    assert "script" not in page.tags and page.texts.count(EVIL) == 11
    assert cards.fold("empty", "") == "" == cards.items([])


def test_forecasts_and_findings_have_cards():
    found = forecast(DPFairClassifier(epsilon=1.0), 10_000, cv=3)
    page = Page(found._repr_html_())
    assert {"Forecast: 3 fits, protecting one record", "3", "no bound"} <= set(page.texts)
    report = lint_pipeline(make_pipeline(StandardScaler(), DPFairClassifier()))
    page = Page(report._repr_html_())
    assert {report.findings[0].step, report.findings[0].instead} <= set(page.texts)
