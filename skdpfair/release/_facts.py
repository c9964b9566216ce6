"""Weights and public facts of fitted estimators, for releases and for pickles."""

import json
import math
import warnings
from dataclasses import replace

import numpy as np
import torch
from sklearn.base import is_regressor

from skdpfair._networks import Factory, ModuleFactory
from skdpfair._utils.torch_internals import TorchDispatchMode
from skdpfair._utils.validate import LARGE, number, safe_repr
from skdpfair.engine.mechanism import Method
from skdpfair.exceptions import InsecureSeedWarning, PrivacyLeakWarning
from skdpfair.inputs.target import range_of
from skdpfair.release._closed_list import FITTED, OPTIONAL, REMOVED_PART
from skdpfair.release._file import NotPlain, decode, encode
from skdpfair.release._objects import NETWORKS, network_name
from skdpfair.release._read_statement import REGRESSOR, check_statement, origin_of, statement
from skdpfair.training.inference import InferenceNet, weights_of

# what no copy of a fitted classifier keeps, and what no release keeps besides
SCRUBBED = {"random_state": None, "callbacks": None, "validation_data": None}
DROPPED = SCRUBBED | {"keep_reference": False}
_NEVER_KEPT = ("reference_", "diagnostics_", "_skl_callbacks")
_LEAST = dict.fromkeys(("lr_", "signal_to_noise_", "batch_size_", "n_steps_", "n_iter_"), 0.0)
_LEAST |= {"_cut": -math.inf}
_NEEDED = [name for name in FITTED if name not in OPTIONAL]
FACTS_KEY, WEIGHTS_KEY, FACTORY_KEY = "_facts", "_weights", "_factory"  # of a pickled state


def release_facts(estimator):
    """Return the facts of a release, ready for JSON, and its weights; raise and warn as `release`.

    A UserWarning says which parameters hold code and are left out.
    """
    _check_releasable(estimator)
    fitted = {name: getattr(estimator, name) for name in FITTED if hasattr(estimator, name)}
    fitted["privacy_"] = privacy = _scrubbed(estimator.privacy_)
    for name, value in fitted.items():
        try:
            fitted[name] = encode(value)
        except NotPlain as error:
            raise TypeError(
                f"{name} cannot be released: {error}. Use strings or numbers for classes, groups "
                "and parameters of methods, then fit again."
            ) from None
    facts = {
        "parameters": _parameters(estimator),
        "fitted": fitted,
        "module": module_facts(estimator.net_.module),
        "privacy_statement": statement(privacy),
    }
    if is_regressor(estimator):
        facts["estimator"] = REGRESSOR
    return facts, weights_of(estimator.net_)


def _check_releasable(estimator):
    if hasattr(estimator, "diagnostics_"):
        raise ValueError(
            "This fit recorded diagnostics_, which are not private, so it cannot "
            "be released. The weights do not depend on them: drop them with "
            "`del classifier.diagnostics_`, then release."
        )
    if not estimator.privacy_.is_private:
        warnings.warn(
            "The released weights are NOT differentially private (epsilon is infinite) and may "
            "reveal information about the records. The release states this.",
            PrivacyLeakWarning,
            stacklevel=5,
        )
    elif estimator.privacy_.seeded:
        warnings.warn(
            "The noise in the released weights was seeded: whoever knows or guesses the seed can "
            "remove it. Fit without a seed before you release a model.",
            InsecureSeedWarning,
            stacklevel=5,
        )


def _scrubbed(privacy):
    removed_parts = tuple(REMOVED_PART.format(what) for what in privacy.holds)
    return replace(privacy, holds=(), not_accounted=(*privacy.not_accounted, *removed_parts))


def _parameters(estimator):
    """Return the parameters, encoded, without those that the module's facts stand for."""
    params = _dropped(estimator.get_params(deep=False))
    if module_facts(estimator.net_.module)["name"] is None:
        del params["module"]
    out, not_encoded = _encoded(params)
    if not_encoded:
        warnings.warn(
            f"The release leaves out the parameters {[*not_encoded]}, whose values are code and "
            "which only training needs. Set them again before another fit.",
            stacklevel=5,
        )
    return out


def _encoded(values):
    plain, others = {}, {}
    for name, value in values.items():
        try:
            plain[name] = encode(value)
        except NotPlain:
            others[name] = value
    return plain, others


def _dropped(params):
    """Return parameters without those that no release keeps, among those that there are."""
    return params | {name: value for name, value in DROPPED.items() if name in params}


def module_facts(factory):
    """Return how to build a net's module anew; ``name`` is None for a module of the user's."""
    name = network_name(factory.make)
    plain, not_encoded = _encoded(factory.params)
    facts = {"name": name, "params": plain, "in_shape": list(factory.in_shape)}
    if name is None:
        label = getattr(factory.make, "__qualname__", type(factory.make).__name__)
        return facts | {"custom": label, "left_out": [*not_encoded]}
    if not_encoded:
        raise TypeError(
            f"{safe_repr([*not_encoded])} of module cannot be released. Use numbers and texts."
        )
    return facts


def rebuilt(cls, facts, weights, module=None):
    """Return a fitted classifier that predicts; ``module`` is the factory of a custom module."""
    params = _dropped({name: decode(value) for name, value in facts["parameters"].items()})
    if unknown := sorted(set(params) - set(cls().get_params(deep=False))):
        raise ValueError(f"{cls.__name__} of this version has no parameters {unknown}")
    if module is not None:
        params["module"] = Factory(module.make, **module.params) if module.params else module.make
    estimator = cls(**params)
    for name in FITTED:
        if name in facts["fitted"]:
            setattr(estimator, name, decode(facts["fitted"][name]))
    with _Room(weights):
        estimator.net_ = InferenceNet(module or _builtin(facts["module"], weights), weights)
    return estimator


class _Room(TorchDispatchMode):
    """Refuses to make tensors, in a block, that are far larger together than some weights."""

    def __init__(self, weights):
        super().__init__()
        self.left = _room_for(weights)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if "device" in kwargs and not any(isinstance(a, torch.Tensor) for a in args):
            tensor = func(*args, **kwargs | {"device": "meta", "pin_memory": False})
            # a layer takes memory, too
            self.left -= tensor.nbytes + 2**12
            if self.left < 0:
                raise ValueError("its network is far larger than its weights")
        return func(*args, **kwargs)


def _room_for(weights):
    return 2**26 + 8 * sum(w.nbytes for w in weights.values())


def check_loaded(estimator, facts) -> None:
    """Raise a ValueError if the parts of a release do not fit each other."""
    target = "y_range_" if is_regressor(estimator) else "classes_"
    if missing := [name for name in (*_NEEDED, target) if not hasattr(estimator, name)]:
        raise ValueError(f"the facts lack {missing}")
    check_statement(facts, estimator.privacy_)
    origin_of(facts)
    _check_fitted(estimator, facts["fitted"])
    shape, weights = estimator.net_.module.in_shape, weights_of(estimator.net_)
    if 4 * max(map(math.prod, (shape, record_shape(estimator)))) > _room_for(weights):
        raise ValueError(f"records of shape {shape}, which are far larger than the weights")
    logits = estimator.net_.logits(np.zeros((1, *shape), np.float32))
    n_outputs = 1 if is_regressor(estimator) else len(estimator.classes_)
    if logits.shape != (1, n_outputs):
        raise ValueError(f"{n_outputs} outputs were fitted, and {logits.shape[1]} are in the file")
    if not all(np.isfinite(w).all() for w in weights.values()):
        raise ValueError("weights that are not finite numbers")


def _check_fitted(estimator, fitted):
    """Raise a ValueError or TypeError if fitted attributes contradict each other."""
    values, privacy = vars(estimator), estimator.privacy_
    for name, low in _LEAST.items():
        if values.get(name) is not None:
            number(name, values[name], low=low)
    width, at, names = estimator.n_features_in_, estimator._group_positions, "feature_names_in_"
    rates = [len(e.group_rates) for e in privacy.releases if e.group_rates]
    classes = np.asarray(values.get("classes_", [0]), dtype=object)
    wrong = {
        "_schema": "_schema" in fitted,  # which is beside the other facts
        "classes_": classes.ndim != 1 or len({*classes.tolist()}) != len(classes),
        "logit_scale_": not 0 < values.get("logit_scale_", 1) <= LARGE,
        "y_range_": is_regressor(estimator) and range_of(values["y_range_"]) is None,
        "n_features_in_": record_shape(estimator)[:1] != (width - len(at),),
        "_group_positions": not all(0 <= i < width for i in at),
        names: names in values and np.shape(values[names]) != (width,),
        "levels_": any(n != len(estimator.levels_) for n in rates),
        "n_steps_": "n_steps_" in values and 0 < (privacy.steps or 0) < values["n_steps_"],
        "_n_fits": len(values["_ledger_fits"]) != values["_n_fits"],
        "method_": privacy.method not in (estimator.method_.name, "private selection"),
    }
    if any(wrong.values()):
        raise ValueError(f"{[*filter(wrong.get, wrong)]} contradict other facts")


def record_shape(estimator):
    """Return the shape of a record, before features are computed that a fit chose."""
    features = estimator.features_
    return estimator.net_.module.in_shape if features is None else features.in_shape_


def factory_of(facts, make):
    params = {name: decode(value) for name, value in facts["params"].items()}
    return ModuleFactory(make, params, tuple(facts["in_shape"]))


def _builtin(facts, weights):
    """Return the factory of a built-in module, once its shapes are known to be the weights'."""
    factory = factory_of(facts, NETWORKS[facts["name"]])
    # takes no memory, whatever sizes a file may claim
    with torch.device("meta"):
        expected = {name: tuple(w.shape) for name, w in factory().state_dict().items()}
    if expected != {name: w.shape for name, w in weights.items()}:
        raise ValueError(f"the weights do not fit the module {facts['name']!r}")
    return factory


def packed(state) -> dict:
    """Return the state to pickle: the facts as JSON and the weights as arrays.

    Values that are neither stay as they are, such as a class of the user's. Without them the state
    holds strings and arrays only, and a reader has one type to trust: the classifier's.
    """
    if "net_" not in state:  # not fitted
        return state
    net = state["net_"]
    remaining = {k: v for k, v in state.items() if k not in ("net_", *_NEVER_KEPT)}
    remaining |= {name: value for name, value in SCRUBBED.items() if name in remaining}
    remaining["privacy_"] = _scrubbed(remaining["privacy_"])
    remaining[FACTORY_KEY] = [net.module.make, net.module.params, net.module.in_shape]
    # the class of a method from elsewhere has to be imported, which pickle does
    out = {n: remaining.pop(n) for n in ("method", "method_") if _is_foreign(remaining[n])}
    facts, others = _encoded(remaining)
    return out | others | {WEIGHTS_KEY: weights_of(net), FACTS_KEY: json.dumps(facts)}


def _is_foreign(method):
    return isinstance(method, Method) and not type(method).__module__.startswith("skdpfair.")


def unpacked(state):
    if FACTS_KEY not in state:
        return state
    state = dict(state)
    state |= {name: decode(value) for name, value in json.loads(state.pop(FACTS_KEY)).items()}
    state["net_"] = InferenceNet(ModuleFactory(*state.pop(FACTORY_KEY)), state.pop(WEIGHTS_KEY))
    return state
