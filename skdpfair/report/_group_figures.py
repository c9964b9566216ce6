"""Measures of test records by group, as the rows of a page, card or checklist; NOT private."""

from typing import Any

import numpy as np

from skdpfair._utils import group_names as _names
from skdpfair._utils.validate import safe_repr
from skdpfair.inputs import groups as _groups
from skdpfair.inputs import target
from skdpfair.inputs.columns import check_indexes
from skdpfair.metrics import _measures as measuring
from skdpfair.metrics._arguments import check_kind
from skdpfair.metrics._intervals import of_share, wilson
from skdpfair.report import _charts as charts
from skdpfair.report import _rendering as rendering
from skdpfair.report._model_facts import variables
from skdpfair.report._recommendation import FEW, FEW_OF_RAREST
from skdpfair.report._rendering import error_in_words, in_words, points, written
from skdpfair.report._same_table import check_same, table_of

_ALL = "all"  # the row of all records, beside those of the groups
_ERRORS = ("false_positive_rate", "false_negative_rate")


def class_names(classifier):
    """Return the names of the classes, the positive one of two last."""
    classes = classifier.classes_[target.order_of(classifier)]
    return _names.class_names(classes, variables(classifier)[0])


def measured(model, classifier, X, y, sensitive_features, measures):
    """Return a table for all records and for each group, and the names of its measures.

    The columns are ``n``, the simple measures and, for each class, ``predicted[class]``, its share
    of the predictions. Without records, the table is None.
    """
    if X is None:
        if measures is not None:
            raise ValueError(
                f"measures={safe_repr(measures)} need test records, but X is None. Pass X and y; "
                "the table that they give is not private."
            )
        return None, []
    if y is None:
        raise ValueError("y must be given with X: a group table needs labels of test records.")
    check_indexes(X=X, y=y, sensitive_features=sensitive_features)
    by = classifier.group_col if sensitive_features is None else None
    own = variables(classifier)
    of_test = _groups.variables_of(y, X, by, sensitive_features)
    check_same("X, y", table_of(own), table_of(of_test))
    groups = {"sensitive_features": sensitive_features} if hasattr(model, "thresholds_") else {}
    y, predicted = target.read_labels(y), model.predict(X, **groups)
    check_kind("y", y, predicted, like="the fit")
    code, levels = None, []
    if sensitive_features is not None or _groups.as_columns(classifier.group_col):
        encoded = _groups.encode(
            X,
            y,
            group_col=by,
            levels=None if classifier.levels_ is None else list(classifier.levels_),
            sensitive_features=sensitive_features,
            max_levels=_groups.MAX_GROUPS,
        )
        assert encoded.levels is not None
        by_name = of_test[1:] if any(of_test[1:]) else own[1:]
        levels = _names.escape_reserved(_names.display_names(encoded.levels, by_name), [_ALL])
        code = encoded.code
    order = target.order_of(classifier)
    classes, likely = classifier.classes_[order], model.predict_proba(X)[:, order]
    n_classes, codes = len(classes), target.positions(classes, y)
    table = measuring.values_by_group(
        y, predicted, likely, classes=classes, code=code, levels=levels
    ).set_axis([_ALL, *levels])
    known = codes[codes >= 0]
    table.attrs["rarest"] = measuring.rarest_class(known, n_classes)
    table.attrs["constant"] = np.bincount(known).max() / len(codes)
    leading = measuring.leading_measures(table["rarest_class_share"].iloc[0], n_classes)
    names = measuring.chosen_measures(
        measures, measuring.simple_measures(n_classes), [*leading, "accuracy", *_ERRORS]
    )
    parts = [np.full(len(y), True), *(code == i for i in range(len(levels)))]
    for label, name in zip(classes, class_names(classifier), strict=True):
        hits = [predicted[rows] == label for rows in parts]
        table[f"predicted[{name}]"] = [h.mean() if len(h) else np.nan for h in hits]
    return table, names


def figures_of(classifier, table, names, judged_by="accuracy"):
    """Return what a page shows of test records.

    The model is judged by accuracy or balanced accuracy, and groups are compared by the recall of a
    rare class, else by accuracy.
    """
    classes, rare = class_names(classifier), _rare(class_names(classifier), table)
    n = table["n"].iloc[1:]
    is_few = n < FEW
    if rare is not None:
        is_few |= (n * table["rarest_class_share"].iloc[1:]).round() < FEW_OF_RAREST
    few = n.index[is_few].tolist()
    compared = "accuracy" if rare is None else "rarest_class_recall"
    judged = differences(table.drop(index=few), [compared], classes)
    return {
        "groups": _cells(table, names),
        "measures": [_head(name, classes) for name in names],
        "rare": rare,
        "verdict": _verdict(table, judged_by, len(classes)) | {"few": "; ".join(few), "least": FEW},
        "classes": classes,
        "differences": differences(table, names, classes),
        "worse": next((row for row in judged if row["value"] != rendering.NOT_COMPARED), None),
        "group_chart": _chart(table, compared, few, rare),
    }


def _verdict(table, measure, n_classes):
    """Return a score beside that of predicting one class, and whether it is measurably better."""
    n, score = int(table["n"].iloc[0]), table[measure].iloc[0]
    if measure == "accuracy":
        (low, high), least = wilson(score, n), table.attrs["constant"]
    else:  # the mean of K shares, of which each is of as many records as the rarest class has
        n_rarest = max(1.0, n * table["rarest_class_share"].iloc[0])
        # 1.96 standard errors of a share, which are largest where it is one half
        reach, least = 0.98 / np.sqrt(n_classes * n_rarest), 1 / n_classes
        low, high = max(0.0, score - reach), min(1.0, score + reach)
    return {
        "n": f"{n:,}",
        "measure": in_words(measure),
        "score": points(score),
        "interval": f"{points(low)} to {points(high)}",
        "least_score": points(least),
        "is_better": low > least,
    }


def _chart(table, measure, few, rare):
    """Return a chart of a measure by group, None without two groups that have a value."""
    by_group = table.iloc[1:][table[measure].iloc[1:].notna()]
    if len(by_group) < 2:
        return None
    bars = {}
    for group, row in by_group.iterrows():
        low, high = of_share(row, measure, table.attrs["rarest"])
        bars[f"{group} (n = {int(row['n']):,})"] = 100 * row[measure], 100 * low, 100 * high
    small = [name for name in bars if name.rpartition(" (n =")[0] in few]
    title = "How often the model is right, by group"
    if rare is not None:
        title = f"How often the model recognises {rare['label']}, by group"
    return charts.bars({"": bars}, title=title, label="%", unit="%", small=small)


def markdown_table(classifier, table, names):
    """Return the group table of a page as rows of texts for Markdown, the head first."""
    classes = class_names(classifier)
    heads = ["group", "n", *(_head(name, classes) for name in names)]
    heads += [f"predicted {label}" for label in classes]
    rows = [
        [group, n, *(f"{v} ({i})" if i else v for v, i in values), *predicted_fractions]
        for group, n, values, predicted_fractions in _cells(table, names)
    ]
    return rendering.markdown_rows(heads, rows)


def _rare(classes, table):
    share, recall = table["rarest_class_share"].iloc[0], table["rarest_class_recall"]
    if len(measuring.leading_measures(share, len(classes))) == 1:
        return None
    by_group = recall[1:].dropna()
    return {
        "label": classes[table.attrs["rarest"]],
        "share": points(share),
        "recall": points(recall.iloc[0]),
        "group": None if by_group.empty else by_group.idxmin(),
        "least": None if by_group.empty else points(by_group.min()),
    }


def differences(table, names, classes):
    """Return the largest difference between two groups in each measure, as texts by name.

    ``higher`` and ``lower`` are the two groups, and ``records`` says how many of each, of the class
    that the measure is about.
    """
    rows = []
    for name in names:
        values, what = table[name].to_numpy()[1:], error_in_words(name, classes)
        known, what = values[np.isfinite(values)], what or in_words(name, classes)
        row: dict[str, Any] = dict.fromkeys(("unit", "higher", "lower", "records", "interval"), "")
        row |= {"name": name, "measure": what, "may_be_chance": False}
        if len(known) < 2:
            rows += [row | {"value": rendering.NOT_COMPARED}] * (len(values) > 1)
            continue
        column = f"{name}_difference"
        high, low = (table.iloc[1 + at(values)] for at in (np.nanargmax, np.nanargmin))
        level = measuring.level_of(column, len(known))
        pair, interval = _compared(high, low, name, table.attrs["rarest"], classes, level)
        unit = measuring.described(column)[1].replace("percentage points", "points")
        size: dict[str, Any] = {"value": written(high[name] - low[name], name), "unit": unit}
        size |= {"ends": (written(low[name], name), written(high[name], name))}
        rows.append(row | pair | interval | size)
        if name in measuring.RATIOS:
            of_two = {"name": f"{name}_ratio", "measure": f"{what}, smallest over largest"}
            ratio = low[name] / high[name] if high[name] > 0 else np.nan
            of_two |= {"value": written(ratio, f"{name}_ratio"), "unit": "%"}
            rows.append(row | pair | of_two)
    return rows


def _compared(high, low, name, rarest, classes, level):
    """Return two groups, and Newcombe's interval of the difference of two shares of records."""
    rows, trials = (high, low), measuring.MEASURES[name].trials
    n = [measuring.n_trials(name, int(r["n"]), r["rarest_class_share"], rarest) for r in rows]
    sizes = n if all(n) else [int(r["n"]) for r in rows]
    records = " and ".join(f"{size:,}" for size in sizes)
    if trials not in ("all", None):
        records += f" of {classes[rarest if trials == 'rarest' else trials]}"
    pair = {"higher": high.name, "lower": low.name, "records": records}
    pair = {} if high[name] == low[name] else pair
    if not all(n):
        return pair, {}
    (l1, u1), (l2, u2) = (wilson(r[name], k, level) for r, k in zip(rows, n, strict=True))
    gap = high[name] - low[name]
    lower = gap - np.hypot(high[name] - l1, u2 - low[name])
    upper = gap + np.hypot(u1 - high[name], low[name] - l2)
    return pair, {"interval": f"{points(lower)} to {points(upper)}", "may_be_chance": lower <= 0}


def _head(name, classes):
    title, unit, _ = measuring.described(name, classes)
    title = error_in_words(name, classes) or title
    return title if unit == "%" else f"{title}, {unit}"


def _interval(row, name, rarest):
    """Return Wilson's interval of a measure in per cent, "" if it is no share of some records."""
    low, high = of_share(row, name, rarest)
    return "" if np.isnan(low) else f"{points(low)} to {points(high)}"


def _cells(table, names):
    rows = []
    for group, row in table.iterrows():
        values = [(written(row[m], m), _interval(row, m, table.attrs["rarest"])) for m in names]
        predicted_fractions = [points(v) for k, v in row.items() if k.startswith("predicted[")]
        rows.append((group, f"{int(row['n']):,}", values, predicted_fractions))
    return rows
