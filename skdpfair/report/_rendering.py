"""Templates filled to pages without scripts or requests, and numbers as text."""

import re
import unicodedata
from copy import copy
from dataclasses import replace
from functools import cache
from html import escape

import numpy as np

from skdpfair._utils.cards import typeset
from skdpfair._utils.group_names import class_names, display_name
from skdpfair._utils.validate import safe_repr, visible
from skdpfair.metrics._measures import MEASURES, OVERALL, measure_of, of_positive
from skdpfair.preprocessing._linter import PipelineReport, lint_pipeline

MAX_BUDGETS = 6  # a sentence or the bars name no more
NOT_COMPARED = "not compared"  # a difference between groups of which fewer than two have a value
_NUMBERS = ["no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
_PART = re.compile(r"[^\s,;:()](?:[^,;:()\n]*[^\s,;:()])?")


def render(template, context) -> str:
    """Fill a page of ``templates/``; all text is escaped, and turns nothing around it."""
    return environment(of_pages=True).get_template(template).render(context)


@cache  # templates are compiled once, which takes as long as filling them
def environment(of_pages=False):
    """Return what fills the files of ``templates/``; its filters take None for the unknown."""
    try:
        import jinja2
    except ImportError as error:
        raise ImportError('reports need jinja2: pip install "skdpfair[report]".') from error
    pages = jinja2.Environment(
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=jinja2.PackageLoader("skdpfair.report"),
        autoescape=of_pages,
        finalize=_isolated_text if of_pages else None,
    )
    pages.filters |= {
        "verbatim": lambda text: jinja2.utils.markupsafe.escape(isolated(text)),
        "plain": plain,
        "sentence": _sentence,
        "points": points,
        "budget": budget,
        "as_model": lambda model: model[0] + f" at ε {model[1]:g}" * bool(np.isfinite(model[1])),
        "spanned": _spanned,
        "listed": lambda names, word="and": f" {word} ".join(
            [", ".join(names[:-1])] * (len(names) > 1) + [*names[-1:]]
        ),
        "counted": lambda n: _NUMBERS[n] if n < len(_NUMBERS) else f"{n:,}",
    }
    pages.tests["side_channel"] = lambda text: "float" in text or "noise generator" in text
    pages.globals["max_budgets"] = MAX_BUDGETS
    return pages


def _isolated_text(value):
    return isolated(typeset(value)) if type(value) is str else value


def sentences(names, facts) -> dict:
    paragraphs = environment().get_template("sentences.jinja").make_module(facts)
    return {name: " ".join(getattr(paragraphs, name)().split()) for name in names}


def _spanned(estimate, unit):
    """Return an estimate of shares with its interval."""
    least = max(estimate.low, 0.0) if unit == "%" else estimate.low  # NaN stays NaN
    mean, low, high = map(points, (estimate.mean, least, estimate.high))
    interval = "" if np.isnan(estimate.low) else f" (95 % interval {low} to {high})"
    if estimate.low <= -1 and estimate.high >= 1:
        interval = " (too few runs for an interval)"
    if low == high:
        n_runs = "both" if estimate.n_runs == 2 else f"all {estimate.n_runs}"
        interval = f" (the same in {n_runs} runs)"
    return f"{mean} {unit}{interval}"


def check_text(name, text):
    if text is not None and not isinstance(text, str):
        raise TypeError(f"{name} must be a text or None, got {safe_repr(text)}.")


def plain(cell):
    """Return a text that Markdown takes as it is; other cells stay."""
    return escape(isolated(cell)).replace("|", "&#124;") if isinstance(cell, str) else cell


def markdown_rows(heads, rows) -> list:
    return [[str(plain(cell)) for cell in row] for row in (heads, ["---"] * len(heads), *rows)]


def _sentence(texts):
    """Return a text or texts as one sentence, None without any."""
    text = texts if isinstance(texts, str) else "; ".join(filter(None, texts or ()))
    return f"{text[0].upper()}{text[1:]}." if text else None


def points(share) -> str:
    """Return a share in per cent, or a dash."""
    return "–" if np.isnan(share) else f"{round(100 * share, 1) + 0.0:.1f}"


def written(value, column) -> str:
    """Return a value of a measure in its unit; of none, a dash, or that groups are not compared."""
    if np.isnan(value) and column.endswith("_difference"):
        return NOT_COMPARED
    if MEASURES[measure_of(column)].unit == "%":
        return points(value)
    return "–" if np.isnan(value) else f"{round(value, 3) + 0.0:.3f}"


def with_interval(estimate, column) -> tuple[str, str]:
    """Return a mean and its interval as texts, "" without an interval."""
    text, low, high = (written(estimate[stat], column) for stat in ("mean", "low", "high"))
    if np.isnan(estimate["low"]):
        return text, ""
    return text, "in all runs" if low == high else f"{low} to {high}"


def in_words(column, classes=()) -> str:
    name = measure_of(column)
    title = MEASURES[name].title + of_positive(name, classes)
    return title if title[1].isupper() else title[0].lower() + title[1:]


def error_in_words(name, classes) -> str | None:
    """Return the error that a rate of two classes counts, in words; None for another measure."""
    rates = {"false_positive_rate": (0, 1), "false_negative_rate": (1, 0)}
    if name not in rates or len(classes) != 2:
        return None
    actual, predicted = (classes[i] for i in rates[name])
    return f"actual {actual} predicted as {predicted}"


def of_one_class(results) -> list:
    """Return the models that predicted one class only, in all of their runs."""
    overall, n_classes = results.frame[results.frame["group"] == OVERALL], results.n_classes
    if "balanced_accuracy" not in overall:
        return []
    best = overall.groupby(["method", "epsilon"], sort=False)["balanced_accuracy"].max()
    return list(best[best <= 1 / n_classes + 1e-9].index)


def with_readable_names(results):
    """Return the same results for readers: groups and classes have the names of their variables.

    Costs against a reference model that predicts one class only tell nothing, and are left out.
    """
    again, group, spec = copy(results), results.frame["group"], results.spec
    references = {name for name in results.frame["method"] if name.startswith("reference")}
    if references and references <= {name for name, _ in of_one_class(results)}:
        costs = [m for m in MEASURES if MEASURES[m].against == "reference" and m in results.frame]
        again.frame = results.frame.assign(**dict.fromkeys(costs, np.nan))
    target, *columns = results.variables
    levels = {g: g.split(", ") for g in group.unique() if g != OVERALL}
    if len(columns) == 1:
        levels = {g: [g] for g in levels}
    names = {g: display_name(parts, columns) for g, parts in levels.items()}
    if len({*names.values(), OVERALL}) > len(names):
        again.frame = again.frame.assign(group=group.replace(names))
    rarest = spec.rarest_class and class_names([spec.rarest_class], target)[0]
    again.spec = replace(spec, classes=class_names(spec.classes, target), rarest_class=rarest)
    return again


def budget(epsilon) -> str:
    """Return a budget in few digits, or "none"."""
    return f"{epsilon:g}" if np.isfinite(epsilon) else "none"


def isolated(text):
    r"""Return a text whose parts, such as names in a list, are each written in their own direction.

    What would turn the text after it is made visible; parts that run from right to left stand
    between characters that isolate them, which, unlike elements, titles and pictures take, too.
    """
    return _PART.sub(_isolated_part, visible(text))


def _isolated_part(match):
    turns = any(unicodedata.bidirectional(c) in ("R", "AL", "AN") for c in match[0])
    return f"\u2068{match[0]}\u2069" if turns else match[0]


def lint_report(pipeline):
    """Return the linter's report on a pipeline, or None without one."""
    is_report = pipeline is None or isinstance(pipeline, PipelineReport)
    return pipeline if is_report else lint_pipeline(pipeline)
