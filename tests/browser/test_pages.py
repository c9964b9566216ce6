"""The report's pages in a browser: nothing asked for, nothing broken, legible, reachable."""

import numpy as np
import pytest

from skdpfair import DPFairClassifier, Groups
from skdpfair.datasets import make_two_groups
from skdpfair.preprocessing import public_preprocessor
from skdpfair.report import model_page

SECTIONS = {
    "sweep": (
        "answers groups cost measures tradeoff generalisation data settings privacy pipeline "
        "not-accounted words"
    ),
    "model": "answers groups not-accounted privacy model releases pipeline assumed words sign-off",
}
UNFOLD = "document.querySelectorAll('details').forEach(part => part.open = true)"
# every text with its contrast against what is behind it, by the formula of WCAG 2.1
CONTRASTS = """
const channel = c => (c /= 255) <= .03928 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4;
const luminance = ([r, g, b]) => .2126 * channel(r) + .7152 * channel(g) + .0722 * channel(b);
const numbers = text => (text.match(/[\\d.]+/g) || [0, 0, 0, 0]).map(Number);
const behind = element => {
  for (let e = element; e; e = e.parentElement) {
    const colour = numbers(getComputedStyle(e).backgroundColor);
    if (colour.length < 4 || colour[3] > 0) return colour;
  }
  return [255, 255, 255];
};
const ratio = (one, other) => {
  const [low, high] = [luminance(one), luminance(other)].sort((a, b) => a - b);
  return (high + .05) / (low + .05);
};
const found = [];
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
  const element = walker.currentNode.parentElement, style = getComputedStyle(element);
  if (!walker.currentNode.data.trim() || element.closest("title, style, .skip")) continue;
  const colour = element.closest("svg") ? style.fill : style.color;
  const text = walker.currentNode.data.trim().slice(0, 40);
  found.push([text, ratio(numbers(colour), behind(element))]);
}
const drawn = [];
for (const e of document.querySelectorAll("svg rect, svg path, svg line, svg polyline")) {
  const style = getComputedStyle(e);
  if (e.matches(".band") || e.closest(".grid")) continue;
  const colour = e.matches("line, polyline, .hollow") ? style.stroke : style.fill;
  drawn.push([e.outerHTML.slice(0, 90), ratio(numbers(colour), behind(e))]);
}
const paper = numbers(getComputedStyle(document.body).backgroundColor);
for (let i = 0; i < 7; i++) {  // all colours, as many as there may be series
  const swatch = document.createElement("i");
  swatch.style.color = `var(--c${i})`;
  document.body.append(swatch);
  drawn.push([`--c${i}`, ratio(numbers(getComputedStyle(swatch).color), paper)]);
  swatch.remove();
}
return [found, drawn];
"""


@pytest.fixture(scope="module")
def pages(swept, tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    results = swept[1]
    results.to_html(folder / "sweep.html", pipeline=public_preprocessor({"x": (0, 1)}))
    data = make_two_groups(3000, random_state=0)
    names = sorted(set(results.frame["group"]) - {"overall"})
    groups = np.where(data.sensitive_features == "a", *names)
    clf = DPFairClassifier("dp_is_sgd", epsilon=3.0, group_col=Groups(levels=names), max_steps=5)
    clf.fit(data.data, data.target, sensitive_features=groups)
    page = model_page(clf, data.data, data.target, sensitive_features=groups)
    (folder / "model.html").write_text(page)
    return folder


@pytest.fixture(params=["sweep", "model"])
def page(request, pages, browser):
    url = (pages / f"{request.param}.html").as_uri()
    driver = browser.open(url)
    driver.execute_script(UNFOLD)
    return request.param, url, driver


def test_page_requests_nothing_and_logs_no_error(page, browser):
    _, url, driver = page
    assert browser.requests() == [url] and browser.errors() == []
    assert driver.execute_script("return document.scripts.length + document.images.length") == 0


def test_sections_are_complete_and_unfolded(page):
    name, _, driver = page
    ids = driver.execute_script("return [...document.querySelectorAll('h2')].map(h => h.id)")
    assert ids == SECTIONS[name].split()
    empty = "return [...document.querySelectorAll('section')].filter(s => s.innerText.length < 40)"
    assert driver.execute_script(empty) == []


def test_names_are_shown_as_text(page, swept):
    driver = page[2]
    assert driver.title not in ("broken", "1")
    text = driver.execute_script("return document.body.innerText")
    for name in set(swept[1].frame["group"]) - {"overall"}:
        assert " ".join(name.split()) in " ".join(text.split())


def test_links_and_tables_are_reached_by_keys_with_an_outline(page):
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    driver = page[2]
    wanted = driver.execute_script("return document.querySelectorAll('a, [tabindex]').length")
    body, reached = driver.find_element(By.TAG_NAME, "body"), []
    for _ in range(wanted):
        (driver.switch_to.active_element if reached else body).send_keys(Keys.TAB)
        reached.append(
            driver.execute_script(
                "const e = document.activeElement, s = getComputedStyle(e);"
                "return [e.outerHTML.slice(0, 80), s.outlineStyle, e.getBoundingClientRect().left]"
            )
        )
    assert len({html for html, *_ in reached}) == wanted
    assert 'class="skip"' in reached[0][0]
    assert all(style != "none" and left >= 0 for _, style, left in reached)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrasts_reach_level_aa(page, browser, scheme):
    """WCAG 2.1: 4.5 for texts (1.4.3), 3 for what a chart draws (1.4.11)."""
    _, url, _ = page
    texts, drawn = browser.open(url, scheme=scheme).execute_script(CONTRASTS)
    assert len(texts) > 50
    assert [t for t in texts if t[1] < 4.5] == []
    assert [d for d in drawn if d[1] < 3] == []


# the text of charts: its size on the screen, and whether one is written over another
TEXTS = """
const found = [];
for (const svg of document.querySelectorAll("svg[role=img]")) {
  const scale = svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
  const texts = [...svg.querySelectorAll("text")].map(t => [t, t.getBoundingClientRect()]);
  const over = [];
  texts.forEach(([t, a], i) => texts.slice(0, i).forEach(([u, b]) => {
    const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
    const tall = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
    if (wide > 1 && tall > 4) over.push([t.textContent, u.textContent]);
  }));
  const sizes = texts.map(([t]) => parseFloat(getComputedStyle(t).fontSize) * scale);
  found.push([svg.getAttribute("aria-label"), Math.min(...sizes), over]);
}
return found;
"""


@pytest.fixture
def telephone(page):
    """The page on a screen of 390 pixels."""
    driver, screen = page[2], {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    yield driver
    driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_page_fits_a_telephone(telephone):
    wide = telephone.execute_script("return document.documentElement.scrollWidth - innerWidth")
    assert wide <= 0


def test_chart_texts_are_legible_on_a_telephone(telephone):
    for title, size, over in telephone.execute_script(TEXTS):
        assert size >= 9.5, (title, size)
        assert over == [], title


def test_tables_that_scroll_have_a_hint(telephone):
    script = """return [...document.querySelectorAll(".scroll")].map(s =>
    [s.scrollWidth > s.clientWidth + 1, getComputedStyle(s, "::before").fontSize !== "0px"])"""
    found = telephone.execute_script(script)
    assert any(scrolls for scrolls, _ in found)
    assert all(scrolls == says for scrolls, says in found)
