"""The error tree: a class says who must act.

LanehostError
├── InvalidRequest         the client changes the request; `field` names what is wrong
│   └── ImageRefused       the client sends another image, or fewer
├── Unauthenticated        the client sends a key that the server knows
├── DoesNotFit             the request can never fit; `have` and `limit` are the numbers
├── Overloaded             the client comes back after `retry_after_s`
├── NotJournaled           the operator makes room, or the client comes back later
├── UnknownStream          there is nothing to resume: never accepted, of another, or too long ago
├── UnknownUpload          there is no such upload: never made, of another, or too long ago
├── IndexOutOfRange        the client resumes at a token that it can have had
├── TakenOver              nobody: the stream goes on with whoever resumed it last
├── Cancelled              nobody
├── DeadlinePassed         the client allows more time; `phase` says where the time went
├── RankGroupLost          the ranks are gone for good; the client comes back
├── PoisonedRequest        the client does not send it again: the ranks were lost by it alone
├── Starting               the model is still loading; the client comes back
├── Draining               this server ends; the client goes to another
├── ReplyCorrupt           the model gave logits that are not numbers, for this request alone
├── StepFailed             the ranks could not run this request's step, even alone
├── NotBuilt               the client asked for something that this version does not have
├── StartupFailed          the operator reads the message; the server does not start
└── InternalFault          our bug; `record_id` is in the log

A broken invariant is an AssertionError (`IllegalLaneEvent` and its like). It is
never caught on the way: it ends the master with a trace.
"""


class LanehostError(Exception):
    """Root of all errors that lanehost raises on purpose."""


class InvalidRequest(LanehostError):
    """The request is wrong: the client must change `field`."""

    def __init__(self, field: str, message: str) -> None:
        """Name the field, in the words of the wire, and what is wrong with it."""
        super().__init__(f"{field}: {message}")
        self.field = field
        self.reason = message


class ImageRefused(InvalidRequest):
    """An image, or all of them, cannot be taken: `field` is images[NUMBER], from 1, or images."""


class Unauthenticated(LanehostError):
    """The request came without a key, or with one that nobody has."""


class DoesNotFit(LanehostError):
    """The request can never fit: `have` tokens against a `limit`."""

    def __init__(self, message: str, *, have: int, limit: int) -> None:
        """Say what does not fit, with both numbers."""
        super().__init__(message)
        self.have = have
        self.limit = limit


class Overloaded(LanehostError):
    """The line is full; nothing was kept."""

    def __init__(self, message: str, *, retry_after_s: float) -> None:
        """Say which bound was met, and when to come back."""
        super().__init__(message)
        self.retry_after_s = retry_after_s


class NotJournaled(LanehostError):
    """The request cannot be appended to the journal; nothing of it was kept."""

    def __init__(self, message: str, *, retry_after_s: float) -> None:
        """Say why, and when to come back."""
        super().__init__(message)
        self.retry_after_s = retry_after_s


class UnknownStream(LanehostError):
    """No stream of this id is known to who asks; those of others are the same."""


class UnknownUpload(LanehostError):
    """No upload of this id is known to who asks; those of others are the same."""


class IndexOutOfRange(LanehostError):
    """The stream has `limit` tokens so far, and was to go on at `have`."""

    def __init__(self, *, have: int, limit: int) -> None:
        """Say both numbers."""
        super().__init__(f"next_index is {have}, and the stream has {limit} tokens so far")
        self.have = have
        self.limit = limit


class TakenOver(LanehostError):
    """Another call has resumed the stream: it goes on there."""


class Cancelled(LanehostError):
    """The client cancelled, or left."""


class DeadlinePassed(LanehostError):
    """The request's deadline passed while it was in `phase`."""

    def __init__(self, phase: str) -> None:
        """Name the phase: upload, admission, waiting, prefill or decode."""
        super().__init__(f"deadline passed in phase {phase}")
        self.phase = phase


class RankGroupLost(LanehostError):
    """A rank was lost; the group cannot go on."""

    def __init__(self, message: str, *, epoch: int, rank: int | None) -> None:
        """Say which rank was lost in which epoch."""
        super().__init__(message)
        self.epoch = epoch
        self.rank = rank


class PoisonedRequest(LanehostError):
    """The ranks were lost again and again with this request, at last with it alone."""


class Starting(LanehostError):
    """The server is still loading its model."""


class Draining(LanehostError):
    """The server is ending and takes no new requests."""


class ReplyCorrupt(LanehostError):
    """The model gave logits that are not numbers, for this request alone."""


class StepFailed(LanehostError):
    """The ranks could not run a step of this request, even alone; others are not harmed."""


class NotBuilt(LanehostError):
    """The request asks for something that this version does not have."""

    def __init__(self, field: str, message: str) -> None:
        """Name the field and what is not built."""
        super().__init__(f"{field}: {message}")
        self.field = field
        self.reason = message


class StartupFailed(LanehostError):
    """The server cannot start; the message says what to do."""


class InternalFault(LanehostError):
    """A bug of ours; the log has the trace under `record_id`."""

    def __init__(self, record_id: str) -> None:
        """Name the record in the log."""
        super().__init__(f"internal error, record {record_id}")
        self.record_id = record_id
