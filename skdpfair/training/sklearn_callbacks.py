"""scikit-learn's callbacks: the tasks that a fit is part of, and those that it begins."""

import warnings
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

from skdpfair.budget import active_ledger
from skdpfair.exceptions import UnaccountedWarning

try:
    from sklearn.callback import CallbackSupportMixin, with_callbacks
except ImportError:  # before scikit-learn 1.9

    class CallbackSupportMixin:  # type: ignore[no-redef]  # where mypy finds scikit-learn 1.9
        """Nothing: there are no callbacks."""

    def with_callbacks(method: Callable[..., Any]) -> Callable[..., Any]:
        """Return the method as it is."""
        return method


# a mark on the estimators themselves would go into pickles and releases
_CLONES: weakref.WeakSet[Any] = weakref.WeakSet()
# scikit-learn's names of one fit and test of a search, and of its last fit
_SEARCH_TASKS = {"candidate-split-evaluation", "refit-with-best-params"}


class LedgerAware(CallbackSupportMixin):
    """An estimator that, with all its copies, knows whether a ledger counts its fits.

    The mark ``_charged`` of a fit that was charged goes with copies, pickles, releases and clones,
    and a marked fit without a ledger warns.
    """

    def __sklearn_clone__(self) -> Self:
        """Return an unfitted copy with the mark."""
        copy: Self = super().__sklearn_clone__()
        _CLONES.add(copy)
        if getattr(self, "_charged", False):
            copy._charged = True
        return copy

    def _get_params_html(self, *args: Any, **kwargs: Any) -> Any:
        """Return what scikit-learn's box holds, alone or in a pipeline: parameters, and privacy."""
        params = super()._get_params_html(*args, **kwargs)
        if (report := getattr(self, "privacy_", None)) is not None:
            table = params._repr_html_inner()
            params._repr_html_inner = lambda: table + report.as_fold()
        return params


@dataclass(frozen=True)
class SklearnTask:
    """A fit as a task of scikit-learn: the tasks around it, and how its callbacks are called."""

    is_in_search: bool = False
    epoch: Callable[[], None] | None = None  # tells the callbacks; None if there are none
    end: Callable[[], None] | None = None
    # Whether other code fits, a search or whoever cloned the estimator: Ctrl-C has to end that
    # code, too.  Callbacks of skorch end a fit on purpose; then only a search is known to call.
    is_called: bool = False


def begin(estimator: Any, X: Any, y: Any, n_epochs: int) -> SklearnTask:
    """Tell scikit-learn's callbacks that a fit begins."""
    is_called = estimator in _CLONES and not getattr(estimator, "callbacks", None)
    _mark_charged(estimator)
    if not hasattr(estimator, "_init_callback_context"):
        return SklearnTask(is_called=is_called)
    context = estimator._init_callback_context(max_subtasks=n_epochs)
    is_in_search, task = False, context
    while task is not None:
        is_in_search |= not _SEARCH_TASKS.isdisjoint((task.task_name, task.source_task_name))
        task = task.parent
    is_called = is_called or is_in_search
    if not getattr(estimator, "_skl_callbacks", ()):
        return SklearnTask(is_in_search, is_called=is_called)
    context.call_on_fit_task_begin(estimator=estimator, X=X, y=y)

    def epoch() -> None:
        task = context.subcontext(task_name="epoch")
        task.call_on_fit_task_begin(estimator=estimator)
        task.call_on_fit_task_end(estimator=estimator)

    def end() -> None:
        context.call_on_fit_task_end(estimator=estimator, X=X, y=y)

    return SklearnTask(is_in_search, epoch, end, is_called)


def _mark_charged(estimator: Any) -> None:
    """Warn if a ledger counts other fits of this estimator, but not this one."""
    if active_ledger.current() is not None:
        estimator._charged = True
    elif getattr(estimator, "_charged", False):
        warnings.warn(
            "A PrivacyLedger counts the fits of this estimator, or of the one that it is a copy "
            "of; this fit is not counted. Fit inside `with ledger:`, or by ledger.fit.",
            UnaccountedWarning,
            stacklevel=5,
        )
