"""The skorch net of a fit: skorch's loop over epochs and callbacks, with private steps."""

from dataclasses import replace

import torch
from skorch import NeuralNetClassifier
from skorch.callbacks import EpochScoring, EpochTimer, PassthroughScoring, PrintLog

from skdpfair.attacks import PGD, RecordByRecord, check_attack
from skdpfair.engine import PoissonSampler, Streams, select_strategy
from skdpfair.engine.flat import acts_elementwise, flat_optimizer, flatten_
from skdpfair.engine.memory import affordable_batch
from skdpfair.engine.per_sample.materialised import materialised
from skdpfair.engine.precision import full_precision
from skdpfair.inputs.streaming import as_rows
from skdpfair.mechanism import Mechanism, Method
from skdpfair.training.callbacks import WITHHELD, has_batch_callbacks
from skdpfair.training.inference import InferenceNet, logits, weights_of
from skdpfair.training.schedule import PoissonBatches, Schedule, record_rates, rows_on
from skdpfair.training.steps import TrainingLoop, trainable


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
    noise : {"standard", "gaussian_sum"}, default="standard"
        See :class:`skdpfair.engine.noise.Noise`.
    attack : callable, optional
        ``attack(module, x, y)`` returns the inputs to train on, each made from its own record.
    on_step : callable, optional
        Called with the name of each release once it is made; the ledger listens here.
    diagnostics : bool, default=False
        Measure the first batch of each epoch, by group; NOT private.
    discloses : bool, default=False
        Whether callbacks get the training rows, so that the net is NOT private.
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
        attack=None,
        on_step=None,
        diagnostics=False,
        discloses=False,
        **kwargs,
    ):
        super().__init__(module, criterion=torch.nn.CrossEntropyLoss, **kwargs)
        self.mechanism, self.schedule, self.streams = mechanism, schedule, streams
        self.n_classes, self.class_weight = n_classes, class_weight
        self.chunk_size, self.noise = chunk_size, noise
        self.attack, self.on_step, self.diagnostics = attack, on_step, diagnostics
        self.discloses = discloses

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
        """Set up module and optimizer."""
        super().initialize()
        self.steps_, self.method_, self._loop = 0, self.mechanism.method, None
        self.measured_, self.settled_ = [], False
        self.group_levels_, self.steps_before_, self.records_ = None, 0, None
        return self

    @property
    def taken_(self) -> int:
        """How many steps are taken, those of a warm-up among them."""
        return self.steps_ if self._loop is None else self._loop.taken

    @property
    def current_lr(self) -> float:
        """Learning rate of the next step."""
        loop, t = self._loop, self.taken_ - self.schedule.warm_up
        if type(self.method_).step_size is not Method.step_size:
            return (self.lr if loop is None else loop.lr) * self.method_.step_size(max(t, 0))
        return float(self.optimizer_.param_groups[0]["lr"])

    def next_release(self):
        """Return mechanism, bounds set, and state of the next step."""
        if self._loop is not None:
            return self._loop.settled, self._loop.state
        return replace(self.mechanism, method=self.method_), self.state_

    def initialize_optimizer(self, triggered_directly=None):
        """Let optimizers that act on each number alone act on one vector."""
        self.flat_ = flatten_(trainable(self.module_))
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
        loop = self._loop
        return PoissonBatches(
            data, sampler, lambda: loop.left_this_epoch, loop.recorder is not None
        )

    def fit_loop(self, X, y=None, epochs=None, **fit_params):
        """Run skorch's loop inside the context that computes per-record gradients."""
        self._begin(torch.from_numpy(as_rows(X["x"], slice(1))).to(self.device))
        if self.discloses:
            self.records_ = X, y  # while the fit lasts
        try:
            with self.engine_, full_precision(self.device):
                super().fit_loop(X, y, epochs, **fit_params)
        finally:
            self._end()
        return self

    def _begin(self, example):
        self._set_training(True)
        weight = None
        if self.class_weight is not None:
            weight = torch.tensor(self.class_weight, dtype=example.dtype, device=self.device)
        self.engine_ = select_strategy(self.module_, example, self.n_classes, weight)
        self.engine_.generator.manual_seed(self.streams.init_seed() + 1)
        method = self.mechanism.method
        reason = method.refusal(self.mechanism.task, self.engine_.n_parameters)
        if reason is not None:
            raise ValueError(f"method={method!r} cannot train this model: {reason}.")
        if method.sees_gradients():
            materialised(self.engine_).check(example)
        attack = self.attack
        if attack is not None:
            check_attack(attack, self.module_, example, self.n_classes)
            if type(attack) is PGD:
                attack = attack.plain()
            else:
                attack = RecordByRecord(attack, self.engine_, example)
        auto = self.chunk_size == "auto"
        self._loop = TrainingLoop(
            engine=self.engine_,
            optimizer=self.optimizer_,
            flat=self.flat_,
            mechanism=self.mechanism,
            schedule=self.schedule,
            noise=self.streams.noise(self.device, self.noise),
            chunk=affordable_batch(self.module_, example) if auto else self.chunk_size,
            lr=self.lr,
            on_step=self.on_step,
            attack=attack,
        )

    def _end(self):
        """Keep weights and released values, drop whatever a step held."""
        loop, self._loop, self.flat_, self.records_ = self._loop, None, None, None
        self.steps_, self.method_, self.lr = loop.taken, loop.method, loop.lr
        self.state_ = loop.state  # made of released values
        self.settled_ = loop.taken > 0 and not loop.is_warming_up
        loop.finish()
        self._set_training(False)
        loop.check_bound()  # once more, for an epoch that was interrupted

    def notify(self, method_name, **seen):
        """Call the callbacks; what they see of the training rows is nothing, unless it is told."""
        if not self.discloses:
            seen |= {name: None for name in ("X", "y", "group") if name in seen}
            seen |= {"dataset_train": WITHHELD} if "dataset_train" in seen else {}
            seen |= {"batch": WITHHELD} if seen.get("training") else {}
        super().notify(method_name, **seen)

    def __getstate__(self):
        """Leave out what a running fit holds: records, seeds."""
        held = {"_loop": None, "records_": None, "measured_": [], "streams": None}
        return super().__getstate__() | held

    def __reduce_ex__(self, protocol):
        """Leave copies the module's factory and weights: no records, no seeds, no history."""
        if getattr(self, "module_", None) is None:
            return super().__reduce_ex__(protocol)
        return InferenceNet, (self.module, weights_of(self))

    def run_single_epoch(self, iterator, training, prefix, step_fn, **fit_params):
        """Take the steps of one epoch; validation is skorch's."""
        if not training or iterator is None:
            return super().run_single_epoch(iterator, training, prefix, step_fn, **fit_params)
        self._set_training(True)
        with_callbacks = has_batch_callbacks(self)
        self._loop.begin_epoch(iterator, with_callbacks=with_callbacks)
        step = self._step_with_callbacks if with_callbacks else self._loop.step
        for position, index in enumerate(iterator):
            if self.diagnostics and position == 0:
                self.measured_.append(self._loop.measured(index))
            step(index)
        self.steps_ = self._loop.taken
        self._loop.check_bound()

    def _step_with_callbacks(self, index):
        if self._loop.is_warming_up:  # there is nothing to hear
            return self._loop.step(index)
        self.history.new_batch()
        seen = {"batch": None, "group": None, "training": True}
        if self.discloses:
            batch = self._loop.batch(index)
            seen |= {"batch": (batch.x, batch.y), "group": batch.group}
        self.notify("on_batch_begin", **seen)
        self._loop.rejoin()
        self._loop.step(index)
        self.steps_ = self._loop.taken
        # nobody gets predictions on the records, but skorch's own scoring wants the argument
        self.notify("on_batch_end", **seen, y_pred=None)
        self._loop.rejoin()

    def infer(self, x, **kwargs):
        """Predict from ``x`` alone: groups are for training."""
        return super().infer(x["x"] if isinstance(x, dict) else x)

    def logits(self, x):
        """Return logits (n, n_classes), float64, of an array, without skorch's loader."""
        return logits(self.module_, x, self.device)
