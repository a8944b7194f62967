"""The application for Ray Serve: a door, and replicas that each own one server.

    serve run lanehost.replicas.app:build replicas=2 options="--threads 4 --keys keys.toml"

Laws: a replica is started only where its placement group is, with as many CPUs as its ranks
have threads, and as many GPUs as it has ranks on CUDA; it takes requests once its server is
ready; it is replaced when its server is gone, and rests, without being replaced, while its
server replaces ranks; it ends by the server's own drain.
"""

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import aclosing
from http import HTTPStatus
from typing import Any

import httpx
import structlog
from ray import serve
from ray.exceptions import RayActorError
from ray.serve.config import RequestRouterConfig
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError
from ray.serve.handle import DeploymentHandle
from starlette.requests import Request
from starlette.responses import Response

from lanehost.errors import Overloaded, Starting
from lanehost.http.errors import ReplicaLost
from lanehost.keys_file import read_keys
from lanehost.logs import set_up_logs
from lanehost.replicas.call import Call, ReplyPart
from lanehost.replicas.door import ReplicasDoor
from lanehost.replicas.forward import forward, open_client
from lanehost.replicas.options import ReplicasOptions, ServerPlan, plan_server
from lanehost.replicas.router import IS_SERVING
from lanehost.replicas.server_process import ServerGone, ServerProcess, server_command

log = structlog.get_logger()

REPLICA = "Replica"
DOOR = "Door"
_ROUTER = "lanehost.replicas.router.PrefixRouter"
_STATS_PERIOD_S = 1.0
_HEALTH_PERIOD_S = 5.0
_HEALTH_TIMEOUT_S = 10.0
_RETRY_AFTER_S = 1.0
_EXIT_SERVER_GONE = 3
_MAX_OPEN_AT_DOOR = 1 << 16


class Replica:
    """One server, and what Ray asks of it."""

    async def __init__(self, plan: ServerPlan) -> None:  # type: ignore[misc]  # Ray awaits it
        """Start the server and wait until it serves."""
        set_up_logs(is_json="--log-json" in plan.arguments)
        self._server = await ServerProcess.start(
            server_command(plan.arguments),
            ready_timeout_s=plan.ready_timeout_s,
            end_timeout_s=plan.end_timeout_s,
        )
        self._client = open_client(self._server.url)
        self._watcher = asyncio.create_task(self._end_with_server())

    async def __del__(self) -> None:  # Ray awaits it
        """Drain the server: the last thing that Ray asks of a replica that is to end."""
        if hasattr(self, "_server"):  # else it never started
            self._watcher.cancel()
            await self._client.aclose()
            await self._server.stop()

    async def call(self, call: Call) -> AsyncGenerator[ReplyPart, None]:
        """Forward a call to the server."""
        async with aclosing(forward(self._client, call)) as parts:
            async for part in parts:
                yield part

    async def check_health(self) -> None:
        """Tell Ray that this replica is of no use any more.

        Raises:
            ServerGone: the server does not answer.
        """
        await self._is_serving()

    async def record_routing_stats(self) -> dict[str, Any]:
        """Tell the router whether the server computes right now."""
        return {IS_SERVING: await self._is_serving()}

    async def _end_with_server(self) -> None:
        """End this process at once: Ray sends it nothing more, and puts another in its place."""
        exit_code = await self._server.exited()
        log.error("replica_lost", pid=self._server.pid, exit_code=exit_code)
        os._exit(_EXIT_SERVER_GONE)

    async def _is_serving(self) -> bool:
        try:
            answer = await self._client.get("/health", timeout=_HEALTH_TIMEOUT_S)
        except httpx.TransportError as error:
            raise ServerGone(f"the server does not answer: {type(error).__name__}") from error
        return answer.status_code == HTTPStatus.OK


class RayReplicas:
    """The replicas, by Ray's handle."""

    def __init__(self, handle: DeploymentHandle) -> None:
        """Reach them by this handle."""
        self._call = handle.options(stream=True, method_name="call")

    async def call(self, call: Call) -> AsyncGenerator[ReplyPart, None]:
        """Send a call to one of them.

        Raises:
            ReplicaLost: the replica died.
            Overloaded: too many calls wait for one.
            Starting: there are none.
        """
        parts = self._call.remote(call)
        try:
            async for part in parts:
                yield part
        except RayActorError as error:
            raise ReplicaLost(f"the replica died: {type(error).__name__}") from error
        except BackPressureError as error:
            message = "too many requests wait for a replica"
            raise Overloaded(message, retry_after_s=_RETRY_AFTER_S) from error
        except DeploymentUnavailableError as error:
            raise Starting("no replica could be started") from error
        finally:
            parts.cancel()


class Door:
    """The one way in."""

    def __init__(self, replicas: DeploymentHandle, plan: ServerPlan, head_chars: int) -> None:
        """Read the keys, as each server does."""
        keys = None if plan.keys_path is None else read_keys(plan.keys_path)
        self._door = ReplicasDoor(RayReplicas(replicas), keys=keys, head_chars=head_chars)

    async def __call__(self, request: Request) -> Response:
        """Answer one HTTP request."""
        return await self._door.answer(request)


def build(options: ReplicasOptions) -> serve.Application:
    """Build the application; `serve run` and `serve deploy` call this.

    Raises:
        StartupFailed: an option is wrong.
    """
    router = RequestRouterConfig(
        request_router_class=_ROUTER,
        request_router_kwargs={
            "load_factor": options.load_factor,
            "spill_above": options.spill_above,
        },
        request_routing_stats_period_s=_STATS_PERIOD_S,
    )
    return build_with(options, router)


def build_with(options: ReplicasOptions, router: RequestRouterConfig) -> serve.Application:
    """Build the application with another router; for comparisons."""
    plan = plan_server(options.options)
    bundle: dict[str, float] = {"CPU": plan.num_cpus}
    if plan.num_gpus:
        bundle["GPU"] = plan.num_gpus
    replica = serve.deployment(
        Replica,
        name=REPLICA,
        num_replicas=options.replicas,
        ray_actor_options={"num_cpus": plan.num_cpus, "num_gpus": plan.num_gpus},
        placement_group_bundles=[bundle],
        placement_group_strategy="STRICT_PACK",
        # The server has a line of its own, bounded and fair: nothing waits in front of it.
        max_ongoing_requests=plan.max_streams,
        max_queued_requests=options.max_queued,
        graceful_shutdown_timeout_s=plan.shutdown_timeout_s,
        graceful_shutdown_wait_loop_s=0.1,
        health_check_period_s=_HEALTH_PERIOD_S,
        health_check_timeout_s=_HEALTH_TIMEOUT_S,
        request_router_config=router,
    )
    door = serve.deployment(
        Door,
        name=DOOR,
        num_replicas=1,
        ray_actor_options={"num_cpus": 0},
        max_ongoing_requests=_MAX_OPEN_AT_DOOR,
        graceful_shutdown_timeout_s=plan.shutdown_timeout_s,
    )
    return door.bind(replica.bind(plan), plan, options.head_chars)
