"""When a client that was turned away may come back: the same at both doors."""

from lanehost.errors import Draining, NotJournaled, Overloaded, RankGroupLost, Starting

RETRY_AFTER_LOSS_S = 1.0


def retry_after_s(error: Exception) -> float | None:
    """Return the seconds to wait, or None when coming back would not help."""
    match error:
        case Overloaded() | NotJournaled():
            return error.retry_after_s
        case RankGroupLost() | Starting() | Draining():
            return RETRY_AFTER_LOSS_S
        case _:
            return None
