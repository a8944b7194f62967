import pytest

from lanehost.door.turnstile import Turnstile
from lanehost.errors import Overloaded, Unauthenticated
from lanehost.keys import KeyRing, Scope, digest_of
from lanehost.settings import LineSettings

RING = KeyRing(
    scopes=(
        Scope(name="team-a", key_digests=(digest_of("key-a"),)),
        Scope(name="team-c", key_digests=(digest_of("key-c"),)),
    )
)


def test_without_keys_everybody_is_one_scope_whatever_they_send():
    turnstile = Turnstile(None, LineSettings())
    assert {turnstile.scope_of(key) for key in (None, "", "any")} == {""}


def test_with_keys_only_they_come_in():
    turnstile = Turnstile(RING, LineSettings())
    assert turnstile.scope_of("key-a") == "team-a"
    for key in (None, "", "key-b"):
        with pytest.raises(Unauthenticated):
            turnstile.scope_of(key)


def test_open_streams_are_counted_and_bounded():
    turnstile = Turnstile(None, LineSettings(max_streams=2))
    turnstile.enter("")
    turnstile.enter("")
    said = r"^3 streams would be open, limit 2 \(--max-streams\)$"
    with pytest.raises(Overloaded, match=said):
        turnstile.enter("")
    turnstile.leave("")
    assert (turnstile.num_inside, repr(turnstile)) == (1, "<Turnstile 1/2>")
    turnstile.enter("")


def test_a_scope_that_opens_all_it_can_keeps_no_other_out():
    turnstile = Turnstile(RING, LineSettings(max_streams=8))
    for _ in range(6):
        turnstile.enter("team-a")
    with pytest.raises(Overloaded, match=r"7 .* for you alone, limit 6 .*\(--max-streams\)"):
        turnstile.enter("team-a")
    for _ in range(2):
        turnstile.enter("team-c")
