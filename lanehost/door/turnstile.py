"""Who may come in, and how many of theirs are inside at once.

Laws: who comes is known before anything is done for a request; a scope that opens as many
streams as it can keeps no other out; without a key ring everybody is the one scope "", and a
key that is sent all the same is not looked at.
"""

from lanehost.admission.shares import Shares
from lanehost.errors import Overloaded, Unauthenticated
from lanehost.keys import KeyRing
from lanehost.settings import LineSettings


class Turnstile:
    """Knows the scope of a caller, and counts open streams."""

    def __init__(self, keys: KeyRing | None, settings: LineSettings) -> None:
        """Begin with nobody inside.

        Args:
            keys: Who is let in; None lets everybody in.
            settings: The most open streams.
        """
        self._keys = keys
        self._settings = settings
        self._open = Shares(settings.max_streams, {} if keys is None else keys.weights)

    def __repr__(self) -> str:
        return f"<Turnstile {self.num_inside}/{self._settings.max_streams}>"

    @property
    def num_inside(self) -> int:
        """Streams that are open."""
        return self._open.num_taken

    def scope_of(self, key: str | None) -> str:
        """Say who asks.

        Raises:
            Unauthenticated: nobody has this key.
        """
        return "" if self._keys is None else self._keys.scope_of(key)

    def check_known(self, scope: str) -> None:
        """See that somebody may come in for this scope.

        Raises:
            Unauthenticated: nobody may.
        """
        if scope not in ({""} if self._keys is None else self._keys.weights):
            raise Unauthenticated(f"no key of this server opens the scope {scope!r}")

    def enter(self, scope: str) -> None:
        """Count a stream of this scope.

        Raises:
            Overloaded: as many are open as may.
        """
        if not self._open.may_take(scope):
            reason = self._open.refusal(scope, "streams would be open")
            raise Overloaded(
                f"{reason} (--max-streams)", retry_after_s=self._settings.retry_after_s
            )
        self._open.take(scope)

    def leave(self, scope: str) -> None:
        """Count a stream of this scope no more."""
        self._open.give_back(scope)
