"""``skdpfair demo``: train on Adult with and without privacy, and compare the sexes."""

import json
from contextlib import suppress
from pathlib import Path

import click
import numpy as np
from rich.box import SIMPLE_HEAD
from rich.table import Table

import skdpfair
from skdpfair._validate import number
from skdpfair.cli._input import AS_JSON, AnyPath, Screen, check_outputs, echo
from skdpfair.datasets import ADULT_BOUNDS, ADULT_CATEGORIES, load_adult
from skdpfair.metrics import group_table
from skdpfair.preprocessing import check_pipeline, public_preprocessor

DEMO_METHODS = ("dpsgd", "global_adapt")
_MEASURES = ("balanced_accuracy", "rarest_class_recall", "accuracy", "privacy_cost")
_HEADINGS = {
    "balanced_accuracy": "acc.\nbalanced",
    "rarest_class_recall": "recall\n>50K",
    "accuracy": "acc.\nall",
    "epsilon": "epsilon",
}


@click.command()
@click.option("--epsilon", default=1.0, show_default=True, help="Privacy budget of each fit.")
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=None,
    help="Make noise reproducible: research only.",
)
@click.option(
    "--output",
    type=AnyPath(file_okay=False),
    default=Path("skdpfair-demo"),
    show_default=True,
    help="Folder for the table, the figure and the privacy statement.",
)
@AS_JSON
def demo(epsilon, seed, output, as_json):
    """Train on Adult with and without privacy, and compare the sexes."""
    console, made = Screen(quiet=as_json), not output.exists()
    try:
        number("epsilon", epsilon, low=0, low_open=True)
        output.mkdir(parents=True, exist_ok=True)
        check_outputs(output / "group_table.csv")
        display = _display()
        train, test = _adult(epsilon)
        console.print(
            f"Adult census data, official split: {len(train[1]):,} people to train on, "
            f"{len(test[1]):,} to test on. Task: income over $50K. Groups: sex. Features are "
            f"encoded by public bounds and categories: the linter finds no step that learns from "
            f"the people outside the budget.\n"
            f"Training a non-private reference model and {' and '.join(DEMO_METHODS)} at "
            f"epsilon = {epsilon:g}, all settings at their defaults ..."
        )
        models = _train(train, epsilon, seed)
        table = _compare(models, test)
    except (ValueError, OSError) as error:
        if made:
            with suppress(OSError):
                output.rmdir()
        raise click.ClickException(str(error)) from None
    _print(console, table, models)
    _write(table, models, output, display)
    if as_json:
        echo(table.rename_axis("method").reset_index().to_json(orient="records"))
    console.print(f"\nDone. Table, figure and the privacy statement are in {output}/")


def _display():
    try:
        import matplotlib
    except ImportError:
        raise click.ClickException(
            'The demo draws a figure: pip install "skdpfair[plot]".'
        ) from None
    matplotlib.use("Agg")
    from skdpfair.plotting import PrivacyCostDisplay

    return PrivacyCostDisplay


def _adult(epsilon):
    """Return features, labels and sexes for training and for testing."""
    features = public_preprocessor(ADULT_BOUNDS, ADULT_CATEGORIES, epsilon=epsilon)
    report = check_pipeline(features)
    if report.findings:  # they would tell of the people what no epsilon covers
        raise click.ClickException(str(report))
    parts = [load_adult(subset=subset) for subset in ("train", "test")]
    features.fit(parts[0].data)
    return [
        (features.transform(d.data), d.target.to_numpy(), d.sensitive_features["sex"].to_numpy())
        for d in parts
    ]


def _train(train, epsilon, seed):
    """Return the fitted models by name, the non-private reference first."""
    features, target, sex = train
    models = {}
    for name in DEMO_METHODS:
        models[name] = skdpfair.DPFairClassifier(
            name,
            epsilon=epsilon,
            classes=["<=50K", ">50K"],
            group_col=skdpfair.Groups(levels=["Female", "Male"]),
            keep_reference=not models,
            random_state=seed,
            verbose=1,
        ).fit(features, target, sensitive_features=sex)
    return {"reference": models[DEMO_METHODS[0]].reference_, **models}


def _compare(models, test):
    features, target, sex = test
    predictions = {name: model.predict(features) for name, model in models.items()}
    reference = next(iter(models))
    table = group_table(
        target, predictions, reference=reference, sensitive_features=sex, measures=_MEASURES
    )
    table["epsilon"] = [model.privacy_.epsilon for model in models.values()]
    return table


def _print(console, table, models):
    title = "Measures in %, and the accuracy that privacy costs, in points"
    shown = Table(title=title, box=SIMPLE_HEAD, collapse_padding=True, title_justify="left")
    shown.add_column("method", no_wrap=True)
    columns = [c for c in table if c in _HEADINGS or c.startswith(("accuracy[", "privacy_cost["))]
    for column in columns:
        shown.add_column(_heading(column), justify="right", no_wrap=True)
    for name, row in table[columns].iterrows():
        shown.add_row(name, *(_cell(c, v) for c, v in row.items()))
    console.print(shown)
    report = models[DEMO_METHODS[-1]].privacy_
    console.print(f"{DEMO_METHODS[-1]}: {report.statement}", highlight=False)
    console.print("Not covered by epsilon:")
    for item in report.not_accounted:
        console.print(f"  - {item}", highlight=False)
    console.print("The reference is the same model trained by plain SGD: no clipping, no noise.")
    console.print(
        "The table itself is NOT private: it was computed on real people without noise, "
        "and the reference has no privacy at all.",
        style="bold",
    )


def _heading(column):
    measure, _, group = column.partition("[")
    short = {"accuracy": "acc.", "privacy_cost": "cost"}
    return f"{short[measure]}\n{group.rstrip(']')}" if group else _HEADINGS[column]


def _cell(column, value):
    if column == "epsilon":
        return "none" if np.isinf(value) else f"{value:.2f}"
    return f"{100 * value:.1f}" if "cost" not in column else f"{100 * value:+.1f}"


def _write(table, models, output, display):
    table.to_csv(output / "group_table.csv", index_label="method", float_format="%.6f")
    figure = display(table).plot().figure_
    figure.savefig(output / "privacy_cost_by_group.png", dpi=150, bbox_inches="tight")
    statements = {name: model.privacy_statement() for name, model in models.items()}
    (output / "privacy.json").write_text(json.dumps(statements, indent=2) + "\n")
