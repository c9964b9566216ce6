"""Table of the methods: their papers, their releases, and the sensitivities that steps use."""

import inspect
import math
import re

import pandas as pd
import torch

from skdpfair.engine.mechanism import METHODS, Method, PerSampleGradients, Task

GRADIENT = "gradient sum"


def sensitivities(method: Method, task: Task, n_classes: int = 2) -> dict[str, float | None]:
    """Return the L2 sensitivity of each release of a step, by name; the gradient sum is first.

    The step scales its noise by these numbers: the bound of ``clip`` and that of each query.
    None stands for a bound that changes with released values.

    Examples
    --------
    >>> from skdpfair import get_method
    >>> task = Task(n_samples=1000, n_groups=2, sample_rate=0.1)
    >>> sensitivities(get_method("global_adapt", max_grad_norm=0.5), task)
    {'gradient sum': 0.5, 'above_z': 1.0}
    """
    of_steps = set(_bounds(method, task, n_classes))
    bounds = {GRADIENT: of_steps.pop() if len(of_steps) == 1 else None}
    return bounds | {query.name: query.sensitivity for query in method.queries(task, 1.0)}


def methods_table() -> pd.DataFrame:
    """Return a description of each method, one row per method.

    Returns
    -------
    DataFrame
        Index: name.  Columns, all of text: paper, private, needs groups; releases per step, with
        the length of each, where K is the number of groups and d that of the parameters;
        sensitivity, in the same order, where C is ``max_grad_norm``.

    Notes
    -----
    Releases and sensitivities are those of steps that are taken on made-up records.

    Examples
    --------
    >>> table = methods_table()
    >>> table.loc["dpsgd_f", ["paper", "private", "releases per step"]].to_list()
    ['Xu 2021', 'yes', 'gradient sum; counts (2K)']
    >>> table.loc["dpsgd_f", "sensitivity"]
    'C times released factors; 1'
    """
    rows = {name: _row(method) for name, method in sorted(METHODS.items())}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("name")


def references(cls: type[Method]) -> str:
    """Return the References section of a class's docstring on one line, "" if it has none."""
    _, _, text = inspect.cleandoc(cls.__doc__ or "").partition("References\n----------\n")
    return " ".join(text.partition("\n\n")[0].split())


def paper(cls: type[Method]) -> str:
    """Return first author and year of the bibliography's key, or of the docstring's References.

    Examples
    --------
    >>> paper(METHODS["dpsgd"])
    'Abadi 2016'
    """
    key = re.match(r"([a-z]+)(\d{4})", cls.reference)
    if key:
        return f"{key[1].title()} {key[2]}"
    entry = references(cls).partition(";")[0]
    years = re.findall(r"\b(?:19|20)\d\d\b(?!\.\d)", entry)  # and no number of arXiv
    return f"{re.findall(r'[^ ,]+', entry)[0]} {years[-1]}" if years else entry


def _row(method: type[Method]) -> dict[str, str]:
    releases = _releases(method)
    return {
        "paper": paper(method),
        "private": "yes" if method.private else "no",
        "needs groups": "yes" if method.needs_groups else "no",
        "releases per step": "; ".join(releases),
        "sensitivity": "; ".join(releases.values()),
    }


def _releases(cls: type[Method]) -> dict[str, str]:
    """Return the sensitivity of each release in words, by the release in words."""
    by_bound = [cls()] * 2
    if "max_grad_norm" in cls().get_params():
        by_bound = [cls(max_grad_norm=c) for c in (1.0, 2.0)]
    by_release = [sensitivities(method, _task(2)) for method in by_bound]
    words = {name: _in_words(*(f[name] for f in by_release)) for name in by_release[0]}
    if by_release[0][GRADIENT] is None:
        pairs = zip(*(_bounds(method, _task(2)) for method in by_bound), strict=True)
        scales = by_bound[0] is not by_bound[1] and all(math.isclose(b, 2 * a) for a, b in pairs)
        words[GRADIENT] = "C times released factors" if scales else "released"
    for name, length in _lengths(cls).items():
        words[f"{name} ({length})"] = words.pop(name)
    if cls.private and cls.needs_group_fractions:
        words["once: group counts (K)"] = "1"
    return words


def _lengths(cls: type[Method]) -> dict[str, str]:
    """Return the length of each query's rows in words, by the query's name."""
    method, n_groups = cls(), 2 if cls.binary else 3
    lengths = {}
    for query, rows, by_group, by_parameter in zip(
        method.queries(_task(2), 1.0),
        _widths(method, 2, 3),
        _widths(method, n_groups, 3),
        _widths(method, 2, 4),
        strict=True,
    ):
        k, d = by_group - rows, by_parameter - rows
        terms = (f"{rows - 2 * k - 3 * d}", f"{k}K".removeprefix("1"), f"{d}d".removeprefix("1"))
        lengths[query.name] = " + ".join(term for term in terms if term[0] != "0")
    return lengths


def _in_words(at_one: float | None, at_two: float | None) -> str:
    """Return a sensitivity in words, from its values where C is 1 and 2."""
    if at_one is None or math.isinf(at_one):
        return "unbounded"
    if at_two == 2 * at_one:
        return "C" if at_one == 1 else f"{at_one:.4g} C"
    return f"{at_one:.4g}"


def _task(n_groups: int) -> Task:
    fractions = torch.full((n_groups,), 1 / n_groups, dtype=torch.float64)
    return Task(1000, n_groups, 0.1, fractions)


def _example_gradients(
    n_groups: int, n_parameters: int = 3, n_classes: int = 2
) -> PerSampleGradients:
    """Return four records of several norms, which belong to the groups in turn."""
    norm = torch.tensor([0.5, 1.0, 2.0, 5.0])
    group = torch.arange(len(norm)) % n_groups
    probability = torch.full((len(norm), n_classes), 1 / n_classes)
    direction = torch.full((1, n_parameters), n_parameters**-0.5)
    return PerSampleGradients(norm, norm, group, probability, norm[:, None] * direction)


def _widths(method: Method, n_groups: int, n_parameters: int) -> list[int]:
    task, sample = _task(n_groups), _example_gradients(n_groups, n_parameters)
    state = method.start(task)
    return [query.matrix(sample, state).shape[1] for query in method.queries(task, 1.0)]


def _bounds(method: Method, task: Task, n_classes: int = 2) -> list[float]:
    """Return the bound that ``clip`` declares in three steps with made-up releases."""
    sample = _example_gradients(task.n_groups, n_classes=n_classes)
    state, queries = method.start(task), method.queries(task, 1.0)
    bounds = []
    for low, high in ((1.0, 9.0), (5.0, 2.0), (30.0, 300.0)):
        release = {
            query.name: torch.linspace(low, high, query.matrix(sample, state).shape[1])
            for query in queries
        }
        bounds.append(float(method.clip(sample, state, release).bound))
        state = method.update(state, release | {"gradient": torch.ones(3)})
    return bounds
