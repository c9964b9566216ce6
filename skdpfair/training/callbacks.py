"""skorch callbacks: batch events, recorders, progress bar."""

import pandas as pd
from skorch.callbacks import Callback, EpochScoring, EpochTimer, PassthroughScoring, PrintLog

from skdpfair.budget.progress import ProgressBar

_WITHOUT_BATCH_EVENTS = (PassthroughScoring, EpochScoring, PrintLog, EpochTimer)
_LOOKS = 20  # how often a fit's bar asks for epsilon, which takes up to .1 s


class _Withheld:
    """Stands where skorch hands training rows to callbacks."""

    def _refuse(self, *args):
        raise ValueError(
            "callbacks holds one that asks for training rows, which a private fit gives to nobody. "
            "Score public validation_data=, or set diagnostics=True, which marks the fitted object "
            "as one that must not be released."
        )

    __getattr__ = __len__ = __iter__ = __getitem__ = _refuse

    def __repr__(self):
        return "training rows (withheld)"

    def __reduce__(self):
        return "WITHHELD"


WITHHELD = _Withheld()


def has_batch_callbacks(net) -> bool:
    """Tell whether any callback does something at the begin or end of the next epoch's batches.

    One that has ``listens(net)`` is asked; it saves the time of telling it of batches.
    """
    return any(
        getattr(type(callback), event, default) is not default
        for event in ("on_batch_begin", "on_batch_end")
        for default in [getattr(Callback, event)]
        for _, callback in net.callbacks_
        if not isinstance(callback, _WITHOUT_BATCH_EVENTS)
        if getattr(callback, "listens", _always)(net)
    )


def _always(net):
    return True


def recorders(callbacks) -> list[Callback]:
    """Return those that keep what is not private: they say so by ``discloses = True``."""
    given = [c[-1] if isinstance(c, tuple) else c for c in callbacks or ()]
    return [callback for callback in given if getattr(callback, "discloses", False)]


def diagnostics_frame(net, levels, callbacks):
    """Return what a recorder among the callbacks kept, or one row per epoch and group."""
    for recorder in recorders(callbacks):
        return recorder.frame_
    names = ["all"] if levels is None else list(levels)
    rows = [
        (step, group, int(n), loss / n, norm / n)
        for step, sums in net.measured_
        for group, (n, loss, norm) in zip(names, sums.T, strict=True)
        if n > 0
    ]
    columns = ["step", "group", "n_samples", "loss", "gradient_norm"]
    return pd.DataFrame(rows, columns=columns)


class Epochs(Callback):
    """Tells somebody at the end of each epoch."""

    def __init__(self, tell):
        self.tell = tell

    def on_epoch_end(self, net, **kwargs):
        """Tell."""
        self.tell()


class Progress(Callback):
    """A bar over the steps, moved at epoch ends; ``spent()`` returns epsilon so far, or None."""

    def __init__(self, n_steps, description, spent):
        self.n_steps, self.description, self.spent = n_steps, description, spent
        self._shown = 0

    def on_train_begin(self, net, **kwargs):
        """Open the bar."""
        self.bar_ = ProgressBar(self.description, "step", total=self.n_steps)

    def on_epoch_end(self, net, **kwargs):
        """Move the bar."""
        epsilon = None
        looks = net.steps_ - self._shown >= self.n_steps / _LOOKS or net.steps_ >= self.n_steps
        if looks and not self.bar_.is_hidden:
            self._shown = net.steps_
            epsilon = self.spent()
        self.bar_.move_to(net.steps_, epsilon)

    def on_train_end(self, net, **kwargs):
        """Close the bar."""
        self.bar_.close()
