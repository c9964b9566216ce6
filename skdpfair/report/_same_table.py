"""What is known of the table behind a model, a sweep and test records, which must agree."""

from skdpfair._utils.group_names import group_names
from skdpfair._utils.validate import safe_repr


def table_of(
    variables, *, classes=(), groups=(), protects="", n_examples=None, schema=None, n_features=None
):
    """Return facts on a table by name, empty if not known; ``variables`` are target and groups."""
    target, *by = variables
    classes, groups = (
        sorted(n.replace("'", "") for n in group_names(v)) for v in (classes, groups)
    )
    has_columns = schema is not None and schema.has_features
    return {
        "target": target,
        "group columns": by if all(by) else [],
        "classes": classes,
        "groups": groups,
        "protects": protects,
        "number of examples": n_examples,
        "columns": sorted({*schema.bounds, *schema.categories}) if has_columns else [],
        # of encoded ones, it depends on the budget
        "number of features": None if has_columns else n_features,
    }


def table_of_sweep(results):
    spec = results.spec
    return table_of(
        results.variables,
        classes=spec.classes,
        groups=spec.groups,
        protects=spec.protects if spec.is_known else "",
        n_examples=spec.n_examples,
        schema=results.schema,
        n_features=spec.n_features,
    )


def check_same(name, own, other):
    """Raise ValueError if what is known of the table of ``name`` is not true of a model's own."""
    differences = [
        f"{what} {safe_repr(other[what])}, of the model {safe_repr(fact)}"
        for what, fact in own.items()
        if fact and other[what] and fact != other[what]
    ]
    if differences:
        raise ValueError(
            f"{name} must belong to the table of the model, but is of another: "
            f"{'; '.join(differences)}. Pass what belongs to the model, or leave it out."
        )
