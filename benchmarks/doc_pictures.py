"""Pictures of the docs: the figure of the start page, and a report in light and dark colours.

python -m benchmarks.doc_pictures  # needs chromium and chromedriver, two minutes
"""

import shutil
import tempfile
from pathlib import Path

from selenium import webdriver
from selenium.webdriver.chrome.service import Service

from skdpfair import DPFairClassifier
from skdpfair.datasets import load_adult, public_facts
from skdpfair.metrics import group_table
from skdpfair.model_selection import sweep
from skdpfair.preprocessing import public_preprocessor
from skdpfair.report import PrivacyCostDisplay

IMAGES = Path(__file__).parents[1] / "docs" / "images"


def start(x, train, x_test, test):
    """Draw the costs of the model of the start page."""
    clf = DPFairClassifier(epsilon=1.0, keep_reference=True).fit(x, train.target)
    models = {"reference": clf.reference_.predict(x_test), "private": clf.predict(x_test)}
    groups = test.sensitive_features["sex"]
    table = group_table(test.target, models, reference="reference", sensitive_features=groups)
    figure = PrivacyCostDisplay(table).plot().figure_
    figure.savefig(IMAGES / "start.png", dpi=150, bbox_inches="tight")


def photograph(page):
    """Write pictures of the top of a page."""
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for argument in ("--headless=new", "--no-sandbox", "--hide-scrollbars"):
        options.add_argument(argument)
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    driver.set_window_size(1000, 1000)
    for scheme, name in (("light", "report.png"), ("dark", "report-dark.png")):
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        driver.get(page.as_uri())
        driver.save_screenshot(str(IMAGES / name))
    driver.quit()


def main():
    """Write the pictures."""
    train, test = load_adult(subset="train"), load_adult(subset="test")
    prepare = public_preprocessor(**public_facts("adult"))
    x, x_test = prepare.fit_transform(train.data), prepare.transform(test.data)
    start(x, train, x_test, test)
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
