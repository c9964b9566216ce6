"""``skdpfair demo``: train on Adult with and without privacy, and compare the sexes."""

import json
from pathlib import Path

import click

import skdpfair
from skdpfair.cli import _shell as shell

DEMO_METHODS = ("dpsgd", "global_adapt")
_MEASURES = ("balanced_accuracy", "rarest_class_recall", "accuracy", "privacy_cost")
_BY_GROUP = [f"{name}[{sex}]" for name in _MEASURES[2:] for sex in ("Female", "Male")]


@click.command()
@shell.EPSILON
@shell.SEED
@shell.output_option(
    Path("skdpfair-demo"), "Folder for table, figure and privacy statement.", file_okay=False
)
@shell.AS_JSON
def demo(epsilon, seed, output, as_json):
    """Train on Adult with and without privacy, and compare the sexes."""
    with shell.in_options():
        import matplotlib  # before minutes of training

        matplotlib.use("Agg")
        train, test = _adult(epsilon)
        models = _models(epsilon, seed, len(train[1]))
        output.mkdir(parents=True, exist_ok=True)
        shell.check_outputs(output / "group_table.csv")
        if not as_json:
            shell.say(
                f"Adult census data, official split: {len(train[1]):,} people to train on, "
                f"{len(test[1]):,} to test on. Task: income over $50K. Groups: sex. Features "
                "are encoded by public bounds and categories: the linter finds no step that "
                "leaks outside the budget. Training a non-private reference "
                f"model and {' and '.join(DEMO_METHODS)} at epsilon = {epsilon:g}, all "
                "settings at their defaults ..."
            )
        for model in models.values():
            model.fit(train[0], train[1], sensitive_features=train[2])
        models = {"reference": models[DEMO_METHODS[0]].reference_, **models}
        table = _compared(models, *test)
    _write(table, models, output)
    if as_json:
        return shell.echo(table.rename_axis("method").reset_index().to_json(orient="records"))
    percentages = 100 * table.rename_axis(None)[[*_MEASURES[:3], *_BY_GROUP]].T
    shell.echo("\nMeasures in %, and the accuracy that privacy costs, in points\n")
    shell.echo(percentages.to_string(float_format="{:.1f}".format) + "\n")
    name, model = models.popitem()
    shell.say(f"{name}: {model.privacy_.statement}")
    shell.echo("Not covered by epsilon:")
    for text in (
        *(f"- {item}" for item in model.privacy_.not_accounted),
        "The reference is the same model trained by plain SGD: no clipping, no noise.",
        "Each was fitted once, so differences may be chance: skdpfair sweep shows intervals.",
        "The table itself is NOT private: it was computed on real people without noise, and the "
        "reference has no privacy at all.",
    ):
        shell.say(text)
    shell.echo(f"\nDone. Table, figure and the privacy statement are in {output}/")


def _adult(epsilon):
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

    models = {}
    for name in DEMO_METHODS:
        models[name] = skdpfair.DPFairClassifier(
            name,
            epsilon=epsilon,
            classes=["<=50K", ">50K"],
            group_col=skdpfair.Groups(levels=["Female", "Male"]),
            keep_reference=name == DEMO_METHODS[0],
            random_state=seed,
            verbose=1,
        )
        plan.check(models[name], n_samples, 2)
    return models


def _compared(models, features, target, sex):
    from skdpfair.metrics import group_table

    predictions = {name: model.predict(features) for name, model in models.items()}
    options = {"reference": "reference", "sensitive_features": sex, "measures": _MEASURES}
    table = group_table(target, predictions, **options)
    return table.assign(epsilon=[model.privacy_.epsilon for model in models.values()])


def _write(table, models, output):
    from skdpfair.report import PrivacyCostDisplay

    table.to_csv(output / "group_table.csv", index_label="method", float_format="%.6f")
    figure = PrivacyCostDisplay(table).plot().figure_
    figure.savefig(output / "privacy_cost_by_group.png", dpi=150, bbox_inches="tight")
    statements = {name: model.privacy_statement() for name, model in models.items()}
    (output / "privacy.json").write_text(json.dumps(statements, indent=2) + "\n")
