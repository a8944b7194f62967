"""The port that agents, and the ranks of other hosts, dial: it lets in, and relays to the server.

Laws: off loopback nobody comes in without a certificate of the group's authority, unless the
operator has said so; on loopback only processes of this user do. Who is refused is logged, with
the reason. A relay ends both of its connections as soon as one of them ends.

TLS is the standard library's, in front of gRPC's server, because gRPC tells nobody why it has
sent a peer away (ADR 22).
"""

import asyncio
import ssl
from pathlib import Path

import structlog

from lanehost.addresses import explain, format_address
from lanehost.errors import StartupFailed
from lanehost.rank_group.network import (
    addresses_of,
    interface_names,
    is_loopback,
    is_same_user,
    is_wildcard,
)
from lanehost.settings import RankPortSettings
from lanehost.tasks import end_all
from ranks.wire.tls import (
    CA_FILE,
    CERT_FILE,
    KEY_FILE,
    BadCertificates,
    read_certificates,
)

log = structlog.get_logger()

_HANDSHAKE_S = 10.0
# Two for each agent: its own, and its rank's. Some more for those that are sent away.
_MAX_CONNECTIONS = 64
_PIECE_BYTES = 1 << 18
_FLUSH_S = 1.0


class Front:
    """Listens for as long as it is open."""

    def __init__(self, settings: RankPortSettings) -> None:
        """Check what was chosen; listen to nobody yet.

        Raises:
            StartupFailed: The port would be open to strangers, or the certificates are unusable.
        """
        check_rank_port(settings)
        self._settings = settings
        self._tls = None if settings.tls is None else server_context(settings.tls)
        self._checks_user = settings.tls is None and is_loopback(settings.host)
        self._server: asyncio.Server | None = None
        self._relays: set[asyncio.Task[None]] = set()
        self._target: tuple[str, int] = ("", 0)

    async def start(self, target: tuple[str, int]) -> str:
        """Listen, and relay to `target`; returns HOST:PORT.

        Raises:
            StartupFailed: The address cannot be had.
        """
        host, port = self._settings.host, self._settings.port
        self._target = target
        try:
            # One address only: what listens on one of two of a name would miss half of the calls.
            address = addresses_of(host)[0]
            self._server = await asyncio.start_server(self._take, address, port)
        except OSError as err:
            where = format_address(host, port)
            raise StartupFailed(
                f"cannot listen for ranks on {where}: {explain(err)} (--master)"
            ) from err
        bound = format_address(host, int(self._server.sockets[0].getsockname()[1]))
        security = "none" if self._tls is None else "mutual TLS"
        log.info("rank_port_open", address=bound, security=security)
        if self._tls is None and not self._checks_user:
            log.warning("rank_port_insecure", address=bound, reason="--insecure-rank-port")
        return bound

    async def stop(self) -> None:
        """Listen no more, and end all relays."""
        if self._server is not None:
            self._server.close()
        await end_all(*self._relays)

    def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._relays.add(task)
        task.add_done_callback(self._relays.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = writer.get_extra_info("peername")
        try:
            refusal = await self._refuse(writer, peer)
            if refusal is None:
                await self._relay(reader, writer)
            else:
                log.warning("rank_port_refused", peer=format_address(*peer[:2]), reason=refusal)
        finally:
            writer.transport.abort()

    async def _refuse(self, writer: asyncio.StreamWriter, peer: tuple[str, int]) -> str | None:
        """Say why this peer is sent away, None once it is let in."""
        if len(self._relays) > _MAX_CONNECTIONS:
            return f"{len(self._relays)} connections are open, limit {_MAX_CONNECTIONS}"
        if self._checks_user and not is_same_user(peer[:2]):
            return "it is not this user's process, and the port has no certificates"
        return None if self._tls is None else await _shake_hands(writer, self._tls)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_connection(*self._target)
        ways = [
            asyncio.create_task(_copy(reader, inner_writer)),
            asyncio.create_task(_copy(inner_reader, writer)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            # What the server said last is still on its way.
            if ways[1].done() and not writer.is_closing():
                writer.close()
                async with asyncio.timeout(_FLUSH_S):
                    await _closed(writer)
        except TimeoutError:
            log.debug("relay_ended", reason="nobody takes the last words")
        finally:
            # Before anything that may be cancelled.
            inner_writer.transport.abort()
            await end_all(*ways)


async def _shake_hands(writer: asyncio.StreamWriter, tls: ssl.SSLContext) -> str | None:
    try:
        await writer.start_tls(tls, ssl_handshake_timeout=_HANDSHAKE_S)
    except ssl.SSLError as err:
        return f"no certificate of this group's authority: {explain_tls(err)}"
    except (OSError, TimeoutError) as err:
        return f"the connection ended in the handshake: {type(err).__name__}"
    return None


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while piece := await reader.read(_PIECE_BYTES):
            writer.write(piece)
            await writer.drain()
    except OSError as err:
        log.debug("relay_ended", reason=type(err).__name__)


async def _closed(writer: asyncio.StreamWriter) -> None:
    try:
        await writer.wait_closed()
    except OSError as err:
        log.debug("relay_ended", reason=type(err).__name__)


def check_rank_port(settings: RankPortSettings) -> None:
    """See that the way between master and agents is safe, or was said to be left open.

    Raises:
        StartupFailed: It is not.
    """
    host = settings.host
    if is_wildcard(host):
        raise StartupFailed(
            f"--master is {format_address(host, settings.port)}: give the one address of rank 0's "
            "host that the others dial"
        )
    names = interface_names()
    if settings.interface not in (None, *names):
        raise StartupFailed(
            f"--rank-interface is {settings.interface!r}, this host has {', '.join(names)}"
        )
    if settings.tls is not None:
        # Whatever the name will stand for: where hosts are made anew it may not be known yet.
        return
    try:
        is_local = is_loopback(host)
    except OSError as err:
        raise StartupFailed(f"--master: {host!r} is not known here: {explain(err)}") from err
    if not settings.is_open and not is_local:
        raise StartupFailed(
            f"--master is {format_address(host, settings.port)}, which is not loopback: give "
            "--rank-tls DIR (lanehost certs makes such folders), or --insecure-rank-port where "
            "whoever reaches the port may join and read prompts"
        )
    if settings.is_open and is_local:
        raise StartupFailed(
            f"--insecure-rank-port: --master is {format_address(host, settings.port)}, which is "
            "loopback and needs it not"
        )


def server_context(folder: Path) -> ssl.SSLContext:
    """TLS for who listens.

    Raises:
        StartupFailed: The folder cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _load(context, folder)
    context.verify_mode = ssl.CERT_REQUIRED
    return context


def client_context(folder: Path) -> ssl.SSLContext:
    """TLS for who dials.

    Raises:
        StartupFailed: The folder cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _load(context, folder)
    return context


def _load(context: ssl.SSLContext, folder: Path) -> None:
    try:
        read_certificates(folder)
        context.load_cert_chain(folder / CERT_FILE, folder / KEY_FILE)
        context.load_verify_locations(folder / CA_FILE)
    except (BadCertificates, ssl.SSLError) as err:
        raise StartupFailed(f"--rank-tls is {folder}: {err}") from err
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    # What gRPC speaks, and asks for.
    context.set_alpn_protocols(["h2"])


def explain_tls(error: ssl.SSLError) -> str:
    """Say what was wrong, in the words of the library."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    return (error.reason or type(error).__name__).lower().replace("_", " ")
