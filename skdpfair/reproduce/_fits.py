"""One fit of a reproduction, and what the tables ask of it."""

import warnings

import numpy as np
import torch
from skorch.callbacks import Callback
from torch.nn.functional import cross_entropy

from skdpfair.estimator import DPFairClassifier
from skdpfair.exceptions import InsecureSeedWarning, LowSignalWarning


class RunningLoss(Callback):
    """Each group's mean training loss before each step from step ``first`` on; NOT private.

    What several papers print as "loss": the mean over the last epoch's batches of the group's mean
    in the batch, at the parameters before the step.
    """

    def __init__(self, first):
        self.first, self.sums_ = first, {}

    def listens(self, net):
        """Tell whether a step of the next epoch is looked at."""
        return net.taken_ + net.schedule.steps_per_epoch > self.first

    def on_batch_begin(self, net, batch=None, group=None, training=False, **kwargs):
        """Look at a batch that is about to be trained on."""
        if not training or net.steps_ < self.first or len(group) == 0:
            return
        with torch.no_grad():
            loss = cross_entropy(net.module_(batch[0]), batch[1], reduction="none")
        for code in group.unique().tolist():
            self.sums_.setdefault(code, []).append(float(loss[group == code].mean()))


def fit(method, split, seed, *, sigma, epochs, batch_size=256, delta=1e-6, **params):
    """Train on a split as the papers do; return the classifier and the running losses by group.

    Parameters
    ----------
    method : str or Method
        What to train; its noise is ``sigma``, None for what is not private.
    split : Split
        The data.
    seed : int
        Of the fit.
    sigma : float or None
        Noise multiplier.
    epochs, batch_size : int
        The steps per epoch are ceil(n / batch_size).
    delta : float, default=1e-6
        At which epsilon is told.
    **params
        Of `DPFairClassifier`.
    """
    n_steps = epochs * -(-len(split.y) // batch_size)
    losses = RunningLoss(n_steps - n_steps // epochs)
    model = DPFairClassifier(
        method,
        epsilon=None,
        noise_multiplier=sigma,
        delta=delta,
        batch_size=batch_size,
        max_epochs=epochs,
        random_state=seed,
        callbacks=[losses],
        diagnostics=True,  # which hands it the batches
        **params,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InsecureSeedWarning)  # a reproduction has seeds
        warnings.simplefilter("ignore", LowSignalWarning)  # and the papers' settings
        model.fit(split.x, split.y, sensitive_features=split.group)
    running = {model.groups_[k]: float(np.mean(v)) for k, v in losses.sums_.items()}
    return model, running


def group_accuracies(model, split) -> dict[str, float]:
    """Return the share of right answers on the test records of each group, and on all."""
    right = model.predict(split.x_test) == split.y_test
    groups = {str(g): float(right[split.group_test == g].mean()) for g in model.groups_}
    return {"all": float(right.mean())} | groups
