"""The verdicts, and the runs behind them: kept, resumed, interrupted."""

import json
import shutil

import numpy as np
import pandas as pd
import pytest

from benchmarks.papers import (
    STUDIES,
    Options,
    Study,
    __main__,
    compare,
    documentation,
    rendering,
)
from benchmarks.papers import reproduce as train
from benchmarks.papers.study import LOSS, POINTS, cell, claim, less_apart


@pytest.mark.parametrize(
    ("values", "paper", "paper_se", "rule", "verdict"),
    [
        ([70.0, 70.0], 70.5, 0.0, POINTS, "same"),  # half a point is allowed to all
        ([70.0, 70.0], 70.51, 0.0, POINTS, "near"),
        ([70.0, 70.0], 71.51, 0.0, POINTS, "differs"),
        ([70.0, 70.0], 71.0, 0.5, POINTS, "same"),  # 2 standard errors
        ([70.0, 70.0], 72.0, 0.5, POINTS, "near"),  # 4
        ([70.0, 70.0], 72.1, 0.5, POINTS, "differs"),
        ([69.0, 71.0], 72.0, 0.0, POINTS, "same"),  # ours count, too: their error is 1
        ([69.0, 71.0], 72.9, 0.5, POINTS, "near"),  # 2 hypot(1, .5) = 2.24
        ([0.5, 0.5], 0.52, 0.0, LOSS, "same"),
        ([0.5, 0.5], 0.521, 0.0, LOSS, "near"),
        ([0.5, 0.5], 0.561, 0.0, LOSS, "differs"),
        ([70.0], 70.4, np.nan, POINTS, "same"),
        ([70.0, 71.0], np.nan, np.nan, POINTS, "not in print"),
        ([np.nan, 1.0], 1.0, 0.1, POINTS, "not measured"),
    ],
)
def test_verdicts(values, paper, paper_se, rule, verdict):
    found = cell("row", "measure", values, rule, paper, paper_se)
    assert found["verdict"] == verdict
    if not np.isnan(values).any():
        assert found["ours"] == np.mean(values) and found["n_seeds"] == len(values)
    if len(values) > 1 and verdict != "not measured":
        assert found["ours_se"] == pytest.approx(np.std(values, ddof=1) / len(values) ** 0.5)


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        ([1.0, 1.05], "holds"),
        ([-1.0, -1.05], "fails"),
        ([1.0, 1.5], "undecided"),  # two seeds: Student's t is 12.7
        ([1.0, -1.2], "undecided"),
        ([9.0], "undecided"),
    ],
)
def test_claims(values, verdict):
    assert claim("so", values)["verdict"] == verdict
    below = claim("so", -np.asarray(values), below=0)
    assert below["verdict"] == verdict and below["measured"] == -np.mean(values)


class Toy(Study):
    """Counts the calls in files; fails as the folder says."""

    name = "toy"
    title = "A toy"
    source = "Nobody"
    rows = ("one", "two")
    epochs = 20

    def __init__(self, folder):
        self.folder = folder

    def settings(self, row, options):
        return {"x": 1}

    def measure(self, run, device):
        (self.folder / f"called-{run.row}-{run.seed}").write_text("")
        stops = self.folder / f"stop-{run.row}-{run.seed}"
        if stops.exists():
            stops.unlink()
            raise KeyboardInterrupt
        return {"value": 1.0 + run.seed, "epsilon": 2.0}

    def cells(self, rows):
        for row, own in rows.items():
            yield cell(row, "value", own["value"], POINTS, 1.0, 0.1)


@pytest.fixture
def study(tmp_path, monkeypatch):
    monkeypatch.setitem(STUDIES, "toy", Toy(tmp_path))
    return tmp_path


def reproduce(name, output, **options):
    return train(name, output, **{"n_jobs": 1, "progress": False} | options)


def called(folder):
    found = {p.name[7:] for p in folder.glob("called-*")}
    for path in folder.glob("called-*"):
        path.unlink()
    return found


def test_finished_runs_are_not_run_again(study):
    out = study / "out"
    first = reproduce("toy", out, seeds=2)
    assert called(study) == {"one-0", "one-1", "two-0", "two-1"}
    again = reproduce("toy", out, seeds=3)
    assert called(study) == {"one-2", "two-2"}
    assert len(first.runs) == 4 and len(again.runs) == 6
    pd.testing.assert_frame_equal(pd.read_csv(out / "cells.csv"), again.cells, check_dtype=False)
    assert sorted(pd.read_csv(out / "runs.csv")["seed"]) == [0, 0, 1, 1, 2, 2]
    assert (out / "comparison.png").read_bytes()[:4] == b"\x89PNG"
    page = (out / "comparison.md").read_text()
    for words in ("# A toy", "Nobody; sound; 3 seeds per row", "| one | value | 2.00 ± 0.58 |"):
        assert words in page
    assert "epochs where" not in page and "| one | 2.000 |" in page


def test_an_interrupt_keeps_what_is_finished(study):
    (study / "stop-two-0").write_text("")
    with pytest.warns(UserWarning, match="toy was interrupted after 2 of 4 runs"):
        found = reproduce("toy", study / "out", seeds=2)
    assert set(found.runs["row"]) == {"one"} and called(study) == {"one-0", "one-1", "two-0"}
    whole = reproduce("toy", study / "out", seeds=2)
    assert called(study) == {"two-0", "two-1"} and len(whole.runs) == 4


def test_an_interrupt_before_anything_is_finished(study):
    (study / "stop-one-0").write_text("")
    with (
        pytest.warns(UserWarning, match="after 0 of 4"),
        pytest.raises(KeyboardInterrupt, match="before its first run"),
    ):
        reproduce("toy", study / "out", seeds=2)
    assert not (study / "out" / "cells.csv").exists()
    (study / "stop-one-0").write_text("")
    with pytest.warns(UserWarning, match="after 0 of 2"):
        arguments = ["toy", "--seeds", "1", "--jobs", "1", "-o", str(study / "out")]
        assert __main__.main(arguments) == 130


def test_a_short_run_says_so(study):
    found = reproduce("toy", study / "out", seeds=1, epochs=3)
    assert (
        "**3 epochs where the paper took 20: compared with nothing in print.**"
        in rendering.page(found)
    )


def test_a_folder_holds_one_study(study):
    reproduce("toy", study / "out", seeds=1)
    path = study / "out" / "runs" / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"study": "other"}))
    with pytest.raises(ValueError, match="written by another call"):
        reproduce("toy", study / "out", seeds=1)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"name": "esipova-table9"}, "name must be one of .*Did you mean"),
        ({"seeds": [1, 1]}, "each once"),
        ({"rows": "three"}, "rows must be one of"),
        ({"name": "li-figures", "epochs": 3}, "li-figures counts no epochs"),
    ],
)
def test_what_cannot_be_used_is_named(tmp_path, change, words):
    with pytest.raises((ValueError, TypeError), match=words):
        train(**{"name": "esipova-table4", "output": tmp_path / "x"} | change)
    assert not (tmp_path / "x").exists()


def test_the_command(study, capsys):
    assert __main__.main(["--list"]) == 0
    listed = capsys.readouterr().out
    assert all(name in listed for name in STUDIES)
    out = study / "out"
    arguments = ["toy", "--seeds", "2", "--jobs", "1", "-o", str(out), "--rows", "one", "two"]
    assert __main__.main(arguments) == 0
    said = capsys.readouterr().out
    assert "2 of 2 cells are as printed (100 %)." in said and str(out) in said
    assert "Command: `python -m benchmarks.papers toy --seeds 2 --rows one two`" in said
    with pytest.raises(SystemExit) as caught:
        __main__.main(["toyy"])
    assert caught.value.code == 2 and "Did you mean 'toy'" in capsys.readouterr().err


@pytest.fixture
def few(tmp_path, monkeypatch, kept_results):
    """Leave those kept runs whose notes need no accountant."""
    for folder in documentation.RESULTS.iterdir():
        if not folder.name.startswith(("kulynych", "knolle", "li-")):
            shutil.copytree(folder, tmp_path / folder.name)
    monkeypatch.setattr(documentation, "RESULTS", tmp_path)


@pytest.mark.parametrize("runs", ["few", pytest.param("all", marks=pytest.mark.slow)])
@pytest.mark.usefixtures("kept_results")
def test_the_documentation_holds_what_the_kept_runs_say(runs, request, capsys):
    if runs == "few":
        request.getfixturevalue("few")
    assert __main__.main(["--verify"]) == 0
    assert capsys.readouterr().out == ""


def test_an_outdated_page_is_named_and_written(few, tmp_path, monkeypatch, capsys):
    page = tmp_path.parent / f"{tmp_path.name}.md"
    page.write_text(documentation.PAGE.read_text().replace("1 is near", "2 are near"))
    measurements = shutil.copy(documentation.MEASUREMENTS, page.with_suffix(".measurements"))
    monkeypatch.setattr(documentation, "PAGE", page)
    monkeypatch.setattr(documentation, "MEASUREMENTS", measurements)
    assert __main__.main(["--verify"]) == 1
    assert capsys.readouterr().out.startswith(str(page))
    monkeypatch.setattr(documentation, "PICTURES", {})
    assert __main__.main(["--write"]) == 0
    original = documentation.DOCS / "evidence" / "reproducibility.md"
    assert page.read_text() == original.read_text()


def test_an_incomplete_table_is_drawn():
    """A cell that was not measured has no place on the figure, and does no harm."""
    runs = {"row": "sgd", "seed": [0, 1], "accuracy_disparity": [np.nan, 0.6]}
    frame = pd.DataFrame(runs | {"overall_accuracy": 0.8})
    options = Options(seeds=(0, 1), rows=("sgd",))
    found = compare(STUDIES["kulynych-table9"], options, frame)
    assert found.cells["verdict"].tolist() == ["not measured", "differs"]
    drawn = rendering.figure(found)
    drawn.clear()


def test_gaps_shrink_by_the_absolute_values_of_their_means():
    plain, other = pd.Series([3.0, -1.0, 4.0]), pd.Series([-2.0, 1.0, -0.5])
    assert less_apart(plain, other).mean() == pytest.approx(abs(plain.mean()) - abs(other.mean()))
