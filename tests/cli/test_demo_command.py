"""skdpfair demo compares the sexes on Adult; here, on a few of its rows."""

import json

import pandas as pd
import pytest

from skdpfair.cli import demo_command


@pytest.mark.filterwarnings("ignore::skdpfair.exceptions.LowSignalWarning")
def test_demo_writes_table_figure_and_statements(tmp_path, monkeypatch, run):
    whole = demo_command._adult
    few = slice(0, 600)
    monkeypatch.setattr(
        demo_command, "_adult", lambda epsilon: [[p[few] for p in part] for part in whole(epsilon)]
    )
    rows = json.loads(run("demo", "-o", tmp_path / "demo", "--json").stdout)
    table = pd.read_csv(tmp_path / "demo" / "group_table.csv")
    names = ["reference", "dpsgd", "global_adapt"]
    assert [row["method"] for row in rows] == names == list(table["method"])
    stated = json.loads((tmp_path / "demo" / "privacy.json").read_text())
    assert [stated[name]["is_private"] for name in names] == [False, True, True]
    assert (tmp_path / "demo" / "privacy_cost_by_group.png").stat().st_size
