"""The skorch net: skorch's fit loop, epochs and callbacks; our batches and our step."""

from dataclasses import replace

import torch
from skorch import NeuralNetClassifier
from skorch.callbacks import Callback, EpochScoring, EpochTimer, PassthroughScoring, PrintLog
from torch.utils._pytree import tree_map_only

from skdpfair.engine import PoissonSampler, Streams, choose, private_step
from skdpfair.engine.flat import acts_elementwise, flat_optimizer, flatten_, rejoin_, unflatten_
from skdpfair.engine.memory import affordable_batch
from skdpfair.engine.step import BOUND_TOLERANCE
from skdpfair.exceptions import PrivacyAccountingError, UnsupportedModuleError
from skdpfair.inference import logits
from skdpfair.mechanism import Mechanism, Method
from skdpfair.schedule import PoissonBatches, Schedule, record_rates, rows_on
from skdpfair.streaming import as_rows


class PrivateNet(NeuralNetClassifier):
    """A skorch classifier whose training step is :func:`skdpfair.engine.private_step`.

    Parameters
    ----------
    module : torch.nn.Module class or factory
        Maps (batch, ...) to logits (batch, n_classes).
    mechanism : Mechanism
        What each step releases.
    schedule : Schedule
        How long, and in which steps.
    streams : Streams
        Where randomness comes from.
    n_classes : int
        Number of outputs.
    class_weight : list of float, optional
        Public factors of the loss, one per class.
    chunk_size : int or "auto", default="auto"
        Records held in memory at once.
    noise : {"standard", "secure"}, default="standard"
        See :class:`skdpfair.engine.noise.Noise`.
    on_step : callable, optional
        Called with the name of each release once it is made; the ledger listens here.
    **kwargs
        Those of skorch.

    Notes
    -----
    X is ``{"x": (n, ...), "group": (n,)}``.  Losses, norms and batches are private and are
    never recorded; the history holds times and, with public validation data, its scores.
    """

    def __init__(
        self,
        module,
        *,
        mechanism: Mechanism,
        schedule: Schedule,
        streams: Streams,
        n_classes,
        class_weight=None,
        chunk_size="auto",
        noise="standard",
        on_step=None,
        **kwargs,
    ):
        super().__init__(module, criterion=torch.nn.CrossEntropyLoss, **kwargs)
        self.mechanism, self.schedule, self.streams = mechanism, schedule, streams
        self.n_classes, self.class_weight = n_classes, class_weight
        self.chunk_size, self.noise, self.on_step = chunk_size, noise, on_step

    @property
    def _default_callbacks(self):
        callbacks = [("epoch_timer", EpochTimer())]
        if self.train_split is not None:
            callbacks += [
                ("valid_loss", PassthroughScoring(name="valid_loss")),
                ("valid_acc", EpochScoring("accuracy", name="valid_acc", lower_is_better=False)),
                ("print_log", PrintLog()),
            ]
        return callbacks

    def initialize(self):
        """Set up module and optimizer, and the state of the method."""
        super().initialize()
        self.steps_, self.method_, self.average_ = 0, self.mechanism.method, None
        self.scale_ = torch.ones((), device=self.device)
        self._longest = torch.zeros((), device=self.device)
        return self

    def initialize_optimizer(self, triggered_directly=None):
        """Let optimizers that act on each number alone act on one vector."""
        self.flat_ = flatten_(_trainable(self.module_))
        groups, options = self.get_params_for_optimizer(
            "optimizer", self.get_all_learnable_params()
        )
        if len(groups[0]) > 1 or not acts_elementwise(self.optimizer):
            return super().initialize_optimizer(triggered_directly)
        self.optimizer_ = flat_optimizer(self.optimizer, self.flat_, options)
        return self

    def get_iterator(self, dataset, training=False):
        """Return Poisson batches to train on; skorch's own to validate and predict."""
        if not training:
            return super().get_iterator(dataset, training)
        while hasattr(dataset, "dataset"):
            dataset = dataset.dataset
        rows = dataset.X["x"], dataset.y, dataset.X["group"]
        data, rates = rows_on(self.device, *rows), record_rates(self.mechanism, rows[2])
        sampler = PoissonSampler(rates, len(rows[0]), self.streams.sampling())
        return PoissonBatches(data, sampler, self._steps_this_epoch)

    def _steps_this_epoch(self):
        return min(self.schedule.steps_per_epoch, self.schedule.n_steps - self.steps_)

    def fit_loop(self, X, y=None, epochs=None, **fit_params):
        """Run skorch's loop inside the context that computes per-record gradients."""
        try:
            self._begin(torch.from_numpy(as_rows(X["x"], slice(1))).to(self.device))
            with self.engine_:
                super().fit_loop(X, y, epochs, **fit_params)
        finally:
            self._finish()
            self._check_bound()  # once more, for an epoch that was interrupted
        return self

    def _begin(self, example):
        self._set_training(True)
        weight = None
        if self.class_weight is not None:
            weight = torch.tensor(self.class_weight, dtype=example.dtype, device=self.device)
        self.engine_ = choose(self.module_, example, self.n_classes, weight)
        auto = self.chunk_size == "auto"
        self._chunk = affordable_batch(self.module_, example) if auto else self.chunk_size
        self._noise = self.streams.noise(self.device, self.noise)
        self._restart_method(self.mechanism.method)
        self._gradient = self.engine_.flat()
        self.flat_.grad = self._gradient
        for p, view in self.engine_.views(self._gradient).items():
            p.grad = view

    def run_single_epoch(self, iterator, training, prefix, step_fn, **fit_params):
        """Take the steps of one epoch; validation is skorch's."""
        if not training or iterator is None:
            return super().run_single_epoch(iterator, training, prefix, step_fn, **fit_params)
        self._set_training(True)
        self._rejoin()
        step = self._step
        if self._overrides("on_batch_begin") or self._overrides("on_batch_end"):
            step = self._step_that_is_heard
        for batch in iterator:
            step(batch)
        self._check_bound()

    def _step_that_is_heard(self, batch):
        if self.steps_ < self.schedule.warm_up:  # no weight moves yet: nothing to hear
            return self._step(batch)
        self.history.new_batch()
        self.notify("on_batch_begin", batch=(batch.x, batch.y), training=True)
        self._rejoin()
        self._step(batch)
        self.notify("on_batch_end", batch=(batch.x, batch.y), training=True)
        self._rejoin()

    def infer(self, x, **kwargs):
        """Predict from ``x`` alone: groups are for training."""
        return super().infer(x["x"] if isinstance(x, dict) else x)

    @torch.no_grad()
    def _step(self, batch):
        if self.steps_ < self.schedule.warm_up:
            self._warm_up_step(batch)
        else:
            self._train_step(batch)
        self.steps_ += 1

    def _warm_up_step(self, batch):
        search, size = self.schedule.search, self.mechanism.expected_batch_size
        # booked first, so that an interrupt can only overcount
        self._account("gradient scale (warm-up)")
        self.scale_ = search.step(self.engine_, batch, self.scale_, size, self._noise, self._chunk)
        if self.steps_ + 1 == self.schedule.warm_up:
            self._settle()

    def _train_step(self, batch):
        if self.steps_ == 0:
            self._settle()
        self._account(self._what)
        step = private_step(
            self.engine_,
            batch,
            self._mechanism,
            self.state_,
            self._noise,
            chunk_size=self._chunk,
            out=self._gradient,
        )
        self.state_ = step.state
        if step.longest is not None:
            self._longest = torch.maximum(self._longest, step.longest)
        self._set_step_size()
        self.optimizer_.step()
        self._project()
        self._average()

    def _settle(self):
        """Fix what waited for the gradient scale, a released number: bounds, learning rate."""
        if not self.schedule.warm_up and self.schedule.unit is None:
            return
        scale = float(self.scale_)
        method, unit_lr = self.mechanism.method.at_scale(scale, self.schedule.headroom)
        self._restart_method(method)
        if self.schedule.unit is not None:
            self.lr = self.schedule.unit * unit_lr
            for group in self.optimizer_.param_groups:
                group["lr"] = self.lr

    def _restart_method(self, method):
        self.method_ = method
        self._mechanism = replace(self.mechanism, method=method)
        self._what = "gradient sum" + "".join(f" + {q.name}" for q in self._mechanism.queries)
        state = method.start(self.mechanism.task)
        self.state_ = tree_map_only(torch.Tensor, lambda t: t.to(self.device), state)

    def _set_step_size(self):
        if type(self.method_).step_size is Method.step_size:
            return
        factor = self.method_.step_size(self.steps_ - self.schedule.warm_up)
        for group in self.optimizer_.param_groups:
            group["lr"] = self.lr * factor

    def _project(self):
        if type(self.method_).project is Method.project:
            return
        params = {k: p.detach() for k, p in self.module_.named_parameters() if p.requires_grad}
        for name, value in self.method_.project(params, self.state_).items():
            params[name].copy_(value)

    def _average(self):
        """Average the last iterates: post-processing, free of charge."""
        trained = self.schedule.n_steps - self.schedule.warm_up
        first = self.schedule.n_steps - round(self.schedule.averaged * trained)
        count = self.steps_ - first + 1
        if count < 1:
            return
        if self.average_ is None:
            self.average_ = self.flat_.detach().clone()
        else:
            self.average_.lerp_(self.flat_, 1.0 / count)

    def _rejoin(self):
        """Take over what callbacks did to the weights; refuse what they did to the module."""
        if list(map(id, _trainable(self.module_))) == list(map(id, self.engine_.parameters)):
            rejoin_(self.flat_, self.engine_.parameters)
        else:
            raise UnsupportedModuleError(
                "Parameters were frozen, unfrozen or replaced after training began, as by skorch's "
                "Freezer. Freeze them where the module is made: in the class or factory that "
                "module= names."
            )

    def _check_bound(self):
        """Judge the steps since the last check; what they measured is private and forgotten."""
        longest, self._longest = self._longest, torch.zeros_like(self._longest)
        if self.mechanism.method.private and not longest <= 1 + BOUND_TOLERANCE:
            raise PrivacyAccountingError(
                f"{self.mechanism.method!r} weighed a gradient beyond its declared bound, so its "
                "epsilon would be wrong. This is a fault of the method; the fit is void."
            )

    def _finish(self):
        """Keep weights and released values, drop whatever a step held."""
        if self.average_ is not None:
            self.flat_.data.copy_(self.average_)
        unflatten_(_trainable(self.module_))
        for p in (self.flat_, *self.module_.parameters()):
            p.grad = None
        self.flat_ = self.average_ = self._noise = self._chunk = self._gradient = None
        self._set_training(False)

    def _account(self, what):
        if self.on_step is not None:
            self.on_step(what)

    def _overrides(self, event):
        known = (PassthroughScoring, EpochScoring, PrintLog, EpochTimer)
        default = getattr(Callback, event)
        return any(
            getattr(type(callback), event, default) is not default
            for _, callback in self.callbacks_
            if not isinstance(callback, known)
        )

    def logits(self, x):
        """Return logits (n, n_classes), float64, of an array, without skorch's loader."""
        return logits(self.module_, x, self.device)


def _trainable(module):
    return [p for p in module.parameters() if p.requires_grad]
