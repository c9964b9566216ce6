"""The Fairlearn dashboard, driven to the comparison of all models of a sweep."""

import subprocess
import sys

import pytest

pytest.importorskip("rai_core_flask", reason="needs requirements/dashboard.txt")


@pytest.fixture(scope="module")
def address(swept):
    code = (
        "import sys; from skdpfair.model_selection import TradeoffResults; "
        "results = TradeoffResults.from_store("
        "sys.argv[1]); board = results.launch_fairness_dashboard(); "
        "print('The dashboard is at', board.url, flush=True); input()"
    )
    command = [sys.executable, "-c", code, str(swept[0])]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    server = subprocess.Popen(command, **pipes, text=True)
    line = server.stdout.readline()
    assert line.startswith("The dashboard is at http://localhost:"), server.stderr.read()
    yield line.split()[-1]
    server.kill()
    server.communicate()


def test_dashboard_compares_all_models(browser, address, swept):
    from selenium.webdriver import ActionChains
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.ui import WebDriverWait

    driver = browser.open(address)
    wait = WebDriverWait(driver, 60)

    def button(text):
        found = driver.find_elements(By.XPATH, f"//button[normalize-space(.)='{text}']")
        return next((b for b in found if b.is_displayed() and b.is_enabled()), False)

    def heading(text):
        return text in driver.find_element(By.TAG_NAME, "body").text

    wait.until(lambda _: button("Get started")).click()
    for page in ("Along which features", "measure performance", "measure fairness"):
        wait.until(lambda _, page=page: heading(page))
        if page == "measure performance":
            assert all(map(heading, ("Accuracy", "Balanced accuracy", "F1-score")))
        wait.until(lambda _: button("Next")).click()
    models = ["reference"] + [
        f"{m}, epsilon {e}" for m in ("dpsgd", "global_adapt") for e in (1, 4)
    ]
    wait.until(lambda _: all(heading(model) for model in ("Model comparison", *models)))
    assert browser.errors() == []
    assert {url.split("/")[2] for url in browser.requests() if url.startswith("http")} == {
        address.split("/")[2]
    }
    assert driver.title not in ("broken", "1")
    # one model by group, with the figures of the sweep
    point = driver.find_elements(By.CSS_SELECTOR, ".scatterlayer .point")[0]
    ActionChains(driver).move_to_element(point).click().perform()
    wait.until(lambda _: heading("Assessment results for reference"))
    figures = swept[1].frame.query("seed == 0 and method == 'reference'")["accuracy"]
    wait.until(lambda _: all(heading(f"{100 * accuracy:.3g}%") for accuracy in figures))


def test_dashboard_refuses_other_origins(address):
    import requests

    answer = requests.post(
        f"{address}/model_data", headers={"Origin": "http://elsewhere"}, timeout=9
    )
    assert "Access-Control-Allow-Origin" not in answer.headers
    assert "default-src 'self'" in answer.headers["Content-Security-Policy"]
