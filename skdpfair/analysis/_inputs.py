"""What a user hands in -> module, arrays and class codes."""

import numpy as np
import torch
from sklearn.utils.validation import check_consistent_length, check_is_fitted, column_or_1d

from skdpfair.inputs import table as _table
from skdpfair.training import defaults


def of_estimator(estimator, X, y):
    """Return the module of a fitted classifier, the features of X, and the class codes of y."""
    if not hasattr(estimator, "privacy_statement"):
        raise TypeError(
            "estimator must be a fitted DPFairClassifier, got an object of type "
            f"{type(estimator).__name__}. Of a pipeline, give the last step, and X as the steps "
            "before it transform it: pipeline[-1], pipeline[:-1].transform(X)."
        )
    check_is_fitted(estimator, "net_")
    x = _table.read_for_prediction(estimator, X)
    return estimator.net_.module_, x, codes(x, y, estimator.classes_)


def loss_weights_of(estimator):
    """Return the factors of a fitted classifier's loss, also where it comes from a pickle."""
    if hasattr(estimator.net_, "class_weight"):
        return estimator.net_.class_weight
    entries = estimator.privacy_.ledger.entries
    searched = any(entry.what.startswith("gradient scale") for entry in entries)
    given = estimator.class_weight
    return defaults.loss_weights(given, estimator.classes_, rescaled=searched)[0]


def tensor_of(X, like):
    """Return features that a user hands in beside a module, in its dtype and on its device."""
    if not torch.is_tensor(X):
        X = np.asarray(X)
        if X.dtype.kind not in "fiub":
            raise ValueError(
                f"X must hold numbers, got dtype {X.dtype}. Give what the module takes."
            )
        X = torch.from_numpy(np.array(X, dtype=X.dtype.newbyteorder("="), order="C"))
    x = X.detach().to(like.device, like.dtype)
    if not bool(torch.isfinite(x).all()):
        raise ValueError("X holds NaN or infinite numbers, which have no gradient. Leave them out.")
    return x


def n_outputs(module, x):
    """Return how many logits a module gives; x holds a record."""
    if len(x) == 0:
        raise ValueError("X and y have 0 samples; at least one is needed.")
    try:
        with torch.no_grad():
            logits = module(x[:1])
    except RuntimeError as error:
        raise ValueError(
            f"X has records of shape {tuple(x.shape[1:])}, which the module does not take: {error}."
        ) from None
    if logits.dim() != 2:
        raise ValueError(
            "The module must return logits of shape (batch, n_classes), got "
            f"{tuple(logits.shape)}. For two classes, give it two outputs."
        )
    return logits.shape[1]


def first_parameter(module):
    """Return a parameter that trains, which has the module's dtype and device."""
    trains = [p for p in module.parameters() if p.requires_grad]
    if not trains:
        raise ValueError("The module has no parameter that trains: there is no gradient to take.")
    return trains[0]


def codes(x, y, classes):
    """Return the positions of the labels among the sorted ``classes``, one for each row of x."""
    y = column_or_1d(y)
    check_consistent_length(x, y)
    if len(y) == 0:
        raise ValueError("X and y have 0 samples; at least one is needed.")
    unknown = np.setdiff1d(y, classes)
    if len(unknown):
        raise ValueError(
            "y has labels outside the model's classes. Leave out these rows, or fit with classes= "
            "that has them."
        )
    return np.searchsorted(classes, y)
