"""A real server in a process of its own: real ranks, real gRPC, real signals.

The log is written as JSON lines to a file, so that a test can see what the server saw.
"""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from tests.support.processes import unhindered_s

READY_LINE = re.compile(r"gRPC (?P<grpc>[^\s,]+:\d+)(?:, HTTP http://(?P<http>[^\s,]+:\d+))?")
START_TIMEOUT_S = 60.0
_SERVE = (sys.executable, "-m", "lanehost", "serve")


class Served:
    """A running `lanehost serve`, and how to look at it from outside.

    `within` is a command that becomes the server, once it has made the place that it runs in.
    """

    def __init__(self, log_path: Path, *args: str, within: tuple[str, ...] = ()) -> None:
        self._log_path = log_path
        self._log = log_path.open("wb")
        self.process = subprocess.Popen(
            # What a test does not ask for takes no processor time from the others.
            [*within, *_SERVE, "--log-json", "--port", "0", "--spare-rank", "off", *args],
            stdout=subprocess.PIPE,
            stderr=self._log,
            stdin=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "COLUMNS": "200"},
        )
        self.grpc_address = ""
        self.http_address = ""
        self._seen: list[str] = []

    def wait_ready(self) -> None:
        """Read standard output until the line with the addresses."""
        killer = threading.Timer(START_TIMEOUT_S, self.process.kill)
        killer.start()
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._seen.append(line)
            if (match := READY_LINE.search(line)) is not None:
                self.grpc_address, self.http_address = match["grpc"], match["http"]
                killer.cancel()
                return
        killer.cancel()
        raise AssertionError(f"the server did not get ready: {self._seen} {self.log_text()}")

    def log_text(self) -> str:
        return self._log_path.read_text()

    def events(self, name: str) -> list[dict[str, object]]:
        """Return the log's events of this name."""
        lines = [line for line in self.log_text().splitlines() if line.startswith("{")]
        return [event for event in map(json.loads, lines) if event["event"] == name]

    def wait_event(self, name: str, *, count: int = 1, timeout_s: float = 30.0) -> None:
        """Wait until the log has `count` events of this name."""
        until_s = time.monotonic() + timeout_s
        while len(self.events(name)) < count:
            assert time.monotonic() < until_s, f"no {name} in the log: {self.log_text()}"
            time.sleep(0.01)

    def rank_processes(self) -> list[psutil.Process]:
        try:
            return psutil.Process(self.process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []

    def wait_ranks(self, count: int) -> list[psutil.Process]:
        until_s = time.monotonic() + START_TIMEOUT_S
        while len(ranks := self.rank_processes()) < count:
            assert time.monotonic() < until_s, self.log_text()
            assert self.process.poll() is None, self.log_text()
            time.sleep(0.005)
        return ranks

    def terminate(self, *, timeout_s: float = 30.0) -> int:
        """Ask for an orderly end and return the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout_s)

    def close(self) -> None:
        """End it whatever its state, and leave nothing."""
        ranks = self.rank_processes()
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        psutil.wait_procs(ranks, timeout=5)
        if self.process.stdout is not None:
            self.process.stdout.close()
        self._log.close()


@contextmanager
def starting(tmp_path: Path, *args: str, within: tuple[str, ...] = ()) -> Iterator[Served]:
    """Start a server and do not wait for it."""
    served = Served(tmp_path / f"serve-{time.monotonic_ns()}.log", *args, within=within)
    try:
        yield served
    finally:
        served.close()


@contextmanager
def serving(tmp_path: Path, *args: str, within: tuple[str, ...] = ()) -> Iterator[Served]:
    """Start a server, wait until it is ready, and end it in order."""
    with starting(tmp_path, "--http-port", "0", *args, within=within) as served:
        served.wait_ready()
        yield served
        assert served.terminate() == 0, served.log_text()


def all_gone(processes: list[psutil.Process], *, within_s: float) -> bool:
    """Say whether every process has ended (a zombie has) within the time."""
    until_s = unhindered_s() + within_s
    while any(_is_alive(process) for process in processes):
        if unhindered_s() > until_s:
            return False
        time.sleep(0.01)
    return True


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
