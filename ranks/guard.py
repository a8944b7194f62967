"""What ends a rank when it has no master any more, or when it is told to end.

Laws: a rank never outlives its master by more than a moment, in any phase, also in
the middle of a long native call. Two ways, as one alone is not enough: the kernel
kills the rank when the thread that spawned it ends (Linux; needs no help from the
interpreter), and a thread reads the death pipe, whose other end only the master
holds (any system; also covers a master that died before the first took hold).

SIGTERM ends the rank at once with exit code 0, from a thread, so that it does not wait
for the main thread to come back from native code. SIGINT is ignored: Ctrl-C is the master's.

A rank that has come to its end does not wait for what its threads compute (`end_process`).

This module imports the standard library only: it must be at work before torch loads.
"""

import contextlib
import ctypes
import os
import signal
import sys
import threading
from typing import NoReturn

EXIT_MASTER_GONE = 3
_PR_SET_PDEATHSIG = 1


def stand_guard(death_fd: int) -> None:
    """Arm all of it; call from the main thread, before any other thread is started.

    Args:
        death_fd: Read end of the death pipe; its end of file means that the master is gone.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Blocked here, so that it is blocked in every later thread and only the waiter takes it.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    threading.Thread(target=_exit_on_term, name="guard-term", daemon=True).start()
    if sys.platform == "linux":
        die_with_parent()
    threading.Thread(
        target=_exit_on_end_of_file, args=(death_fd,), name="guard-death-pipe", daemon=True
    ).start()


def die_with_parent() -> None:
    """Let the kernel kill this process when the thread that spawned it ends (Linux).

    A parent that is gone already sends nothing any more: the death pipe covers that.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl(PR_SET_PDEATHSIG): {os.strerror(number)}")


def end_process(code: int) -> NoReturn:
    """End this process at once, whatever its other threads do; what was said is written out.

    The interpreter's own end would stop a thread as it comes back from native code, in the
    middle of C++, which aborts: an image may be half encoded.
    """
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def _exit_on_term() -> NoReturn:
    signal.sigwait({signal.SIGTERM})
    os._exit(0)


def _exit_on_end_of_file(death_fd: int) -> NoReturn:
    # Nothing is ever written to the pipe: a read returns when its last writer is gone.
    while os.read(death_fd, 1):
        pass
    os._exit(EXIT_MASTER_GONE)
