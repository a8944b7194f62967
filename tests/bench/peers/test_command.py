"""The command names what is absent and ends with 1."""

import json

from click.testing import CliRunner

from bench.peers.command import main


def test_a_part_that_cannot_be_measured_is_named_and_no_figure_is_made_up(tmp_path):
    told = tmp_path / "told.json"

    ran = CliRunner().invoke(main, ["--only", "first-token", "--json", str(told)])

    assert ran.exit_code == 1
    assert "first-token: not measured: build llama.cpp and give the folder" in ran.output
    found = json.loads(told.read_text(encoding="utf-8"))
    assert list(found["first-token"]) == ["without"]


def test_a_side_that_there_is_not_is_refused():
    ran = CliRunner().invoke(main, ["--side", "vllm"])

    assert ran.exit_code == 2
    assert "'vllm' is not one of" in ran.output
