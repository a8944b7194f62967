"""The command is loaded late, and a Ctrl-C meanwhile is no traceback."""

import subprocess
import sys
from importlib.metadata import entry_points

import pytest

from lanehost.__main__ import run


def test_it_is_what_the_package_installs():
    (script,) = entry_points(group="console_scripts", name="lanehost")
    assert script.load() is run


def test_it_runs_the_command():
    for args in (["-m", "lanehost"], ["-c", "from lanehost.__main__ import run; run()"]):
        told = subprocess.run([sys.executable, *args, "--version"], capture_output=True, check=True)
        assert told.stdout.startswith(b"lanehost ")


def test_ctrl_c_while_it_loads_ends_it_without_a_traceback(monkeypatch):
    class Interrupted:
        def find_spec(self, name, path=None, target=None):
            if name == "lanehost.cli":
                raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "lanehost.cli", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Interrupted(), *sys.meta_path])
    with pytest.raises(SystemExit) as ended:
        run()
    assert ended.value.code == 130
