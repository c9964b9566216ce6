"""The classifier: parameters -> table -> plan -> net -> report -> fitted attributes."""

from contextlib import suppress

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils.validation import check_is_fitted

from skdpfair import _validate, release
from skdpfair.inputs import fitted_rows, labels, table
from skdpfair.inputs.streaming import is_streamed
from skdpfair.methods import get_method
from skdpfair.metrics._arguments import check_kind
from skdpfair.training import parameters, sklearn_callbacks
from skdpfair.training.callbacks import diagnostics_frame
from skdpfair.training.fit import train
from skdpfair.training.plan import plan as make_plan
from skdpfair.training.plan import reference_estimator
from skdpfair.training.report import account
from skdpfair.training.warm_start import previous_fit


class DPFairClassifier(sklearn_callbacks.Counted, ClassifierMixin, BaseEstimator):
    """Classifier trained by a differentially private, group-aware gradient method.

    Parameters
    ----------
    method : str or Method, default="global_adapt"
        Algorithm, by name (see :data:`skdpfair.METHODS`) or as an object with hyper-parameters.
    epsilon : float > 0 or None, default=1.0
        Privacy budget of one fit.  None without ``noise_multiplier`` trains the non-private
        reference model: plain SGD on the same module.
    delta : float in (0, 1/n) or "auto", default="auto"
        Probability mass of the privacy loss beyond epsilon.  "auto": the largest power of ten
        that is at most 1/(10 n).
    noise_multiplier : float >= 0 or None, default=None
        Noise instead of a budget (with ``epsilon=None``); 0 clips without noise.
    group_col : str, int, "target", list of these, or None, default=None
        Column(s) of X that hold the groups; several make intersections; "target" takes the
        class labels.  The columns are not features unless ``group_as_feature``.
    groups : list or None, default=None
        The public set of groups.  None reads them off the data, an assumption on record.
    classes : list or None, default=None
        The public set of classes, likewise.
    group_as_feature : bool, default=False
        Whether the model sees the group columns, which must then be numbers.
    module : {"auto", "logistic", "mlp", "cnn"}, torch.nn.Module class or factory, default="auto"
        The network, mapping (batch, ...) to logits (batch, n_classes).
    module_params : dict or None, default=None
        Keyword arguments of the module.
    hidden_layer_sizes : tuple of int, default=(256, 256)
        Of ``module="mlp"``.
    activation : {"tanh", "relu", "sigmoid", "gelu"}, default="tanh"
        Of ``module="mlp"`` and ``"cnn"``.
    optimizer : torch.optim class, its name, or "auto", default="auto"
        "auto" is SGD: with damped momentum 0.9 while ``lr`` is "auto", plain once it is given.
    optimizer_params : dict or None, default=None
        Keyword arguments of the optimizer.
    lr : float > 0 or "auto", default="auto"
        Learning rate.
    batch_size : int or "auto", default="auto"
        Expected number of records in a Poisson batch; the rate is 1 / ceil(n / batch_size).
    max_epochs : int or "auto", default="auto"
        Passes over the data.
    max_steps : int or None, default=None
        Number of steps on the data; overrides ``max_epochs``.
    iterate_average : float in [0, 1] or "auto", default="auto"
        Share of the last steps whose weights are averaged.  "auto": one half while ``lr`` is
        "auto", else none.
    max_physical_batch_size : int or "auto", default="auto"
        Records held in memory at once; never changes the result's distribution.
    attack : callable or None, default=None
        Adversarial training: :class:`skdpfair.attacks.PGD`, or any ``attack(module, x, y)`` that
        returns the inputs to train on, each made from its own record.
    class_weight : dict or None, default=None
        Fixed public factors of the loss per class, applied before clipping.
    validation_data : tuple (X, y) or None, default=None
        PUBLIC records to score after each epoch.
    warm_start : bool, default=False
        Whether a second ``fit`` goes on from the weights, bounds and learning rate of the first.
        Each fit spends ``epsilon`` again, and ``privacy_`` composes them all.
    accountant : {"pld", "prv", "rdp"}, default="pld"
        How epsilon is computed.
    noise : {"standard", "gaussian_sum"}, default="standard"
        "gaussian_sum" sums four float64 Gaussians per number against floating-point attacks.
    keep_reference : bool, default=False
        Also train the non-private reference model and keep it in ``reference_``.
    diagnostics : bool, default=False
        Record mean loss and gradient norm of each group over training, in ``diagnostics_``; with a
        :class:`skdpfair.analysis.GroupRecorder` among ``callbacks``, what that keeps.
        These are NOT private: the fitted object must not be released, and ``privacy_`` says so.
    callbacks : list of skorch callbacks or None, default=None
        Called at epoch ends, and at batch ends if they override that.
    device : str or "auto", default="auto"
        "auto" is "cuda" if there is one, else "cpu".
    random_state : int, RandomState or None, default=None
        None draws noise and batches from fresh OS entropy.  A seed makes the fit reproducible
        on one device and version, and the noise predictable: for research only.
    verbose : int, default=0
        1 shows a progress bar.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    groups_ : ndarray of shape (n_groups,) or None
    privacy_ : PrivacyReport
        What the fit spent, and under which assumptions.
    net_ : PrivateNet
        The trained skorch net; after unpickling, a net that can only predict.
    method_ : Method
        The method with its numbers resolved.
    lr_, batch_size_, n_steps_, n_iter_, signal_to_noise_
        Learning rate, expected batch size, steps on the data, epochs, and n times mu.
    diagnostics_ : DataFrame with columns step, group, n_samples, loss, gradient_norm, ...
        If ``diagnostics``; never pickled.
    reference_ : DPFairClassifier
        The non-private reference model, if ``keep_reference``; never pickled.

    References
    ----------
    Esipova et al., "Disparate Impact in Differential Privacy from Gradient Misalignment", 2023.

    Examples
    --------
    >>> from skdpfair import DPFairClassifier
    >>> from skdpfair.datasets import make_two_groups
    >>> data = make_two_groups(2000, random_state=0)
    >>> clf = DPFairClassifier("dpsgd", epsilon=3.0)
    >>> clf = clf.fit(data.data, data.target, sensitive_features=data.sensitive_features)
    >>> clf.privacy_.epsilon <= 3.0
    True
    """

    __metadata_request__fit = {"sensitive_features": True}

    def __init__(
        self,
        method="global_adapt",
        *,
        epsilon=1.0,
        delta="auto",
        noise_multiplier=None,
        group_col=None,
        groups=None,
        classes=None,
        group_as_feature=False,
        module="auto",
        module_params=None,
        hidden_layer_sizes=(256, 256),
        activation="tanh",
        optimizer="auto",
        optimizer_params=None,
        lr="auto",
        batch_size="auto",
        max_epochs="auto",
        max_steps=None,
        iterate_average="auto",
        max_physical_batch_size="auto",
        attack=None,
        class_weight=None,
        validation_data=None,
        warm_start=False,
        accountant="pld",
        noise="standard",
        keep_reference=False,
        diagnostics=False,
        callbacks=None,
        device="auto",
        random_state=None,
        verbose=0,
    ):
        self.method = method
        self.epsilon = epsilon
        self.delta = delta
        self.noise_multiplier = noise_multiplier
        self.group_col = group_col
        self.groups = groups
        self.classes = classes
        self.group_as_feature = group_as_feature
        self.module = module
        self.module_params = module_params
        self.hidden_layer_sizes = hidden_layer_sizes
        self.activation = activation
        self.optimizer = optimizer
        self.optimizer_params = optimizer_params
        self.lr = lr
        self.batch_size = batch_size
        self.max_epochs = max_epochs
        self.max_steps = max_steps
        self.iterate_average = iterate_average
        self.max_physical_batch_size = max_physical_batch_size
        self.attack = attack
        self.class_weight = class_weight
        self.validation_data = validation_data
        self.warm_start = warm_start
        self.accountant = accountant
        self.noise = noise
        self.keep_reference = keep_reference
        self.diagnostics = diagnostics
        self.callbacks = callbacks
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    @sklearn_callbacks.with_callbacks
    def fit(self, X, y, *, sensitive_features=None):
        """Fit to a table and its groups.

        Parameters
        ----------
        X : DataFrame (pandas, polars, pyarrow) or array of shape (n_samples, n_features, ...)
            Finite numbers; the group columns may hold anything.
        y : array of shape (n_samples,)
            Class labels.
        sensitive_features : array, Series or DataFrame of n_samples rows, optional
            The groups, if they are not columns of X.

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError
            If a parameter or the data cannot be used; nothing has been fitted then.
        InfeasibleBudgetError
            If no supported noise meets epsilon and delta.
        BudgetExceeded
            If an open `PrivacyLedger` has no room for the fit; nothing has been read then.
        UnsupportedModuleError, PrivacyAccountingError
            If the module mixes records, or the method breaks its own bound.
        KeyboardInterrupt
            On Ctrl-C before the first step, inside a search, or of a clone, since whoever made it
            has to stop, too; else the fit ends early, with an InterruptedWarning, and
            ``privacy_`` counts the steps taken.

        Warns
        -----
        InsecureSeedWarning
            If ``random_state`` makes the noise reproducible.
        LowSignalWarning
            If the records are few for the budget.
        UnaccountedWarning
            If a ledger counts the fits of this estimator or of its original, but not this one.
        """
        # check
        params, method = self.get_params(deep=False), get_method(self.method)
        has_groups = sensitive_features is not None
        parameters.check(params, method, has_sensitive_features=has_groups)
        # read
        fitted = type(self)(**params)  # a failed fit leaves this one as it was
        data = table.read(fitted, X, y, sensitive_features)
        parameters.check_binary(method, data.classes, data.groups.levels)
        previous = previous_fit(self, fitted, data) if self.warm_start else None
        # plan
        plan = make_plan(params, method, len(data.y), data.groups.n_groups, previous)
        # train
        task = sklearn_callbacks.begin(self, X, y, plan.n_epochs)
        trained = train(params, plan, data, task, previous, vars(self).pop("_init_entropy", None))
        # account
        report = account(params, trained, data.groups, task, previous)
        # keep
        self._keep(fitted, data, trained, report, previous, table.group_positions(self, X))
        if self.keep_reference and trained.net.steps_ == plan.settings.n_steps:
            reference = reference_estimator(self, plan, report.expected_batch_size)
            reference._init_entropy = trained.init_entropy
            self.reference_ = reference.fit(X, y, sensitive_features=sensitive_features)
        if task.end is not None:
            task.end()
        return self

    def predict(self, X):
        """Return the most probable class of each row of X, shape (n_samples,)."""
        codes = self.predict_proba(X).argmax(axis=1)
        return self.classes_[codes]

    def predict_proba(self, X):
        """Return class probabilities, shape (n_samples, n_classes), columns as ``classes_``.

        The group columns may be absent from X.
        """
        logits = self._logits(X)
        odds = np.exp(logits - logits.max(axis=1, keepdims=True))
        return odds / odds.sum(axis=1, keepdims=True)

    def score(self, X, y, sample_weight=None):
        """Return the accuracy on X and its labels y; ``sample_weight`` as in scikit-learn."""
        predicted, y = self.predict(X), labels.read(y)
        if len(y) != len(predicted):
            raise ValueError(f"y has {len(y)} labels for X with {len(predicted)} rows.")
        check_kind("y", y, predicted, like="the fit")
        with _validate.error_context_without_data(
            "y", "cannot be compared with the classes of the fit"
        ):
            return accuracy_score(y, predicted, sample_weight=sample_weight)

    def decision_function(self, X):
        """Return logits (n_samples, n_classes); for two classes their difference (n_samples,)."""
        logits = self._logits(X)
        return logits[:, 1] - logits[:, 0] if len(self.classes_) == 2 else logits

    def privacy_statement(self):
        """Return what the fit spent, and under which assumptions, as a JSON-ready dict."""
        check_is_fitted(self, "privacy_")
        return release.statement(self.privacy_)

    def release(self):
        """Return a copy with weights and public facts only: :func:`skdpfair.release.release`."""
        return release.release(self)

    def save_release(self, path, *, schema=None):
        """Write one file for :func:`skdpfair.load_release`: weights and public facts only."""
        release.save_release(self, path, schema=schema)

    def export_onnx(self, path):
        """Write the classifier for ONNX Runtime: :func:`skdpfair.release.export_onnx`."""
        release.export_onnx(self, path)

    def set_params(self, **params):
        """Set parameters; ``method__...`` works with a method given by name, too."""
        method = params.get("method", self.method)
        if isinstance(method, str) and any(key.startswith("method__") for key in params):
            params = {**params, "method": get_method(method)}
        return super().set_params(**params)

    def _logits(self, X):
        check_is_fitted(self, "net_")
        return self.net_.logits(table.read_for_prediction(self, X))

    def _keep(self, fitted, data, trained, report, previous, positions):
        net, settings = trained.net, trained.plan.settings
        names = ("n_features_in_", "feature_names_in_")
        kept = {name: getattr(fitted, name) for name in names if hasattr(fitted, name)}
        kept |= {
            "classes_": data.classes,
            "groups_": data.groups.levels,
            "net_": net,
            "method_": net.method_,
            "privacy_": report,
            "lr_": net.lr,
            "batch_size_": round(report.expected_batch_size),
            "n_steps_": net.steps_,
            "n_iter_": max(1, len(net.history)),
            "signal_to_noise_": settings.signal_to_noise,
            "_settled": net.settled_,
            "_n_fits": 1 if previous is None else previous.n_fits + 1,
            "_group_positions": positions,
        }
        if self.diagnostics:
            kept["diagnostics_"] = diagnostics_frame(net, data.groups.levels, self.callbacks)
        if previous is None and not is_streamed(data.x):
            fitted_rows.remember(net, data.x, data.y)
        for name in ("feature_names_in_", "reference_", "diagnostics_"):
            vars(self).pop(name, None)
        vars(self).update(kept)  # at once: an interrupt may come between any two lines

    def __getattr__(self, name):
        if name == "reference_":
            raise AttributeError("reference_ needs keep_reference=True; no pickle holds it.")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _repr_html_inner(self):
        """Return scikit-learn's diagram, and what a fit has spent."""
        spent = self.privacy_._repr_html_() if hasattr(self, "privacy_") else ""
        return super()._repr_html_inner() + spent

    def _repr_mimebundle_(self, **kwargs):
        bundle = super()._repr_mimebundle_(**kwargs)
        return bundle | {"text/html": self._repr_html_inner()} if "text/html" in bundle else bundle

    def __getstate__(self):
        """Keep weights and public facts; drop all that a training run leaves behind."""
        return release.packed(super().__getstate__())

    def __setstate__(self, state):
        super().__setstate__(release.unpacked(state))

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.non_deterministic = self.random_state is None
        with suppress(ValueError, TypeError):  # a method that fit would refuse
            tags.classifier_tags.multi_class = not get_method(self.method).binary
        return tags
