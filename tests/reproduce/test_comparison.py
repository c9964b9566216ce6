"""The verdicts, and the runs behind them: kept, resumed, interrupted."""

import json
from functools import partial

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from skdpfair.cli import main
from skdpfair.reproduce import STUDIES, reproduce
from skdpfair.reproduce import _reproduce as room
from skdpfair.reproduce._study import LOSS, POINTS, Run, Study, cell, cells_of, claim, less_apart


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
    ],
)
def test_verdicts(values, paper, paper_se, rule, verdict):
    found = cell("row", "measure", values, paper, paper_se, rule)
    assert found["verdict"] == verdict
    assert found["ours"] == np.mean(values) and found["n_seeds"] == len(values)
    if len(values) > 1:
        assert found["ours_se"] == pytest.approx(np.std(values, ddof=1) / len(values) ** 0.5)


def test_gaps_are_absolute_values_of_means():
    assert cell("row", "gap", [-2.0, 1.0], 0.5, 0.0, POINTS, absolute=True)["ours"] == 0.5


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


def _runs(options):
    return [Run(row, seed, {"x": 1}) for row in ("one", "two") for seed in options.seeds]


def _cells(frame, options):
    rows = [(row, part["value"]) for row, part in frame.groupby("row", sort=False)]
    return cells_of(cell(row, "value", values, 1.0, 0.1, POINTS) for row, values in rows)


def _measure(folder, run, device):
    """Count the calls in files; fail as a folder says."""
    (folder / f"called-{run.row}-{run.seed}").write_text("")
    stops = folder / f"stop-{run.row}-{run.seed}"
    if stops.exists():
        stops.unlink()
        raise KeyboardInterrupt
    return {"value": 1.0 + run.seed, "epsilon": 2.0}


@pytest.fixture
def study(tmp_path, monkeypatch):
    made = Study(
        name="toy",
        title="A toy",
        source="Nobody",
        runs=_runs,
        measure=partial(_measure, tmp_path),
        cells=_cells,
        rows=("one", "two"),
        epochs=20,
    )
    monkeypatch.setitem(room.STUDIES, "toy", made)
    return tmp_path


def called(folder):
    found = {p.name[7:] for p in folder.glob("called-*")}
    for path in folder.glob("called-*"):
        path.unlink()
    return found


def test_finished_runs_are_not_run_again(study):
    out = study / "out"
    first = reproduce("toy", out, seeds=2, n_jobs=1)
    assert called(study) == {"one-0", "one-1", "two-0", "two-1"}
    again = reproduce("toy", out, seeds=3, n_jobs=1)
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
        found = reproduce("toy", study / "out", seeds=2, n_jobs=1)
    assert set(found.runs["row"]) == {"one"} and called(study) == {"one-0", "one-1", "two-0"}
    whole = reproduce("toy", study / "out", seeds=2, n_jobs=1)
    assert called(study) == {"two-0", "two-1"} and len(whole.runs) == 4


def test_an_interrupt_before_anything_is_finished(study):
    (study / "stop-one-0").write_text("")
    with (
        pytest.warns(UserWarning, match="after 0 of 4"),
        pytest.raises(KeyboardInterrupt, match="before its first run"),
    ):
        reproduce("toy", study / "out", seeds=2, n_jobs=1)
    assert not (study / "out" / "cells.csv").exists()


def test_a_short_run_says_so(study):
    found = reproduce("toy", study / "out", seeds=1, epochs=3, n_jobs=1)
    assert (
        "**3 epochs where the paper took 20: compared with nothing in print.**"
        in found.to_markdown()
    )


def test_a_folder_holds_one_study(study):
    reproduce("toy", study / "out", seeds=1, n_jobs=1)
    path = study / "out" / "runs" / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"study": "other"}))
    with pytest.raises(ValueError, match="written by another reproduction"):
        reproduce("toy", study / "out", seeds=1, n_jobs=1)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"name": "esipova-table9"}, "name must be one of .*Did you mean"),
        ({"seeds": 0}, "seeds"),
        ({"seeds": [1, 1]}, "each once"),
        ({"epochs": 0}, "epochs"),
        ({"rows": "three"}, "rows must be one of"),
        ({"name": "li-figures", "epochs": 3}, "li-figures counts no epochs"),
        ({"sound": "no"}, "sound"),
    ],
)
def test_what_cannot_be_used_is_named(tmp_path, change, words):
    with pytest.raises((ValueError, TypeError), match=words):
        reproduce(**{"name": "esipova-table4", "output": tmp_path / "x"} | change)
    assert not (tmp_path / "x").exists()


def test_the_command(study):
    listed = CliRunner().invoke(main, ["reproduce", "--list"])
    assert listed.exit_code == 0 and all(name in listed.output for name in STUDIES)
    arguments = ["reproduce", "toy", "--seeds", "2", "--jobs", "1", "-o", str(study / "out")]
    found = CliRunner().invoke(main, arguments)
    assert found.exit_code == 0, found.output
    assert "2 of 2 cells are as printed (100 %)." in found.output
    wrong = CliRunner().invoke(main, ["reproduce", "toyy"])
    assert wrong.exit_code == 2 and "Did you mean 'toy'" in wrong.output
    assert "Traceback" not in wrong.output


def test_missing_data_are_told(tmp_path, monkeypatch):
    monkeypatch.setenv("SKDPFAIR_DATA", str(tmp_path))
    arguments = ["reproduce", "esipova-table5", "--seeds", "1", "--jobs", "1"]
    found = CliRunner().invoke(main, [*arguments, "-o", str(tmp_path / "out")])
    assert found.exit_code == 2 and "dutch_census_2001.arff" in found.output
    assert "Traceback" not in found.output


def test_gaps_shrink_by_the_absolute_values_of_their_means():
    plain, other = pd.Series([3.0, -1.0, 4.0]), pd.Series([-2.0, 1.0, -0.5])
    assert less_apart(plain, other).mean() == pytest.approx(abs(plain.mean()) - abs(other.mean()))


def test_what_was_not_measured_is_not_judged():
    assert cell("row", "m", [np.nan, 1.0], 1.0, 0.1, POINTS)["verdict"] == "not measured"
