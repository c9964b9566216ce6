"""Runs of a study: stored, resumed, interrupted."""

import json

import pandas as pd
import pytest

from benchmarks.papers import rendering, reproduce


def run(output, name="toy", **options):
    return reproduce(name, output, **{"n_jobs": 1, "progress": False} | options)


def called(folder):
    found = {p.name[7:] for p in folder.glob("called-*")}
    for path in folder.glob("called-*"):
        path.unlink()
    return found


def test_reproduce_skips_finished_runs(toy):
    out = toy / "out"
    first = run(out, seeds=2)
    assert called(toy) == {"one-0", "one-1", "two-0", "two-1"}
    again = run(out, seeds=3)
    assert called(toy) == {"one-2", "two-2"}
    assert (len(first.runs), len(again.runs)) == (4, 6)
    pd.testing.assert_frame_equal(pd.read_csv(out / "cells.csv"), again.cells, check_dtype=False)
    assert sorted(pd.read_csv(out / "runs.csv")["seed"]) == [0, 0, 1, 1, 2, 2]
    assert (out / "comparison.png").read_bytes()[:4] == b"\x89PNG"
    page = (out / "comparison.md").read_text()
    assert "# A toy" in page and "| one | value | 2.00 ± 0.58 |" in page
    assert "epochs where" not in page and "| one | 2.000 |" in page


def test_reproduce_resumes_after_an_interrupt(toy):
    (toy / "stop-two-0").write_text("")
    with pytest.warns(UserWarning, match=r"toy .*2 of 4"):
        found = run(toy / "out", seeds=2)
    assert set(found.runs["row"]) == {"one"} and called(toy) == {"one-0", "one-1", "two-0"}
    whole = run(toy / "out", seeds=2)
    assert called(toy) == {"two-0", "two-1"} and len(whole.runs) == 4


def test_reproduce_interrupted_before_its_first_run(toy):
    (toy / "stop-one-0").write_text("")
    with pytest.warns(UserWarning, match="0 of 4"), pytest.raises(KeyboardInterrupt, match="first"):
        run(toy / "out", seeds=2)
    assert not (toy / "out" / "cells.csv").exists()


def test_reproduce_of_fewer_epochs_compares_nothing(toy):
    found = run(toy / "out", seeds=1, epochs=3)
    assert "3 epochs" in rendering.page(found)
    assert (found.cells["verdict"] == "not in print").all()


def test_reproduce_refuses_the_folder_of_another_study(toy):
    run(toy / "out", seeds=1)
    path = toy / "out" / "runs" / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"study": "other"}))
    with pytest.raises(ValueError, match="written by another call"):
        run(toy / "out", seeds=1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "esipova-table9"}, r"^name .*Did you mean"),
        ({"seeds": [1, 1]}, r"^seeds .*once"),
        ({"rows": "three"}, r"^rows must be one of"),
        ({"name": "li-figures", "epochs": 3}, r"^epochs=3.*li-figures"),
    ],
)
def test_reproduce_refuses_arguments_before_it_makes_a_folder(tmp_path, change, message):
    with pytest.raises((ValueError, TypeError), match=message):
        run(tmp_path / "x", **{"name": "esipova-table4"} | change)
    assert not (tmp_path / "x").exists()
