"""skorch callbacks: which of them listen to batches, and the progress bar."""

from skorch.callbacks import Callback, EpochScoring, EpochTimer, PassthroughScoring, PrintLog
from tqdm.auto import tqdm

_DEAF = (PassthroughScoring, EpochScoring, PrintLog, EpochTimer)


def hear_batches(callbacks) -> bool:
    """Tell whether any of the named callbacks does something at the begin or end of a batch."""
    return any(
        getattr(type(callback), event, default) is not default
        for event in ("on_batch_begin", "on_batch_end")
        for default in [getattr(Callback, event)]
        for _, callback in callbacks
        if not isinstance(callback, _DEAF)
    )


class Progress(Callback):
    """A bar over the steps, moved at epoch ends."""

    def __init__(self, n_steps, description):
        self.n_steps, self.description = n_steps, description

    def on_train_begin(self, net, **kwargs):
        """Open the bar."""
        self.bar_ = tqdm(
            total=self.n_steps, desc=self.description, unit="step", leave=False, disable=None
        )

    def on_epoch_end(self, net, **kwargs):
        """Move the bar."""
        self.bar_.update(net.steps_ - self.bar_.n)

    def on_train_end(self, net, **kwargs):
        """Close the bar."""
        self.bar_.close()
