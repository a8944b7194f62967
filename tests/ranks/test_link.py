"""The rank's end of the stream: order kept, the end told, last words heard."""

import grpc
import pytest

from ranks.errors import MasterLost
from ranks.link import MasterLink, open_channel
from ranks.wire.messages import Fatal, Ready, Shutdown
from tests.support.scripted_master import scripted_master


@pytest.fixture
def linked():
    with (
        scripted_master() as master,
        open_channel(master.address) as channel,
        MasterLink(channel) as link,
    ):
        yield master, link


def test_messages_arrive_in_order_both_ways(linked):
    master, link = linked
    for number in (1, 2, 3):
        link.send(Ready(epoch=number))
        master.say(Shutdown(reason=str(number)))
    assert [master.hear().epoch for _ in range(3)] == [1, 2, 3]
    assert [link.receive().reason for _ in range(3)] == ["1", "2", "3"]


def test_the_end_of_the_stream_is_told_after_what_came_before_it_and_ever_after(linked):
    master, link = linked
    master.say(Shutdown(reason="before"))
    master.hang_up()
    assert link.receive().reason == "before"
    for _ in range(2):
        with pytest.raises(MasterLost):
            link.receive()


def test_bytes_that_are_no_message_end_the_stream(linked):
    master, link = linked
    master.say_bytes(b"\xff\xff")
    with pytest.raises(MasterLost, match="the master sent 2 bytes are no ConnectResponse"):
        link.receive()


class BrokenChannel:
    """A channel whose stream fails with what nobody foresaw."""

    def stream_stream(self, _path):
        def connect(_requests):
            raise ZeroDivisionError("unforeseen")

        return connect

    def subscribe(self, tell, *, try_to_connect):
        tell(grpc.ChannelConnectivity.READY)

    def unsubscribe(self, tell):
        pass


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_whoever_waits_hears_of_the_end_even_when_the_reader_fails():
    with (
        MasterLink(BrokenChannel()) as link,
        pytest.raises(MasterLost, match="the thread that reads the stream failed"),
    ):
        link.receive()


def test_last_words_are_heard_before_the_link_closes():
    with scripted_master() as master, open_channel(master.address) as channel:
        with MasterLink(channel) as link:
            link.send(Fatal(message="last words"))
        assert master.hear() == Fatal(message="last words")
        assert master.hear() is None
