"""Every way out: signals and kills in every phase leave no rank and no taken port."""

import os
import signal
import socket
import subprocess
import sys

import pytest

from lanehost import Client, ClientError
from tests.support.served import READY_LINE, all_gone, serving, starting

pytestmark = [pytest.mark.model, pytest.mark.ranks, pytest.mark.timeout(120)]
GONE_WITHIN_S = 2.0

PHASES = {
    "spawn": lambda served: served.wait_ranks(1),
    "rendezvous": lambda served: served.wait_event("rank_connected"),
    "load": lambda served: served.wait_event("rank_loaded"),
    "serve": lambda served: served.wait_ready(),
}


def is_free(address: str) -> bool:
    host, port = address.rsplit(":", 1)
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, int(port)))
        except OSError:
            return False
    return True


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_when_the_master_ends_in_any_phase_no_rank_is_left(tmp_path, phase, number):
    with starting(tmp_path, "--http-port", "0", "--tp", "2") as served:
        PHASES[phase](served)
        ranks = served.rank_processes()
        assert ranks
        served.process.send_signal(number)
        code = served.process.wait(30)
        assert all_gone(ranks, within_s=GONE_WITHIN_S)
        assert code == (0 if number == signal.SIGTERM else -signal.SIGKILL)
        for address in filter(None, (served.grpc_address, served.http_address)):
            assert is_free(address)


def test_killed_in_the_middle_of_a_reply_the_master_leaves_nothing(tmp_path):
    with starting(tmp_path, "--http-port", "0", "--tp", "2") as served:
        served.wait_ready()
        ranks = served.rank_processes()
        with (
            Client(served.grpc_address) as client,
            client.stream(prompt="Once", max_tokens=400, ignore_eos=True) as stream,
        ):
            next(iter(stream))
            served.process.kill()
            served.process.wait()
            assert all_gone(ranks, within_s=GONE_WITHIN_S)


def test_a_drain_lets_open_replies_finish_and_exits_0(tmp_path):
    with starting(tmp_path, "--http-port", "0") as served:
        served.wait_ready()
        with Client(served.grpc_address) as client:
            solo = client.generate(prompt="Once", max_tokens=60, ignore_eos=True)
            with client.stream(prompt="Once", max_tokens=60, ignore_eos=True) as stream:
                next(iter(stream))
                served.process.send_signal(signal.SIGTERM)
                for _ in stream:
                    pass
                assert stream.reply.token_ids == solo.token_ids
        assert served.process.wait(20) == 0


def test_a_drain_that_takes_too_long_tells_the_open_replies(tmp_path):
    with starting(tmp_path, "--http-port", "0", "--drain-timeout", "0") as served:
        served.wait_ready()
        with (
            Client(served.grpc_address) as client,
            client.stream(prompt="Once", max_tokens=2000, ignore_eos=True) as stream,
        ):
            next(iter(stream))
            served.process.send_signal(signal.SIGTERM)
            with pytest.raises(ClientError, match="--drain-timeout"):
                for _ in stream:
                    pass
        assert served.process.wait(10) == 0


def test_a_second_signal_ends_at_once(tmp_path):
    with starting(tmp_path, "--http-port", "0") as served:
        served.wait_ready()
        ranks = served.rank_processes()
        with (
            Client(served.grpc_address) as client,
            client.stream(prompt="Once", max_tokens=2000, ignore_eos=True) as stream,
        ):
            next(iter(stream))
            served.process.send_signal(signal.SIGTERM)
            served.wait_event("stop_asked")
            served.process.send_signal(signal.SIGTERM)
            assert served.process.wait(5) == 4
        assert all_gone(ranks, within_s=GONE_WITHIN_S)


@pytest.mark.parametrize("option", ["--port", "--http-port"])
def test_two_servers_on_one_port_the_second_says_so_and_exits(tmp_path, option):
    with serving(tmp_path) as first:
        address = first.grpc_address if option == "--port" else first.http_address
        port = address.rsplit(":", 1)[1]
        args = {"--port": "0", "--http-port": "0"} | {option: port}
        flat = [word for pair in args.items() for word in pair]
        with starting(tmp_path, *flat) as second:
            assert second.process.wait(20) == 1
            assert port in second.log_text()
            assert second.rank_processes() == []


def test_a_killed_rank_is_replaced_and_an_open_stream_goes_on_as_if_nothing_was(tmp_path):
    with serving(tmp_path, "--tp", "2") as served, Client(served.grpc_address) as client:
        solo = client.generate(prompt="Once", max_tokens=200, ignore_eos=True)
        with client.stream(prompt="Once", max_tokens=200, ignore_eos=True) as stream:
            next(iter(stream))
            served.rank_processes()[1].kill()
            for _ in stream:
                pass
            assert stream.reply.token_ids == solo.token_ids
        served.wait_event("epoch_formed")


def test_ranks_given_up_end_open_streams_with_unavailable_and_the_server_with_3(tmp_path):
    with starting(tmp_path, "--http-port", "0", "--tp", "2", "--max-restarts", "0") as served:
        served.wait_ready()
        victim = served.rank_processes()[1]
        with (
            Client(served.grpc_address) as client,
            client.stream(prompt="Once", max_tokens=2000, ignore_eos=True) as stream,
        ):
            next(iter(stream))
            ranks = served.rank_processes()
            victim.kill()
            with pytest.raises(ClientError, match="rank") as caught:
                for _ in stream:
                    pass
        assert "ServerUnavailable" in type(caught.value).__name__
        assert served.process.wait(10) == 3
        assert "lanehost: the ranks were given up (" in served.log_text()
        assert all_gone(ranks, within_s=GONE_WITHIN_S)


def test_a_log_that_nobody_reads_any_more_costs_no_reply(tmp_path):
    """As `lanehost serve 2>&1 | tee` once tee has gone: lines are lost, and nothing else."""
    reader, writer = os.pipe()
    command = [sys.executable, "-m", "lanehost", "serve", "--port", "0", "--http-port", "off"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=writer, text=True) as process:
        os.close(writer)
        assert process.stdout is not None
        address = READY_LINE.search(process.stdout.readline())["grpc"]
        os.close(reader)
        with Client(address) as client:
            replies = [client.generate(prompt="Once", max_tokens=8) for _ in range(2)]
        assert replies[0].token_ids == replies[1].token_ids
        process.terminate()
        assert process.wait(20) == 0
