"""What the docs name exists."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"])


def test_every_test_that_the_threat_model_names_exists():
    page = (ROOT / "docs" / "threat_model.md").read_text()
    named, file = [], None
    for path, test in re.findall(r"`([\w/]*(?:\.py)?)(?:::([\w:]+))?`", page):
        file = path if path.endswith(".py") else file
        if path.endswith("/"):
            assert (ROOT / "tests" / path).is_dir(), path
        elif path.endswith(".py") or test:
            named.append((file, test))
    assert len(named) > 25
    for file, test in named:
        text = (ROOT / "tests" / file).read_text()
        assert all(f" {part}" in text for part in test.split("::") if part), (file, test)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#\s]+)", page.read_text()):
        if not target.startswith(("http://", "https://", "mailto:")):
            assert (page.parent / target).exists(), target
