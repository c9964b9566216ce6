"""skorch callbacks: batch events, recorders, progress bar; what ends a fit early."""

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

from skorch import callbacks as skorch_callbacks
from skorch.callbacks import Callback, EpochScoring, EpochTimer, PassthroughScoring, PrintLog

from skdpfair._utils.progress import ProgressBar
from skdpfair._utils.validate import safe_repr
from skdpfair.budget.privacy_ledger import PrivacyLedger

_WITHOUT_BATCH_EVENTS = (PassthroughScoring, EpochScoring, PrintLog, EpochTimer)
# how often a fit's bar asks for epsilon, which takes up to .1 s
_LOOKS = 20


class _Withheld:
    """Placeholder for the training rows that skorch hands to callbacks."""

    def _refuse(self, *args: object) -> NoReturn:
        raise ValueError(
            "callbacks holds one that asks for training rows, which a private fit gives to none. "
            "Score public validation_data=, or add a GroupRecorder of skdpfair.analysis, which "
            "marks the fitted object as one that must not be released."
        )

    __getattr__ = __len__ = __iter__ = __getitem__ = _refuse

    def __repr__(self) -> str:
        return "training rows (withheld)"

    def __reduce__(self) -> str:
        return "WITHHELD"


WITHHELD = _Withheld()


def has_batch_callbacks(net: Any) -> bool:
    """Tell whether any callback acts at the beginning or end of the next epoch's batches.

    A callback with ``listens(net)`` decides for itself, which saves the time of its calls.
    """
    return any(
        getattr(type(callback), event, default) is not default
        for event in ("on_batch_begin", "on_batch_end")
        for default in [getattr(Callback, event)]
        for _, callback in net.callbacks_
        if not isinstance(callback, _WITHOUT_BATCH_EVENTS)
        if getattr(callback, "listens", lambda net: True)(net)
    )


def without_names(callbacks: Sequence[Any] | None) -> list[Any]:
    """Return the callbacks of a list of these and of pairs (name, callback)."""
    return [c[-1] if isinstance(c, tuple) else c for c in callbacks or ()]


def recorders(callbacks: Sequence[Any] | None) -> list[Callback]:
    """Return the callbacks that keep private values, which have ``exposes_records = True``."""
    return [c for c in without_names(callbacks) if getattr(c, "exposes_records", False)]


def check_callbacks(callbacks: Sequence[Any] | None, is_public: bool, is_private: bool) -> None:
    """Refuse what are no skorch callbacks, nor pairs of a name and one.

    ``is_public`` says that there are validation data, ``is_private`` that a fit has noise.
    """
    names = set()
    is_private = is_private and not recorders(callbacks)
    for entry in callbacks or ():
        is_named = isinstance(entry, tuple) and len(entry) == 2 and isinstance(entry[0], str)
        callback = entry[1] if is_named else entry
        kind = callback if isinstance(callback, type) else type(callback)
        if issubclass(kind, PrivacyLedger):
            raise TypeError(
                "callbacks holds a PrivacyLedger, but takes those of skorch. Open the ledger "
                "around the fit, `with ledger: ...`."
            )
        if not issubclass(kind, Callback):
            raise TypeError(
                "callbacks must hold skorch callbacks or pairs (name, callback), got "
                f"{safe_repr(entry)}."
            )
        if is_named and entry[0] in names:
            raise ValueError(f"callbacks names two {safe_repr(entry[0])}. Name each once.")
        _refuse_unseen(callback, is_public, is_private)
        names |= {entry[0]} if is_named else set()


def _refuse_unseen(callback: Any, public: bool, private: bool) -> None:
    """Refuse a callback that asks for what a fit does not compute, before a step is spent."""
    if isinstance(callback, type):
        # skorch makes it, likewise without arguments
        with suppress(TypeError):
            callback = callback()
    if isinstance(callback, (skorch_callbacks.Freezer, skorch_callbacks.Unfreezer)):
        raise ValueError(
            f"callbacks holds {type(callback).__name__}, but parameters cannot be frozen or "
            "unfrozen after training began. Freeze them where the module is made: in the class or "
            "factory that module= names."
        )
    monitors = isinstance(callback, (skorch_callbacks.EarlyStopping, skorch_callbacks.Checkpoint))
    if isinstance(callback, skorch_callbacks.LRScheduler):
        monitors = "Plateau" in str(callback.policy)
    watched = getattr(callback, "monitor", None)
    in_vain = isinstance(watched, str) and (not public or watched.startswith("train_"))
    scorers = skorch_callbacks.scoring.ScoringBase, PassthroughScoring
    scores = isinstance(callback, scorers) and callback.on_train
    # rows that a fit exposes are scored at the end of an epoch, by predictions of their own
    anew = isinstance(callback, EpochScoring) and not callback.use_caching
    is_bar = isinstance(callback, skorch_callbacks.ProgressBar)
    counts = is_bar and callback.batches_per_epoch == "auto"
    reasons = {
        f"watches {watched!r}": monitors and in_vain,
        "scores training rows": scores and (private or not anew),
        "counts training rows (verbose=1 shows a progress bar)": counts and private,
        "reads the shape of training rows": isinstance(callback, skorch_callbacks.InputShapeSetter),
        "changes gradients": type(callback).on_grad_computed is not Callback.on_grad_computed,
    }
    for what in (what for what, applies in reasons.items() if applies):
        raise ValueError(
            f"callbacks holds {type(callback).__name__}, which {what}, but that is not there: "
            "scores of private records are not computed, and callbacks get neither them nor their "
            'gradients. Pass public validation_data= and watch "valid_loss", or fix the number of '
            "steps."
        )


@contextmanager
def noticed_interrupts() -> Iterator[list[int]]:
    """Yield a list to which each Ctrl-C is added; the handler that was set acts as before.

    Callbacks end a fit by a KeyboardInterrupt, too: the list tells these apart.
    """
    signals: list[int] = []
    handler = signal.getsignal(signal.SIGINT)
    if not callable(handler) or threading.current_thread() is not threading.main_thread():
        # no other thread gets the signal
        yield signals
        return

    def note(number: int, frame: Any) -> Any:
        signals.append(number)
        return handler(number, frame)

    signal.signal(signal.SIGINT, note)
    try:
        yield signals
    finally:
        if signal.getsignal(signal.SIGINT) is note:
            signal.signal(signal.SIGINT, handler)


class Progress(Callback):
    """A progress bar over the steps; ``spent()`` returns epsilon so far, or None."""

    def __init__(self, n_steps: int, description: str, spent: Callable[[], float | None]) -> None:
        self.n_steps, self.description, self.spent = n_steps, description, spent
        self._last = 0

    def on_train_begin(self, net: Any, **kwargs: Any) -> None:
        """Open the bar."""
        self.bar_ = ProgressBar(self.description, "step", total=self.n_steps)

    def on_epoch_end(self, net: Any, **kwargs: Any) -> None:
        """Move the bar."""
        epsilon, n = None, net.n_steps_taken
        looks = n - self._last >= self.n_steps / _LOOKS or n >= self.n_steps
        if looks and not self.bar_.is_hidden:
            self._last, epsilon = n, self.spent()
        self.bar_.move_to(n, epsilon)

    def on_train_end(self, net: Any, **kwargs: Any) -> None:
        """Close the bar."""
        self.bar_.close()
