"""Decorators that switch autograd off: a step computes its gradients by itself."""

from functools import wraps

import torch


def without_grad(function):
    """Decorate a function to run without autograd; free where that is so already."""

    @wraps(function)
    def wrapped(*args, **kwargs):
        if torch.is_grad_enabled():
            with torch.no_grad():
                return function(*args, **kwargs)
        return function(*args, **kwargs)

    return wrapped
