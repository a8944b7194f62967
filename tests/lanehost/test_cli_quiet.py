import os
import subprocess
import sys

import pytest


@pytest.mark.parametrize(("given", "wanted"), [(None, "NONE"), ("INFO", "INFO")])
def test_grpc_finds_its_log_off_when_it_is_loaded_unless_asked_for(given, wanted) -> None:
    code = (
        "import os, sys, lanehost.cli_quiet\n"
        "assert 'grpc' not in sys.modules\n"
        "import lanehost.cli\n"
        "print(os.environ['GRPC_VERBOSITY'])"
    )
    env = {name: value for name, value in os.environ.items() if name != "GRPC_VERBOSITY"}
    env |= {} if given is None else {"GRPC_VERBOSITY": given}
    command = [sys.executable, "-c", code]
    run = subprocess.run(command, env=env, capture_output=True, check=True, timeout=30, text=True)
    assert run.stdout == f"{wanted}\n"


def test_the_command_loads_it_before_grpc() -> None:
    code = (
        "import sys\n"
        "class Seen:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name in ('grpc', 'lanehost.cli_quiet'):\n"
        "            print(name)\n"
        "sys.meta_path.insert(0, Seen())\n"
        "import lanehost.cli"
    )
    command = [sys.executable, "-c", code]
    run = subprocess.run(command, capture_output=True, check=True, timeout=30, text=True)
    assert run.stdout == "lanehost.cli_quiet\ngrpc\n"
