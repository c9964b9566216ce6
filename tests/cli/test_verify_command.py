"""skdpfair verify: whether a file holds a private release and nothing more."""

import json

import pytest

from skdpfair.report import model_page


def test_verify_of_a_release(model, run):
    assert "<code>skdpfair verify FILE</code>" in model_page("model.safetensors")
    done = run("verify", "model.safetensors")
    assert "model.safetensors: verified" in done.stdout and not done.stderr
    printed = json.loads(run("verify", "model.safetensors", "--json").stdout)
    assert printed == {"file": "model.safetensors", "verified": True, "problem": None}


@pytest.mark.parametrize("content", [None, b"", b"a,b\n1,2\n", b"<html></html>", b"\xff<"])
def test_verify_of_other_files_ends_with_status_1(content, model, released, run):
    path = model / "other.safetensors"
    path.write_bytes(released[0][:-1] if content is None else content)
    done = run("verify", path, status=1)
    assert not done.stdout and "Not verified:" in done.stderr
    printed = json.loads(run("verify", path, "--json", status=1).stdout)
    assert printed["verified"] is False and printed["problem"]


def test_verify_of_no_file_ends_with_status_2(folder, refused):
    refused("verify", folder / "none")
    refused("verify", folder)
