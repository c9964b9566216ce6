"""The ledger that a process and the workers that it starts charge."""

import json
import os
import pickle

import joblib
import pytest
from joblib import Parallel, delayed
from joblib.parallel import ParallelBackendBase

from skdpfair.budget import PrivacyLedger, journal
from skdpfair.budget.active_ledger import VARIABLE
from skdpfair.budget.charging import current_ledger
from tests.budget.charged_fits import spend


class Elsewhere(ParallelBackendBase):
    """A backend whose workers were started before, as dask's."""

    def effective_n_jobs(self, n_jobs):
        return 1


def test_activate_refuses_backends_whose_workers_run_already(ledger, monkeypatch):
    monkeypatch.setitem(joblib.parallel.BACKENDS, "elsewhere", Elsewhere)
    with joblib.parallel_config("elsewhere"), pytest.raises(RuntimeError, match="Elsewhere"):
        ledger.__enter__()
    for backend in ("loky", "threading", "multiprocessing", "sequential"):
        with joblib.parallel_config(backend), ledger:
            assert VARIABLE in os.environ
    assert ledger.frame().empty


def test_activate_takes_one_ledger_at_a_time_and_needs_its_file(ledger, tmp_path):
    with ledger:
        other = PrivacyLedger(tmp_path / "other")
        with pytest.raises(RuntimeError, match=str(ledger.path)), other:
            pass
        assert current_ledger().path == ledger.path
        ledger.path.unlink()
        with pytest.raises(FileNotFoundError, match=str(ledger.path)):
            spend()
    assert current_ledger() is None
    assert VARIABLE not in os.environ


def test_workers_inherit_the_ledger_of_their_block_and_no_other(ledger):
    def inherited():
        return Parallel(n_jobs=2)(delayed(os.getenv)(VARIABLE) for _ in range(2))

    assert inherited() == [None, None]
    with ledger:
        assert [json.loads(text)["path"] for text in inherited()] == [str(ledger.path)] * 2
    assert inherited() == [None, None]


def test_processes_inherit_what_their_parent_has_read_of_the_file(ledger, monkeypatch):
    path = ledger.path
    with ledger:
        spend()
    sent = pickle.dumps(ledger)
    with ledger:
        path.write_text(path.read_text().splitlines(keepends=True)[0])
        monkeypatch.setattr(journal, "_SEEN", {})  # of another process
        with pytest.raises(ValueError, match="no longer begins"):
            spend()
    monkeypatch.setattr(journal, "_SEEN", {})
    with pytest.raises(ValueError, match="no longer begins"), pickle.loads(sent):
        spend()
