"""Addresses: loopback or not, and whose process is at the other end."""

import os
import socket

import pytest

from lanehost.rank_group.network import (
    address_towards,
    addresses_of,
    find_uid,
    interface_names,
    is_loopback,
    is_same_user,
    is_wildcard,
)

# As the kernel of a little-endian machine writes it: 127.0.0.1:50050 of user 1000, then ::1:8
# of user 7, and the first address again, as an IPv6 socket has it, of user 9 at port 3.
TABLE = """  sl  local_address rem_address   st tx_queue rx_queue tr tm->when re uid
   0: 0100007F:C382 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 1
"""
TABLE_6 = """  sl  local_address remote_address st tx_queue rx_queue tr tm->when re uid
   0: 00000000000000000000000001000000:0008 0:0 0A 0:0 00:0 0     7        0 1
   1: 0000000000000000FFFF00000100007F:0003 0:0 0A 0:0 00:0 0     9        0 1
"""


@pytest.mark.parametrize(
    ("peer", "uid"),
    [
        (("127.0.0.1", 50050), 1000),
        (("127.0.0.1", 50051), None),
        (("10.0.0.1", 50050), None),
        (("::1", 8), 7),
        (("127.0.0.1", 3), 9),
    ],
)
def test_the_user_of_a_socket_is_found_by_its_address(peer, uid):
    assert find_uid([TABLE, TABLE_6], peer) == uid


def test_a_connection_of_our_own_is_of_the_same_user():
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as ours,
    ):
        assert is_same_user(ours.getsockname())


def test_an_address_that_nobody_has_is_of_nobody():
    assert find_uid([TABLE], ("127.0.0.1", 1)) is None
    assert not is_same_user(("192.0.2.1", 1))
    assert os.geteuid() >= 0


@pytest.mark.parametrize(
    ("host", "is_local"),
    [("127.0.0.1", True), ("127.1.2.3", True), ("::1", True), ("192.0.2.1", False)],
)
def test_loopback_is_told_from_the_network(host, is_local):
    assert is_loopback(host) == is_local
    assert addresses_of(host) == [host]


def test_a_name_that_nobody_knows_is_an_error_of_the_system():
    with pytest.raises(socket.gaierror):
        is_loopback("no-such-host.invalid")


def test_all_addresses_are_told_from_one():
    assert is_wildcard("0.0.0.0")
    assert is_wildcard("::")
    assert not is_wildcard("10.0.0.1")
    assert not is_wildcard("host")


def test_loopback_is_an_interface_of_every_host():
    assert "lo" in interface_names()


def test_the_own_address_on_the_way_to_a_peer_is_found():
    assert address_towards("127.0.0.1", 9) == "127.0.0.1"
