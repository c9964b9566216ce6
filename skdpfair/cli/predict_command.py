"""``skdpfair predict``: predict records with a model that ``skdpfair fit`` wrote."""

import json

import click

from skdpfair.cli import _shell as shell


@click.command()
@click.argument("model", type=shell.FILE)
@click.argument("data", type=shell.FILE)
@shell.output_option("predictions.csv", "The CSV file to write, with a line for each row of DATA.")
@shell.AS_JSON
def predict(model, data, output, as_json):
    """Predict the records of DATA with MODEL, which `skdpfair fit` wrote.

    DATA is a CSV or Parquet file; only its feature columns are needed. Writes the class and the
    probability of each class, in the order of DATA.
    """
    shell.check_outputs(output, inputs=(model, data))
    import pandas as pd  # late, with all that takes time to import

    from skdpfair._utils.files import replace_file
    from skdpfair.cli._sources import source_for
    from skdpfair.release._release import load_release

    with shell.in_options():
        clf = load_release(model)
        schema = clf.schema_
        X = source_for(model, schema, data).unlabelled(schema)
        if not hasattr(X, "columns"):
            # the schema makes the features, in its order
            vars(clf).pop("feature_names_in_", None)
        columns = {schema.target: clf.predict(X)}
        for label, probability in zip(clf.classes_, clf.predict_proba(X).T, strict=True):
            columns[f"probability[{label}]"] = probability
        out = pd.DataFrame(columns)
        replace_file(output, out.to_csv(index=False, float_format="%.6g").encode())
    if as_json:
        return shell.echo(json.dumps({"written": str(output), "rows": len(out)}))
    shell.echo(f"Written to {output}: {len(out):,} rows.")
