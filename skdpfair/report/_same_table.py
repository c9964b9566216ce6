"""What is known of the table behind a model, a sweep and test records, which must agree."""

from dataclasses import asdict, dataclass

from skdpfair._validate import safe_repr
from skdpfair.inputs.groups import group_names


@dataclass(frozen=True)
class Table:
    """Public facts on a table; what is empty is not known."""

    target: str = ""
    group_columns: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    unit: str = ""
    number_of_units: int | None = None
    columns: tuple[str, ...] = ()
    number_of_features: int | None = None


def table_of(variables, *, classes=None, groups=None, schema=None, **facts):
    """Return what is known of a table.

    ``variables`` are the names of the target and of the columns of the groups. A schema names the
    columns of features, whose number after the encoding depends on the budget.
    """
    target, *by = variables
    if schema is not None and schema.has_features:
        facts |= {"columns": (*sorted({*schema.bounds, *schema.categories}),)}
        facts.pop("number_of_features")
    levels, names = (
        tuple(sorted(name.strip("'") for name in group_names(() if part is None else part)))
        for part in (classes, groups)
    )
    return Table(target, tuple(by) if all(by) else (), levels, names, **facts)


def table_of_sweep(results):
    """Return what is known of the table of a sweep."""
    asked = results.asked or {}
    return table_of(
        results.variables,
        classes=asked.get("classes"),
        groups=asked.get("group names"),
        unit=asked.get("unit", "record" if asked else ""),
        number_of_units=asked.get("n_units", asked.get("n_samples")),
        schema=results.schema,
        number_of_features=asked.get("n_features"),
    )


def check_same(name, own, other):
    """Raise ValueError if what is known of the table of ``name`` is not true of a model's own."""
    sides = zip(asdict(own).items(), asdict(other).values(), strict=True)
    apart = [
        f"{what.replace('_', ' ')} {safe_repr(b)}, of the model {safe_repr(a)}"
        for (what, a), b in sides
        if a and b and a != b
    ]
    if apart:
        raise ValueError(
            f"{name} must belong to the table of the model, but is of another: {'; '.join(apart)}. "
            "Pass what belongs to the model, or leave it out."
        )
