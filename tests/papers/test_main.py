"""The command: it lists, runs, and exits as a shell expects."""

import pytest

from benchmarks.papers import STUDIES, __main__


def test_main_lists_and_runs_studies(toy, capsys):
    assert __main__.main(["--list"]) == 0
    listed = capsys.readouterr().out
    assert all(name in listed for name in STUDIES)
    out = str(toy / "out")
    assert (
        __main__.main(["toy", "--seeds", "2", "--jobs", "1", "-o", out, "--rows", "one", "two"])
        == 0
    )
    printed = capsys.readouterr().out
    assert "2 of 2 cells" in printed and out in printed
    assert "`python -m benchmarks.papers toy --seeds 2 --rows one two`" in printed


def test_main_exits_with_2_for_an_unknown_study_and_130_when_interrupted(toy, capsys):
    with pytest.raises(SystemExit) as caught:
        __main__.main(["toyy"])
    assert caught.value.code == 2 and "Did you mean 'toy'" in capsys.readouterr().err
    (toy / "stop-one-0").write_text("")
    with pytest.warns(UserWarning, match="0 of 2"):
        assert __main__.main(["toy", "--seeds", "1", "--jobs", "1", "-o", str(toy / "out")]) == 130
