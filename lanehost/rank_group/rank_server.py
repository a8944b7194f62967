"""The gRPC server that ranks and agents dial: their streams, and the rendezvous store.

Laws: only who knows the token gets a stream or the store, and only processes of this user get
an agent's; a rank number is given once each time that it is expected; what the master says is
serialised once and goes out as it is. Two servers never share a port: port 0 is bound, kept, and
published to the ranks. Other hosts come in through the front.
"""

import asyncio
import hmac
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar
from urllib.parse import unquote

import grpc
import grpc.aio
import structlog

from lanehost.errors import InvalidRequest
from lanehost.rank_group.agents import Agents
from lanehost.rank_group.agreement import Terms, refuse_hello
from lanehost.rank_group.link import AgentLink, Context, RankLink
from lanehost.rank_group.network import is_same_user
from lanehost.rank_group.store import RendezvousStore
from ranks.errors import BadMessage
from ranks.wire import rank_pb2 as pb
from ranks.wire.codec import decode_rank_message
from ranks.wire.follow_codec import decode_agent_message
from ranks.wire.follow_messages import Join
from ranks.wire.messages import SERVICE_NAME, STORE_METADATA_KEY, Hello
from ranks.wire.transport import SERVER_OPTIONS

log = structlog.get_logger()

LOOPBACK = "127.0.0.1"
_HELLO_TIMEOUT_S = 10.0
_First = TypeVar("_First")


class RankServer:
    """Serves RankService; hands every accepted stream to `on_link`, which must listen to it."""

    def __init__(
        self,
        *,
        terms: Terms,
        store: RendezvousStore,
        on_link: Callable[[RankLink], None],
        on_refused: Callable[[str], None],
        agents: Agents | None = None,
    ) -> None:
        """`on_refused` hears why a rank that knows the token was refused."""
        self._agents = agents
        self._terms = terms
        self._store = store
        self._on_link = on_link
        self._on_refused = on_refused
        self._expected: set[int] = set()
        self._server: grpc.aio.Server | None = None

    def expect(self, rank: int) -> None:
        """Let this rank dial, once."""
        self._expected.add(rank)

    async def start(self) -> str:
        """Bind a free port of the loopback address and serve; returns HOST:PORT."""
        self._server = grpc.aio.server(options=SERVER_OPTIONS)
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(SERVICE_NAME, self._handlers()),)
        )
        port = self._server.add_insecure_port(f"{LOOPBACK}:0")
        await self._server.start()
        return f"{LOOPBACK}:{port}"

    async def stop(self) -> None:
        """End all streams and give the port back."""
        if self._server is not None:
            await self._server.stop(None)

    # Any: gRPC's handlers are untyped in its stubs.
    def _handlers(self) -> dict[str, Any]:
        return {
            # No serializer: the stream carries bytes, so that a plan is serialised once.
            "Connect": grpc.stream_stream_rpc_method_handler(self._connect),
            "Follow": grpc.stream_stream_rpc_method_handler(self._follow),
            "StoreSet": self._store_handler(pb.StoreSetRequest, self._store_set),
            "StoreGet": self._store_handler(pb.StoreGetRequest, self._store_get),
            "StoreAdd": self._store_handler(pb.StoreAddRequest, self._store_add),
            "StoreCompareSet": self._store_handler(
                pb.StoreCompareSetRequest, self._store_compare_set
            ),
            "StoreCheck": self._store_handler(pb.StoreCheckRequest, self._store_check),
            "StoreDelete": self._store_handler(pb.StoreDeleteRequest, self._store_delete),
        }

    async def _connect(self, _requests: object, context: Context) -> None:
        try:
            hello = await _read_first(context, decode_rank_message, Hello)
        except BadMessage as err:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(err))
            return
        refusal = refuse_hello(hello, self._terms, self._expected)
        if refusal is not None:
            log.warning("rank_refused", reason=refusal.reason, pid=hello.pid)
            if refusal.is_ours:
                self._on_refused(refusal.reason)
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, refusal.reason)
            return
        self._expected.remove(hello.rank)
        link = RankLink(rank=hello.rank, pid=hello.pid)
        self._on_link(link)
        await link.serve(context)

    async def _follow(self, _requests: object, context: Context) -> None:
        if not is_same_user(_peer_of(context)):
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, "this is another user's port")
        try:
            join = await _read_first(context, decode_agent_message, Join)
        except BadMessage as err:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(err))
            return
        reason = "all ranks are the master's own"
        refusal = reason if self._agents is None else self._agents.refuse(join)
        if self._agents is None or refusal is not None:
            log.warning("agent_refused", reason=refusal, pid=join.pid)
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(refusal))
            return
        link = AgentLink(join)
        self._agents.take(link)
        await link.serve(context)

    # Any: a protobuf request class and its message.
    def _store_handler(
        self, request_class: Any, answer: Callable[[Any], Awaitable[Any]]
    ) -> "grpc.RpcMethodHandler[Any, Any]":
        """Wrap a store call: check the token, turn our errors into statuses."""

        async def call(request: Any, context: Context) -> Any:
            metadata = dict(context.invocation_metadata() or ())
            token = str(metadata.get(STORE_METADATA_KEY, ""))
            if not hmac.compare_digest(token.encode(), self._terms.token.encode()):
                await context.abort(
                    grpc.StatusCode.PERMISSION_DENIED, "the token is not this group's"
                )
            try:
                return await answer(request)
            except InvalidRequest as err:
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(err))
            except TimeoutError:
                await context.abort(
                    grpc.StatusCode.DEADLINE_EXCEEDED,
                    f"key {request.key!r} was not set within {request.timeout_s} s",
                )

        return grpc.unary_unary_rpc_method_handler(
            call,
            request_deserializer=request_class.FromString,
            response_serializer=lambda response: response.SerializeToString(),
        )

    async def _store_set(self, request: pb.StoreSetRequest) -> pb.StoreSetResponse:
        self._store.set(request.key, request.value)
        return pb.StoreSetResponse()

    async def _store_get(self, request: pb.StoreGetRequest) -> pb.StoreGetResponse:
        value = await self._store.get(request.key, timeout_s=request.timeout_s)
        return pb.StoreGetResponse(value=value)

    async def _store_add(self, request: pb.StoreAddRequest) -> pb.StoreAddResponse:
        return pb.StoreAddResponse(value=self._store.add(request.key, request.amount))

    async def _store_compare_set(
        self, request: pb.StoreCompareSetRequest
    ) -> pb.StoreCompareSetResponse:
        value = self._store.compare_set(
            request.key, expected=request.expected, desired=request.desired
        )
        return pb.StoreCompareSetResponse(value=value)

    async def _store_check(self, request: pb.StoreCheckRequest) -> pb.StoreCheckResponse:
        return pb.StoreCheckResponse(present=self._store.check(list(request.keys)))

    async def _store_delete(self, request: pb.StoreDeleteRequest) -> pb.StoreDeleteResponse:
        return pb.StoreDeleteResponse(removed=self._store.delete(request.key))


async def _read_first(
    context: Context, decode: Callable[[bytes], object], kind: type[_First]
) -> _First:
    """Read the first message of a stream; raises BadMessage when it is another or none comes."""
    name = kind.__name__
    try:
        async with asyncio.timeout(_HELLO_TIMEOUT_S):
            payload = await context.read()
    except TimeoutError:
        raise BadMessage(f"no {name} within {_HELLO_TIMEOUT_S} s") from None
    if payload is grpc.aio.EOF:
        raise BadMessage(f"the stream ended before its {name}")
    message = decode(payload)
    if not isinstance(message, kind):
        raise BadMessage(f"the first message is {type(message).__name__}, not {name}")
    return message


def _peer_of(context: Context) -> tuple[str, int]:
    """Return the address of who dials; gRPC writes it as ipv4:127.0.0.1:40000."""
    host, _, port = str(context.peer()).partition(":")[2].rpartition(":")
    return unquote(host).strip("[]"), int(port)
