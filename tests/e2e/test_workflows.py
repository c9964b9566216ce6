"""Every test runs in some job of continuous integration, beside all that it needs."""

import ast
import re
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
MAKEFILE = (ROOT / "Makefile").read_text()
WORKFLOWS = ROOT / ".github" / "workflows"
# distributions of modules that may not be installed here; others have the name of their module
DISTRIBUTIONS = {"imblearn": "imbalanced-learn", "mlflow": "mlflow-skinny"}
DISTRIBUTIONS |= {module: names[0] for module, names in packages_distributions().items()}
OF_THE_REPOSITORY = {"skdpfair", "benchmarks", "docs", "tests", "catalogue", "measure"}
sys.path.insert(0, str(ROOT / "tests" / "mutants"))
from catalogue import MUTANTS  # noqa: E402

pytestmark = pytest.mark.skipif(not WORKFLOWS.is_dir(), reason="an sdist has no workflows")


def rule(target):
    """Return the recipe of a target of the Makefile, after those of what it needs."""
    found = re.search(rf"^{re.escape(target)}:(.*)\n((?:\t.*\n)*)", MAKEFILE, re.M)
    needed, own = found.groups() if found else ("", "")
    return "\n".join([*map(rule, needed.split()), own.replace("\\\n", " ")])


def jobs():
    """Return the commands of each job, those of make written out."""
    found = {}
    for path in sorted(WORKFLOWS.glob("*.yml")):
        for name, job in yaml.safe_load(path.read_text())["jobs"].items():
            commands = "\n".join(step.get("run", "") for step in job["steps"])
            targets = re.findall(r"^make (?:-C \S+ )?(\S+)", commands, re.M)
            targets += re.findall(r"&& make (?:-C \S+ )?(\S+)", commands)
            found[f"{path.stem}: {name}"] = "\n".join([commands, *map(rule, targets)])
    return found


def wanted(extra):
    """Return the distributions that an extra names, those of extras in it included."""
    for text in EXTRAS[extra]:
        requirement = Requirement(text)
        if requirement.name == "skdpfair":
            for inner in requirement.extras:
                yield from wanted(inner)
        else:
            yield requirement.name


def installed(commands):
    """Return all distributions that a job has, in lower case with hyphens."""
    extras = {e for found in re.findall(r"\[([\w,]+)\]", commands) for e in found.split(",")}
    todo = [name for extra in extras & EXTRAS.keys() for name in wanted(extra)]
    if extras & EXTRAS.keys():
        todo += [Requirement(text).name for text in PROJECT["dependencies"]]
    for file in re.findall(r"-r (requirements/\S+)", commands):
        todo += re.findall(r"^[\w-]+", (ROOT / file).read_text(), re.M)
    done = set()
    while todo:
        name = re.sub("[-_.]+", "-", todo.pop().lower())
        if name not in done:
            done.add(name)
            try:
                needed = map(Requirement, requires(name) or ())
            except PackageNotFoundError:  # what is not here cannot be asked what it needs
                continue
            todo += [r.name for r in needed if r.marker is None or r.marker.evaluate({"extra": ""})]
    return done


JOBS = {job: commands for job, commands in jobs().items() if "pytest " in commands}
HAS = {job: installed(commands) for job, commands in JOBS.items()}


def runs(job, file):
    """Return whether a job's pytest collects a file of tests, slow ones aside."""
    call = re.search(r"-m pytest (.*)", JOBS[job])[1]
    paths = re.findall(r"(?<=\s)tests/[\w/.]+", call)
    return "-m slow" not in call and (not paths or any(file.startswith(p) for p in paths))


def needed(tree):
    """Return the modules that code imports, and those without which it is skipped."""
    imports, skips = set(), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imports |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            imports.add(node.module)
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "importorskip":
            skips.add(node.args[0].value)
    top = [{name.partition(".")[0] for name in names} for names in (imports, skips)]
    return [names - OF_THE_REPOSITORY - sys.stdlib_module_names for names in top]


def distribution(module):
    return re.sub("[-_.]+", "-", DISTRIBUTIONS.get(module, module).lower())


FILES = [p.relative_to(ROOT).as_posix() for p in sorted((ROOT / "tests").rglob("test_*.py"))]


@pytest.mark.parametrize("file", FILES)
def test_jobs_have_what_their_tests_import_and_no_test_is_skipped_in_all(file):
    imports, skips = needed(ast.parse((ROOT / file).read_text()))
    jobs_of_file = [job for job in HAS if runs(job, file)]
    for job in jobs_of_file:
        assert {distribution(m) for m in imports - skips} <= HAS[job], job
    for module in map(distribution, skips):
        assert any(module in HAS[job] for job in jobs_of_file), f"{module} is in no job"


def test_what_kills_a_mutant_is_skipped_in_no_job():
    """A mutant whose test is skipped survives."""
    trees = {}
    for file, *_, name in {tuple(m.killed_by.partition("[")[0].split("::")) for m in MUTANTS}:
        tree = trees.setdefault(file, ast.parse((ROOT / file).read_text()))
        test = next(n for n in ast.walk(tree) if getattr(n, "name", None) == name)
        of_module = [n for n in tree.body if not hasattr(n, "name")]
        _, skips = needed(ast.Module([*of_module, test], []))
        for job in (job for job in HAS if runs(job, "tests/mutants/test_mutants.py")):
            assert set(map(distribution, skips)) <= HAS[job], (job, file, name)


def test_workflows_need_no_data_from_outside():
    for path in WORKFLOWS.glob("*.yml"):
        assert yaml.safe_load(path.read_text())["env"]["CI"] == "", path.name
