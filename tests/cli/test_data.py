"""The command that looks for data sets."""

import json

from click.testing import CliRunner

from skdpfair.cli import main


def invoke(*arguments):
    return CliRunner().invoke(main, ["data", *map(str, arguments)])


def test_what_is_recorded_passes(outside_data):
    done = invoke("verify", "--folder", outside_data, "--json")
    found = json.loads(done.output)
    assert done.exit_code == 0 and set(found) == {"adult", "dutch"}
    assert found["adult"] == {"records": 48_842, "problem": None}
    assert found["dutch"]["records"] == 60_420


def test_what_is_missing_or_damaged_is_named(tmp_path):
    (tmp_path / "dutch_census_2001.arff").write_text("@relation nothing")
    done = invoke("verify", "adult", "dutch", "--folder", tmp_path)
    assert done.exit_code == 1 and "Traceback" not in done.output
    words = " ".join(done.output.split())
    assert "adult: as recorded, 48,842 records" in words
    assert "The file is damaged or another version" in words
    (tmp_path / "dutch_census_2001.arff").unlink()
    words = " ".join(invoke("verify", "dutch", "--folder", tmp_path).output.split())
    assert "data_home" not in words and "by --folder or" in words
    assert "dutch: " in words and "SKDPFAIR_DATA" in words


def test_another_name_is_a_usage_error():
    assert invoke("verify", "iris").exit_code == 2
