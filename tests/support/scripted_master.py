"""A master that a test plays from a thread: one stream, plain blocking gRPC."""

import queue
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc

from ranks.wire.codec import decode_rank_message, encode_master_message
from ranks.wire.messages import SERVICE_NAME, Heartbeat, MasterMessage, RankMessage


class ScriptedMaster:
    """Says what the test says; hears what the rank said, None at the end of its half.

    Heartbeats are kept apart.
    """

    def __init__(self) -> None:
        self.address = ""
        self._out: queue.Queue[bytes | None] = queue.Queue()
        self._heard: queue.Queue[RankMessage | None] = queue.Queue()
        self.beats: queue.Queue[Heartbeat] = queue.Queue()

    def say(self, message: MasterMessage) -> None:
        self._out.put(encode_master_message(message))

    def say_bytes(self, payload: bytes) -> None:
        self._out.put(payload)

    def hang_up(self) -> None:
        self._out.put(None)

    def hear(self) -> RankMessage | None:
        return self._heard.get(timeout=10)

    def connect(self, requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(self._hear_all, requests)
            context.add_callback(lambda: self._out.put(None))
            while (payload := self._out.get()) is not None:
                yield payload
            context.cancel()

    def _hear_all(self, requests: Iterator[bytes]) -> None:
        try:
            for payload in requests:
                message = decode_rank_message(payload)
                if isinstance(message, Heartbeat):
                    self.beats.put(message)
                else:
                    self._heard.put(message)
        finally:
            self._heard.put(None)
            self._out.put(None)


@contextmanager
def scripted_master() -> Iterator[ScriptedMaster]:
    master = ScriptedMaster()
    with ThreadPoolExecutor(4) as pool:
        server = grpc.server(pool, options=[("grpc.so_reuseport", 0)])
        handler = grpc.stream_stream_rpc_method_handler(master.connect)
        handlers = grpc.method_handlers_generic_handler(SERVICE_NAME, {"Connect": handler})
        server.add_generic_rpc_handlers((handlers,))
        master.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        server.start()
        try:
            yield master
        finally:
            master.hang_up()
            server.stop(None).wait()
