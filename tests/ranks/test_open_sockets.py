"""New sockets are shut down, old and later ones are not, listening ones neither (Linux)."""

import socket
import sys

import pytest

from ranks.open_sockets import NewSockets

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="there is no /proc")


def is_shut(one):
    one.settimeout(0)
    try:
        return one.recv(1) == b""
    except BlockingIOError:
        return False


@pytest.fixture
def pair():
    made = []

    def make():
        made.extend(socket.socketpair())
        return made[-2]

    yield make
    for one in made:
        one.close()


def test_only_what_was_opened_between_is_shut_down(pair):
    old = pair()
    sockets = NewSockets()
    new = pair()
    sockets.settle()
    later = pair()
    sockets.shut_down()
    assert [is_shut(one) for one in (old, new, later)] == [False, True, False]


def test_before_it_is_settled_all_new_ones_are_shut_down(pair):
    sockets = NewSockets()
    new = pair()
    sockets.shut_down()
    assert is_shut(new)


def test_a_number_that_was_closed_and_is_anothers_by_now_is_left_alone(pair):
    sockets = NewSockets()
    new = pair()
    number = new.fileno()
    sockets.settle()
    new.close()
    other = pair()
    assert other.fileno() == number
    sockets.shut_down()
    assert not is_shut(other)


def test_a_socket_that_listens_still_does():
    sockets = NewSockets()
    with socket.create_server(("127.0.0.1", 0)) as server:
        sockets.shut_down()
        with socket.create_connection(server.getsockname(), timeout=5):
            server.accept()[0].close()
