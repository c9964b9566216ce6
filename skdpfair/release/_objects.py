"""Objects of torch and of this package that a release may hold, as text and back."""

import torch

from skdpfair._networks import CNN, MLP, Curves, Factory, curves, logistic, mlp, small_cnn
from skdpfair.augmentations import PGD, FlipAndShift, Views
from skdpfair.engine.mechanism import METHODS, Method
from skdpfair.features import Scattering2D
from skdpfair.inputs.groups import Groups
from skdpfair.inputs.persons import Persons

CLASSES = {c.__name__: c for c in (PGD, FlipAndShift, Views, Groups, Persons, MLP, CNN, Curves)}
NETWORKS = {"logistic": logistic, "curves": curves, "mlp": mlp, "cnn": small_cnn}


def _method(parts):
    name, params = parts
    if name not in METHODS:
        raise ValueError(
            f"method {name!r} is not registered: import the module that defines it before loading"
        )
    return METHODS[name](**params)


def _optimizer(name):
    optimizer = getattr(torch.optim, name, None)
    if not _is_torch_optimizer(optimizer):
        raise ValueError(f"{name!r} is no optimizer of torch.optim")
    return optimizer


def _scattering_facts(value):
    return value.get_params(deep=False), getattr(value, "in_shape_", None)


def _scattering(parts):
    features = Scattering2D(**parts[0])
    if parts[1] is not None:
        features.check(tuple(parts[1]))
        features.in_shape_ = tuple(parts[1])
    return features


def _is_torch_optimizer(value):
    is_optimizer = isinstance(value, type) and issubclass(value, torch.optim.Optimizer)
    return is_optimizer and getattr(torch.optim, value.__name__, None) is value


def _is_registered(value):
    return isinstance(value, Method) and METHODS.get(value.name) is type(value)


def network_name(function):
    return next((name for name, known in NETWORKS.items() if function is known), None)


TAGS = [  # as _PLAIN of _file.py: tag, test, parts, way back
    ("method", _is_registered, lambda v: (v.name, v.get_params(deep=False)), _method),
    (
        "object",
        lambda v: CLASSES.get(type(v).__name__) is type(v),
        lambda v: (type(v).__name__, v.get_params(deep=False)),
        lambda p: CLASSES[p[0]](**p[1]),
    ),
    (
        "factory",
        lambda v: type(v) is Factory,
        lambda v: (v.make, v.params),
        lambda p: Factory(p[0], **p[1]),
    ),
    ("scattering", lambda v: type(v) is Scattering2D, _scattering_facts, _scattering),
    ("optimizer", _is_torch_optimizer, lambda v: v.__name__, _optimizer),
    ("device", lambda v: isinstance(v, torch.device), str, torch.device),
    ("network", lambda v: network_name(v) is not None, network_name, NETWORKS.__getitem__),
]
