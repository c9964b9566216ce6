"""``skdpfair predict``: predict records with a model that ``skdpfair fit`` wrote."""

import json

import click

from skdpfair.cli._input import (
    AS_JSON,
    AnyPath,
    check_outputs,
    echo,
    in_options,
    output_option,
    picture_options,
)


@click.command()
@click.argument("model", type=AnyPath(exists=True, dir_okay=False))
@click.argument("data", type=AnyPath(exists=True))
@picture_options("size")
@click.option(
    "--threshold",
    type=click.FloatRange(0, 1),
    help="Predict the second of two classes of the schema from this probability on; by default "
    "that of fit --threshold, or else 0.5.",
)
@click.option(
    "--id",
    "ids",
    multiple=True,
    help="Column of DATA to copy, such as a number of the record; may be given again.",
)
@output_option("predictions.csv", "The CSV file to write, a line for each of DATA.")
@AS_JSON
def predict(model, data, pictures, threshold, ids, output, as_json):
    """Predict the records of DATA with MODEL, which `skdpfair fit` wrote.

    Writes the columns of --id, the class, and the probability of each class. A CSV or Parquet file
    needs the feature columns only; of a folder, all pictures are predicted, in the order of their
    names. A threshold that was chosen on private records is not covered by epsilon.
    """
    check_outputs(output, inputs=(model, data))
    import numpy as np  # late, with all that takes time to import
    import pandas as pd

    from skdpfair._utils.files import replace_file
    from skdpfair.cli._sources import source_for
    from skdpfair.release import load_release

    with in_options():
        clf = load_release(model)
        schema = clf.schema_
        if schema is None:
            raise ValueError(
                f"{model} does not say how its features are made from a table. Use "
                "skdpfair.load_release in Python, or save it with save_release(schema=...)."
            )
        if schema.target in ids:
            raise ValueError(
                f"--id {schema.target!r} is the column of the predictions. Leave it out."
            )
        if threshold is not None and len(clf.classes_) != 2:
            raise ValueError(
                f"--threshold is for two classes, and {model} has {len(clf.classes_)}. Leave it "
                "out, and use the probabilities."
            )
        names, X = source_for(model, schema, clf, data, **pictures).unlabelled(schema, ids)
        if not hasattr(X, "columns"):
            # the schema makes the features, in its order
            vars(clf).pop("feature_names_in_", None)
        probabilities = clf.predict_proba(X)
        predicted = clf.predict(X)
        if threshold is not None:
            second = list(clf.classes_).index(schema.classes[1])
            is_second = probabilities[:, second] >= threshold
            predicted = clf.classes_[np.where(is_second, second, 1 - second)]
        columns = [f"probability[{c}]" for c in clf.classes_]
        out = pd.DataFrame(probabilities, columns=columns)
        out.insert(0, schema.target, predicted)
        out = pd.concat([names, out], axis=1)
        replace_file(output, out.to_csv(index=False, float_format="%.6g").encode())
    if as_json:
        return echo(json.dumps({"written": str(output), "rows": len(out)}))
    echo(f"Written to {output}: {len(out):,} rows.")
