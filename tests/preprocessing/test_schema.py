"""Schemas of tables: what they write and read, the features they make, and refusals."""

from dataclasses import asdict

import numpy as np
import pandas as pd
import pytest
from sklearn.pipeline import make_pipeline

from skdpfair import DPFairClassifier, load_release
from skdpfair.preprocessing import TableSchema, public_preprocessor

PAY = {"age": (18, 98), "pay": (0, 10**6), "rent": (0, 500)}


def paid(**facts):
    return TableSchema(**{"target": "y", "classes": ["0", "1"], "bounds": PAY} | facts)


def test_table_schema_splits_a_table_of_numbers():
    schema = paid(bounds={}, groups={"sex": ["1", "2", ""]}, categories={"ward": ["1"]})
    rows = pd.DataFrame({"y": [0.0, 1.0], "sex": [2.0, np.nan], "ward": [1, 3]})
    X, y, groups = schema.split(rows)
    assert X["ward_1"].tolist() == [1, 0] and y.tolist() == ["0", "1"]
    assert groups["sex"].tolist() == ["2", ""]
    with pytest.raises(ValueError, match=r"'y' .*classes"):
        schema.split(rows.assign(y=[0, 2]))


@pytest.mark.parametrize(
    "facts",
    [
        {},
        {"missing": ["age", "pay"]},
        {"log_columns": []},
        {"log_columns": ["rent"], "n_intervals": 3},
        {"n_intervals": 0, "categories": {"ward": ["A", "B"]}},
        {"bins": {"age": [25, 65.5]}, "groups": {"sex": ["F", "M"]}},
    ],
)
def test_table_schema_reads_what_it_writes(facts, tmp_path):
    schema = paid(**facts)
    assert TableSchema.from_dict(asdict(schema)) == schema
    (tmp_path / "schema.toml").write_text(schema.to_toml())
    assert TableSchema.from_toml(tmp_path / "schema.toml") == schema
    fixed = schema.with_fixed_encoding(1000)
    assert fixed.with_fixed_encoding(5) == fixed
    assert fixed.log_columns == facts.get("log_columns", ["pay"])


def test_table_schema_with_fixed_encoding_makes_the_same_features_from_every_table():
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({c: rng.uniform(*pair, 900) for c, pair in PAY.items()})
    rows.loc[0, "pay"] = rows.loc[1, "rent"] = np.nan
    rows["y"] = np.arange(900) % 2
    schema = paid(missing=["pay"]).with_fixed_encoding(len(rows), epsilon=0.5)
    X, _, _ = schema.split(rows)
    assert list(X) == schema.feature_names
    expected = public_preprocessor(PAY, epsilon=0.5, missing=["pay"]).fit_transform(rows)
    pd.testing.assert_frame_equal(X, expected)
    pd.testing.assert_frame_equal(schema.split(rows[:3])[0], X[:3])
    assert X["pay_missing"].tolist() == [1] + [0] * 899
    assert not X.isna().any(axis=None)


@pytest.mark.parametrize("lacking", ["age", "y", "sex", "ward"])
def test_split_refuses_a_table_without_a_column_or_with_two(lacking):
    schema = paid(bounds={"age": (0, 9)}, groups={"sex": ["F", "M"]}, categories={"ward": ["A"]})
    table = pd.DataFrame({"age": [1.0], "sex": ["F"], "ward": ["A"], "y": ["0"]})
    schema.split(table)
    for other in (table.drop(columns=lacking), pd.concat([table, table[[lacking]]], axis=1)):
        with pytest.raises(ValueError, match=rf"got \['{lacking}'\]"):
            schema.split(other)
    with pytest.raises(TypeError, match=r"^table .*DataFrame"):
        schema.split(table.to_numpy())


def test_bins_of_a_schema_group_numbers_by_public_edges(tmp_path):
    schema = paid(bins={"age": [25, 65.5], "rank": [3]}, missing=["age"], n_intervals=0)
    ages, ranks = [24.9, 25, 65.5, None], [1, 3, 2.5, 4]
    rows = pd.DataFrame({"age": ages, "pay": 1, "rent": 1, "rank": ranks, "y": 0})
    rows.to_csv(tmp_path / "rows.csv", index=False)
    rows.to_parquet(tmp_path / "rows.parquet")
    read = schema.read_csv(tmp_path / "rows.csv")
    encoded = schema.encode_parquet(tmp_path / "rows.parquet", tmp_path / "x.npy")
    for groups in (schema.split(read)[2], encoded.sensitive_features):
        assert groups["age"].tolist() == ["< 25", "[25, 65.5)", ">= 65.5", ""]
        assert groups["rank"].tolist() == ["< 3", ">= 3", "< 3", ">= 3"]
    assert len(schema.group_levels) == 8 and ("", ">= 3") in schema.group_levels
    assert not [name for name in schema.feature_names if name.startswith("rank")]
    with pytest.raises(ValueError, match=r"'rank' .*missing or no numbers"):
        schema.split(read.assign(rank=["secret", 1, 2, 3]))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"missing": ["wage"]}, r"^missing .*\['wage'\].*bounds"),
        ({"missing": "auto"}, "^missing must be a list"),
        ({"log_columns": ["ward"]}, r"^log_columns .*\['ward'\].*bounds"),
        ({"log_columns": True}, "^log_columns must be a list"),
        ({"n_intervals": 10**9}, "^n_intervals .*<= 1000"),
        ({"bins": {"age": [3, 3]}}, r"^bins\['age'\] .*increasing"),
        ({"bins": {"age": ["a"]}}, r"^bins\['age'\] must be a number"),
        ({"bins": {"sex": [3]}, "groups": {"sex": ["F", "M"]}}, r"^bins and groups .*\['sex'\]"),
        ({"groups": {"age": ["1", "2"]}}, r"^bounds and groups .*\['age'\].*bins"),
    ],
)
def test_table_schema_refuses_parts_by_name(wrong, message):
    with pytest.raises((ValueError, TypeError), match=message):
        paid(**wrong)


def test_feature_names_need_a_fixed_encoding():
    with pytest.raises(ValueError, match=r"with_fixed_encoding\(n_samples, epsilon\)"):
        paid().feature_names  # noqa: B018


@pytest.mark.filterwarnings("ignore::skdpfair.exceptions.LowSignalWarning")
def test_a_table_that_lost_listed_texts_is_named(tmp_path):
    b = np.linspace(-3, 3, 400)
    table = pd.DataFrame({"b": b, "country": np.where(b > 0, "NA", "None")})
    y = pd.Series(np.where(b > 0, "yes", "no"), name="answer")
    facts = {"bounds": {"b": (-3, 3)}, "categories": {"country": ["NA", "None"]}}
    schema = TableSchema(target="answer", classes=["no", "yes"], **facts)
    table.assign(answer=y).to_csv(tmp_path / "t.csv", index=False)
    clf = DPFairClassifier("dpsgd", module="logistic", max_steps=3, lr=0.5)
    model = make_pipeline(schema.preprocessor(), clf).fit(table, y)
    model[-1].save_release(tmp_path / "m.safetensors", schema=schema)
    loaded = load_release(tmp_path / "m.safetensors")
    with pytest.warns(UserWarning, match=r"\['country'\] hold values"):
        loaded.predict(pd.read_csv(tmp_path / "t.csv"))
    own = schema.read_csv(tmp_path / "t.csv")
    assert (loaded.predict(own) == model.predict(table)).all()
