"""How many plain numbers the parameters and public facts of estimators may be, and which."""

import re

_WHOLE, _SHARES, _POSITIVE, _ANY = "whole", "shares", "positive", "any"
_PARAMETERS = {  # attribute: most numbers, of which kind; the columns of a table come on top
    r"hidden_layer_sizes|group_col|_group_positions|in_shape": (16, _WHOLE),
    r"(optimizer|module)_params|best_params_|(inv_)?kw_args|params|module|method|degree": (
        16,
        _ANY,
    ),
    r"class_weight|alphas|Cs|l1_ratios|priors|weights|transformer_weights": (64, _ANY),
    r"feature_range|quantile_range": (2, _ANY),
    r"categories": (256, _ANY),
    r"noise_multipliers": (8, _POSITIVE),
    r"group_rates|group_probabilities": (256, _SHARES),
    r"group_(?!rates|probabilities)\w+": (256, _POSITIVE),
    r"_last|privacy_statement": (300, _ANY),
    r"assumptions|not_accounted|metadata|signature|callbacks": (0, _ANY),
    r"_sklearn_output_config|_output_config|_infrequent_indices|drop_idx_": (16, _WHOLE),
    r"_drop_idx_after_grouping|n_outputs_|n_classes_|sparse_output_": (16, _WHOLE),
}
_COLUMNS = re.compile(
    r"transformers|_columns|columns|steps|_transformer_to_input_indices|output_indices_|"
    r"_n_features_outs"
)
_TESTS = {
    _WHOLE: lambda v: isinstance(v, int) and v >= -1000,
    _SHARES: lambda v: 0 <= v <= 1,
    _POSITIVE: lambda v: v >= 0,
    _ANY: lambda v: True,
}


def allows(name, leaves, n_features) -> bool:
    """Tell whether plain values may be what a parameter of that name holds.

    Parameters
    ----------
    name : str
    leaves : list
        The plain values in it.
    n_features : int or None
        Columns of the table that the estimator has seen.
    """
    numbers = [v for v in leaves if isinstance(v, (int, float)) and not isinstance(v, bool)]
    if _numbers_in_texts(leaves) > 16:
        return False
    if name in ("classes", "groups"):
        return _are_levels(leaves, numbers)
    if _COLUMNS.fullmatch(name):
        most = 4 * n_features if isinstance(n_features, int) else 64
        return len(numbers) <= max(16, most) and all(map(_TESTS[_WHOLE], numbers))
    for pattern, (most, kind) in _PARAMETERS.items():
        if re.fullmatch(pattern, name):
            return len(numbers) <= most and all(map(_TESTS[kind], numbers))
    return False


def are_dense(numbers) -> bool:
    """Tell whether different numbers are few, or whole and close to each other, as codes are."""
    if len(numbers) <= 16:
        return True
    whole = all(isinstance(v, int) or v == int(v) for v in numbers)
    return whole and max(numbers) - min(numbers) <= 4 * len(numbers)


def _are_levels(leaves, numbers):
    distinct = len({repr(leaf) for leaf in leaves})
    return len(leaves) <= 1000 and are_dense(numbers) and len(leaves) <= max(32, 4 * distinct)


def _numbers_in_texts(leaves):
    """Count texts that are decimal numbers, or hold several."""
    decimals = (len(re.findall(r"\d\.\d", v)) for v in leaves if isinstance(v, str))
    alone = sum(
        bool(re.fullmatch(r"[-+]?\d+\.\d+(e[-+]?\d+)?", v)) for v in leaves if isinstance(v, str)
    )
    return alone + sum(n for n in decimals if n > 2)
