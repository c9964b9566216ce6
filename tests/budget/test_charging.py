"""What a fit is charged: its plan, its releases, and fits of trials that were paid for."""

import math
import multiprocessing
import os
import pickle
import signal
import time
from dataclasses import replace

import pytest
from sklearn.base import clone

from skdpfair.budget import PrivacyLedger
from skdpfair.budget.charging import charged, current_ledger, ledger_suspended, prepaid_fit
from skdpfair.exceptions import (
    BudgetExceededError,
    PrivacyAccountingError,
    UnaccountedWarning,
)
from skdpfair.privacy import compute_epsilon
from skdpfair.privacy.renyi import curve_epsilon, rdp_curve
from tests.budget.charged_fits import COST, RUN, classifier, spend


def test_charged_fits_add_up_to_the_budget_and_not_beyond(path):
    twice = compute_epsilon([replace(RUN, steps=200)], 1e-5)
    with PrivacyLedger(path, epsilon=twice, delta=1e-5) as ledger:
        spend(2)
        assert ledger.epsilon() == twice
        with pytest.raises(BudgetExceededError, match=rf"epsilon={twice:g}"):
            spend()
        assert ledger.epsilon() == twice
    assert list(ledger.frame().state) == ["done", "done"]
    assert list(ledger.frame().epsilon) == [COST, COST]
    assert PrivacyLedger(path).epsilon(1e-6) > twice
    spend()  # outside of the block nothing is charged
    assert len(ledger.frame()) == 2


def test_charged_records_what_a_fit_released(ledger):
    with ledger:
        spent = []
        with pytest.raises(OSError), charged([RUN], spent):
            spent.append(replace(RUN, steps=7))
            raise OSError
        assert list(ledger.frame().steps) == [7]
        spent.append(RUN)
        with charged([RUN], spent):  # continues with the releases of the first
            spent.append(replace(RUN, steps=3))
    assert list(ledger.frame().steps) == [7, 3]


def test_charged_adds_the_curve_of_a_private_selection_to_the_fits(ledger):
    curve = 3.0 * rdp_curve([RUN])
    with ledger:
        spend()
        with charged((), [], curve=curve, what="private selection"):
            pass
    both = curve_epsilon(curve + rdp_curve([RUN]), 1e-5)
    assert ledger.epsilon() == pytest.approx(both) and both > curve_epsilon(curve, 1e-5)


def test_charged_without_privacy_exceeds_every_budget(path, tmp_path):
    budget = PrivacyLedger(tmp_path / "budget", epsilon=100.0, delta=1e-5)
    with budget, pytest.raises(BudgetExceededError, match="not private"):
        spend(private=False)
    with PrivacyLedger(path, delta=1e-5) as ledger:
        spend(private=False)
    assert ledger.epsilon() == math.inf
    assert list(ledger.frame().what) == ["not private"]


def fit_without_end(started):
    with charged([RUN], []):
        started.set()
        time.sleep(60)


def test_charged_keeps_the_plan_of_a_killed_fit(path):
    context = multiprocessing.get_context("fork")
    with PrivacyLedger(path, epsilon=1.05 * COST, delta=1e-5) as ledger:
        started = context.Event()
        worker = context.Process(target=fit_without_end, args=(started,))
        worker.start()
        assert started.wait(30)
        os.kill(worker.pid, signal.SIGKILL)
        worker.join()
        assert list(ledger.frame().state) == ["planned"]
        assert ledger.epsilon() == COST
        with pytest.raises(BudgetExceededError):
            spend()


def test_prepaid_fit_allows_one_private_fit_of_at_most_its_curve(ledger):
    curve = rdp_curve([RUN])
    with ledger, ledger_suspended():
        assert current_ledger() is None
        with prepaid_fit(curve):
            spend()
            with pytest.raises(PrivacyAccountingError):
                spend()
        for paid, about in ((0.9 * curve, {}), (curve, {"private": False}), (None, {})):
            with prepaid_fit(paid), pytest.raises(PrivacyAccountingError):
                spend(**about)
    assert ledger.frame().empty


# fits of classifiers


def test_fit_beyond_the_budget_is_refused_before_it_starts(path, data):
    alone = compute_epsilon(classifier().fit(*data).privacy_.releases, 1e-4, "rdp")
    with PrivacyLedger(path, epsilon=1.1 * alone, delta=1e-4, accountant="rdp") as ledger:
        with pytest.raises(BudgetExceededError, match="keep_reference"):
            classifier(keep_reference=True).fit(*data)
        classifier().fit(*data)
        again = classifier()
        with pytest.raises(BudgetExceededError, match=f"epsilon={1.1 * alone:g}"):
            again.fit(*data)
        assert not hasattr(again, "net_")
    assert list(ledger.frame().steps) == [4] and ledger.epsilon() == pytest.approx(alone)


def test_fit_with_a_reference_is_charged_as_two_fits(path, data):
    with PrivacyLedger(path, delta=1e-4) as ledger:
        alone = compute_epsilon(classifier().fit(*data).privacy_.releases, 1e-4)
        classifier(keep_reference=True).fit(*data)
    assert ledger.report().epsilon > 1.1 * alone and ledger.epsilon() == math.inf
    assert (ledger.frame()["what"] == "not private").tolist() == [False, False, True]


def test_fit_of_a_charged_model_outside_the_block_warns(path, data, recwarn):
    model = classifier(warm_start=True)
    with PrivacyLedger(path, delta=1e-4) as ledger:
        model.fit(*data).fit(*data)
        released = model.release()
        assert not [w for w in recwarn if w.category is UnaccountedWarning]
    for again in (model, released, pickle.loads(pickle.dumps(model)), clone(model)):
        with pytest.warns(UnaccountedWarning):
            again.fit(*data)
    assert len(ledger.frame()) == 2
