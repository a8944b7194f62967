"""The port that other hosts dial: who is let in, who is not, and why."""

import asyncio
import re
from contextlib import asynccontextmanager

import pytest
from structlog.testing import capture_logs

from lanehost.addresses import parse_address
from lanehost.errors import StartupFailed
from lanehost.rank_group.agent import why_unreachable
from lanehost.rank_group.certificates import make_certificates
from lanehost.rank_group.front import Front, check_rank_port, client_context, server_context
from lanehost.settings import RankPortSettings
from tests.support.processes import until

HOST = "127.0.0.1"


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    """Folders of two authorities, for the same host."""
    folder = tmp_path_factory.mktemp("tls")
    (ours,) = make_certificates(folder / "ours", [HOST], days=1)
    (strange,) = make_certificates(folder / "strange", [HOST], days=1)
    (elsewhere,) = make_certificates(folder / "ours", ["10.9.9.9"], days=1)
    return {"ours": ours, "strange": strange, "elsewhere": elsewhere}


@pytest.fixture
def mixed(nodes, tmp_path):
    """Trusts our authority, and has a certificate of another."""
    for name in ("cert.pem", "key.pem"):
        (tmp_path / name).write_bytes((nodes["strange"] / name).read_bytes())
    (tmp_path / "key.pem").chmod(0o600)
    (tmp_path / "ca.pem").write_bytes((nodes["ours"] / "ca.pem").read_bytes())
    return tmp_path


async def _greet(reader, writer):
    writer.write(b"hello " + await reader.readline())
    await writer.drain()
    writer.close()


@asynccontextmanager
async def opened(tls=None):
    """A front before a server that speaks a line."""
    behind = await asyncio.start_server(_greet, HOST, 0)
    front = Front(RankPortSettings(host=HOST, port=0, tls=tls))
    try:
        yield parse_address(await front.start(behind.sockets[0].getsockname()))
    finally:
        await front.stop()
        behind.close()


async def ask(address, *, ssl=None):
    reader, writer = await asyncio.open_connection(*address, ssl=ssl)
    # Longer than the head of a record of TLS, which is waited for.
    writer.write(b"stranger\n")
    try:
        return await asyncio.wait_for(reader.read(), 10)
    finally:
        writer.close()


async def test_on_loopback_a_process_of_this_user_comes_in_without_certificates():
    async with opened() as address:
        assert await ask(address) == b"hello stranger\n"


async def test_a_certificate_of_the_authority_comes_in(nodes):
    async with opened(nodes["ours"]) as address:
        assert await ask(address, ssl=client_context(nodes["ours"])) == b"hello stranger\n"


async def _refused(tls, dialled_with):
    """What both sides say when a node with this folder dials."""
    with capture_logs() as logs:
        async with opened(tls) as (host, port):
            said = await why_unreachable(RankPortSettings(host=host, port=port, tls=dialled_with))
            await until(lambda: any(one["event"] == "rank_port_refused" for one in logs))
    told = [one for one in logs if one["event"] == "rank_port_refused"]
    assert re.fullmatch(r"127\.0\.0\.1:\d+", told[0]["peer"])
    return said, told[0]["reason"]


async def test_another_authority_is_refused_and_both_sides_say_why(nodes, mixed):
    said, _ = await _refused(nodes["ours"], nodes["strange"])
    assert said.startswith("the master's certificate is not of this group's authority: ")
    said, told = await _refused(nodes["ours"], mixed)
    assert said.startswith("the master ")
    assert told.startswith("no certificate of this group's authority: ")


async def test_who_has_no_certificate_is_refused_and_the_master_says_so(nodes):
    with capture_logs() as logs:
        async with opened(nodes["ours"]) as address:
            context = client_context(nodes["ours"])
            bare = type(context)(context.protocol)
            bare.load_verify_locations(nodes["ours"] / "ca.pem")
            assert await _nothing_from(address, bare)
            assert await _nothing_from(address, None)
    told = [one["reason"] for one in logs if one["event"] == "rank_port_refused"]
    without, plain = told
    assert without == "no certificate of this group's authority: peer did not return a certificate"
    # What is no TLS at all is an error of it, or of the connection that the other side ended.
    assert plain.startswith(("no certificate of this", "the connection ended in the handshake"))


async def _nothing_from(address, ssl):
    try:
        return await ask(address, ssl=ssl) == b""
    except OSError:
        return True


async def test_a_master_of_another_name_is_not_ours(nodes):
    async with opened(nodes["elsewhere"]) as (host, port):
        master = RankPortSettings(host=host, port=port, tls=nodes["ours"])
        said = await why_unreachable(master)
    assert "IP address mismatch" in said


async def test_an_address_that_is_taken_is_refused_by_name():
    async with opened() as (host, port):
        with pytest.raises(StartupFailed, match=f"{port}: Address already in use"):
            await Front(RankPortSettings(host=host, port=port)).start((HOST, 1))


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"host": "192.0.2.1"}, "which is not loopback: give --rank-tls DIR"),
        ({"host": "0.0.0.0"}, "give the one address of rank 0's host"),
        ({"host": HOST, "is_open": True}, "which is loopback and needs it not"),
        ({"host": HOST, "interface": "no0"}, "--rank-interface is 'no0', this host has lo"),
        ({"host": "no-such-host.invalid"}, "'no-such-host.invalid' is not known here"),
    ],
)
def test_a_port_that_strangers_could_reach_is_refused(settings, says):
    with pytest.raises(StartupFailed, match=says):
        check_rank_port(RankPortSettings(port=1, **settings))


def test_beyond_loopback_it_takes_certificates_or_the_word_of_the_operator(nodes):
    check_rank_port(RankPortSettings(host="192.0.2.1", port=1, tls=nodes["ours"]))
    check_rank_port(RankPortSettings(host="192.0.2.1", port=1, is_open=True))


def test_a_folder_that_cannot_be_used_is_refused_by_name(nodes, tmp_path):
    with pytest.raises(StartupFailed, match=r"--rank-tls is .*: No such file"):
        server_context(tmp_path)
    for name in ("ca.pem", "cert.pem", "key.pem"):
        (tmp_path / name).write_text("no certificate")
        (tmp_path / name).chmod(0o600)
    with pytest.raises(StartupFailed, match="--rank-tls is "):
        server_context(tmp_path)
