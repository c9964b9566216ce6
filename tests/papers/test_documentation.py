"""The page of the reproductions holds what the stored runs give."""

import shutil

import pytest

from benchmarks.papers import __main__, documentation


@pytest.fixture
def few(tmp_path, monkeypatch, kept_results):
    """Leave those stored runs whose notes need no accountant."""
    for folder in documentation.RESULTS.iterdir():
        if not folder.name.startswith(("kulynych", "knolle", "li-")):
            shutil.copytree(folder, tmp_path / folder.name)
    monkeypatch.setattr(documentation, "RESULTS", tmp_path)


@pytest.mark.parametrize("runs", ["few", pytest.param("all", marks=pytest.mark.slow)])
@pytest.mark.usefixtures("kept_results")
def test_verify_of_the_documentation_names_no_page(runs, request, capsys):
    if runs == "few":
        request.getfixturevalue("few")
    assert __main__.main(["--verify"]) == 0
    assert capsys.readouterr().out == ""


def test_verify_names_an_outdated_page_and_write_replaces_it(few, tmp_path, monkeypatch, capsys):
    page = tmp_path.parent / f"{tmp_path.name}.md"
    original = documentation.PAGE.read_text()
    page.write_text(original.replace("1 is near", "2 are near"))
    measurements = shutil.copy(documentation.MEASUREMENTS, page.with_suffix(".measurements"))
    monkeypatch.setattr(documentation, "PAGE", page)
    monkeypatch.setattr(documentation, "MEASUREMENTS", measurements)
    assert __main__.main(["--verify"]) == 1
    assert capsys.readouterr().out.startswith(str(page))
    monkeypatch.setattr(documentation, "PICTURES", {})
    assert __main__.main(["--write"]) == 0
    assert page.read_text() == original
