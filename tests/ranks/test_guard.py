"""The guard ends a rank with its master, in a process of its own, each way by itself."""

import os
import signal
import subprocess
import sys

import pytest

from ranks.guard import EXIT_MASTER_GONE
from tests.support.processes import all_end

GONE_WITHIN_S = 2.0
SEIZE = "import re; re.match('(a+)+$', 'a' * 64 + 'b')"
STAND = "import sys; from ranks.guard import stand_guard; stand_guard(int(sys.argv[1]));"
SAY_READY = "print('ready', flush=True);"


def start_guarded(code, death_fd, *, stdin=None):
    child = subprocess.Popen(
        [sys.executable, "-c", STAND + SAY_READY + code, str(death_fd)],
        pass_fds=(death_fd,),
        stdout=subprocess.PIPE,
        stdin=stdin,
        start_new_session=True,
    )
    assert child.stdout.readline() == b"ready\n"
    return child


def exit_code(child, *, within_s):
    assert all_end([child.pid], within_s=within_s)
    return child.wait()


@pytest.fixture
def death_pipe():
    read_end, write_end = os.pipe()
    yield read_end, write_end
    os.close(read_end)


def test_the_end_of_the_death_pipe_ends_the_process_in_a_long_native_call(death_pipe):
    read_end, write_end = death_pipe
    with start_guarded("import time; time.sleep(60)", read_end) as child:
        os.close(write_end)
        assert exit_code(child, within_s=GONE_WITHIN_S) == EXIT_MASTER_GONE


def test_a_master_that_died_before_the_guard_stood_is_noticed(death_pipe):
    read_end, write_end = death_pipe
    os.close(write_end)
    code = STAND + "import time; time.sleep(60)"
    with subprocess.Popen(
        [sys.executable, "-c", code, str(read_end)], pass_fds=(read_end,)
    ) as child:
        assert exit_code(child, within_s=GONE_WITHIN_S + 3) == EXIT_MASTER_GONE


def test_term_ends_the_process_at_once_with_exit_code_0(death_pipe):
    read_end, write_end = death_pipe
    with start_guarded("import time; time.sleep(60)", read_end) as child:
        child.send_signal(signal.SIGTERM)
        assert exit_code(child, within_s=GONE_WITHIN_S) == 0
    os.close(write_end)


def test_interrupt_is_the_masters(death_pipe):
    read_end, write_end = death_pipe
    code = "import sys; sys.stdin.read(); print('still here', flush=True)"
    with start_guarded(code, read_end, stdin=subprocess.PIPE) as child:
        child.send_signal(signal.SIGINT)
        child.stdin.close()
        assert child.stdout.readline() == b"still here\n"
        assert exit_code(child, within_s=GONE_WITHIN_S) == 0
    os.close(write_end)


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's parent-death signal is Linux's")
def test_the_kernel_ends_a_process_that_holds_the_interpreter(death_pipe):
    read_end, write_end = death_pipe
    # The pipe stays open here: only the signal of the kernel can end the grandchild.
    parent_code = (
        "import subprocess, sys, os\n"
        f"child = subprocess.Popen([sys.executable, '-c', {STAND + SAY_READY + SEIZE!r},"
        f" '{read_end}'], pass_fds=({read_end},), stdout=subprocess.PIPE)\n"
        "child.stdout.readline()\n"
        "print(child.pid, flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", parent_code],
        pass_fds=(read_end,),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as parent:
        pid = int(parent.stdout.readline())
        parent.kill()
        assert all_end([pid], within_s=GONE_WITHIN_S), f"pid {pid} outlived its parent"
    os.close(write_end)


def test_an_end_waits_for_no_thread_and_loses_no_word():
    code = (
        "import threading, time; from ranks.guard import end_process;"
        "threading.Thread(target=time.sleep, args=(100,)).start();"
        "print('last word', end=''); end_process(5)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=20
    )
    assert (done.returncode, done.stdout) == (5, "last word")
