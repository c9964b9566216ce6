"""Run tests with one mutant in place of the package: ``python run_with.py "no noise"``.

Prints, as its last line, what failed and how.  ``--measure`` prints the damage instead.
``--serve`` reads pairs of a mutant's name and a file from standard input, and forks a child for
each that writes to the file, so that what the package needs is imported only once.
"""

import gc
import json
import os
import signal
import sys
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import PathFinder, SourceFileLoader
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# what tests import, the package apart
HEAVY = ("dp_accounting", "fairlearn.metrics", "opacus", "scipy.stats", "skorch", "torch._dynamo")
HEAVY += ("pytest", "hypothesis.strategies", "sklearn.model_selection", "sklearn.pipeline", "click")


class MutantLoader(SourceFileLoader):
    """Loads a module from its source with one place replaced, never from a cache."""

    mutant = None

    def get_code(self, fullname):
        """Compile the mutated source."""
        text = Path(self.path).read_text()
        times = text.count(self.mutant.old)
        if times != 1:
            raise SystemExit(f"{self.mutant.name!r}: old occurs {times} times in {self.path}")
        MutantLoader.used = True
        return compile(text.replace(self.mutant.old, self.mutant.new), self.path, "exec")


class Finder(MetaPathFinder):
    """Finds the mutated module before anybody else does."""

    def __init__(self, mutant):
        self.path = str(ROOT / "skdpfair" / mutant.file)

    def find_spec(self, fullname, path=None, target=None):
        """Return the module's spec with our loader."""
        if not fullname.startswith("skdpfair"):
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.origin != self.path:
            return None
        spec.loader = MutantLoader(fullname, spec.origin)
        return spec


class Failures:
    """Collects the kinds of the errors by which tests fail."""

    def __init__(self):
        self.kinds = []

    def pytest_exception_interact(self, node, call, report):
        """Called by pytest."""
        self.kinds.append(call.excinfo.typename)


def install(mutant):
    """Put the mutant in place of its module, which must not be loaded yet."""
    loaded = [name for name in sys.modules if name.split(".")[0] == "skdpfair"]
    if loaded:
        raise SystemExit(f"loaded before the mutant: {loaded}")
    MutantLoader.mutant, MutantLoader.used = mutant, False
    sys.meta_path.insert(0, Finder(mutant))


def main(name, *options):
    """Run the mutant's test, or measure its damage."""
    sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]
    from catalogue import MUTANTS

    mutant = next(m for m in MUTANTS if m.name == name)
    install(mutant)
    if "--measure" in options:
        from measure import measured

        print(json.dumps(measured(mutant)))
        return
    import pytest

    failures = Failures()
    arguments = [mutant.killed_by, "-x", "-q", "--no-header", "-p", "no:cacheprovider"]
    arguments += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # of what is loaded already
    code = pytest.main([*arguments, "--rootdir", str(ROOT)], plugins=[failures])
    print(json.dumps({"code": int(code), "kinds": failures.kinds, "used": MutantLoader.used}))


def serve():
    """Fork a child for each line of standard input, and tell how it ended."""
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # of plugins that no test here needs
    for heavy in HEAVY:
        import_module(heavy)
    gc.freeze()  # pytest collects garbage again and again
    for line in sys.stdin:
        name, path = json.loads(line)
        pid = os.fork()
        if pid == 0:
            signal.alarm(300)
            _child(name, path)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


def _child(name, path):
    code = 1
    try:
        out = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(out, 1)
        os.dup2(out, 2)
        main(name)
        code = 0
    except BaseException as error:
        print(repr(error))
    finally:
        sys.stdout.flush()
        os._exit(code)


if __name__ == "__main__":
    serve() if "--serve" in sys.argv else main(*sys.argv[1:])
