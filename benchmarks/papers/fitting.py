"""One fit of a reproduction, its losses and accuracies by group, and DPSGD-F as printed."""

import warnings
from dataclasses import dataclass

import numpy as np
import torch
from skorch.callbacks import Callback
from torch.nn.functional import cross_entropy

from skdpfair.engine.mechanism import Clip
from skdpfair.estimators.classifier import DPFairClassifier
from skdpfair.exceptions import InsecureSeedWarning, LowSignalWarning
from skdpfair.methods._clipping import clip_to
from skdpfair.methods.dpsgd_f import DPSGDF
from skdpfair.training.callbacks import recorders


class RunningLoss(Callback):
    """Each group's mean training loss before each step from step ``first`` on; NOT private.

    Several papers print this as "loss": the mean over the last epoch's batches of the group's mean
    in the batch, at the parameters before the step.
    """

    frame_ = None  # a recorder's table; sums_ are all it keeps
    leaves_fits_unchanged = True  # a seed gives the same model with and without it

    def __init__(self, first):
        self.first, self.sums_ = first, {}

    def listens(self, net):
        """Tell whether a step of the next epoch is looked at."""
        return net.n_steps_taken + net.plan.steps_per_epoch > self.first

    def on_batch_begin(self, net, batch=None, group=None, training=False, **kwargs):
        """Look at a batch that is about to be trained on."""
        if not training or net.n_steps_taken < self.first or len(group) == 0:
            return
        with torch.no_grad():
            loss = cross_entropy(net.module_(batch[0]), batch[1], reduction="none")
        for code in group.unique().tolist():
            self.sums_.setdefault(code, []).append(float(loss[group == code].mean()))


class GroupPath(Callback):
    """Each group's loss and the length of its mean gradient in every n-th batch; NOT private.

    ``found_`` holds (step, group code, loss, norm), at the parameters before the step.
    """

    leaves_fits_unchanged = True

    def __init__(self, every):
        self.every, self.found_ = every, []

    def listens(self, net):
        """Tell that every step may be looked at."""
        return True

    def on_batch_begin(self, net, batch=None, group=None, training=False, **kwargs):
        """Look at a batch that is about to be trained on."""
        if not training or net.n_steps_taken % self.every:
            return
        parameters = [p for p in net.module_.parameters() if p.requires_grad]
        for code in group.unique().tolist():
            own = group == code
            with torch.enable_grad():
                loss = cross_entropy(net.module_(batch[0][own]), batch[1][own])
                gradient = torch.autograd.grad(loss, parameters)
            norm = torch.nn.utils.get_total_norm(gradient)
            self.found_.append((net.n_steps_taken, code, float(loss.detach()), float(norm)))


def fit(method, split, seed, *, sigma, epochs, batch_size=256, delta=1e-6, callbacks=(), **params):
    """Train on a split as the papers do; return the classifier and the running losses by group.

    ``sigma`` is the noise multiplier, None for a method that is not private; an epoch has
    ceil(n / batch_size) steps; ``params`` are those of `DPFairClassifier`.
    """
    n_steps = epochs * -(-len(split.y) // batch_size)
    losses = RunningLoss(n_steps - n_steps // epochs)
    losses.exposes_records = not recorders(callbacks)  # a fit with one hands callbacks the batches
    model = DPFairClassifier(
        method,
        epsilon=None,
        noise_multiplier=sigma,
        delta=delta,
        batch_size=batch_size,
        max_epochs=epochs,
        random_state=seed,
        callbacks=[losses, *callbacks],
        **params,
    )
    fit_in_silence(model, split)
    running = {model.levels_[k]: float(np.mean(v)) for k, v in losses.sums_.items()}
    return model, running


def fit_in_silence(model, split):
    """Fit, without the warnings of seeds and of little signal, which the papers' settings have."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InsecureSeedWarning)
        warnings.simplefilter("ignore", LowSignalWarning)
        return model.fit(split.x, split.y, sensitive_features=split.group)


def group_accuracies(model, split) -> dict[str, float]:
    """Return the share of right answers on all test records, and on those of each group."""
    right = model.predict(split.x_test) == split.y_test
    groups = {str(g): float(right[split.group_test == g].mean()) for g in model.levels_}
    return {"all": float(right.mean())} | groups


@dataclass(kw_only=True, repr=False, eq=False)
class PrintedDPSGDF(DPSGDF):
    """DPSGD-F with noise for C although a record may weigh C_k: Esipova et al., Algorithm 3.

    Counts are rounded down and clamped at 0.  It is in no registry, and no fit with it reports a
    finite epsilon: a reproduction works out what its noise is worth.

    Examples
    --------
    >>> from skdpfair.testing import example_records
    >>> counts = torch.tensor([3.0, 1.0, 1.0, 3.0])
    >>> PrintedDPSGDF(max_grad_norm=1.0).clip(
    ...     example_records(norm=[4.0, 4.0], group=[0, 1]), None, {"counts": counts})
    Clip(weight=tensor([0.6250, 0.3750]), bound=tensor(1.))
    """

    private = False
    takes_noise = True

    def clip(self, sample, state, release):
        """Clip to the bound of the record's group; the noise is for the base bound."""
        bounds = self.group_bounds(release["counts"].floor().to(sample.norm.dtype))
        weight = clip_to(bounds.index_select(0, sample.group), sample.norm)
        return Clip(weight, sample.norm.new_full((), self.number("max_grad_norm", 1.0)))
