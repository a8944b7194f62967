"""A server of a replica: ready by its own word, drained, and never left over."""

import asyncio
import signal
import subprocess
import sys

import psutil
import pytest

from lanehost.errors import StartupFailed
from lanehost.replicas.server_process import ServerProcess, server_command

READY = "print('lanehost serves tiny: gRPC 127.0.0.1:1, HTTP http://127.0.0.1:2. Try', flush=True)"
ON_TERM = "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: sys.exit(7));"
DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"


async def start(program, *, ready_timeout_s=20.0, end_timeout_s=20.0):
    return await ServerProcess.start(
        (sys.executable, "-c", program),
        ready_timeout_s=ready_timeout_s,
        end_timeout_s=end_timeout_s,
    )


async def test_it_is_ready_by_the_line_with_its_addresses_and_stops_by_its_own_drain():
    server = await start(f"{ON_TERM} print('x', flush=True); {READY}; time.sleep(60)")
    assert server.url == "http://127.0.0.1:2"
    assert server.exit_code is None
    assert await server.stop() == 7
    assert await server.stop() == 7


async def test_one_that_does_not_drain_in_time_is_killed():
    server = await start(f"{DEAF} {READY}; time.sleep(60)", end_timeout_s=0.1)
    assert await server.stop() == -signal.SIGKILL


async def test_one_that_ends_before_it_is_ready_is_refused_with_its_code():
    with pytest.raises(StartupFailed, match="ended with code 5 before it was ready"):
        await start("import sys; print('no'); sys.exit(5)")


async def test_one_that_is_not_ready_in_time_is_killed():
    with pytest.raises(StartupFailed, match=r"not ready within 0\.2 s"):
        await start("import time; time.sleep(60)", ready_timeout_s=0.2)


async def test_its_end_is_seen():
    server = await start(f"import os; {READY}; os._exit(3)")
    async with asyncio.timeout(20):
        assert await server.exited() == server.exit_code == 3


def test_it_runs_the_command_lanehost():
    said = subprocess.run(
        server_command(["--version"]), capture_output=True, text=True, check=True
    ).stdout
    assert said.startswith("lanehost ")


def test_it_ends_with_the_process_that_started_it_however_that_ends():
    program = (
        "import os, subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', "
        "'import sys, time;"
        "from lanehost.replicas.__main__ import end_with_parent;"
        "end_with_parent(int(sys.argv[1])); print(0, flush=True); time.sleep(60)',"
        " str(os.getpid())], stdout=subprocess.PIPE)\n"
        "child.stdout.readline()\n"
        "print(child.pid, flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    parent = subprocess.run(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=False
    )
    pid = int(parent.stdout)
    _, alive = psutil.wait_procs([psutil.Process(pid)] if psutil.pid_exists(pid) else [], 10)
    assert all(process.status() == psutil.STATUS_ZOMBIE for process in alive)


def test_it_does_not_start_for_a_process_that_is_gone_already():
    program = "from lanehost.replicas.__main__ import end_with_parent; end_with_parent(1 << 30)"
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 1
    assert "is gone" in ended.stderr
