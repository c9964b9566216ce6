"""Command line: python -m benchmarks.papers NAME."""

import argparse
import sys
import warnings

from benchmarks.papers import documentation, rendering
from benchmarks.papers.runner import STUDIES, folder_of, reproduce
from skdpfair.exceptions import DataIntegrityError


def main(arguments=None) -> int:
    """Train, list, write or verify, as asked; return the exit status."""
    parser = _parser()
    asked = parser.parse_args(arguments)
    if asked.verify:
        return _verify()
    if asked.write:
        documentation.write()
        return 0
    if asked.list or asked.name is None:
        for study in STUDIES.values():
            print(f"{study.name:18}{study.title} ({study.source})")
        return 0
    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        try:
            found = reproduce(
                asked.name,
                asked.output,
                sound=not asked.as_published,
                seeds=asked.seeds,
                epochs=asked.epochs,
                rows=asked.rows,
                device=asked.device,
                n_jobs=asked.jobs,
            )
        except (ValueError, TypeError, DataIntegrityError) as error:
            parser.error(str(error))
        except KeyboardInterrupt as error:
            print(error, file=sys.stderr)
            return 130
    print(rendering.page(found))
    print(f"Written to {asked.output or folder_of(found.study, found.options)}/")
    return 0


def _parser():
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.papers",
        description="Train the table or figure NAME of a paper again, and compare it with print. "
        "Finished runs are kept: run the same command again to resume. Data sets that "
        "are not in the package are looked for in the folder that SKDPFAIR_DATA names.",
    )
    add = parser.add_argument
    add("name", nargs="?", metavar="NAME", help="what to train, see --list")
    add("--list", action="store_true", help="list what can be reproduced, and stop")
    add(
        "--as-published",
        action="store_true",
        help="train what the paper prints instead of this library's algorithms and settings that "
        "give the table; epsilon is honest in both",
    )
    add("--output", "-o", metavar="FOLDER", help="run the same command again to resume")
    add("--seeds", type=int, default=5, help="runs of each row (5)")
    add("--epochs", type=int, help="fewer epochs than the paper's, to look sooner")
    add("--rows", nargs="+", metavar="ROW", help="rows to train; the usual ones by default")
    add("--device", default="cpu", help="cpu or cuda (cpu)")
    add("--jobs", type=int, default=-1, help="processes; -1 for all cores (-1)")
    add("--write", action="store_true", help="write the documentation's tables from kept runs")
    add("--verify", action="store_true", help="check them instead; status 1 if one is outdated")
    return parser


def _verify():
    wrong = documentation.outdated()
    for path in wrong:
        print(f"{path} differs from the kept runs: run python -m benchmarks.papers --write")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
