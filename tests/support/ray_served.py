"""Two replicas on a Ray of their own, for the tests that are marked `ray`.

Ray is imported where it is used: the default environment has none.
"""

import importlib
import os
import secrets
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import psutil

APP = "lanehost"
OBJECT_STORE_BYTES = 80 * 1024 * 1024
START_ATTEMPTS = 4


class RayServed:
    """The application, and how to look behind it."""

    def __init__(self, url: str, serve: Any, build: Callable[[], Any], num_replicas: int) -> None:
        self.url = url
        self._serve = serve
        self._build = build
        self._num_replicas = num_replicas
        self.client = httpx.Client(base_url=url, timeout=60, verify=False, trust_env=False)

    def deploy(self) -> None:
        """Start the application, also once more after it was deleted."""
        self._serve.run(self._build(), name=APP)

    def is_whole(self) -> bool:
        """Say whether all replicas run and Ray knows it, so that requests can go to each."""
        deployed = self._serve.status().applications[APP].deployments["Replica"]
        states = deployed.replica_states
        return states.get("RUNNING") == self._num_replicas == sum(states.values())

    def servers(self) -> list[psutil.Process]:
        """Return the processes of the servers, without their ranks."""
        below = psutil.Process().children(recursive=True)
        return [process for process in below if _is_server(process)]

    def metric(self, server: psutil.Process, name: str) -> float | None:
        """Return the sum of one metric of one server; None while it has no metrics."""
        with suppress(psutil.NoSuchProcess):
            for connection in server.net_connections("tcp"):
                if connection.status == psutil.CONN_LISTEN:
                    with suppress(httpx.TransportError):
                        return self._metric(connection.laddr.port, name)
        return None

    def _metric(self, port: int, name: str) -> float | None:
        page = self.client.get(f"http://127.0.0.1:{port}/metrics", timeout=5)
        lines = [line for line in page.text.splitlines() if line.startswith(name)]
        return sum(float(line.rpartition(" ")[2]) for line in lines) if lines else None


@contextmanager
def ray_serving(**options: Any) -> Iterator[RayServed]:
    """Start Ray, Serve and the application; leave nothing."""
    ray = importlib.import_module("ray")
    serve = importlib.import_module("ray.serve")
    app = importlib.import_module("lanehost.replicas.app")
    given = importlib.import_module("lanehost.replicas.options").ReplicasOptions(**options)
    # Short, since sockets are below it, and gone afterwards.
    folder = tempfile.mkdtemp(prefix="lanehost-ray-", dir="/tmp")
    start_ray(ray, num_cpus=given.replicas, folder=folder)
    try:
        port = free_port()
        serve.start(http_options={"host": "127.0.0.1", "port": port})
        url = f"http://127.0.0.1:{port}"
        served = RayServed(url, serve, lambda: app.build(given), given.replicas)
        served.deploy()
        with served.client:
            yield served
        serve.shutdown()
    finally:
        ray.shutdown()
        shutil.rmtree(folder, ignore_errors=True)


def start_ray(ray: ModuleType, *, num_cpus: int, folder: str) -> None:
    """Start Ray, which gives itself 30 s for that: on a busy machine more than once."""
    for attempt in range(START_ATTEMPTS):
        try:
            ray.init(
                _temp_dir=folder,
                num_cpus=num_cpus,
                include_dashboard=False,
                log_to_driver=bool(os.environ.get("LANEHOST_RAY_LOG")),
                logging_level="warning",
                object_store_memory=OBJECT_STORE_BYTES,
            )
        except Exception as error:  # Ray raises no other
            ray.shutdown()
            if attempt == START_ATTEMPTS - 1 or "timed out" not in str(error):
                raise
        else:
            return


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _is_server(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return "lanehost.replicas" in process.cmdline()
    return False


def ray_environment() -> dict[str, str]:
    """Return what lets processes that Ray starts find this checkout, and keeps Ray to itself.

    Ray reads it when it is first imported.
    """
    return {
        "PYTHONPATH": str(Path(__file__).parents[2]),
        "RAY_USAGE_STATS_ENABLED": "0",
        # Without one Ray writes one into the home folder.
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
    }
