"""Run tests on mutants of the package: ``python run_with.py "no noise"``.

All tests that kill a mutant are collected once.  Each mutant then has a process of its own, forked
from there, in which the code of the functions that it changes is replaced.  Without a name, names
come from standard input.  One line of JSON for each tells what failed, and how; ``--measure`` tells
the damage instead.
"""

import gc
import json
import os
import signal
import sys
from importlib import import_module
from pathlib import Path
from types import CodeType, FunctionType

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]
from catalogue import MUTANTS  # noqa: E402

# what the tests of many import when they run
LAZY = ("torch._dynamo", "torch._inductor", "torch.distributed.tensor", "narwhals._pandas_like")

BY_NAME = {mutant.name: mutant for mutant in MUTANTS}


class Mutation:
    """Replaces code in the loaded package, so that all who have imported a function see it."""

    def __init__(self):
        names = {mutant.file.removesuffix(".py").replace("/", ".") for mutant in MUTANTS}
        self.modules = {name: import_module(f"skdpfair.{name}") for name in names}
        functions = [f for f in gc.get_objects() if type(f) is FunctionType]
        self.functions = [f for f in functions if "skdpfair" in f.__code__.co_filename]
        for name in LAZY:
            import_module(name)

    def apply(self, mutant):
        """Put the mutant in place; without effect outside this process."""
        module = self.modules[mutant.file.removesuffix(".py").replace("/", ".")]
        source = Path(module.__file__).read_text()
        assert source.count(mutant.old) == 1, f"{mutant.name!r}: old must occur once"
        old, new = (
            compile(text, module.__file__, "exec")
            for text in (source, source.replace(mutant.old, mutant.new))
        )
        if _own(old) != _own(new):
            exec(new, vars(module))  # a constant: its functions look it up by name
            return
        swaps = dict(_changes(old, new))
        changed = [f for f in self.functions if f.__code__ in swaps]
        assert changed, f"{mutant.name!r}: nothing that is loaded has this code"
        for function in changed:
            function.__code__ = swaps[function.__code__]


def _own(code):
    """Return what a module or function does itself, without the functions that it defines."""
    return code.co_code, [c for c in code.co_consts if not isinstance(c, CodeType)], code.co_names


def _changes(old, new):
    """Yield pairs of code objects that differ, at any depth."""
    pairs = zip(old.co_consts, new.co_consts, strict=True)
    for before, after in pairs:
        if isinstance(before, CodeType) and before != after:
            yield before, after
            yield from _changes(before, after) if _own(before) == _own(after) else ()


class Mutants:
    """A plugin of pytest that runs the tests of one mutant after another."""

    def __init__(self, names, channel):
        self.names, self.channel = names, channel
        self.failures, self.is_skipped = [], False

    def pytest_exception_interact(self, node, call, report):
        """Collect the kinds of the errors by which tests fail, and what they say."""
        self.failures.append((call.excinfo.typename, report.longreprtext))

    def pytest_runtest_logreport(self, report):
        """Note a test that these versions of the libraries cannot run."""
        self.is_skipped |= report.skipped

    def pytest_runtestloop(self, session):
        """Fork a process for each mutant."""
        mutation = Mutation()
        gc.freeze()  # pytest collects garbage again and again
        for name in self.names:
            mutant = BY_NAME[name.strip()]
            pid = os.fork()
            if pid == 0:
                signal.alarm(300)
                self._child(session, mutation, mutant)
            status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            if status:
                print(json.dumps({"kinds": [], "text": f"exit status {status}"}), file=self.channel)
            self.channel.flush()
        return True

    def _child(self, session, mutation, mutant):
        try:
            mutation.apply(mutant)
            for item in session.items:
                if item.nodeid.split("[")[0] == mutant.killed_by or item.nodeid == mutant.killed_by:
                    item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
                if self.failures:
                    break
            kinds = [kind for kind, _ in self.failures] or ["Skipped"] * self.is_skipped
            failures = {"kinds": kinds, "text": str(self.failures)}
        except BaseException as error:
            failures = {"kinds": [], "text": repr(error)}
        print(json.dumps(failures), file=self.channel, flush=True)
        os._exit(0)


def main(name=None):
    """Run the tests of one mutant, or of all that standard input names."""
    os.environ["HYPOTHESIS_PROFILE"] = "first"  # an example that fails is not made smaller
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # of what pytest prints
    tests = [m.killed_by for m in MUTANTS if name in (None, m.name)]
    options = ["-q", "--no-header", "--tb=short", "-p", "no:cacheprovider", "--capture=no"]
    plugin = Mutants(sys.stdin if name is None else [name], channel)
    pytest.main([*options, "--rootdir", str(ROOT), *dict.fromkeys(tests)], plugins=[plugin])


def measure(name):
    """Print a mutant's damage."""
    Mutation().apply(BY_NAME[name])
    from measure import measured

    print(json.dumps(measured(BY_NAME[name])))


if __name__ == "__main__":
    measure(sys.argv[2]) if sys.argv[1:2] == ["--measure"] else main(*sys.argv[1:])
