"""From pictures, in a folder or an array, to a model, predictions, a comparison and a report."""

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from PIL import Image

from skdpfair.cli import main
from skdpfair.release import load_release

SCHEMA = """
target = "sex"
classes = ["F", "M"]
[groups]
race = ["a", "b"]
"""
FIT = ["--schema", "schema.toml", "--method", "dpsgd", "--epsilon", "3", "--seed", "1"]
FIT += ["--set", "max_steps=5", "--set", "lr=0.5", "--set", "batch_size=60", "--force"]
N = 90


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Pictures in a folder and in arrays, with their labels in a file."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    labels = pd.DataFrame({"race": rng.choice(["a", "b"], N), "sex": rng.choice(["F", "M"], N)})
    stripes = np.arange(12) % 2 * (labels["sex"] == "F").to_numpy()[:, None, None]
    pictures = (100 * stripes + 100 * rng.random((N, 12, 12))).astype(np.uint8)
    names = [f"secret-{i % 2}/{i}.png" for i in rng.permutation(N)]
    for name, picture in zip(names, pictures, strict=True):
        path = Path("faces", name)
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture).save(path)
    Path("faces/notes.txt").write_text("no picture")
    labels.assign(file=names, age=5, person_id=np.arange(N) // 2).to_csv("labels.csv", index=False)
    np.savez("faces.npz", images=pictures)
    own = {name: labels[name].to_numpy(dtype=str) for name in labels}
    np.savez("labelled.npz", images=pictures, **own, person_id=np.arange(N) // 2)
    Path("schema.toml").write_text(SCHEMA)
    return tmp_path


def invoke(*arguments, **settings):
    return CliRunner().invoke(main, [str(a) for a in arguments], **settings)


def usable(*arguments, **settings):
    done = invoke(*arguments, **settings)
    assert done.exit_code == 0, done.output
    assert "secret-" not in done.output
    return done


def refused(*arguments, shows="secret-none"):
    before = sorted(Path().iterdir())
    done = invoke(*arguments)
    assert done.exit_code == 2 and "Traceback" not in done.output, done.output
    assert "secret-" not in done.output.replace(shows, "")
    assert sorted(Path().iterdir()) == before  # nothing is left
    return " ".join(done.output.split())


LABELS = ["--labels", "labels.csv"]
FORMS = {
    "folder": ["faces", *LABELS],
    "arrays": ["faces.npz", *LABELS],
    "labelled arrays": ["labelled.npz"],
}


def test_every_form_gives_the_same_model_whose_predictions_are_written():
    for form, data in FORMS.items():
        usable("fit", *data, *FIT, "-o", f"{form}.safetensors")
    one, *others = (Path(f"{form}.safetensors").read_bytes() for form in FORMS)
    assert all(other == one for other in others)
    model = "folder.safetensors"
    clf = load_release(model)
    schema = clf.schema_
    assert clf.features_.in_shape_ == (12, 12) and list(clf.groups_) == ["a", "b"]
    assert schema.target == "sex" and not schema.has_features
    images = np.load("faces.npz")["images"].astype(np.float32) / 255
    usable("predict", model, "faces.npz", "-o", "rows.csv")
    found = pd.read_csv("rows.csv")
    assert (found["sex"] == clf.predict(images)).all()
    chances = found[["probability[F]", "probability[M]"]]
    assert np.allclose(chances, clf.predict_proba(images), atol=1e-5)
    said = usable("predict", model, "faces", "-o", "files.csv", "--json").stdout
    assert json.loads(said) == {"written": "files.csv", "rows": N}
    named = pd.read_csv("files.csv", index_col="file")
    assert list(named.index) == sorted(named.index, key=lambda name: Path(name).parts)
    order = pd.read_csv("labels.csv")["file"]
    pd.testing.assert_frame_equal(named.loc[order].reset_index(drop=True), found, rtol=1e-4)


def test_pictures_that_no_label_names_are_counted():
    names = pd.read_csv("labels.csv")
    names[5:].assign(file="./" + names["file"][5:]).to_csv("some.csv", index=False)
    assert "left out" not in usable("fit", *FORMS["folder"], *FIT).stderr
    done = usable("fit", "faces", "--labels", "some.csv", *FIT, "--json")
    assert "Note: 5 pictures of faces are left out, as some.csv does not name" in done.stderr
    assert json.loads(done.stdout)["n_samples"] == N - 5


def test_a_person_may_have_several_pictures():
    done = usable("fit", *FORMS["folder"], *FIT)
    assert "add unit = 'person_id'" in " ".join(done.output.split())
    Path("schema.toml").write_text('unit = "person_id"\nmax_records_per_unit = 2\n' + SCHEMA)
    for data in ("folder", "labelled arrays"):
        done = usable("fit", *FORMS[data], *FIT, "--json")
        assert json.loads(done.stdout)["adjacency"] == "zero_out_unit"


def test_labels_may_be_numbers_in_an_array():
    labelled = dict(np.load("labelled.npz"))
    labelled["race"] = (labelled["race"] == "b") + 1
    np.savez("numbers.npz", **labelled)
    Path("schema.toml").write_text(SCHEMA.replace('["a", "b"]', '["1", "2"]'))
    usable("fit", "numbers.npz", *FIT)
    assert list(load_release("model.safetensors").groups_) == ["1", "2"]


def test_columns_besides_the_labels_are_no_features():
    with open("schema.toml", "a") as file:
        file.write("\n[bounds]\nage = [0, 9]\n[categories]\nrace = ['a', 'b']\n")
    usable("fit", *FORMS["folder"], *FIT)
    assert not load_release("model.safetensors").schema_.has_features
    Path("schema.toml").write_text(SCHEMA)
    assert "Name at least one feature column" in refused("fit", "labels.csv", *FIT)


def test_a_file_to_fill_in_gives_the_schema():
    usable("schema", "labels.csv", "--target", "sex", "--group", "race", "-o", "t.toml")
    text = Path("t.toml").read_text()
    text = text.replace("classes = []", 'classes = ["F", "M"]')
    Path("t.toml").write_text(text.replace('"race" = []', '"race" = ["a", "b"]', 1))
    usable("fit", *FORMS["folder"], *FIT, "--schema", "t.toml")
    assert "skdpfair schema labels.csv -o" in refused("fit", *FORMS["folder"], *FIT[2:])


@pytest.mark.parametrize("depth", [1, 3])
def test_pictures_are_resized_and_made_alike_if_asked(depth):
    wide = Image.open(sorted(Path("faces").rglob("*.png"))[5])
    path = Path(wide.filename)
    wide.convert("RGB").resize((30, 20)).save(path)
    mode = ["--mode", {1: "L", 3: "RGB"}[depth]]
    fit = ["fit", *FORMS["folder"], *FIT]
    assert "by --mode L or --mode RGB" in refused(*fit)
    assert "must all have 12x12 pixels, like the first" in refused(*fit, *mode)
    usable(*fit, *mode, "--size", "10x9")
    shape = (9, 10) if depth == 1 else (9, 10, 3)
    assert load_release("model.safetensors").features_.in_shape_ == shape
    predict = ["predict", "model.safetensors", "faces"]
    assert "must all have 10x9 pixels, like those of the model" in refused(*predict)
    usable(*predict, "--size", "10x9")


def test_a_page_about_a_model_and_about_a_sweep():
    usable("fit", *FORMS["folder"], *FIT)
    usable("report", "model.safetensors", "-o", "model.html", "--card", "card.md")
    done = usable("report", "model.safetensors", "--data", *FORMS["folder"], "-o", "tested.html")
    assert "NOT private" in done.output
    sweep = '[sweep]\nmethods = ["dpsgd"]\nepsilons = [2.0]\nseeds = 1\nstore = "results"\n'
    params = "[sweep.params]\nmax_steps = 5\nlr = 0.5\nbatch_size = 60\n"
    Path("study.toml").write_text(SCHEMA + sweep + params)
    study = ["sweep", "study.toml", "--jobs", 1, "--data"]
    found = json.loads(usable(*study, *FORMS["folder"], "--json").stdout)
    assert [row["method"] for row in found] == ["reference", "dpsgd"]
    for data in ("arrays", "labelled arrays"):  # the same records, whose fits are finished
        again = usable(*study, *FORMS[data], "--json").stdout
        assert json.loads(again) == found
    usable("report", "results", "-o", "results.html")
    assert "What privacy costs each group: sex by race" in Path("results.html").read_text()


def test_a_picture_that_cannot_be_read_is_named_before_anything_is_spent():
    path = sorted(Path("faces").rglob("*.png"))[7]
    content = path.read_bytes()
    ledger = ["--ledger", "l.jsonl", "--ledger-delta", 1e-5]
    for broken in (b"", content[: len(content) // 2], b"%!PS-Adobe-3.0 EPSF-3.0\n"):
        path.write_bytes(broken)
        said = refused("fit", *FORMS["folder"], *FIT, *ledger, shows=path.as_posix())
        assert f"{path.as_posix()} cannot be read as a picture" in said
    path.unlink()
    said = refused("fit", *FORMS["folder"], *FIT, *ledger, shows=path.as_posix())
    assert f"{path.as_posix()} cannot be read as a picture: No such file" in said
    Image.fromarray(np.zeros((12, 12), np.uint16)).save(path)
    said = refused("fit", *FORMS["folder"], *FIT, shows=path.as_posix())
    assert "mode I;16, which are not of 8 bits" in said


def test_what_cannot_be_used_is_refused(monkeypatch):
    usable("fit", *FORMS["folder"], *FIT)
    images = np.load("faces.npz")["images"]
    np.savez("short.npz", images=images[1:])
    np.savez("other.npz", images=images.astype(np.int64))
    np.savez("objects.npz", images=images, sex=np.array([{}] * N), race=np.arange(N))
    np.savez("few.npz", images=images, sex=np.arange(3), race=np.arange(N))
    Path("text.npz").write_text("secret-text")
    Path("none").mkdir()
    labels = pd.read_csv("labels.csv")
    labels.assign(file=labels["file"].where(labels.index > 0)).to_csv("gap.csv", index=False)
    labels.assign(file=labels["file"][1]).to_csv("twice.csv", index=False)
    labels.assign(sex="secret-x").to_csv("unlisted.csv", index=False)
    for arguments, said in {
        ("fit", "faces"): "give --labels FILE, a CSV file with a column 'file'",
        ("fit", "faces", *LABELS, "--file-column", "path"): "labels.csv has no column 'path'",
        ("fit", "faces", "--labels", "gap.csv"): "must name one picture in each row",
        ("fit", "faces", "--labels", "twice.csv"): "must name one picture in each row",
        ("fit", "faces", "--labels", "unlisted.csv"): "holds values that classes does not list",
        ("fit", "faces.npz"): "faces.npz has no array 'race'",
        ("fit", "faces.npz", *LABELS, "--size", "9x9"): "--size and --mode are for a folder",
        ("fit", "short.npz", *LABELS): "labels.csv has 90 rows for 89 pictures",
        ("fit", "other.npz", *LABELS): "must be of uint8 or float",
        ("fit", "objects.npz"): "'sex' of objects.npz cannot be read: ValueError",
        ("fit", "few.npz"): "'sex' of few.npz must be 90 numbers or texts",
        ("fit", "text.npz"): "text.npz is not an .npz file",
        ("fit", "labels.csv", *LABELS): "neither a folder nor an .npz file",
    }.items():
        assert said in refused(*arguments, *FIT), arguments
    predict = ["predict", "model.safetensors"]
    assert "holds no pictures (.png" in refused(*predict, "none")
    assert "labels.csv is none" in refused(*predict, "labels.csv")
    Image.fromarray(images[0]).save("one.png")
    for given in ([], ["--size", "9x9"]):
        said = refused(*predict, "one.png", *given)
        assert "one.png is one picture. Put it in a folder, and name the folder" in said
    assert "give --data FOLDER of pictures or FILE.npz" in refused("sweep", "schema.toml")
    assert "'short' is not a size such as 32x32" in refused(*predict, "faces", "--size", "short")
    monkeypatch.setitem(sys.modules, "PIL", None)
    assert "pip install 'skdpfair[images]'" in refused(*predict, "faces")
