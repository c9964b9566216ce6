"""A study whose every trial is in the books, and that stops when the budget is used up."""

import math

import pytest

from skdpfair import DPFairClassifier
from skdpfair.budget import PrivacyLedger
from skdpfair.exceptions import BudgetExceededError

optuna = pytest.importorskip("optuna")
pytestmark = pytest.mark.filterwarnings("ignore::skdpfair.exceptions.LowSignalWarning")


@pytest.fixture(autouse=True)
def quiet():
    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    yield
    optuna.logging.set_verbosity(level)


def test_ledger_stops_a_study_at_its_budget(tmp_path, two_groups):
    X, y = two_groups.data, two_groups.target
    ledger = PrivacyLedger(tmp_path / "ledger", epsilon=2.0, delta=1e-5, accountant="rdp")

    def objective(trial):
        lr = trial.suggest_float("lr", 0.1, 1.0)
        clf = DPFairClassifier("dpsgd", epsilon=1.0, accountant="rdp", lr=lr, max_steps=5)
        try:
            ledger.fit(clf, X, y)
        except BudgetExceededError:
            trial.study.stop()
            raise optuna.TrialPruned("the budget is used up") from None
        return clf.score(X, y)

    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.RandomSampler(seed=0))
    study.optimize(objective, n_trials=20)
    states = [trial.state.name for trial in study.trials]
    done = states.count("COMPLETE")
    assert states == ["COMPLETE"] * done + ["PRUNED"] and 2 <= done < 20
    found = ledger.report()
    assert found.n_fits == done and found.epsilon == ledger.epsilon() <= 2.0
    alone = PrivacyLedger(tmp_path / "one", delta=1e-5, accountant="rdp")
    alone.fit(DPFairClassifier("dpsgd", epsilon=1.0, accountant="rdp", max_steps=5), X, y)
    assert alone.epsilon() < ledger.epsilon() <= done * alone.epsilon()


def test_ledger_does_not_price_scores_read_in_a_loop(tmp_path, two_groups):
    """The ledger prices fits; it cannot see that somebody reads the scores of a loop."""
    X, y = two_groups.data, two_groups.target
    with PrivacyLedger(tmp_path / "ledger", delta=1e-5, accountant="rdp") as ledger:
        clf = DPFairClassifier("dpsgd", epsilon=1.0, accountant="rdp", max_steps=5).fit(X, y)
        clf.score(X, y)
    assert ledger.report().epsilon_total == math.inf and not ledger.report().known
