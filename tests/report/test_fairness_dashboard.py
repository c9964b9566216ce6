"""What the Fairlearn dashboard takes: classes as numbers, and names that end no script."""

import pandas as pd
import pytest

from skdpfair.model_selection import TradeoffResults
from skdpfair.model_selection._sweep_spec import SweepSpec
from skdpfair.report._fairness_dashboard import _safe_names, launch, numbered


def test_numbered_counts_classes_that_nobody_has(by_hand):
    parts = {"a": pd.DataFrame({"y_true": ["no", "yes"], "y_pred": ["yes", "yes"], "group": "F"})}
    results = TradeoffResults(
        by_hand.results().frame, spec=SweepSpec(classes=["maybe", "no", "yes"])
    )
    assert numbered(results, parts)["a"]["y_true"].tolist() == [1, 2]
    results.spec = SweepSpec()
    assert numbered(results, parts)["a"]["y_pred"].tolist() == [1, 1]


def test_safe_names_are_distinct_and_end_no_script():
    names = _safe_names(["</script>", "‹/script›", '"', "`${\\&", "a\nb"])
    assert len(set(names.values())) == 5 and not set("".join(names.values())) & set('<>"`$\\&\n')


def test_launch_refuses_ports_and_classes_that_it_cannot_show(by_hand):
    part = pd.DataFrame({"y_true": [0, 1], "y_pred": [1, 1], "group": "F"})
    found = TradeoffResults(by_hand.results().frame, {("poor", 1.0, 0, 0): part})
    with pytest.raises(ValueError, match=r"^port .*70000"):
        launch(found, 70_000)
    found.predictions["poor", 1.0, 0, 0] = part.assign(y_pred=[2, 1])
    with pytest.raises(ValueError, match="more than two classes"):
        launch(found)
