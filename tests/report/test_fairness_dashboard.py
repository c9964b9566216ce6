"""What the Fairlearn dashboard takes: classes as numbers, and names that end no script."""

import numpy as np
import pandas as pd
import pytest

from skdpfair.model_selection import TradeoffResults
from skdpfair.model_selection._spec import SweepSpec
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


def test_launch_refuses_ports_and_classes_that_it_cannot_show(swept):
    found = swept[0]
    with pytest.raises(ValueError, match=r"^port .*70000"):
        launch(found, 70_000)
    parts = {k: p.assign(y_pred=np.arange(len(p)) % 3) for k, p in found.predictions.items()}
    spec = SweepSpec(classes=[0, 1, 2])
    with pytest.raises(ValueError, match="more than two classes"):
        launch(TradeoffResults(found.frame, parts, spec))
