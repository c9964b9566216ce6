"""Off a terminal, progress is a line now and then."""

import pytest

from skdpfair import DPFairClassifier, DPFairRegressor
from skdpfair._utils import progress
from skdpfair.datasets import make_two_groups
from skdpfair.model_selection import DPThresholdClassifier, sweep

pytestmark = pytest.mark.filterwarnings("ignore::skdpfair.exceptions.LowSignalWarning")

DATA = make_two_groups(600, random_state=0)
SHORT = {"max_steps": 6, "batch_size": 200, "module": "logistic"}


@pytest.fixture
def passed(monkeypatch):
    """Seconds that pass from one look at the clock to the next."""
    clock = {"now": 0.0, "step": 0.0}

    def monotonic():
        clock["now"] += clock["step"]
        return clock["now"]

    monkeypatch.setattr(progress, "monotonic", monotonic)
    return clock


@pytest.mark.parametrize(("step", "n_lines"), [(0.0, 1), (40.0, 4)])
def test_progress_bar_writes_a_line_at_most_every_30_seconds(passed, step, n_lines, capsys):
    passed["step"] = step
    bar = progress.ProgressBar("work", "piece", total=2000)
    for done in range(1000, 1004):
        bar.move_to(done, 0.12345)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == n_lines and lines[0] == "work: 1,000 of 2,000 pieces, epsilon <= 0.123"


@pytest.mark.parametrize("verbose", [0, 1])
@pytest.mark.parametrize(
    "wrap",
    [
        lambda **params: DPFairClassifier("dpsgd", **params),
        lambda **params: DPFairRegressor("dpsgd", y_range=(0, 1), **params),
        lambda **params: DPThresholdClassifier(DPFairClassifier("dpsgd", **params)),
    ],
    ids=["classifier", "regressor", "threshold"],
)
def test_fit_writes_its_steps_and_epsilon_if_verbose(wrap, verbose, passed, capsys):
    wrap(verbose=verbose, **SHORT).fit(DATA.data, DATA.target)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == verbose
    assert all("dpsgd: " in line and " of 6 steps, epsilon <= " in line for line in lines)


def test_sweep_writes_its_finished_cells(passed, tmp_path, capsys):
    def lines_of(**params):
        settings = {"methods": ["dpsgd"], "epsilons": [3.0], "seeds": 2, **SHORT}
        settings |= {"sensitive_features": DATA.sensitive_features}
        sweep(DATA.data, DATA.target, **settings, **params)
        return capsys.readouterr().err.splitlines()

    assert lines_of(store=tmp_path / "runs") == ["sweep: 1 of 4 cells"]
    assert lines_of(store=tmp_path / "runs") == []  # all is there
    passed["step"] = 31.0
    assert lines_of() == [f"sweep: {n} of 4 cells" for n in (1, 2, 3, 4)]
