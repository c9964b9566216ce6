"""Parquet files, encoded part by part, give what their rows give in memory."""

import sys
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
from skdpfair.preprocessing import TableSchema, _table_files

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
    ends = slice(0, 1200), slice(1200, 1201), slice(1201, None)
    for path, rows in zip(paths, ends, strict=True):
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
def test_encode_parquet_gives_what_a_csv_file_gives(at_once, table, parts, tmp_path, monkeypatch):
    monkeypatch.setattr(_table_files, "_AT_ONCE", at_once)
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


def test_encode_parquet_reads_persons(table, parts, tmp_path):
    schema = replace(SCHEMA, person="person", max_records=2)
    *_, units = in_memory(table, tmp_path, schema)
    found = schema.encode_parquet(parts, tmp_path / "x.npy")
    np.testing.assert_array_equal(found.persons, units)
    assert found.schema == schema.with_fixed_encoding(1500)


def test_encode_parquet_reads_columns_in_the_names_of_folders(table, tmp_path):
    rows = pa.Table.from_pandas(table, preserve_index=False)
    pq.write_to_dataset(rows, tmp_path / "d", partition_cols=["race"])
    source = ds.dataset(tmp_path / "d", format="parquet", partitioning="hive")
    races = SCHEMA.encode_parquet(source, tmp_path / "x.npy").sensitive_features["race"]
    assert races.value_counts().to_dict() == table["race"].value_counts().to_dict()


@pytest.mark.parametrize("by_person", [True, False])
def test_fit_on_encoded_parquet_is_that_of_the_rows_in_memory(by_person, parts, tmp_path):
    schema = replace(SCHEMA, person="person", max_records=2) if by_person else SCHEMA
    data = schema.encode_parquet(parts, tmp_path / "x.npy")
    settings = {"epsilon": 1.0, "module": "logistic", "max_steps": 6, "batch_size": 300}
    everything, likely = np.array(data.X), []
    for X in (data.X, everything):
        clf = DPFairClassifier("dpsgd", random_state=0, **settings)
        clf.set_params(persons__max_records=schema.max_records)
        clf.fit(X, data.y, sensitive_features=data.sensitive_features, persons=data.persons)
        likely.append(clf.predict_proba(everything))
    np.testing.assert_allclose(*likely, rtol=1e-5)
    assert likely[0].std() > 0.01


def test_origin_of_encoded_parquet_gives_auto_its_network(table, parts, tmp_path):
    """A model without privacy learns enough from these rows for a hidden layer, or fine curves."""
    data = SCHEMA.encode_parquet(parts, tmp_path / "x.npy")
    rows, unnamed = in_memory(table, tmp_path, SCHEMA)[0], np.array(data.X)
    one, other, without = (
        DPFairClassifier(epsilon=None, max_steps=3).fit(X, data.y).net_.module
        for X in (data.X, rows, unnamed)
    )
    assert one.make is other.make is not without.make
    assert one.params["fine"] == other.params["fine"] != ()
    part = rows_of(data.X, np.arange(2000))
    named, others = (
        {origin_of(X) for X in Xs} for Xs in ((data.X, part), (unnamed, data.X[:2000]))
    )
    assert len(named) == len(others) == 1 and named != others


def test_encode_parquet_takes_the_memory_of_a_row_group(tmp_path):
    rng, n = np.random.default_rng(0), 80_000
    schema = TableSchema(
        target="y", classes=["a", "b"], bounds={f"x{i}": (0, 1) for i in range(10)}, n_intervals=20
    )
    columns = [*((c, pa.float64()) for c in schema.bounds), ("y", pa.string())]
    with pq.ParquetWriter(tmp_path / "a.parquet", pa.schema(columns)) as writer:
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


def test_encode_parquet_that_fails_leaves_the_file_before(table, parts, tmp_path):
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
        (lambda t: t.drop(columns="race"), "^2.parquet .*'race'"),
        (lambda t: t.assign(age="secret"), "'age' of 2.parquet .*string.*numbers"),
        (lambda t: t.assign(age=pd.Timestamp("1990-01-01")), "'age' of 2.parquet .*timestamp"),
        (lambda t: t.assign(age=pd.Timedelta(1, "D")), "'age' of 2.parquet .*duration"),
        (lambda t: t.assign(workclass=b"secret"), "'workclass' of 2.parquet .*binary"),
        (lambda t: t.assign(code="secret"), "^source .*cannot be read"),
    ],
)
def test_encode_parquet_refuses_columns_and_shows_no_cell(change, message, table, parts, tmp_path):
    pq.write_table(pa.Table.from_pandas(change(table), preserve_index=False), parts[2])
    with pytest.raises(ValueError, match=message) as error:
        SCHEMA.encode_parquet(parts, tmp_path / "x.npy")
    assert "secret" not in str(error.value)


@pytest.mark.parametrize("source", ["nowhere.parquet", __file__, 3, [3.5], IN_MEMORY])
def test_encode_parquet_refuses_other_sources(source, tmp_path):
    with pytest.raises((ValueError, TypeError), match=r"^source .*Parquet"):
        SCHEMA.encode_parquet(source, tmp_path / "x.npy")


def test_encode_parquet_needs_rows_and_pyarrow(table, tmp_path, monkeypatch):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.Table.from_pandas(table.head(0)), path)
    with pytest.raises(ValueError, match=r"^source has no rows"):
        SCHEMA.encode_parquet(path, tmp_path / "x.npy")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"pip install 'skdpfair\[parquet\]'"):
        SCHEMA.encode_parquet(path, tmp_path / "x.npy")
