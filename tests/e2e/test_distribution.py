"""The files of a release hold what they must, can be rebuilt, and work without the clone."""

import json
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import venv
from email.parser import Parser
from hashlib import sha256
from itertools import chain
from pathlib import Path
from zipfile import ZipFile

import pytest
import yaml
from packaging.version import Version

import skdpfair
from skdpfair.cli import COMMANDS

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EPOCH = "1700000000"


def _run(command, **options):
    """Return what a command prints; an error shows it."""
    done = subprocess.run(command, text=True, capture_output=True, check=False, **options)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    return done.stdout


def _build(source, folder, **options):
    """Build the sdist, and the wheel from it, as `make dist` does; return both paths."""
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), "."]
    _run(command, cwd=source, env=os.environ | {"SOURCE_DATE_EPOCH": EPOCH}, **options)
    return next(folder.glob("*.tar.gz")), next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    return _build(ROOT, tmp_path_factory.mktemp("dist"))


def _in_clone(*options):
    """Return the files of the clone that git lists."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a clone")
    listed = _run(["git", "ls-files", "-z", *options], cwd=ROOT)
    return {name for name in listed.split("\0") if (ROOT / name).is_file()}


def test_equal_sources_give_equal_bytes(built, tmp_path):
    """Other times, folders and permissions of the files change nothing."""
    with tarfile.open(built[0]) as sdist:
        sdist.extractall(tmp_path, filter="data")
    source = next(tmp_path.iterdir())
    for path in source.rglob("*"):
        os.utime(path, (1e9, 1e9))
        path.chmod(0o700 if path.is_dir() else 0o600)
    again = _build(source, tmp_path / "dist", umask=0o077 if os.name == "posix" else -1)
    digests = [[sha256(path.read_bytes()).hexdigest() for path in pair] for pair in (built, again)]
    assert digests[0] == digests[1]


def test_sdist_and_wheel_hold_what_is_tracked(built):
    with tarfile.open(built[0]) as sdist:
        in_sdist = {name.partition("/")[2] for name in sdist.getnames()}
    in_wheel = {name for name in ZipFile(built[1]).namelist() if ".dist-info/" not in name}
    outside = (".ci/", ".github/", ".pre-commit-config.yaml", "benchmarks/results/")
    tracked = {name for name in _in_clone() if not name.startswith(outside)}
    allowed = tracked | _in_clone("--others", "--exclude-standard") | {"PKG-INFO"}
    assert tracked <= in_sdist <= allowed
    assert {name for name in tracked if name.startswith("skdpfair/")} <= in_wheel
    assert in_wheel == {name for name in in_sdist if name.startswith("skdpfair/")}
    assert not [name for name in in_sdist if name.startswith(outside)]
    assert built[0].stat().st_size < 4_000_000


def test_wheel_holds_the_licences(built):
    info = f"skdpfair-{skdpfair.__version__}.dist-info"
    with ZipFile(built[1]) as wheel:
        for licence in PROJECT["license-files"]:
            assert wheel.read(f"{info}/licenses/{licence}") == (ROOT / licence).read_bytes()
    data = {path.name for path in (ROOT / "skdpfair/datasets/data").iterdir()}
    assert data == {"adult.data.gz", "adult.test.gz", "ADULT_LICENSE.md"}  # a licence for each set


def test_description_on_an_index_needs_no_clone(built):
    with ZipFile(built[1]) as wheel:
        name = next(name for name in wheel.namelist() if name.endswith("/METADATA"))
        metadata = Parser().parsestr(wheel.read(name).decode())
    text = metadata.get_payload()
    assert metadata["Version"] == skdpfair.__version__
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert "from skdpfair import DPFairClassifier" in text
    assert not re.search(r"\]\((?!https?://)|requirements/|make (demo|test)", text)


@pytest.fixture(scope="module")
def clean_python(built, tmp_path_factory):
    """A Python that has the wheel, and the libraries of this one; the clone is not on its path."""
    folder = tmp_path_factory.mktemp("clean")
    venv.create(folder / "env", symlinks=os.name != "nt")
    python = folder / "env" / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps"]
    _run([*pip, "--no-index", "--no-compile", str(built[1])], cwd=folder)
    packages = [Path(path) for path in sys.path if path.endswith("-packages")]
    home = _run([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]).strip()
    # folders that a .pth file names are on the path, while their own .pth files are not read: no
    # editable install leads to the clone
    (Path(home) / "libraries.pth").write_text("\n".join(map(str, packages)))
    return python


def _in_clean_python(python, *arguments, folder):
    unset = {"PYTHONPATH", "SKDPFAIR_DATA"}
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    return _run([python, *arguments], cwd=folder, env=environment)


def test_command_line_readme_and_pages_work_from_the_wheel(clean_python, tmp_path):
    """In one process, as each takes seconds to start."""
    code = """
import sys
from skdpfair.cli import main
main(["fit", "--help"], "skdpfair", standalone_mode=False)
print("torch" in sys.modules)
"""
    code += re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)[1]
    code += """
import skdpfair
from skdpfair.datasets import make_two_groups
from skdpfair.report import model_page
data = make_two_groups(300, random_state=0)
clf = DPFairClassifier("dpsgd", epsilon=1.0, max_steps=5).fit(data.data, data.target)
assert "<html" in model_page(clf)
print(skdpfair.__file__, skdpfair.__version__)
"""
    printed = _in_clean_python(clean_python, "-c", code, folder=tmp_path).splitlines()
    assert "False" in printed, "the help of a command imports torch"
    assert any("are differentially private" in line for line in printed)
    file, version = printed[-1].rsplit(" ", 1)
    assert Path(file).resolve().is_relative_to(clean_python.parents[1].resolve())
    assert version == skdpfair.__version__


@pytest.mark.slow
def test_demo_runs_from_the_wheel(clean_python, tmp_path):
    printed = _in_clean_python(clean_python, "-m", "skdpfair", "demo", folder=tmp_path)
    assert "global_adapt" in printed
    assert (tmp_path / "skdpfair-demo" / "group_table.csv").exists()


def test_versions_and_dates_are_the_same_in_all_files():
    """Between releases, the version ends with .dev0; the other files name the last release."""
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    zenodo = json.loads((ROOT / ".zenodo.json").read_text())
    changelog = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.M)
    released, date = re.fullmatch(r"(\S+) \((\d{4}-\d\d-\d\d)\)", changelog[1]).groups()
    recipe = yaml.safe_load((ROOT / "recipe/recipe.yaml").read_text())
    assert changelog[0] == "Unreleased"
    assert {citation["version"], zenodo["version"], recipe["context"]["version"]} == {released}
    assert {str(citation["date-released"]), zenodo["publication_date"]} == {date}
    assert (citation["title"], citation["keywords"]) == (zenodo["title"], zenodo["keywords"])
    assert f'"{released[: released.rindex(".")]}"' in (ROOT / "docs/versions.js").read_text()
    version = Version(skdpfair.__version__)
    assert version > Version(released) if version.is_devrelease else str(version) == released


def test_conda_recipe_requires_what_the_package_requires():
    recipe = yaml.safe_load((ROOT / "recipe/recipe.yaml").read_text())
    extras = re.search(r'"\.\[(.*)\]"', (ROOT / "README.md").read_text())[1].split(",")
    of_extras = (PROJECT["optional-dependencies"][extra] for extra in extras)
    parts = [text.partition(">=") for text in chain(PROJECT["dependencies"], *of_extras)]
    in_conda = {"torch": "pytorch", "matplotlib": "matplotlib-base"}
    run = [f"{in_conda.get(name, name)} >={version}" for name, _, version in parts]
    assert recipe["requirements"]["run"] == ["python >=${{ python_min }}", *run]
    assert PROJECT["requires-python"] == f">={recipe['context']['python_min']}"
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    assert recipe["requirements"]["host"][2:] == [r.replace(">=", " >=") for r in build]
    scripts = [line.split() for test in recipe["tests"] for line in test.get("script", ())]
    assert {command for _, command, *_ in scripts} <= {"--version", *COMMANDS}
    assert recipe["about"]["license"] == PROJECT["license"]
    assert recipe["about"]["license_file"] == PROJECT["license-files"]
