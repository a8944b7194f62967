"""The error tree of the ranks.

RankError
├── BadCheckpoint      the model's files cannot be used; the message names the file and the field
├── StepMismatch       a plan does not fit this rank's state; the step is refused, nothing was run
├── OutOfRoom          the KV pool that the master asked for does not fit
└── MasterLost         the stream to the master ended
"""


class RankError(Exception):
    """Root of all errors that a rank raises on purpose."""


class BadCheckpoint(RankError):
    """The model's files cannot be used."""


class StepMismatch(RankError):
    """A plan does not fit this rank's state; nothing of it was run."""


class OutOfRoom(RankError):
    """The KV pool that the master asked for does not fit on this rank."""


class MasterLost(RankError):
    """The stream to the master ended."""
