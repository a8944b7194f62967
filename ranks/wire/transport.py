"""How gRPC is set up between the master, its ranks and its agents; both ends read it here.

Law: a peer that answers nothing any more, without having ended its connection (the network is
cut, the host is gone), is noticed by both ends within `PING_AFTER_MS` + `PING_TIMEOUT_MS`.
"""

from ranks.wire.messages import MAX_MESSAGE_BYTES

PING_AFTER_MS = 3_000
PING_TIMEOUT_MS = 5_000

_BOTH: tuple[tuple[str, int], ...] = (
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.keepalive_time_ms", PING_AFTER_MS),
    ("grpc.keepalive_timeout_ms", PING_TIMEOUT_MS),
    # Without this one a peer whose kernel still answers is not noticed.
    ("grpc.http2.ping_timeout_ms", PING_TIMEOUT_MS),
    ("grpc.keepalive_permit_without_calls", 1),
    # Streams may be silent for long.
    ("grpc.http2.max_pings_without_data", 0),
)
SERVER_OPTIONS = (
    *_BOTH,
    # On by default, and two masters on one port would then both "succeed".
    ("grpc.so_reuseport", 0),
    # Or else the pings of ranks end in GOAWAY "too_many_pings". (The key with "recv" in its
    # name is not read by anything.)
    ("grpc.http2.min_ping_interval_without_data_ms", 1_000),
)
CLIENT_OPTIONS = (
    *_BOTH,
    # A proxy of the environment must never stand between a rank and its master.
    ("grpc.enable_http_proxy", 0),
    # Who dials again must not find the failures of channels before.
    ("grpc.use_local_subchannel_pool", 1),
)
