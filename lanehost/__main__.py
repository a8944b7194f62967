"""The command `lanehost`, which is `python -m lanehost` too.

A Ctrl-C while it still loads ends it like one that comes later, and not with a traceback.
"""

import sys

_EXIT_STOPPED = 130


def run() -> None:
    """Load the command and run it."""
    try:
        from lanehost.cli import main  # noqa: PLC0415 - loading it takes a while
    except KeyboardInterrupt:
        sys.exit(_EXIT_STOPPED)
    main()


if __name__ == "__main__":
    run()
