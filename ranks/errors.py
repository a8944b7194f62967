"""The error tree of the ranks.

RankError
├── BadCheckpoint      the model's files cannot be used; the message names the file and the field
├── StepMismatch       a plan does not fit this rank's state; the step is refused, nothing was run
├── StepSkipped        a plan follows a step that has not run; the step is refused, nothing was run
├── OutOfRoom          the KV pool that the master asked for does not fit
├── BadDevice          the device or the number of ranks cannot be had on this machine
├── BadMessage         bytes on the wire that are no message of ours; the message names the field
├── BadOrder           the master said what does not fit the epoch that this rank is in
├── FellowLost         another rank did not do its part of a step; the message names it and how
├── GivenUp            the master ended the epoch while this rank worked or waited for it
├── StepBroken         a step failed on this rank while fellows may be within its collectives
├── RendezvousFailed   the rendezvous store did not give what the process group needs
│   └── RendezvousTimedOut   nobody has set a key in time
└── MasterLost         the stream to the master ended
"""


class RankError(Exception):
    """Root of all errors that a rank raises on purpose."""


class BadCheckpoint(RankError):
    """The model's files cannot be used."""


class StepMismatch(RankError):
    """A plan does not fit this rank's state; nothing of it was run."""


class StepSkipped(RankError):
    """A plan was written behind a step that has not run; nothing of it was run."""


class OutOfRoom(RankError):
    """The KV pool that the master asked for does not fit on this rank."""


class BadDevice(RankError):
    """The device that the master asked for cannot be had on this machine."""


class BadMessage(RankError):
    """Bytes on the wire that are no message of ours, or one that breaks its own rules."""


class BadOrder(RankError):
    """The master said what does not fit the epoch that this rank is in."""


class FellowLost(RankError):
    """Another rank did not do its part of a step, or did not come; `suspect` if one is known."""

    def __init__(self, message: str, *, suspect: int | None) -> None:
        super().__init__(message)
        self.suspect = suspect


class GivenUp(RankError):
    """The master ended the epoch while this rank worked or waited for it."""


class StepBroken(RankError):
    """A step failed on this rank while fellows may be within its collectives."""


class RendezvousFailed(RankError):
    """The rendezvous store of the master did not give what the process group needs."""


class RendezvousTimedOut(RendezvousFailed):
    """Nobody has set a key of the rendezvous store in time."""


class MasterLost(RankError):
    """The stream to the master ended."""
