"""Copies and files of fitted estimators: weights and public facts only."""

import tomllib
from importlib import import_module

from sklearn.base import is_regressor
from sklearn.utils.validation import check_is_fitted
from torch import nn

from skdpfair._utils.group_names import MAX_NAME
from skdpfair._utils.validate import error_context, is_integer, one_of, safe_repr
from skdpfair.preprocessing import TableSchema
from skdpfair.preprocessing._schema import with_features
from skdpfair.release import _file
from skdpfair.release._closed_list import unlisted
from skdpfair.release._facts import check_loaded, factory_of, rebuilt, record_shape, release_facts
from skdpfair.release._read_statement import CLASSIFIER, REGRESSOR


def release(estimator):
    """Return a copy of a fitted estimator that holds weights and public facts only."""
    check_is_fitted(estimator, "net_")
    facts, weights = release_facts(estimator)
    return rebuilt(type(estimator), facts, weights, _if_custom(facts, estimator.net_.module))


def save_release(estimator, path, schema=None) -> None:
    """Write a fitted estimator to one safetensors file; the same one gives the same bytes."""
    check_is_fitted(estimator, "net_")
    schema = _checked(schema, estimator)
    facts, weights = release_facts(estimator)
    facts["skdpfair_version"] = _package().__version__
    text = facts["fitted"].pop("_schema", None)
    if schema is not None:
        # keeps the order, which is that of the features
        text = schema.to_toml()
        facts["fitted"]["_variables"] = _file.encode((schema.target, *schema.all_groups))
    if text is not None:
        facts["schema"] = text
    copy = rebuilt(type(estimator), facts, weights, _if_custom(facts, estimator.net_.module))
    check_loaded(copy, facts)
    if wrong := unlisted(copy, facts):
        raise ValueError(
            f"{safe_repr(wrong)} of this fit hold values that verify_release would refuse, as they "
            f"may be records, so that nothing was written to {path}. Columns, groups and classes "
            f"must be texts of at most {MAX_NAME} characters, no decimals, or whole numbers."
        )
    _file.write(path, facts, weights)


def schema_in(facts, path):
    if facts.get("schema") is None:
        return None
    with error_context(str(path), "holds a schema that cannot be used"):
        schema = tomllib.loads(facts["schema"])
        n_intervals, n_features = schema.get("n_intervals"), facts["fitted"]["n_features_in_"]
        if is_integer(n_intervals) and n_intervals * len(schema.get("bounds", ())) > n_features:
            raise ValueError(f"n_intervals={n_intervals} makes more than {n_features} features")
        return TableSchema.from_dict(schema)


def load_release(path, *, module=None):
    """Read a file written by ``save_release``.

    Parameters
    ----------
    path : str or Path
        The file.  Only data is read from it; no code that it names is imported.
    module : torch.nn.Module class or factory, optional
        The class of a custom network; it is called with the arguments in the file.

    Returns
    -------
    DPFairClassifier or DPFairRegressor
        The fitted estimator; on the same machine its predictions equal those of the saved one.  If
        the file holds a schema, the estimator also predicts tables with the columns of the schema:
        it ignores other columns, and unlisted categories become zeros, as in ``skdpfair predict``.
        It still predicts encoded records.  Its attribute ``schema_`` is this `TableSchema`, None
        without one.

    Raises
    ------
    ValueError
        If the file is not a release, is damaged, contradicts itself (epsilon is computed again from
        its releases), has a newer format or needs another ``module``.
    TypeError
        If ``module`` is an instance.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from skdpfair import DPFairClassifier, load_release
    >>> from skdpfair.datasets import make_two_groups
    >>> data = make_two_groups(2000, random_state=0)
    >>> clf = DPFairClassifier("dpsgd", epsilon=3.0, max_steps=20).fit(data.data, data.target)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     clf.save_release(Path(folder) / "model.safetensors")
    ...     loaded = load_release(Path(folder) / "model.safetensors")
    >>> bool((loaded.predict_proba(data.data) == clf.predict_proba(data.data)).all())
    True
    >>> loaded.privacy_ == clf.privacy_
    True
    """
    return loaded(path, module)[0]


def loaded(path, module=None):
    """Return the estimator that a release file holds, and the content of the file."""
    content = _file.opened(path)
    facts, weights = content[:2]
    if isinstance(module, nn.Module):
        raise TypeError(f"module must be a class or a factory, got {type(module).__name__}().")
    _check_module(path, facts.get("module"), module)
    try:
        factory = None if module is None else factory_of(facts["module"], module)
        name = one_of("estimator", facts.get("estimator", CLASSIFIER), (CLASSIFIER, REGRESSOR))
        estimator = rebuilt(getattr(_package(), name), facts, weights, factory)
        check_loaded(estimator, facts)
        if (schema := schema_in(facts, path)) is not None:
            estimator._schema = _checked(schema, estimator).to_toml()
        return estimator, content
    except Exception as error:
        # facts may be anything, and so may a module
        raise ValueError(
            f"{path} cannot be loaded: {type(error).__name__}: {str(error)[:300]}"
            + ("" if module is None else f" (is module={module!r} the network that was saved?)")
        ) from error


def _checked(schema, estimator):
    """Return a schema that makes the features of a fit, else raise."""
    if schema is None:
        return None
    if not isinstance(schema, TableSchema):
        raise TypeError(f"schema must be a TableSchema or None, got {safe_repr(schema)}.")
    if is_regressor(estimator):
        raise ValueError(
            "schema must be None for a regressor: a TableSchema describes classes. Save it by "
            "schema.to_toml()."
        )
    if not schema.has_features and len(record_shape(estimator)) > 1:
        return schema  # of the labels of pictures
    schema = with_features(schema, estimator.n_features_in_)
    names = schema.feature_names
    fitted = list(getattr(estimator, "feature_names_in_", names))
    if fitted != names or estimator.n_features_in_ != len(names):
        raise ValueError(
            f"schema gives the features {safe_repr(names)}, but the classifier was fitted on "
            f"{estimator.n_features_in_} others. Fit on schema.split(table)[0]."
        )
    return schema


def _if_custom(facts, factory):
    return factory if facts["module"]["name"] is None else None


def _check_module(path, needed, module):
    if not isinstance(needed, dict):
        raise ValueError(f"{path} is not a release: it does not name its module.")
    if needed.get("name") is not None and module is not None:
        raise ValueError(
            f"module must be None for {path}, which holds the built-in module "
            f"{needed['name']!r}. Leave module out."
        )
    if needed.get("name") is None and module is None:
        label, left_out = str(needed.get("custom"))[:80], needed.get("left_out")
        bound = f", with {left_out} bound by functools.partial" if left_out else ""
        raise ValueError(
            f"{path} holds the weights of the custom module {label!r}, but not its code. "
            f"Pass the class: load_release(path, module={label}){bound}."
        )


def _package():
    return import_module("skdpfair")  # by name, since it imports this module
