"""Parquet files, encoded part by part, give what their rows give in memory."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from skdpfair import DPFairClassifier
from skdpfair.datasets import load_adult, public_facts
from skdpfair.inputs.provenance import origin_of, rows_of
from skdpfair.preprocessing import TableSchema, _files

pytestmark = [
    pytest.mark.filterwarnings("ignore::skdpfair.exceptions.LowSignalWarning"),
    pytest.mark.filterwarnings("ignore::skdpfair.exceptions.InsecureSeedWarning"),
]
IN_MEMORY = ds.dataset(pa.table({"age": [1]}))
SCHEMA = TableSchema(
    target="income",
    classes=["<=50K", ">50K"],
    groups={"sex": ["Female", "Male", ""], "race": ["White", "Black", "Other"]},
    bounds=public_facts("adult")["bounds"],
    categories=public_facts("adult")["categories"] | {"code": ["1", "2"]},
    missing=["age"],
)


@pytest.fixture(scope="module")
def table():
    """Rows of Adult with missing values, unlisted categories and numbers beyond their bounds."""
    adult, rng = load_adult(subset="test"), np.random.default_rng(0)
    frame = adult.data.head(3000).reset_index(drop=True).astype({"age": float})
    frame["income"] = np.asarray(adult.target[:3000])
    frame["race"] = rng.choice(["White", "Black", "Other"], 3000)
    frame["code"] = pd.array(rng.choice([1, 2, 3], 3000), dtype="Int64")
    frame["person"] = rng.permutation(3000) // 2
    frame = frame.astype(dict.fromkeys(public_facts("adult")["categories"], object))
    for column in ("age", "workclass", "sex", "code"):
        frame.loc[rng.random(3000) < 0.1, column] = None
    frame.loc[rng.random(3000) < 0.1, "education"] = "none of these"
    frame.loc[5, "age"] = 400.0
    return frame


@pytest.fixture
def parts(table, tmp_path):
    """Three files of several row groups, one of them with texts in dictionaries."""
    paths = [tmp_path / f"{i}.parquet" for i in range(3)]
    for path, rows in zip(
        paths, (slice(0, 1200), slice(1200, 1201), slice(1201, None)), strict=True
    ):
        part = pa.Table.from_pandas(table[rows], preserve_index=False)
        if path == paths[2]:
            at = part.schema.get_field_index("education")
            part = part.set_column(at, "education", part["education"].dictionary_encode())
        pq.write_table(part, path, row_group_size=500)
    return paths


def in_memory(table, tmp_path, schema):
    """Return what the rows of a CSV file give."""
    table.to_csv(tmp_path / "all.csv", index=False)
    read = schema.read_csv(tmp_path / "all.csv")
    return *schema.split(read), schema.persons_in(read)


@pytest.mark.parametrize("at_once", [2**16, 70])
def test_features_labels_and_groups_are_those_of_a_csv_file(
    at_once, table, parts, tmp_path, monkeypatch
):
    monkeypatch.setattr(_files, "_AT_ONCE", at_once)
    X, y, groups, _ = in_memory(table, tmp_path, SCHEMA)
    path = tmp_path / "features.npy"
    encoded = SCHEMA.encode_parquet(parts, path)
    assert encoded.schema == SCHEMA.with_fixed_encoding(len(table))
    assert list(X) == encoded.schema.feature_names and encoded.persons is None
    np.testing.assert_array_equal(encoded.X, X.to_numpy(np.float32))
    np.testing.assert_array_equal(encoded.y, y)
    assert (encoded.sensitive_features.astype(object) == groups).all(axis=None)
    assert isinstance(encoded.X, np.memmap) and path.stat().st_mode & 0o777 == 0o600
    features = encoded.schema.encode_parquet(parts, tmp_path / "x.npy", labelled=False)
    np.testing.assert_array_equal(features.X, encoded.X)
    assert features.y is None


def test_persons(table, parts, tmp_path):
    schema = replace(SCHEMA, person="person", max_records=2)
    *_, units = in_memory(table, tmp_path, schema)
    found = schema.encode_parquet(parts, tmp_path / "x.npy")
    np.testing.assert_array_equal(found.persons, units)
    assert found.schema == schema.with_fixed_encoding(1500)


def test_columns_in_the_names_of_folders(table, tmp_path):
    pq.write_to_dataset(
        pa.Table.from_pandas(table, preserve_index=False), tmp_path / "d", partition_cols=["race"]
    )
    source = ds.dataset(tmp_path / "d", format="parquet", partitioning="hive")
    found = SCHEMA.encode_parquet(source, tmp_path / "x.npy")
    assert found.sensitive_features["race"].value_counts().to_dict() == {
        k: int(n) for k, n in table["race"].value_counts().items()
    }


@pytest.mark.parametrize("by_person", [True, False])
def test_a_fit_is_that_of_the_rows_in_memory(by_person, parts, tmp_path):
    schema = replace(SCHEMA, person="person", max_records=2) if by_person else SCHEMA
    data = schema.encode_parquet(parts, tmp_path / "x.npy")

    def fitted(X):
        clf = DPFairClassifier(
            "dpsgd", epsilon=1.0, module="logistic", max_steps=6, batch_size=300, random_state=0
        ).set_params(persons__max_records=schema.max_records)
        return clf.fit(X, data.y, sensitive_features=data.sensitive_features, persons=data.persons)

    everything = np.array(data.X)
    one, other = fitted(data.X), fitted(everything)
    chances = other.predict_proba(everything)
    np.testing.assert_allclose(one.predict_proba(data.X), chances, rtol=1e-5)
    assert chances.std() > 0.01


def test_auto_takes_the_network_of_the_rows_in_memory(table, parts, tmp_path):
    """A model without privacy learns enough from these rows for a hidden layer, or fine curves."""
    data = SCHEMA.encode_parquet(parts, tmp_path / "x.npy")
    rows = in_memory(table, tmp_path, SCHEMA)
    one, other, unnamed = (
        DPFairClassifier(epsilon=None, max_steps=3).fit(X, data.y)
        for X in (data.X, rows[0], np.array(data.X))
    )
    makes = [model.net_.module.make for model in (one, other, unnamed)]
    assert makes[0] is makes[1] is not makes[2]
    assert one.net_.module.params["fine"] == other.net_.module.params["fine"] != ()
    part = rows_of(data.X, np.arange(0, 2000))
    assert (
        origin_of(part)
        == origin_of(data.X)
        != origin_of(np.array(data.X))
        == origin_of(data.X[:2000])
    )


def test_memory_is_that_of_a_row_group(tmp_path):
    rng, n = np.random.default_rng(0), 80_000
    schema = TableSchema(
        target="y", classes=["a", "b"], bounds={f"x{i}": (0, 1) for i in range(10)}, n_intervals=20
    )
    with pq.ParquetWriter(tmp_path / "a.parquet", schema_of_arrow(schema)) as writer:
        for _ in range(40):
            rows = {c: rng.random(n // 40) for c in schema.bounds}
            rows["y"] = rng.choice(["a", "b"], n // 40)
            writer.write_table(pa.table(rows))
    before, pool = pa.default_memory_pool(), pa.proxy_memory_pool(pa.default_memory_pool())
    pa.set_memory_pool(pool)
    tracemalloc.start()
    found = schema.encode_parquet(tmp_path / "a.parquet", tmp_path / "x.npy")
    peak = tracemalloc.get_traced_memory()[1] + pool.max_memory()
    tracemalloc.stop()
    pa.set_memory_pool(before)
    assert len(found.X) == n and peak < found.X.nbytes / 4


def schema_of_arrow(schema):
    return pa.schema([*((c, pa.float64()) for c in schema.bounds), (schema.target, pa.string())])


def test_a_failure_leaves_the_file_that_was_there(table, parts, tmp_path):
    path = tmp_path / "features.npy"
    SCHEMA.encode_parquet(parts[:1], path)
    before, names = path.read_bytes(), sorted(tmp_path.iterdir())
    pq.write_table(pa.Table.from_pandas(table.assign(income="secret")), parts[2])
    with pytest.raises(ValueError, match="'income' holds values") as error:
        SCHEMA.encode_parquet(parts, path)
    assert "secret" not in str(error.value)
    assert path.read_bytes() == before and sorted(tmp_path.iterdir()) == names


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.drop(columns="race"), "2.parquet has no column 'race'"),
        (
            lambda t: t.assign(age="secret"),
            "'age' of 2.parquet holds .*string, .* needs numbers",
        ),
        (lambda t: t.assign(workclass=b"secret"), "'workclass' of 2.parquet holds binary"),
        (lambda t: t.assign(code="secret"), "source has a file that cannot be read"),
    ],
)
def test_what_cannot_be_used_is_refused(change, message, table, parts, tmp_path):
    pq.write_table(pa.Table.from_pandas(change(table), preserve_index=False), parts[2])
    with pytest.raises(ValueError, match=message) as error:
        SCHEMA.encode_parquet(parts, tmp_path / "x.npy")
    assert "secret" not in str(error.value)


@pytest.mark.parametrize("source", ["nowhere.parquet", __file__, 3, [3.5], IN_MEMORY])
def test_what_is_no_parquet_is_refused(source, tmp_path):
    with pytest.raises((ValueError, TypeError), match="source must be Parquet files"):
        SCHEMA.encode_parquet(source, tmp_path / "x.npy")


def test_no_rows(tmp_path, table):
    pq.write_table(pa.Table.from_pandas(table.head(0)), tmp_path / "a.parquet")
    with pytest.raises(ValueError, match="source has no rows"):
        SCHEMA.encode_parquet(tmp_path / "a.parquet", tmp_path / "x.npy")


def test_without_pyarrow(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"pip install 'skdpfair\[parquet\]'"):
        SCHEMA.encode_parquet("a.parquet", "x.npy")
