"""``skdpfair demo``: train on Adult with and without privacy, and compare the sexes."""

import json
from pathlib import Path

import click

import skdpfair
from skdpfair.cli._input import (
    AS_JSON,
    POSITIVE,
    SEED,
    check_outputs,
    echo,
    in_options,
    output_option,
    wrapped,
)

DEMO_METHODS = ("dpsgd", "global_adapt")
_MEASURES = ("balanced_accuracy", "rarest_class_recall", "accuracy", "privacy_cost")
_BY_GROUP = [f"{name}[{sex}]" for name in _MEASURES[2:] for sex in ("Female", "Male")]


@click.command()
@click.option(
    "--epsilon",
    type=POSITIVE,
    default=1.0,
    show_default=True,
    help="Privacy budget of each fit.",
)
@SEED
@output_option(
    Path("skdpfair-demo"), "Folder for table, figure and privacy statement.", file_okay=False
)
@AS_JSON
def demo(epsilon, seed, output, as_json):
    """Train on Adult with and without privacy, and compare the sexes."""
    with in_options():
        import matplotlib  # before minutes of training

        matplotlib.use("Agg")
        train, test = _adult(epsilon)
        models = _models(epsilon, seed, len(train[1]))
        output.mkdir(parents=True, exist_ok=True)
        check_outputs(output / "group_table.csv")
        if not as_json:
            echo(
                wrapped(
                    f"Adult census data, official split: {len(train[1]):,} people to train on, "
                    f"{len(test[1]):,} to test on. Task: income over $50K. Groups: sex. Features "
                    "are encoded by public bounds and categories: the linter finds no step that "
                    "learns from the people outside the budget. Training a non-private reference "
                    f"model and {' and '.join(DEMO_METHODS)} at epsilon = {epsilon:g}, all "
                    "settings at their defaults ..."
                )
            )
        features, target, sex = train
        for model in models.values():
            model.fit(features, target, sensitive_features=sex)
        models = {"reference": models[DEMO_METHODS[0]].reference_, **models}
        table = _compare(models, test)
    _write(table, models, output)
    if as_json:
        return echo(table.rename_axis("method").reset_index().to_json(orient="records"))
    _print(table, models)
    echo(f"\nDone. Table, figure and the privacy statement are in {output}/")


def _adult(epsilon):
    """Return features, labels and sexes for training and for testing."""
    from skdpfair.datasets import load_adult, public_facts
    from skdpfair.preprocessing import lint_pipeline, public_preprocessor

    features = public_preprocessor(**public_facts("adult"), epsilon=epsilon)
    report = lint_pipeline(features)
    # they would tell of the people what no epsilon covers
    if report.findings:
        raise ValueError(str(report))
    parts = [load_adult(subset=subset) for subset in ("train", "test")]
    features.fit(parts[0].data)
    return [
        (features.transform(d.data), d.target.to_numpy(), d.sensitive_features["sex"].to_numpy())
        for d in parts
    ]


def _models(epsilon, seed, n_samples):
    """Return the unfitted models by name, whose budget so many records allow."""
    from skdpfair.training import plan

    models = {
        name: skdpfair.DPFairClassifier(
            name,
            epsilon=epsilon,
            classes=["<=50K", ">50K"],
            group_col=skdpfair.Groups(levels=["Female", "Male"]),
            keep_reference=name == DEMO_METHODS[0],
            random_state=seed,
            verbose=1,
        )
        for name in DEMO_METHODS
    }
    for model in models.values():
        plan.check(model, n_samples, 2)
    return models


def _compare(models, test):
    from skdpfair.metrics import group_table

    features, target, sex = test
    predictions = {name: model.predict(features) for name, model in models.items()}
    reference = next(iter(models))
    table = group_table(
        target, predictions, reference=reference, sensitive_features=sex, measures=_MEASURES
    )
    table["epsilon"] = [model.privacy_.epsilon for model in models.values()]
    return table


def _print(table, models):
    shown = 100 * table.rename_axis(None)[[*_MEASURES[:3], *_BY_GROUP]].T
    echo("\nMeasures in %, and the accuracy that privacy costs, in points\n")
    echo(shown.to_string(float_format="{:.1f}".format))
    report = models[DEMO_METHODS[-1]].privacy_
    echo("\n" + wrapped(f"{DEMO_METHODS[-1]}: {report.statement}"))
    echo("Not covered by epsilon:")
    for item in report.not_accounted:
        echo(wrapped(f"- {item}"))
    echo("The reference is the same model trained by plain SGD: no clipping, no noise.")
    echo("Each was fitted once, so differences may be chance: skdpfair sweep tells intervals.")
    echo(
        wrapped(
            "The table itself is NOT private: it was computed on real people without noise, and "
            "the reference has no privacy at all."
        )
    )


def _write(table, models, output):
    from skdpfair.report import PrivacyCostDisplay

    table.to_csv(output / "group_table.csv", index_label="method", float_format="%.6f")
    figure = PrivacyCostDisplay(table).plot().figure_
    figure.savefig(output / "privacy_cost_by_group.png", dpi=150, bbox_inches="tight")
    statements = {name: model.privacy_statement() for name, model in models.items()}
    (output / "privacy.json").write_text(json.dumps(statements, indent=2) + "\n")
