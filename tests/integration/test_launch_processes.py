"""Real processes of `lanehost follow` and `lanehost launch`, on one host."""

import re
import signal
import socket
import subprocess
import sys

import psutil
import pytest

from tests.support.served import all_gone, starting

pytestmark = [pytest.mark.ranks, pytest.mark.timeout(300)]
LANEHOST = [sys.executable, "-m", "lanehost"]


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return taken.getsockname()[1]


def follow(port, *args):
    return subprocess.Popen(
        [*LANEHOST, "follow", "--tp", "2", "--rank", "1", "--master", f"127.0.0.1:{port}",
         "--spare-rank", "off", *args],
        stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip


def test_told_to_end_while_it_waits_for_a_master_it_ends_in_order():
    with follow(free_port()) as agent:
        while "master_awaited" not in agent.stderr.readline():
            assert agent.poll() is None
        agent.send_signal(signal.SIGTERM)
        agent.stderr.read()
        assert agent.wait(30) == 0


def test_without_a_master_it_ends_at_its_limit_with_3():
    with follow(free_port(), "--master-timeout", "1") as agent:
        assert "follow_given_up" in agent.stderr.read()
        assert agent.wait(30) == 3


@pytest.mark.model
def test_told_to_end_it_takes_its_rank_with_it_and_another_follows_on_port_0(tmp_path):
    words = "--tp 2 --rank 0 --master 127.0.0.1:0 --http-port off --threads 1"
    with starting(tmp_path, *words.split()) as served:
        line = served.process.stdout.readline()
        port = int(re.fullmatch(r"lanehost waits for .* at 127\.0\.0\.1:(\d+)\n", line)[1])
        with follow(port) as agent:
            served.wait_ready()
            (rank,) = psutil.Process(agent.pid).children()
            agent.send_signal(signal.SIGTERM)
            agent.stderr.read()
            assert agent.wait(30) == 0
            assert all_gone([rank], within_s=1)
        served.wait_event("epoch_ended")
        with follow(port) as agent:
            served.wait_event("epoch_formed", timeout_s=120)
            assert served.terminate() == 0
            assert "follow_dismissed" in agent.stderr.read()
            assert agent.wait(30) == 0


@pytest.mark.model
def test_torchrun_starts_a_group_that_answers():
    words = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
        "--max-restarts", "0", "--no-python", "--", *LANEHOST, "launch", "--port", "0",
        "--http-port", "off", "--threads", "1", "--master", f"127.0.0.1:{free_port()}",
    ]  # fmt: skip
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as torchrun:
        try:
            address = None
            while address is None:
                line = torchrun.stdout.readline()
                assert line
                address = re.search(r"on 2 ranks: gRPC (\S+:\d+)", line)
            said = subprocess.run(
                [*LANEHOST, "generate", "--address", address[1], "--max-tokens", "3",
                 "--prompt", "The capital of France is"],
                check=True, capture_output=True, text=True,
            )  # fmt: skip
            assert "Paris" in said.stdout
        finally:
            below = psutil.Process(torchrun.pid).children(recursive=True)
            torchrun.send_signal(signal.SIGTERM)
            torchrun.stdout.read()
        assert all_gone(below, within_s=30)
