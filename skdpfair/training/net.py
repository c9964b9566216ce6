"""The skorch net of a fit: skorch's loop over epochs and callbacks, with private steps."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, NoReturn, Self

import numpy as np
import torch
from skorch import NeuralNetClassifier
from skorch.callbacks import Callback, EpochScoring, EpochTimer, PassthroughScoring, PrintLog
from torch import Tensor, nn

from skdpfair._networks import copied
from skdpfair._utils.describe import state_of
from skdpfair.engine import PoissonSampler, select_strategy
from skdpfair.engine.flat import acts_elementwise, fixed_places, flat_optimizer, flatten_
from skdpfair.engine.losses import Loss
from skdpfair.engine.mechanism import Mechanism, State
from skdpfair.engine.per_sample import ClosedForm
from skdpfair.engine.per_sample.proof import fixed_draws, hold_statistics
from skdpfair.engine.precision import current_device, full_precision
from skdpfair.exceptions import UnsupportedModuleError
from skdpfair.inputs.persons import group_of_persons
from skdpfair.inputs.rows import Rows, SparseRows, select
from skdpfair.training import inference
from skdpfair.training.batches import PoissonBatches, record_rates, rows_on
from skdpfair.training.callbacks import WITHHELD, has_batch_callbacks
from skdpfair.training.defaults import logit_scale
from skdpfair.training.inference import InferenceNet, frozen_numbers, weights_of
from skdpfair.training.loop import TrainingLoop, trainable
from skdpfair.training.run import Run


class PrivateNet(NeuralNetClassifier):
    """A skorch net whose training steps are those of a private mechanism.

    ``loss`` is that of one record, and ``run`` the fit, with its plan, its seeds and its releases;
    None once it has ended.

    X is ``{"x": (n, ...), "group": (n,)}``, and ``"weight": (n,)`` if records have weights and
    ``"person": (n,)`` if persons have several.  Losses, norms and batches are private and are never
    recorded; the history holds times and, with public validation data, its scores.
    """

    _loop: TrainingLoop | None = None  # while a fit lasts
    flat_: nn.Parameter | None = None  # until the fit ends
    records_: tuple[Any, Any] | None = None
    ended_by_callback_ = False  # or by Ctrl-C while one ran
    bound_: float | None = None
    has_scale_ = False
    group_levels_: np.ndarray | None = None
    frozen_: tuple[int, str] | None = None  # as the fit began, see `frozen_numbers`
    steps_before_ = _n_steps_taken = 0
    _in_callback = False

    def __init__(
        self, module: Callable[..., nn.Module], *, loss: Loss, run: Run, **kwargs: Any
    ) -> None:
        super().__init__(module, criterion=torch.nn.CrossEntropyLoss, **kwargs)
        self.loss, self.plan, self.method_ = loss, run.plan, run.plan.mechanism.method
        self.run: Run | None = run

    @property
    def exposes_records(self) -> bool:
        """Whether callbacks get the training rows, so that the net is NOT private."""
        is_public = not self.plan.is_accounted
        return self.run is not None and (is_public or bool(self.run.spec.recorders))

    @property
    def _default_callbacks(self) -> list[tuple[str, Callback]]:
        callbacks = [("epoch_timer", EpochTimer())]
        if self.train_split is not None:
            callbacks += [
                ("valid_loss", PassthroughScoring(name="valid_loss")),
                ("valid_acc", EpochScoring("accuracy", name="valid_acc", lower_is_better=False)),
                ("print_log", PrintLog()),
            ]
        return callbacks

    @property
    def _running(self) -> TrainingLoop:
        assert self._loop is not None
        return self._loop

    @property
    def n_steps_taken(self) -> int:
        """Number of steps taken, warm-up included."""
        return self._n_steps_taken if self._loop is None else self._loop.n_steps_taken

    @property
    def current_lr(self) -> float:
        """Learning rate of the next step."""
        loop, t = self._loop, self.n_steps_taken - self.plan.warm_up
        lr, last = (self.lr, 1.0) if loop is None else (loop.lr, loop.lr_factor)
        factor = self.method_.step_size(max(t, 0))
        return float(self.optimizer_.param_groups[0]["lr"] if factor == last else lr * factor)

    def next_release(self) -> tuple[Mechanism, State]:
        """Return the mechanism, with its bounds set, and the state of the next step."""
        if self._loop is not None:
            return self._loop.scaled_mechanism, self._loop.state
        return replace(self.plan.mechanism, method=self.method_), self.state_

    def initialize_optimizer(self, triggered_directly: Any = None) -> Self:
        """Set up the optimizer; one that acts elementwise gets all parameters as one vector."""
        self._refuse_callbacks()
        self.flat_ = flat = flatten_(trainable(self.module_))
        parameters = self.get_all_learnable_params()
        groups, options = self.get_params_for_optimizer("optimizer", parameters)
        if len(groups[0]) > 1 or not acts_elementwise(self.optimizer):
            super().initialize_optimizer(triggered_directly)
            return self
        self.optimizer_ = flat_optimizer(self.optimizer, flat, options)
        return self

    def get_iterator(self, dataset: Any, training: bool = False) -> Any:
        """Return Poisson batches to train on; skorch's own to validate and predict."""
        if not training:
            return super().get_iterator(dataset, training)
        while hasattr(dataset, "dataset"):
            dataset = dataset.dataset
        x, group, person = (dataset.X.get(name) for name in ("x", "group", "person"))
        data = rows_on(self.device, x, dataset.y, group, dataset.X.get("weight"), person)
        groups = group_of_persons(group, person)
        mechanism = self.plan.mechanism
        # groups that change their rates are drawn at the largest, and thinned
        has_strata = bool(mechanism.task.strata)
        rates = mechanism.max_sample_rate if has_strata else record_rates(mechanism.rates, groups)
        assert self.run is not None
        sampler = PoissonSampler(rates, len(groups), self.run.streams.sampling())
        loop = self._running

        def acceptance_rates(index: np.ndarray) -> np.ndarray:
            return np.asarray((loop.rates / sampler.rate).numpy()[groups[index]])

        rates_or_none = acceptance_rates if has_strata else None
        loop.batches = PoissonBatches(data, sampler, loop.next_epoch, rates_or_none)
        return loop.batches

    def check_data(self, X: Any, y: Any) -> None:
        """Note the classes, which are public; the estimator has checked the data."""
        self.classes_inferred_ = np.arange(self.loss.n_outputs)

    def fit(self, X: Any, y: Any = None, **fit_params: Any) -> NoReturn:
        """Refuse to train without the estimator, which plans and accounts."""
        raise ValueError(
            "net_ trains inside the fit of its estimator only, which plans the noise and counts "
            "epsilon; its own fit would not be private. Fit the estimator; with warm_start=True it "
            "continues from these weights."
        )

    def partial_fit(self, X: Any, y: Any = None, *args: Any, **fit_params: Any) -> Self:
        """Train, within the fit of an estimator."""
        self._refuse_callbacks()
        super().partial_fit(X, y, *args, **fit_params)
        return self

    def fit_loop(self, X: Any, y: Any = None, epochs: int | None = None, **fit_params: Any) -> Self:
        """Run skorch's loop inside the context that computes per-record gradients."""
        self._refuse_callbacks()
        with current_device(self.device):
            self._begin(X["x"])
            if self.exposes_records:
                self.records_ = X, y  # while the fit lasts
            try:
                with self.engine_:
                    super().fit_loop(X, y, epochs, **fit_params)
            finally:
                self._end()
        return self

    def _refuse_callbacks(self) -> None:
        """Raise ValueError unless the estimator calls, which draws from each stream once."""
        if self.run is None:
            self.fit(None)
        if self._in_callback or self._loop is not None:
            raise ValueError(
                "callbacks holds one that trains the net, or sets it up anew, in the middle of its "
                "fit, where the same noise would be drawn again. Fit another estimator there, or "
                "this one again after its fit, with warm_start=True."
            )

    def _begin(self, x: Rows) -> None:
        example = torch.from_numpy(select(x, slice(1))).to(self.device)
        self._set_training(True)
        run, flat, method = self.run, self.flat_, self.plan.mechanism.method
        assert run is not None and flat is not None
        engine = select_strategy(self.module_, example, self.loss.n_outputs, loss=self.loss)
        module, self.engine_ = copied(self.module_), engine
        with torch.enable_grad(), fixed_draws(example.device):
            engine.fixed = fixed_places(module, module(example.new_zeros(2, *example.shape[1:])))
        self.frozen_ = frozen_numbers(self)
        engine.generator.manual_seed(run.streams.init_seed() + 1 + run.processes.rank)
        reason = method.refusal(self.plan.mechanism.task, engine.n_parameters)
        if reason is not None:
            raise ValueError(f"method={method!r} cannot train this model: {reason}.")
        if method.sees_gradients:
            engine.code_without_draws(example)
        is_sparse = isinstance(x, SparseRows) and isinstance(engine, ClosedForm)
        n_inputs: int | None = getattr(x, "n_stored", None) if is_sparse else None
        self._loop = TrainingLoop(run, engine, self.optimizer_, flat, example, n_inputs)

    def _end(self) -> None:
        """Keep weights and released values, drop all other data of steps."""
        loop = self._running
        self._loop = self.flat_ = self.records_ = None
        self._n_steps_taken, self.method_, self.lr = loop.n_steps_taken, loop.method, loop.lr
        self.state_ = loop.state  # made of released values
        self.is_method_traced_ = loop.scaled_mechanism.hooks.are_traced
        self.has_scale_ = loop.n_steps_taken > 0 and not loop.is_warming_up
        self.bound_, self.choices_ = loop.bound, loop.choices
        loop.finish()
        self._set_training(False)
        # once more, for an epoch that was interrupted
        loop.check_bound()

    def _set_training(self, training: bool = True) -> None:
        """Set the mode of the module; frozen statistics stay constant."""
        super()._set_training(training)
        hold_statistics(self.module_)

    def notify(self, method_name: str, **kwargs: Any) -> None:
        """Call the callbacks, without training rows unless the net exposes them.

        They do not see epochs in which no weight moves.  Changes of the module other than of its
        weights are refused: its code was traced, so that training would not follow.
        """
        if method_name.startswith("on_epoch") and self._only_warms_up(method_name):
            return
        if not self.exposes_records:
            kwargs |= {name: None for name in ("X", "y", "group") if name in kwargs}
            kwargs |= {"dataset_train": WITHHELD} if "dataset_train" in kwargs else {}
            kwargs |= {"batch": WITHHELD} if kwargs.get("training") else {}
        before, interrupt = self._seen_by(method_name), None
        outer, self._in_callback = self._in_callback, True
        try:
            super().notify(method_name, **kwargs)
            run = self.run
            if method_name == "on_epoch_end" and run is not None and run.sklearn_task.epoch:
                run.sklearn_task.epoch()  # scikit-learn's callbacks
        except KeyboardInterrupt as error:
            self.ended_by_callback_, interrupt = True, error
        finally:
            self._in_callback = outer
        if self._seen_by(method_name) != before:
            raise UnsupportedModuleError(
                "callbacks holds one that changed an attribute, a buffer or the code of the "
                "module, or replaced the module or the optimizer. The code was traced once, "
                "before the first step, so that training would not follow. Let callbacks change "
                "weights and learning rates only; other numbers may be arguments of a Factory."
            )
        if interrupt is not None:
            raise interrupt

    def _seen_by(self, event: str) -> tuple[Any, ...] | None:
        """Return the state that callbacks must not change; None without a user's callback."""
        if self.run is None or not self.run.spec.callbacks:
            return None
        if "batch" in event and not has_batch_callbacks(self):
            return None
        return self.module_, self.optimizer_, state_of(self.module_, weights=False)

    def _only_warms_up(self, event: str) -> bool:
        """Tell whether the epoch, which begins or has taken its steps, is of the warm-up alone."""
        loop = self._running
        n_steps_of_epoch = loop.next_epoch() if event == "on_epoch_begin" else 0
        return loop.n_steps_taken + n_steps_of_epoch <= self.plan.warm_up

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without records and seeds of a running fit."""
        state: dict[str, Any] = super().__getstate__()
        return state | {"_loop": None, "records_": None, "run": None}

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Reduce a copy to the module's factory and weights: no records, seeds or history."""
        if getattr(self, "module_", None) is None:
            return super().__reduce_ex__(protocol)
        return InferenceNet, (self.module, weights_of(self))

    def run_single_epoch(self, iterator: Any, training: bool, *args: Any, **params: Any) -> None:
        """Take the steps of one epoch; validation epochs are skorch's."""
        if not training:
            if not self._only_warms_up("validation"):
                super().run_single_epoch(iterator, training, *args, **params)
            return
        loop = self._running
        self._set_training(True)
        step = self._step_with_callbacks if has_batch_callbacks(self) else loop.step
        loop.rejoin()
        for index in iterator:
            step(index)
        if self.history and not self.history[-1]["batches"]:
            # Checkpoint asks for the place of a batch
            self.history.new_batch()
        loop.check_epoch()

    def _step_with_callbacks(self, index: Tensor) -> None:
        loop = self._running
        if loop.is_warming_up:  # callbacks see no warm-up
            loop.step(index)
            return
        self.history.new_batch()
        facts: dict[str, Any] = {"batch": None, "group": None, "training": True}
        if self.exposes_records:
            batch = loop.batches.select(index)
            facts |= {"batch": (batch.dense_x, batch.y), "group": batch.group}
        self.notify("on_batch_begin", **facts)
        loop.rejoin()
        loop.step(index)
        # nobody gets predictions on the records, but skorch's own scoring wants the argument
        self.notify("on_batch_end", **facts, y_pred=None)
        loop.rejoin()

    def infer(self, x: Any, **kwargs: Any) -> Tensor:
        """Predict from ``x`` alone: groups are for training.

        During a fit, these are the logits of the model that it would hand over if it ended now.
        """
        x = x["x"] if isinstance(x, dict) else x
        weights = nullcontext() if self._loop is None else self._loop.averaged_weights()
        with full_precision(self.device), torch.no_grad(), weights:
            logits: Tensor = super().infer(x)
        if self._loop is None or self.run is None:
            return logits
        return logits * logit_scale(self.run.spec, self.loss.n_outputs)

    def logits(self, x: Any) -> np.ndarray:
        """Return logits (n, n_classes), float64, of an array, without skorch's loader."""
        return inference.logits(self.module_, x, self.device)

    def private_logits(self, x: Any) -> np.ndarray:
        """Return logits (n, n_classes), float64, of private records, each from itself alone."""
        return inference.private_logits(self.module_, x, self.loss.n_outputs, self.device)
