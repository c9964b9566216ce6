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


def fitted(estimator):
    return estimator.fit(DATA.data, DATA.target)


def swept(store=None, seeds=2):
    records = DATA.data, DATA.target, DATA.sensitive_features
    return sweep(
        *records[:2],
        sensitive_features=records[2],
        methods=["dpsgd"],
        epsilons=[3.0],
        seeds=seeds,
        store=store,
        **SHORT,
    )


@pytest.mark.parametrize("step", [0.0, 40.0])
def test_there_is_a_line_at_most_every_30_seconds(passed, step, capsys):
    passed["step"] = step
    bar = progress.ProgressBar("work", "piece", total=2000)
    for done in range(1000, 1004):
        bar.move_to(done, 0.12345)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == (1 if step == 0 else 4)
    assert lines[0] == "work: 1,000 of 2,000 pieces, epsilon <= 0.123"


@pytest.mark.parametrize(
    "estimator",
    [
        DPFairClassifier("dpsgd", verbose=1, **SHORT),
        DPFairRegressor("dpsgd", y_range=(0, 1), verbose=1, **SHORT),
        DPThresholdClassifier(DPFairClassifier("dpsgd", verbose=1, **SHORT)),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
def test_a_fit_tells_its_steps_if_it_is_asked(estimator, passed, capsys):
    fitted(estimator)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("dpsgd: ") and " of 6 steps, epsilon <= " in line


def test_a_sweep_tells_its_finished_cells(passed, tmp_path, capsys):
    swept(tmp_path / "runs")
    assert capsys.readouterr().err == "sweep: 1 of 4 cells\n"
    swept(tmp_path / "runs")  # all is there
    assert capsys.readouterr().err == ""
    passed["step"] = 31.0
    swept()
    assert capsys.readouterr().err.splitlines() == [f"sweep: {n} of 4 cells" for n in (1, 2, 3, 4)]
    fitted(DPFairClassifier("dpsgd", **SHORT))
    assert capsys.readouterr().err == ""
