"""From a folder of pictures to a model, predictions, a comparison and a report."""

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from PIL import Image

from skdpfair.cli import main
from skdpfair.exceptions import InsecureSeedWarning
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
    """Pictures in a folder, with their labels in a file, and as an array."""
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
    Path("schema.toml").write_text(SCHEMA)
    return pictures


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
FACES = ["faces", *LABELS]


def test_a_model_and_its_predictions_are_those_of_the_pictures(folder):
    usable("fit", *FACES, *FIT)
    clf = load_release("model.safetensors")
    assert clf.features_.in_shape_ == (12, 12) and list(clf.groups_) == ["a", "b"]
    assert clf.schema_.target == "sex" and not clf.schema_.has_features
    with pytest.warns(InsecureSeedWarning):
        clf.save_release("copy.safetensors")
    assert Path("copy.safetensors").read_bytes() == Path("model.safetensors").read_bytes()
    said = usable("predict", "model.safetensors", "faces", "-o", "files.csv", "--json").stdout
    assert json.loads(said) == {"written": "files.csv", "rows": N}
    named = pd.read_csv("files.csv", index_col="file")
    assert list(named.index) == sorted(named.index, key=lambda name: Path(name).parts)
    named = named.loc[pd.read_csv("labels.csv")["file"]]
    images = folder.astype(np.float32) / 255
    assert (named["sex"] == clf.predict(images)).all()
    chances = named[["probability[F]", "probability[M]"]]
    assert np.allclose(chances, clf.predict_proba(images), atol=1e-5)


def test_pictures_that_no_label_names_are_counted():
    names = pd.read_csv("labels.csv")
    names[5:].assign(file="./" + names["file"][5:]).to_csv("some.csv", index=False)
    assert "left out" not in usable("fit", *FACES, *FIT).stderr
    done = usable("fit", "faces", "--labels", "some.csv", *FIT, "--json")
    assert "Note: 5 pictures of faces are left out, as some.csv does not name" in done.stderr
    assert json.loads(done.stdout)["n_samples"] == N - 5


def test_a_person_may_have_several_pictures():
    done = usable("fit", *FACES, *FIT)
    assert "add unit = 'person_id'" in " ".join(done.output.split())
    Path("schema.toml").write_text('unit = "person_id"\nmax_records_per_unit = 2\n' + SCHEMA)
    done = usable("fit", *FACES, *FIT, "--json")
    assert json.loads(done.stdout)["adjacency"] == "zero_out_unit"


def test_columns_besides_the_labels_are_no_features():
    with open("schema.toml", "a") as file:
        file.write("\n[bounds]\nage = [0, 9]\n[categories]\nrace = ['a', 'b']\n")
    usable("fit", *FACES, *FIT)
    assert not load_release("model.safetensors").schema_.has_features
    Path("schema.toml").write_text(SCHEMA)
    assert "Name at least one feature column" in refused("fit", "labels.csv", *FIT)


@pytest.mark.parametrize("depth", [1, 3])
def test_pictures_are_resized_and_made_alike_if_asked(depth):
    wide = Image.open(sorted(Path("faces").rglob("*.png"))[5])
    path = Path(wide.filename)
    wide.convert("RGB").resize((30, 20)).save(path)
    mode = ["--mode", {1: "L", 3: "RGB"}[depth]]
    fit = ["fit", *FACES, *FIT]
    assert "by --mode L or --mode RGB" in refused(*fit)
    assert "must all have 12x12 pixels, like the first" in refused(*fit, *mode)
    usable(*fit, *mode, "--size", "10x9")
    shape = (9, 10) if depth == 1 else (9, 10, 3)
    assert load_release("model.safetensors").features_.in_shape_ == shape
    predict = ["predict", "model.safetensors", "faces"]
    assert "must all have 10x9 pixels, like those of the model" in refused(*predict)
    usable(*predict, "--size", "10x9")


def test_a_page_about_a_model_and_about_a_sweep():
    usable("fit", *FACES, *FIT)
    usable("report", "model.safetensors", "-o", "model.html", "--card", "card.md")
    done = usable("report", "model.safetensors", "--data", *FACES, "-o", "tested.html")
    assert "NOT private" in done.output
    sweep = '[sweep]\nmethods = ["dpsgd"]\nepsilons = [2.0]\nseeds = 1\nstore = "results"\n'
    params = "[sweep.params]\nmax_steps = 5\nlr = 0.5\nbatch_size = 60\n"
    Path("study.toml").write_text(SCHEMA + sweep + params)
    study = ["sweep", "study.toml", "--jobs", 1, "--data"]
    found = json.loads(usable(*study, *FACES, "--json").stdout)
    assert [row["method"] for row in found] == ["reference", "dpsgd"]
    usable("report", "results", "-o", "results.html")
    assert "What privacy costs each group: sex by race" in Path("results.html").read_text()


def test_a_picture_that_cannot_be_read_is_named_before_anything_is_spent():
    path = sorted(Path("faces").rglob("*.png"))[7]
    content = path.read_bytes()
    ledger = ["--ledger", "l.jsonl", "--ledger-delta", 1e-5]
    for broken in (b"", content[: len(content) // 2], b"%!PS-Adobe-3.0 EPSF-3.0\n"):
        path.write_bytes(broken)
        said = refused("fit", *FACES, *FIT, *ledger, shows=path.as_posix())
        assert f"{path.as_posix()} cannot be read as a picture" in said
    path.unlink()
    said = refused("fit", *FACES, *FIT, *ledger, shows=path.as_posix())
    assert f"{path.as_posix()} cannot be read as a picture: No such file" in said
    Image.fromarray(np.zeros((12, 12), np.uint16)).save(path)
    said = refused("fit", *FACES, *FIT, shows=path.as_posix())
    assert "mode I;16, which are not of 8 bits" in said


def test_what_cannot_be_used_is_refused(monkeypatch, folder):
    usable("fit", *FACES, *FIT)
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
        ("fit", "labels.csv", "--size", "9x9"): "--size and --mode are for a folder",
        ("fit", "labels.csv", *LABELS): "--labels are those of a folder",
    }.items():
        assert said in refused(*arguments, *FIT), arguments
    predict = ["predict", "model.safetensors"]
    assert "holds no pictures (.png" in refused(*predict, "none")
    assert "labels.csv is none" in refused(*predict, "labels.csv")
    Image.fromarray(folder[0]).save("one.png")
    for given in ([], ["--size", "9x9"]):
        said = refused(*predict, "one.png", *given)
        assert "one.png is one picture. Put it in a folder, and name the folder" in said
    assert "give --data FOLDER of pictures" in refused("sweep", "schema.toml")
    assert "'short' is not a size such as 32x32" in refused(*predict, "faces", "--size", "short")
    monkeypatch.setitem(sys.modules, "PIL", None)
    assert "pip install 'skdpfair[images]'" in refused(*predict, "faces")
