"""The messages of the wire."""

from ranks.wire.messages import Hello


def test_the_token_is_in_no_repr():
    hello = Hello(rank=0, world_size=1, pid=1, build="1", token="s3cret-value")
    assert "s3cret" not in repr(hello)
