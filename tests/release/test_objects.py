"""Objects of torch and of this package become text in a release, and come back by name only."""

import json

import numpy as np
import pytest
import torch

from skdpfair import Factory, Groups, Persons, get_method
from skdpfair._networks import CNN, MLP, Curves, logistic
from skdpfair.augmentations import PGD, FlipAndShift, Views
from skdpfair.features import Scattering2D
from skdpfair.release._file import decode, encode

OBJECTS = [
    get_method("pcsgd", schedule=(1.0, 10.0)),
    get_method("dp_is_sgd", group_probabilities=np.array([0.5, 0.5])),
    PGD(0.1, input_range=(0, 1)),
    Views(FlipAndShift(shift=2), n=3),
    Groups("sex", levels=["F", "M"]),
    Persons("name", max_records=2),
    MLP((5, 4), activation="gelu"),
    CNN(),
    Curves([1]),
    Factory(torch.optim.Adam, betas=(0.8, 0.9)),
    Scattering2D(),
    torch.optim.SGD,
    torch.device("cpu"),
    logistic,
]


@pytest.mark.parametrize("value", OBJECTS, ids=lambda v: getattr(v, "__name__", type(v).__name__))
def test_objects_are_equal_after_json(value):
    back = decode(json.loads(json.dumps(encode(value), allow_nan=False)))
    assert type(back) is type(value) and repr(back) == repr(value)
    if isinstance(value, type(logistic)):
        assert back is value
