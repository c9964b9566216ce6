"""What the classifier and the regressor share: fit, releases, pickles and representations."""

import abc
import tomllib
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import KW_ONLY, dataclass, replace
from datetime import UTC, datetime
from math import ceil, prod
from os import PathLike
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import clone
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted
from torch import nn

from skdpfair._networks import MLP, Curves, Factory, network_of
from skdpfair._utils.validate import Parametrised, is_auto
from skdpfair.augmentations import Augment, Views
from skdpfair.engine import Streams
from skdpfair.engine.mechanism import Method
from skdpfair.engine.memory import used_device
from skdpfair.engine.precision import full_precision
from skdpfair.features import Scattering2D
from skdpfair.inputs import table
from skdpfair.inputs.columns import in_pandas, names_of_features
from skdpfair.inputs.groups import Groups
from skdpfair.inputs.persons import Persons
from skdpfair.inputs.provenance import record_row_hashes
from skdpfair.inputs.rows import SparseRows, is_streamed
from skdpfair.methods._registry import get_method
from skdpfair.preprocessing._linter import refuse_persons_around
from skdpfair.preprocessing._schema import TableSchema, encoded
from skdpfair.privacy.privacy_report import PROTECTS, PrivacyReport
from skdpfair.release._facts import packed, unpacked
from skdpfair.release._read_statement import statement
from skdpfair.release._release import release, save_release
from skdpfair.training import defaults, pictures, sklearn_callbacks
from skdpfair.training.account import account
from skdpfair.training.column_counts import can_be_fine
from skdpfair.training.monotone import make_monotone, with_curves
from skdpfair.training.net import PrivateNet
from skdpfair.training.plan import plan as make_plan
from skdpfair.training.processes import check_parts, process_group
from skdpfair.training.run import Run, seeded_streams
from skdpfair.training.spec import SCORE_BUDGET_FRACTIONS, FitSpec
from skdpfair.training.train import train
from skdpfair.training.warm_start import previous_fit

# what a parameter becomes where one of its own is set, as ``module__width``
_WRAPPED: dict[str, Callable[[Any], Any]] = {
    "method": lambda method: get_method(method) if isinstance(method, str) else method,
    "module": lambda module: MLP() if is_auto(module) else _features_or_network(module),
    "optimizer": Factory,
    "group_col": Groups,
    "persons": lambda persons: Persons() if persons is None else persons,
    "augment": Views,
}


def _features_or_network(module: Any) -> Any:
    is_scattering = isinstance(module, str) and module == pictures.SCATTERING
    return Scattering2D() if is_scattering else network_of(module)


@dataclass(repr=False, eq=False)
class DPEstimator(sklearn_callbacks.LedgerAware, Parametrised):
    """An estimator trained by a private, group-aware gradient method.

    A subclass says how targets are read and predicted.
    """

    method: str | Method = "global_adapt"
    _: KW_ONLY
    epsilon: float | None = 1.0
    delta: float | str = "auto"
    noise_multiplier: float | None = None
    group_col: str | int | list[str | int] | Groups | None = None
    persons: Persons | None = None
    module: str | Callable[..., nn.Module] | Any = "auto"
    optimizer: str | Callable[..., torch.optim.Optimizer] | Factory = "auto"
    lr: float | str = "auto"
    batch_size: int | str = "auto"
    max_epochs: int | str = "auto"
    max_steps: int | None = None
    iterate_average: float | str = "auto"
    max_physical_batch_size: int | str = "auto"
    augment: Augment | Views | None = None
    max_sample_weight: float | None = None
    warm_start: bool = False
    accountant: str = "pld"
    noise_sampler: str = "standard"
    keep_reference: bool = False
    callbacks: Sequence[Any] | None = None
    device: str = "auto"
    random_state: int | np.random.RandomState | np.random.Generator | None = None
    verbose: int = 0

    __metadata_request__fit = {"sensitive_features": True, "persons": True}

    @abc.abstractmethod
    def _read_target(self, y: Any) -> tuple[np.ndarray, np.ndarray | None, np.ndarray]:
        """Return y as an array, the classes or None, and what the net is trained on."""

    def fit(
        self,
        X: Any,
        y: Any,
        *,
        sensitive_features: Any = None,
        sample_weight: Any = None,
        persons: Any = None,
    ) -> Self:
        """Fit to a table and its groups.

        Parameters
        ----------
        X : DataFrame (pandas, polars, pyarrow) or array of shape (n_samples, n_features, ...)
            Finite numbers; the group columns may hold anything.  A scipy.sparse matrix stays
            sparse, and its batches are made dense.  Pictures of uint8 are divided by 255, flat rows
            of 28 x 28, 32 x 32 x 3, ... pixels, too; other numbers are taken as they are.
        y : array of shape (n_samples,)
            Class labels, or targets of a regressor.
        sensitive_features : array, Series or DataFrame of n_samples rows, optional
            The groups, if they are not columns of X.
        sample_weight : array of shape (n_samples,), optional
            Weight of each row, from 0 to ``max_sample_weight`` if declared.  It multiplies the
            clipped gradient, relative to the declared or else the largest weight.  Epsilon assumes
            that each follows from its own row and public facts.
        persons : array of shape (n_samples,), optional
            The person of each record, if ``persons`` names no column.

        Returns
        -------
        self : estimator
            The fitted estimator.

        Raises
        ------
        ValueError, TypeError
            If a parameter or the data cannot be used; nothing has been fitted then.
        InfeasibleBudgetError
            If no supported noise meets epsilon and delta.
        BudgetExceededError
            If an open `PrivacyLedger` has no room for the fit; nothing has been trained
            or charged then.
        UnsupportedModuleError, PrivacyAccountingError
            If the module mixes records, or the method breaks its own bound.
        KeyboardInterrupt
            On Ctrl-C before the first step, inside a search, or of a clone, since whoever made it
            has to stop, too; else the fit ends early, with an InterruptedWarning, and
            ``privacy_`` counts the steps taken. A callback that ends the fit, such as
            EarlyStopping, neither raises nor warns.

        Warns
        -----
        InsecureSeedWarning
            If ``random_state`` makes the noise reproducible.
        LowSignalWarning
            If the records, or the persons, are few for the budget.
        UnaccountedWarning
            If a ledger counts the fits of this estimator or of its original, but not this one.
        """
        fitted: Self = self._fit(X, y, (sensitive_features, sample_weight, persons))
        return fitted

    @sklearn_callbacks.with_callbacks
    def _fit(
        self,
        X: Any,
        y: Any,
        columns: tuple[Any, Any, Any],
        init_entropy: tuple[int, ...] | None = None,
        extracted: table.Table | None = None,
    ) -> Self:
        """Fit; a reference model gets the initial weights and features of pictures of another."""
        with process_group(getattr(self, "distributed", None)) as processes, ExitStack() as stack:
            # read
            names = "has_groups", "has_weights", "has_persons"
            facts = {name: c is not None for name, c in zip(names, columns, strict=True)}
            spec = FitSpec.of(self, **facts)
            # a later fit of this estimator sets nothing aside
            SCORE_BUDGET_FRACTIONS.pop(self, None)
            stack.enter_context(full_precision(used_device(spec.device)))
            # a failed fit leaves this one as it was
            fresh = type(self)(**self.get_params(deep=False))
            data = table.read(fresh, spec, X, y, *columns)
            spec.check_data(data.classes, data.groups.n_groups)
            if data.person is not None:
                refuse_persons_around("person")
            in_shape = data.x.shape[1:]
            spec, features = pictures.features_of(spec, in_shape)
            column_names = names_of_features(fresh, data.group_positions)
            # an array may know what computed it
            known = data.origin.columns if column_names is None else column_names
            if is_auto(spec.module):
                network = defaults.network_for(known)
                if spec.loss is None or isinstance(network, Curves):
                    spec = spec.with_params(module=network)
            if isinstance(spec.module, Curves) and not can_be_fine(data.x):
                spec = spec.with_params(module="logistic")
            defaults.check_network(spec.module, in_shape, data.n_outputs)
            spec = with_curves(spec, known, data.n_outputs)
            previous = previous_fit(self, fresh, data, features) if spec.warm_start else None
            if processes.size > 1:
                check_parts(processes, fresh, spec, data, previous)
            if data.weight is not None:
                largest = max(processes.sum((data.max_sample_weight or 0.0,)))
                # it is public, or else this would tell the weight of one record
                if largest == 0 and spec.max_sample_weight is None:
                    raise ValueError(
                        "sample_weight must hold a weight above zero, got none. Declare "
                        "max_sample_weight= if that may happen."
                    )
                data = replace(data, max_sample_weight=largest)
            # plan
            n_numbers = prod(in_shape) if features is None else features.n_features_out
            plan = make_plan(
                spec,
                processes.sum(data.n_examples),
                data.groups.n_groups,
                previous,
                PROTECTS[data.adjacency],
                1 if isinstance(data.x, SparseRows) else n_numbers,
                data.max_sample_weight,
            )
            # train
            sklearn_task = sklearn_callbacks.begin(self, X, y, plan.n_training_epochs)
            inputs = data if extracted is None else extracted
            if features is not None and extracted is None:
                inputs = pictures.extracted(data, features)
            is_seeded = spec.random_state is not None
            streams = seeded_streams(spec, inputs, previous) if is_seeded else Streams.fresh()
            streams = replace(streams, init_entropy=init_entropy or streams.init_entropy)
            run = Run(spec, plan, streams, processes, sklearn_task, previous)
            run.column_names = column_names
            net = train(run, inputs)
            make_monotone(net.module_, known, data.classes, spec)
            # account and keep
            self._keep(fresh, run, net, account(run, net, inputs), data, features)
        if spec.keep_reference and not run.is_interrupted:
            # "auto" of the reference model is its own affair, but for the network
            scale = {"logit_scale": "auto"} if hasattr(self, "logit_scale") else {}
            reference = clone(self).set_params(module=features or run.plan.module, **scale)
            reference.set_params(epsilon=None, noise_multiplier=None, keep_reference=False)
            same = run.streams.init_entropy, None if features is None else inputs
            self.reference_ = reference._fit(X, y, columns, *same)
        if sklearn_task.end is not None:
            sklearn_task.end()
        return self

    def privacy_statement(self) -> dict[str, Any]:
        """Return the privacy statement of the fit.

        Returns
        -------
        dict
            What the fit spent, and under which assumptions; can be written as JSON.

        Raises
        ------
        NotFittedError
            If the estimator was not fitted.
        """
        check_is_fitted(self, "privacy_")
        return statement(self.privacy_)

    def release(self) -> Self:
        """Return a copy with weights and public facts only.

        Returns
        -------
        estimator
            A fitted copy that can predict. It keeps the parameters, except those that may hold
            records, seeds or code: ``callbacks``, ``validation_data``, ``random_state``,
            ``keep_reference``, and a custom ``attack`` or ``optimizer``.

        Raises
        ------
        NotFittedError
            If the estimator was not fitted.
        ValueError
            If the estimator still holds diagnostics.
        TypeError
            If a class or group has a type that cannot be stored in a file.

        Warns
        -----
        PrivacyLeakWarning
            If the weights are not private.
        InsecureSeedWarning
            If the noise of the weights was seeded.
        """
        copy: Self = release(self)
        return copy

    def save_release(self, path: str | PathLike[str], *, schema: Any = None) -> None:
        """Write weights and public facts to one safetensors file, for `skdpfair.load_release`.

        Parameters
        ----------
        path : str or path-like
            The file; an existing file is replaced once the new one is complete.
        schema : TableSchema, optional
            The public facts from which the features were computed.
            ``load_release(path).schema_`` holds them, and ``skdpfair predict`` uses them to
            take raw tables. The file holds the number of intervals that gives the features of the
            fit, even if ``n_intervals="auto"``. None keeps that of a file from which the estimator
            was loaded. None for a regressor: a schema describes classes.

        Raises
        ------
        ImportError
            If the extra ``release`` is not installed.
        NotFittedError, ValueError, TypeError
            As in :meth:`release`, or if ``schema`` does not give the features of the fit.

        Warns
        -----
        PrivacyLeakWarning, InsecureSeedWarning
            As in :meth:`release`.

        Notes
        -----
        The same estimator gives the same bytes. The file holds the day of the fit, in UTC, and the
        names of the fits in a `PrivacyLedger`, which are random. The metadata entry ``skdpfair`` is
        JSON: format version, version of skdpfair, SHA-256 of the rest (which detects damage, not
        forgery), the privacy statement, and the facts that :func:`skdpfair.load_release` needs. The
        file holds no pickle and no code.
        """
        save_release(self, path, schema)

    def set_params(self, **params: Any) -> Self:
        """Set parameters of the estimator and of its method.

        Parameters
        ----------
        **params : dict
            Names and values.  ``method__<name>`` sets a parameter of the method, also where
            ``method`` is given by name; likewise ``module__``, ``optimizer__``, ``group_col__``,
            ``persons__`` and ``augment__``.

        Returns
        -------
        self : estimator
            The estimator itself.

        Raises
        ------
        ValueError
            If there is no parameter of a name.
        """
        nested = {name.partition("__")[0] for name in params if "__" in name}
        for name, wrap in _WRAPPED.items():
            value = params.get(name, getattr(self, name, None))
            if name in nested and not hasattr(value, "get_params"):
                params[name] = wrap(value)
        super().set_params(**params)
        return self

    @property
    def schema_(self) -> TableSchema | None:
        """Schema of the file that the estimator was loaded from, None without one."""
        text = getattr(self, "_schema", None)
        return None if text is None else TableSchema.from_dict(tomllib.loads(text))

    def _encoded(self, X: Any) -> Any:
        """Return X, encoded if it is a table of the columns of the schema of a release file."""
        X, text = in_pandas(X), getattr(self, "_schema", None)
        if text is None or not hasattr(X, "columns"):
            return X
        X = encoded(text, X)
        return X if hasattr(self, "feature_names_in_") else X.to_numpy()

    def _outputs(self, X: Any) -> np.ndarray:
        check_is_fitted(self, "net_")
        return np.asarray(self.net_.logits(table.read_for_prediction(self, X)))

    def _keep(
        self,
        fresh: Self,
        run: Run,
        net: PrivateNet,
        report: PrivacyReport,
        data: table.Table,
        features: Scattering2D | None,
    ) -> None:
        plan, previous = run.plan, run.previous
        names = ("n_features_in_", "feature_names_in_", "y_range_", "_scale")
        fitted = {name: getattr(fresh, name) for name in names if hasattr(fresh, name)}
        before = () if previous is None else previous.ledger_fits
        fitted |= {
            "levels_": data.groups.levels,
            "_variables": data.variables,
            "net_": net,
            "features_": pictures.for_prediction(features),
            "method_": net.method_,
            "privacy_": report,
            "lr_": net.lr,
            "batch_size_": round(report.expected_batch_size),
            "n_steps_": net.n_steps_taken,
            "n_iter_": max(1, ceil(net.n_steps_taken / plan.steps_per_epoch)),
            "signal_to_noise_": plan.signal_to_noise,
            "_has_scale": net.has_scale_,
            "_n_fits": 1 if previous is None else previous.n_fits + 1,
            "_ledger_fits": (*before, run.ledger_fit),
            "_day": datetime.now(UTC).date().isoformat(),
            "_group_positions": data.group_positions,
        }
        if data.classes is not None:
            scale = defaults.logit_scale(run.spec, net.loss.n_outputs)
            fitted |= {"classes_": data.classes, "logit_scale_": scale}
        if persons := data.persons or (previous and previous.persons):
            fitted["_persons"] = persons
        for recorder in run.spec.recorders:
            # a release is refused until its owner drops it, also where there is no table
            fitted["diagnostics_"] = getattr(recorder, "frame_", None)
        is_first = previous is None and data.classes is not None
        if is_first and isinstance(data.x, np.ndarray) and not is_streamed(data.x):
            record_row_hashes(net, data.x, data.y)
        former = "feature_names_in_", "reference_", "diagnostics_", "_persons", "_schema", "_cut"
        for name in former:
            self.__dict__.pop(name, None)
        # at once: an interrupt may come between any two lines
        self.__dict__.update(fitted)

    def __getattr__(self, name: str) -> Any:
        """Say why ``reference_`` is absent; called for absent attributes only."""
        if name == "reference_":
            raise AttributeError("reference_ needs keep_reference=True; no pickle holds it.")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for a pickle: weights and public facts, nothing of training."""
        return packed(super().__getstate__())

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(unpacked(state))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.non_deterministic = self.random_state is None
        return tags
