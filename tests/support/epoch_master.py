"""A master that a test plays to real rank processes: their streams and their store.

Ranks dial in whenever they like, also a second process under the same number; what is said to
a number goes to the last one that came.
"""

import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc

from ranks.wire import rank_pb2 as pb
from ranks.wire.codec import decode_rank_message, encode_master_message
from ranks.wire.messages import SERVICE_NAME, TOKEN_VARIABLE, Heartbeat, Hello, LoadProgress

ROOT = Path(__file__).parents[2]
REAL_RANK = (sys.executable, "-m", "ranks")
_PATIENCE_S = 200


class Stream:
    """The stream of one process."""

    def __init__(self) -> None:
        self.out: queue.Queue[bytes | None] = queue.Queue()
        self.heard: queue.Queue[Any] = queue.Queue()
        self.beats: queue.Queue[Heartbeat] = queue.Queue()


class EpochMaster:
    """Says what the test says; keeps what ranks say, heartbeats apart."""

    def __init__(self, world_size: int) -> None:
        self.world_size = world_size
        self.address = ""
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        self.forced_offers: dict[str, bytes] = {}
        self._streams: dict[int, Stream] = {}
        self._came = threading.Condition()
        self._values: dict[str, bytes] = {}
        self._set = threading.Condition()
        self._pipes: list[int] = []

    def start(self, rank: int, command: Sequence[str] = REAL_RANK) -> None:
        """Start a process under this number, and wait until it has said Hello."""
        with self._came:
            self._streams.pop(rank, None)
        death_fd, held = os.pipe()
        self._pipes.append(held)
        self.processes[rank] = subprocess.Popen(
            [
                *command,
                *("--master", self.address, "--rank", str(rank)),
                *("--world-size", str(self.world_size), "--death-fd", str(death_fd)),
            ],
            cwd=ROOT,
            env=os.environ | {TOKEN_VARIABLE: "t", "PYTHONPATH": str(ROOT)},
            pass_fds=(death_fd,),
        )
        os.close(death_fd)

    def stream(self, rank: int) -> Stream:
        with self._came:
            assert self._came.wait_for(lambda: rank in self._streams, timeout=_PATIENCE_S)
            return self._streams[rank]

    def say(self, message: Any, *ranks: int) -> None:
        for rank in ranks:
            self.stream(rank).out.put(encode_master_message(message))

    def hear(self, rank: int) -> Any:
        """The next message but reports of progress; None at the end."""
        while isinstance(message := self.stream(rank).heard.get(timeout=_PATIENCE_S), LoadProgress):
            pass
        return message

    def await_step(self, rank: int, step_id: int) -> Heartbeat:
        """Wait until this rank's heart says that the step is computed."""
        until_s = time.monotonic() + _PATIENCE_S
        while (beat := self.stream(rank).beats.get(timeout=_PATIENCE_S)).step_id != step_id:
            assert time.monotonic() < until_s, f"no beat within step {step_id}, the last: {beat}"
        return beat

    def close(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()
        for pipe in self._pipes:
            os.close(pipe)
        for stream in self._streams.values():
            stream.out.put(None)

    def handlers(self) -> dict[str, Any]:
        def unary(kind: Any, act: Any) -> Any:
            return grpc.unary_unary_rpc_method_handler(
                act,
                request_deserializer=kind.FromString,
                response_serializer=lambda answer: answer.SerializeToString(),
            )

        return {
            "Connect": grpc.stream_stream_rpc_method_handler(self._connect),
            "StoreSet": unary(pb.StoreSetRequest, self._store_set),
            "StoreGet": unary(pb.StoreGetRequest, self._store_get),
            "StoreCheck": unary(pb.StoreCheckRequest, self._store_check),
        }

    def _connect(self, requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
        hello = decode_rank_message(next(requests))
        assert isinstance(hello, Hello)
        stream = Stream()
        threading.Thread(target=self._hear_all, args=(requests, stream), daemon=True).start()
        context.add_callback(lambda: stream.out.put(None))
        with self._came:
            self._streams[hello.rank] = stream
            self._came.notify_all()
        while (payload := stream.out.get()) is not None:
            yield payload

    def _hear_all(self, requests: Iterator[bytes], stream: Stream) -> None:
        try:
            for payload in requests:
                message = decode_rank_message(payload)
                kept = stream.beats if isinstance(message, Heartbeat) else stream.heard
                kept.put(message)
        except grpc.RpcError:
            pass
        finally:
            stream.heard.put(None)
            stream.out.put(None)

    def _store_set(self, request: Any, _context: Any) -> Any:
        with self._set:
            self._values[request.key] = self.forced_offers.get(request.key, request.value)
            self._set.notify_all()
        return pb.StoreSetResponse()

    def _store_get(self, request: Any, context: Any) -> Any:
        with self._set:
            if self._set.wait_for(lambda: request.key in self._values, timeout=request.timeout_s):
                return pb.StoreGetResponse(value=self._values[request.key])
        context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "not set")
        raise AssertionError

    def _store_check(self, request: Any, _context: Any) -> Any:
        with self._set:
            return pb.StoreCheckResponse(present=set(request.keys) <= set(self._values))


@contextmanager
def epoch_master(world_size: int) -> Iterator[EpochMaster]:
    master = EpochMaster(world_size)
    with ThreadPoolExecutor(32) as pool:
        server = grpc.server(pool, options=[("grpc.so_reuseport", 0)])
        handlers = grpc.method_handlers_generic_handler(SERVICE_NAME, master.handlers())
        server.add_generic_rpc_handlers((handlers,))
        master.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        server.start()
        try:
            yield master
        finally:
            master.close()
            server.stop(None).wait()
