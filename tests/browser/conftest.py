"""A real browser, without a network, and results with names that try to break out."""

import json
import os
import shutil

import numpy as np
import pytest

from skdpfair.datasets import make_two_groups
from skdpfair.model_selection import sweep

HOSTILE = {
    "a": "<img src=x onerror=\"document.title='broken'\">",
    "b": "`${document.title=1}\"'\\&",
}
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
DRIVER = shutil.which("chromedriver")


class Browser:
    """Chromium with what its console says and what it asks the network for."""

    def __init__(self, driver):
        self.driver = driver

    def open(self, url, *, scheme="light"):
        media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
        self.errors(), self.requests()
        self.driver.get(url)
        return self.driver

    def errors(self):
        """Return errors of the console since the last call."""
        return [e["message"] for e in self.driver.get_log("browser") if e["level"] == "SEVERE"]

    def requests(self):
        """Return addresses that were asked for since the last call."""
        events = [json.loads(e["message"])["message"] for e in self.driver.get_log("performance")]
        sent = [e["params"] for e in events if e["method"] == "Network.requestWillBeSent"]
        return [s["request"]["url"] for s in sent]


@pytest.fixture(scope="session")
def browser():
    if not (CHROMIUM and DRIVER):
        if os.environ.get("SKDPFAIR_BROWSER") == "required":
            pytest.fail("SKDPFAIR_BROWSER=required, but chromium or chromedriver is not there.")
        pytest.skip("needs chromium and chromedriver: Debian's chromium and chromium-driver")
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1300,1000"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    yield Browser(driver)
    driver.quit()


@pytest.fixture(scope="session")
def swept(tmp_path_factory):
    """A sweep's store, and its results."""
    folder = tmp_path_factory.mktemp("browser") / "store"
    data = make_two_groups(3000, random_state=0)
    groups = np.array([HOSTILE[g] for g in data.sensitive_features])
    results = sweep(
        data.data,
        data.target,
        sensitive_features=groups,
        methods=["dpsgd", "global_adapt"],
        epsilons=[1.0, 4.0],
        seeds=2,
        module="logistic",
        batch_size=500,
        max_steps=10,
        keep_predictions=True,
        progress=False,
        store=folder,
    )
    return folder, results
