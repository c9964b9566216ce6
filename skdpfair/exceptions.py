"""Exceptions and warnings of the package."""


class InfeasibleBudgetError(ValueError):
    """No supported noise level meets the requested (epsilon, delta).

    Examples
    --------
    >>> from skdpfair import DPFairClassifier
    >>> DPFairClassifier("dpsgd", epsilon=1e-5).fit([[0.0], [1.0]] * 1500, [0, 1] * 1500)
    Traceback (most recent call last):
    ...
    skdpfair.exceptions.InfeasibleBudgetError: epsilon=1e-05 ... Any one of these would do: ...
    """


class BudgetExceeded(RuntimeError):
    """A fit would spend more than the open privacy ledger allows; nothing was fitted.

    Examples
    --------
    >>> import tempfile
    >>> from skdpfair import DPFairClassifier
    >>> from skdpfair.budget import PrivacyLedger
    >>> path, X, y = tempfile.mkdtemp() + "/ledger.jsonl", [[0.0], [1.0]] * 1500, [0, 1] * 1500
    >>> with PrivacyLedger(path, epsilon=2.0, delta=1e-5):
    ...     DPFairClassifier("dpsgd", epsilon=3.0, module="logistic").fit(X, y)
    Traceback (most recent call last):
    ...
    skdpfair.exceptions.BudgetExceeded: This fit would bring epsilon on data='data' from 0 to ...
    """


class UnsupportedModuleError(ValueError):
    """The module cannot be trained with per-record gradients.

    Examples
    --------
    >>> import torch
    >>> from skdpfair.testing import check_engine
    >>> module = torch.nn.Sequential(torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 2))
    >>> check_engine(module, torch.zeros(1, 3), n_classes=2)
    Traceback (most recent call last):
    ...
    skdpfair.exceptions.UnsupportedModuleError: module has BatchNorm1d at '0', which mixes ...
    """


class DataIntegrityError(ValueError):
    """A data file is missing, or its digest differs from the recorded digest.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from skdpfair.datasets import fetch_dutch
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "dutch_census_2001.arff").write_text("something else")
    >>> fetch_dutch(data_home=folder)
    Traceback (most recent call last):
    ...
    skdpfair.exceptions.DataIntegrityError: ...dutch_census_2001.arff: its sha256 is ...
    """


class PrivacyAccountingError(RuntimeError):
    """A step broke the bound that its accounting relies on.

    Examples
    --------
    >>> from skdpfair import DPFairClassifier
    >>> from skdpfair.mechanism import Clip
    >>> from skdpfair.methods.dpsgd import DPSGD
    >>> class Unbounded(DPSGD):  # lets gradients pass that are longer than the bound it declares
    ...     def clip(self, sample, state, release):
    ...         return Clip(weight=sample.norm, bound=sample.norm.new_tensor(0.01))
    >>> clf = DPFairClassifier(Unbounded(max_grad_norm=1.0), epsilon=3.0, max_steps=5)
    >>> clf.fit([[0.0], [1.0]] * 1500, [0, 1] * 1500)
    Traceback (most recent call last):
    ...
    skdpfair.exceptions.PrivacyAccountingError: ... the fit is void.
    """


class InsecureSeedWarning(UserWarning):
    """A fixed ``random_state`` makes the noise reproducible and therefore predictable.

    Examples
    --------
    >>> import warnings
    >>> from skdpfair import DPFairClassifier
    >>> from skdpfair.exceptions import InsecureSeedWarning
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", InsecureSeedWarning)  # where models are released
    ...     DPFairClassifier("dpsgd", random_state=0).fit([[0.0], [1.0]] * 5000, [0, 1] * 5000)
    Traceback (most recent call last):
    ...
    skdpfair.exceptions.InsecureSeedWarning: random_state=0 makes the noise reproducible: ...
    """


class InterruptedWarning(UserWarning):
    """Ctrl-C ended a fit or a sweep early; the finished part is kept.

    There is no such warning if a callback, such as EarlyStopping, ends a fit.

    Examples
    --------
    >>> import signal, warnings
    >>> from skorch.callbacks import Callback
    >>> from skdpfair import DPFairClassifier
    >>> from skdpfair.exceptions import InterruptedWarning
    >>> class Interrupt(Callback):
    ...     def on_batch_end(self, net, **kwargs):
    ...         signal.raise_signal(signal.SIGINT)  # what Ctrl-C does
    >>> clf = DPFairClassifier("dpsgd", epsilon=3.0, max_steps=5, callbacks=[Interrupt()])
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always", InterruptedWarning)
    ...     clf.fit([[0.0], [1.0]] * 1500, [0, 1] * 1500).n_steps_ < 5
    True
    >>> caught[-1].category.__name__
    'InterruptedWarning'
    """


class LowSignalWarning(UserWarning):
    """There are too few records, or persons, for the budget: the model is much less accurate.

    Examples
    --------
    >>> import warnings
    >>> from skdpfair import DPFairClassifier
    >>> from skdpfair.exceptions import LowSignalWarning
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", LowSignalWarning)  # spend no budget on a weak model
    ...     DPFairClassifier("dpsgd", epsilon=1.0).fit([[0.0], [1.0]] * 50, [0, 1] * 50)
    Traceback (most recent call last):
    ...
    skdpfair.exceptions.LowSignalWarning: n = 100 records are few for this privacy budget ...
    """


class PrivacyLeakWarning(UserWarning):
    """A step learned from private rows outside the budget, or a release is not private.

    Examples
    --------
    >>> import warnings
    >>> from sklearn.preprocessing import StandardScaler
    >>> from skdpfair.preprocessing import check_pipeline
    >>> with warnings.catch_warnings(action="error"):
    ...     check_pipeline(StandardScaler()).warn()
    Traceback (most recent call last):
    ...
    skdpfair.exceptions.PrivacyLeakWarning: These steps learn from private rows ...
    """


class UnaccountedWarning(UserWarning):
    """A fit was not, or may not have been, charged to a ledger.

    Examples
    --------
    >>> import tempfile, warnings
    >>> from skdpfair import DPFairClassifier
    >>> from skdpfair.budget import PrivacyLedger
    >>> clf = DPFairClassifier("dpsgd", epsilon=3.0, module="logistic", max_steps=5)
    >>> with PrivacyLedger(tempfile.mkdtemp() + "/ledger.jsonl"):
    ...     clf = clf.fit([[0.0], [1.0]] * 1500, [0, 1] * 1500)
    >>> with warnings.catch_warnings(action="error"):  # the ledger would not be complete
    ...     clf.fit([[0.0], [1.0]] * 1500, [0, 1] * 1500)
    Traceback (most recent call last):
    ...
    skdpfair.exceptions.UnaccountedWarning: A PrivacyLedger counts the fits of this ...
    """
