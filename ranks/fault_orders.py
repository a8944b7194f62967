"""Where a rank that is to fail on purpose is told so; pure names, without torch.

Only `lanehost chaos` and the tests set the variable. Without it a rank never looks anywhere.
An order is a file with one line, `FAULT POINT`, in the folder that the variable names:

    FAULT   oom raise nan shape stuck stop kill partition, or poison=TOKEN, which stays; note
            does nothing but say in the log that the point is reached
    POINT   load, form: in the start; prefill, pass, decode, step: in a step with one prompt,
            with several, with none, in any; staged, encode: in a slice of a staged pass, or
            while an image is encoded; now: at once, from a thread, for stop, kill and
            partition
"""

from enum import Enum
from pathlib import Path

VARIABLE = "LANEHOST_CHAOS_ORDERS"


class Act(Enum):
    """What a rank does on purpose."""

    OOM = "oom"
    RAISE = "raise"
    NAN = "nan"
    SHAPE = "shape"
    STUCK = "stuck"
    STOP = "stop"
    KILL = "kill"
    PARTITION = "partition"
    POISON = "poison"
    NOTE = "note"


class Point(Enum):
    """Where it does it."""

    LOAD = "load"
    FORM = "form"
    PREFILL = "prefill"
    PASS = "pass"  # noqa: S105 - of prompts
    DECODE = "decode"
    STEP = "step"
    STAGED = "staged"
    ENCODE = "encode"
    NOW = "now"


def order_file(folder: Path, rank: int) -> Path:
    """Name the file of a rank's order."""
    return folder / f"rank-{rank}"
