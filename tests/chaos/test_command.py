"""`lanehost chaos` as people run it, for a few seconds on a tiny model."""

import json
import subprocess
import sys

import pytest

from tests.support.tiny_served import write_tiny_folder

pytestmark = [pytest.mark.ranks, pytest.mark.timeout(600)]


def test_the_command_breaks_a_tiny_server_and_finds_every_law_held(tmp_path):
    folder, out = write_tiny_folder(tmp_path / "tiny"), tmp_path / "out.json"
    args = "--duration 600 --count 2 --streams 4 --requests 4 --seed 3 --faults kill,oom --pause 1"
    run = subprocess.run(
        [sys.executable, "-m", "lanehost", "chaos", "--model", str(folder), *args.split(),
         "--json", str(out), "--plot", str(tmp_path / "out.svg"),
         "--", "--dtype", "float32", "--threads", "1"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout + run.stderr
    told = json.loads(out.read_text())
    assert told["command"] == "chaos"
    assert [one["fault"] for one in told["faults"]] == ["kill", "oom"] or len(told["faults"]) == 2
    assert told["requests"]["sent"] == told["requests"]["equal"] > 0
    assert told["requests"]["after"] == {"asked": 4, "equal": 4}
    assert "Every law held." in run.stdout
    assert (tmp_path / "out.svg").stat().st_size > 0
