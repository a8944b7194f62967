"""`python -m lanehost.replicas PARENT ARGUMENTS…`: the command `lanehost`, ended with its parent.

Law: a server never outlives the replica that started it, however that one ends. The kernel
kills it when the thread that started it ends (Linux); what it can miss, a parent that was gone
before, is looked for once it is armed.
"""

import ctypes
import os
import signal
import sys

from lanehost.cli import main

_PR_SET_PDEATHSIG = 1


def end_with_parent(parent: int) -> None:
    """Let the kernel kill this process when the thread of `parent` that started it ends."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl(PR_SET_PDEATHSIG): {os.strerror(number)}")
    if os.getppid() != parent:
        sys.exit(f"lanehost: the process {parent} that started this server is gone")


if __name__ == "__main__":
    end_with_parent(int(sys.argv[1]))
    main(sys.argv[2:], prog_name="lanehost")
