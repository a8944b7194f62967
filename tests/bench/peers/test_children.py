"""What is started is ended, within its time, and its memory is known."""

import os
import signal
import sys
from pathlib import Path

import pytest

from bench.peers.children import ChildFailed, PeakMemory, family, peak_bytes, run, serving

PYTHON = sys.executable
FOREVER = "import signal; signal.pause()"


def is_there(pid):
    return Path(f"/proc/{pid}").exists()


def test_a_program_gives_what_it_wrote():
    ran = run([PYTHON, "-c", "import sys; print('out'); sys.stderr.write('err')"], limit_s=50)

    assert (ran.out, ran.err) == ("out\n", "err")


def test_a_program_that_fails_is_named_with_its_last_words():
    with pytest.raises(ChildFailed, match=r"ended with 3: (?s:.*)no such model"):
        run([PYTHON, "-c", "import sys; print('no such model'); sys.exit(3)"], limit_s=50)


def test_a_program_that_cannot_start_is_named():
    with pytest.raises(ChildFailed, match="/no/such/program cannot be started"):
        run(["/no/such/program"], limit_s=1)


def test_a_program_that_takes_too_long_is_ended(tmp_path):
    told = tmp_path / "pid"
    program = f"import os, pathlib; pathlib.Path({str(told)!r}).write_text(str(os.getpid()))\n"

    with pytest.raises(ChildFailed, match="took longer than 3 s"):
        run([PYTHON, "-c", program + FOREVER], limit_s=3)

    assert not is_there(told.read_text())


def test_a_server_is_gone_after_its_block():
    with serving([PYTHON, "-c", FOREVER]) as server:
        assert is_there(server.process.pid)
        server.check()

    assert not is_there(server.process.pid)


def test_a_server_that_ended_early_is_told_with_its_last_words():
    with serving([PYTHON, "-c", "import sys; sys.exit('no room')"]) as server:
        server.process.wait()
        with pytest.raises(ChildFailed, match="ended with 1: no room"):
            server.check()


def test_a_server_is_gone_when_its_block_fails():
    with pytest.raises(ZeroDivisionError), serving([PYTHON, "-c", FOREVER]) as server:
        _ = 1 / 0

    assert not is_there(server.process.pid)


def test_memory_is_the_sum_over_a_program_and_what_it_started(tmp_path):
    ready = tmp_path / "ready"
    child = f"import pathlib; x = b'1' * (64 << 20); pathlib.Path({str(ready)!r}).touch();{FOREVER}"
    program = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    with serving([PYTHON, "-c", program]) as server:
        memory = PeakMemory(server.process.pid)
        while not ready.exists():
            server.check()
        memory.look()
        pids = family(server.process.pid)
        alone = peak_bytes(server.process.pid)
        try:
            assert len(pids) == 2
            assert alone is not None
            assert memory.total > alone + (64 << 20)
        finally:
            for pid in pids[1:]:
                os.kill(pid, signal.SIGTERM)


def test_the_memory_of_one_that_has_ended_is_kept():
    with serving([PYTHON, "-c", FOREVER]) as server:
        memory = PeakMemory(server.process.pid)
        memory.look()
        had = memory.total
    memory.look()

    assert had > 0
    assert memory.total == had
    assert peak_bytes(server.process.pid) is None
