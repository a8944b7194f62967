"""Both ends agree on messages, and each pings less often than the other bears."""

from ranks.wire.messages import MAX_MESSAGE_BYTES
from ranks.wire.transport import CLIENT_OPTIONS, SERVER_OPTIONS


def test_both_ends_ping_and_neither_is_sent_away_for_it():
    client, server = dict(CLIENT_OPTIONS), dict(SERVER_OPTIONS)
    for end in (client, server):
        assert end["grpc.keepalive_timeout_ms"] == end["grpc.http2.ping_timeout_ms"]
        assert end["grpc.http2.max_pings_without_data"] == 0
        assert end["grpc.max_receive_message_length"] == MAX_MESSAGE_BYTES
    bears = server["grpc.http2.min_ping_interval_without_data_ms"]
    assert client["grpc.keepalive_time_ms"] > bears


def test_no_two_masters_share_a_port_and_no_proxy_stands_between():
    assert dict(SERVER_OPTIONS)["grpc.so_reuseport"] == 0
    assert dict(CLIENT_OPTIONS)["grpc.enable_http_proxy"] == 0
