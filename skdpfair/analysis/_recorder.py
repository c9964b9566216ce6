"""Callback that records losses, gradients and step risk of each group along a fit."""

import numpy as np
import pandas as pd
import torch
from skorch.callbacks import Callback

from skdpfair._utils import validate
from skdpfair.analysis._problem import of_tensors
from skdpfair.analysis._step_risk import step_risk
from skdpfair.engine import Batch
from skdpfair.engine.losses import Regression
from skdpfair.inputs.rows import select


class GroupRecorder(Callback):
    r"""Record losses, gradients and step risk of each group along a fit; NOT private.

    The values are computed on all records, in memory and without noise.  The fitted object must not
    be released, and its ``privacy_`` says so.  Pickles and releases do not hold the values.

    Parameters
    ----------
    every : int, default=50
        Number of steps between two records; the first and the last step are always recorded.
    terms : bool, default=True
        Whether to compute the terms of the step risk, which exist for classifiers only; without
        them, recording costs about one pass over the data.
    n_batches : int, default=4
        Number of Poisson batches over which expectations are averaged.
    n_vectors : int, default=10
        Number of random vectors for the traces; with 0, these and ``noise`` are NaN.
    curvature_records : int or None, default=1000
        Number of records of each group, drawn at random, for the Hessians; None uses all.
        Gradients always use all records.
    eigenvalues : bool, default=True
        Whether to compute ``lambda_max``, which takes most of the time for networks with
        convolutions; without it, ``lambda_max`` is NaN.
    random_state : int, numpy.random.Generator or None, default=None
        Seed of the recorder's own batches and vectors; it does not affect the fit.

    Attributes
    ----------
    frame_ : pandas.DataFrame
        One row per recorded step and group: ``method``, ``step``, ``group``, ``lr``,
        ``n_samples``; ``loss`` and ``gradient_norm`` (the mean over the records);
        ``group_gradient_norm`` :math:`\|g_k\|`; the terms ``clip``, ``magnitude``,
        ``direction``, ``magnitude_star``, ``direction_star`` (means over the batches) and
        ``noise``, each with ``_se``; ``cosine`` and ``clipped_cosine``, between the batch's
        gradient and :math:`g_k`; ``lambda_max``, ``trace``, ``trace_se``; ``clipped_share`` and
        ``threshold``, the norm above which a record of the group is clipped (C, Z or C_k).  The
        estimator's ``diagnostics_`` is this table.
    risks_ : dict of int to StepRisk
        If ``terms`` is True, by recorded step: tables of ``groups`` and ``batches``, and the terms
        ``by_batch``, as arrays (n_groups, n_batches).

    Notes
    -----
    With the gradient :math:`g_k` and Hessian :math:`H_k` of group k's mean loss over all records, a
    batch's mean gradient :math:`g_B`, the method's :math:`\bar g_B` (without gradient noise, but
    with count noise), both over the expected batch size, and :math:`s = \|\bar g_B\| / \|g_B\|`,

    .. math::
        R^{clip}_k &= \eta \langle g_k, g_B - \bar g_B \rangle + \tfrac{\eta^2}{2} (\bar g_B' H_k
            \bar g_B - g_B' H_k g_B) = R^{mag}_k + R^{dir}_k \\
        R^{mag}_k &= \eta (1 - s) \langle g_k, g_B \rangle
            + \tfrac{\eta^2}{2} (s^2 - 1) g_B' H_k g_B \\
        R^{dir}_k &= \eta \langle g_k, s g_B - \bar g_B \rangle + \tfrac{\eta^2}{2} (\bar g_B' H_k
            \bar g_B - s^2 g_B' H_k g_B) \\
        R^{noise}_k &= \tfrac{\eta^2}{2} \operatorname{Tr}(H_k) (\Delta \sigma / B)^2

    (Propositions 1 and 2; the printed noise term lacks the division by B).  The starred terms use
    the other order of the two errors.

    All terms refer to one plain gradient step with learning rate ``lr``, for any optimizer, without
    an ``attack``.

    References
    ----------
    Esipova et al., "Disparate Impact in Differential Privacy from Gradient Misalignment", ICLR
    2023, Propositions 1, 2 and 2* (Appendix A.2).

    Examples
    --------
    >>> from skdpfair import DPFairClassifier
    >>> from skdpfair.analysis import GroupRecorder
    >>> from skdpfair.datasets import make_two_groups
    >>> data = make_two_groups(2000, random_state=0)
    >>> recorder = GroupRecorder(every=50, n_batches=2, n_vectors=2)
    >>> clf = DPFairClassifier("dpsgd", epsilon=3.0, max_steps=100, callbacks=[recorder])
    >>> clf = clf.fit(data.data, data.target, sensitive_features=data.sensitive_features)
    >>> clf.diagnostics_[["step", "group", "n_samples"]].tail(2).to_numpy().tolist()
    [[100, 'a', 1400], [100, 'b', 600]]
    """

    frame_: pd.DataFrame
    exposes_records = True  # a fit has to be marked
    # as to a seed, which mixes in what may change a fit
    leaves_fits_unchanged = True

    def __init__(
        self,
        every=50,
        *,
        terms=True,
        n_batches=4,
        n_vectors=10,
        curvature_records=1000,
        eigenvalues=True,
        random_state=None,
    ):
        self.every, self.terms, self.n_batches = every, terms, n_batches
        self.n_vectors, self.curvature_records = n_vectors, curvature_records
        self.eigenvalues, self.random_state = eigenvalues, random_state

    def initialize(self):
        """Check the parameters before the first step."""
        for name, low in {"every": 1, "n_batches": 1, "n_vectors": 0}.items():
            validate.integer(name, getattr(self, name), low=low)
        if self.curvature_records is not None:
            validate.integer("curvature_records", self.curvature_records)
        self.rng_ = validate.generator("random_state", self.random_state)
        return self

    def on_train_begin(self, net, **kwargs):
        """Start a new record, or continue after the steps of a warm start."""
        self.method_, self.before_ = net.plan.mechanism.method.name, net.steps_before_
        if self.before_ == 0 or not hasattr(self, "parts_"):
            self.parts_, self.risks_ = {}, {}
        self.recorded_step_ = None

    def on_batch_begin(self, net, training=False, **kwargs):
        """Record, if ``every`` steps have passed."""
        if training and (net.n_steps_taken - net.plan.warm_up) % self.every == 0:
            self._record(net, *net.records_)

    def on_train_end(self, net, X=None, y=None, **kwargs):
        """Record the last step."""
        if self.recorded_step_ is not None and net.n_steps_taken != self.recorded_step_:
            self._record(net, X, y)

    def _record(self, net, X, y):
        self.recorded_step_ = net.n_steps_taken
        # recording must not change the dropout masks to come
        with torch.random.fork_rng():
            self._measure(net, self._problem(net, X["x"], y, X["group"]))

    def _measure(self, net, problem):
        step = self.before_ + net.n_steps_taken
        if self.terms:
            mechanism, state = net.next_release()
            names = ("n_batches", "n_vectors", "curvature_records", "eigenvalues")
            how = {name: getattr(self, name) for name in names}
            risk = step_risk(problem, mechanism, state, net.current_lr, self.rng_, **how)
            groups, self.risks_[step] = risk.groups.reset_index(), risk
        else:
            with problem.strategy() as strategy:
                _, facts = problem.group_gradients(strategy)
            groups = pd.DataFrame({"group": problem.levels} | facts)
        for name, value in (("step", step), ("method", self.method_)):
            groups.insert(0, name, value)
        groups.insert(3, "lr", net.current_lr)
        # a warm start records again the step that the fit before it ended with
        self.parts_[step] = groups
        self.frame_ = pd.concat(self.parts_.values(), ignore_index=True)

    def _problem(self, net, x, y, group):
        module = net.module()  # a copy would hold the hooks of the training, and what they hold
        module.load_state_dict(net.module_.state_dict())
        module = module.to(net.device).eval().double()
        x = torch.from_numpy(select(x, slice(None))).to(net.device, torch.float64)
        criterion = net.loss if isinstance(net.loss, Regression) else None
        y = np.asarray(y, np.int64 if criterion is None else np.float64)
        y, group = (torch.from_numpy(np.asarray(v)).to(net.device) for v in (y, group))
        batch = Batch(x, y, group)
        return of_tensors(module, batch, net.loss.n_outputs, net.group_levels_, criterion)

    def __getstate__(self):
        """Keep the parameters alone."""
        return self.get_params(deep=False)
