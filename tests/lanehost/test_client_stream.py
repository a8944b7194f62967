import pytest

from lanehost.client_errors import ServerFault
from lanehost.client_stream import AsyncReplyStream, ReplyStream


async def test_a_stream_without_a_last_event_is_the_servers_fault() -> None:
    class NoCall:
        def __iter__(self):
            return iter(())

        async def __aiter__(self):
            for _ in ():
                yield

        def cancel(self) -> None: ...

    with pytest.raises(ServerFault):
        list(ReplyStream(NoCall(), address="a:1"))
    with pytest.raises(ServerFault):
        [delta async for delta in AsyncReplyStream(NoCall(), address="a:1")]
