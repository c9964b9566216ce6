"""Each source file has its test file, which has no other name; each method a test of formulas."""

from pathlib import Path

import pytest

from skdpfair.methods import METHODS

ROOT = Path(__file__).resolve().parents[2]
SOURCES = [
    path.relative_to(ROOT / "skdpfair").with_name(path.stem.strip("_"))
    for path in sorted((ROOT / "skdpfair").rglob("*.py"))
    if path.name not in ("__init__.py", "__main__.py")
]
ROOMS = sorted({source.parts[0] for source in SOURCES if len(source.parts) > 1})


@pytest.mark.parametrize("source", SOURCES, ids=str)
def test_source_has_its_test_file(source):
    assert (ROOT / "tests" / source.with_name(f"test_{source.name}.py")).exists()


@pytest.mark.parametrize("room", ROOMS)
def test_files_of_a_room_test_one_of_its_sources(room):
    """A second aspect of a big file may lie in ``test_stem_<aspect>.py``."""
    tests = {
        path.relative_to(ROOT / "tests") for path in (ROOT / "tests" / room).rglob("test_*.py")
    }
    stems = {source.parent / f"test_{source.name}" for source in SOURCES}
    lost = [t for t in tests if not any(f"{t.with_suffix('')}_".startswith(f"{s}_") for s in stems)]
    assert lost == []


@pytest.mark.parametrize("name", METHODS)
def test_every_method_has_a_file_that_tests_its_formula(name):
    stem = METHODS[name].__module__.rpartition(".")[2].strip("_")
    texts = [path.read_text() for path in (ROOT / "tests" / "methods").glob(f"test_{stem}*.py")]
    assert any(f'assert_steps("{name}", ' in text for text in texts)
