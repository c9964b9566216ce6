"""Pictures of the docs: the figure of the start page, and a report in light and dark colours.

python -m benchmarks.doc_pictures  # needs chromium and chromedriver, two minutes
"""

import shutil
import tempfile
from pathlib import Path

import pandas as pd
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

from skdpfair.datasets import load_adult, public_facts
from skdpfair.model_selection import sweep
from skdpfair.preprocessing import public_preprocessor
from skdpfair.report import PrivacyCostDisplay

START, COST = Path(__file__).parents[1] / "docs" / "start.md", "privacy_cost["
IMAGES = START.parent / "images"


def start():
    """Draw the costs in the table on the start page, from the run that the page shows."""
    lines = [line.split() for line in START.read_text(encoding="utf-8").splitlines()]
    costs = {name: numbers for name, *numbers in filter(None, lines) if name.startswith(COST)}
    table = pd.DataFrame(costs, index=["reference", "private"]).astype(float) / 100
    table.attrs["reference"] = "reference"
    figure = PrivacyCostDisplay(table).plot().figure_
    figure.savefig(IMAGES / "start.png", dpi=150, bbox_inches="tight")


def photograph(page):
    """Write pictures of the top of a page."""
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for argument in ("--headless=new", "--no-sandbox", "--hide-scrollbars"):
        options.add_argument(argument)
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    driver.set_window_size(1000, 1250)
    for scheme, name in (("light", "report.png"), ("dark", "report-dark.png")):
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        driver.get(page.as_uri())
        driver.save_screenshot(str(IMAGES / name))
    driver.quit()


def main():
    """Write the pictures."""
    start()
    train = load_adult(subset="train")
    x = public_preprocessor(**public_facts("adult")).fit_transform(train.data)
    part = slice(12_000)  # a minute instead of ten
    given = x[part], train.target[part], train.sensitive_features["sex"][part]
    found = sweep(
        *given[:2],
        sensitive_features=given[2],
        methods=["dpsgd", "global_adapt"],
        epsilons=[0.5, 3.0],
        seeds=3,
        progress=False,
    )
    with tempfile.TemporaryDirectory() as folder:
        found.to_html(Path(folder) / "report.html", title="Adult: who pays for privacy")
        photograph(Path(folder) / "report.html")


if __name__ == "__main__":
    main()
