import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanehost.addresses import explain, format_address, parse_address


@given(st.sampled_from(["localhost", "127.0.0.1", "::1", "fe80::1%eth0"]), st.integers(1, 65535))
def test_an_address_is_read_as_it_was_written(host: str, port: int) -> None:
    assert parse_address(format_address(host, port)) == (host, port)


def test_an_ipv6_host_stands_in_brackets() -> None:
    assert format_address("::1", 80) == "[::1]:80"


@pytest.mark.parametrize(
    "address",
    [
        "",
        "localhost",
        ":50051",
        "localhost:",
        "localhost:x",
        "localhost:0",
        "localhost:65536",
        "localhost:-1",
        "localhost:²",
        "::1:50051",
        "[]:50051",
        "[localhost]:50051",
        "http://localhost:50051",
        "localhost:50051/",
        "dns:///localhost:50051",
    ],
)
def test_what_is_no_address_is_said_with_the_form(address: str) -> None:
    with pytest.raises(ValueError, match="should be HOST:PORT") as caught:
        parse_address(address)
    assert repr(address) in str(caught.value)


def test_a_taken_address_is_explained_without_the_address_again() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(OSError, match=r"127\.0\.0\.1") as caught,
    ):
        socket.create_server(taken.getsockname())
    assert explain(caught.value) == "Address already in use"


def test_a_name_that_is_not_found_is_explained() -> None:
    assert explain(socket.gaierror(-2, "Name or service not known")) == "Name or service not known"
