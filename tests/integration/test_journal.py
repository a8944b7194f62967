"""The master itself is killed: a restarted one finishes every open reply, token for token."""

import itertools
import os
import signal
import stat
import threading
from contextlib import contextmanager

import grpc
import pytest

from lanehost import Client
from lanehost.v1 import inference_pb2 as pb
from tests.support.served import all_gone, starting
from tests.support.served_models import write_served_folder

pytestmark = [pytest.mark.ranks, pytest.mark.timeout(600)]


def requests():
    """Greedy, seeded, without a seed, with stop strings, in the background, short and long."""
    made = []
    for number in range(8):
        prompt = [7 + number, 11, 250, 3 * number + 1]
        request = pb.StreamGenerateRequest(max_tokens=60 + 40 * (number % 3))
        request.token_ids.ids.extend(prompt)
        request.stop.ignore_eos = True
        if number % 2:
            request.sampling.temperature = 0.9
            request.sampling.seed = number
        if number == 7:
            request.sampling.ClearField("seed")
        if number % 4 == 2:
            request.stop.strings.extend(["zq", "e"])
        if number == 5:
            request.priority = pb.PRIORITY_BACKGROUND
        made.append(request)
    return made


class Reader:
    """A client that comes back until it has the whole reply."""

    def __init__(self, request):
        self.request = request
        self.request_id = ""
        self.seed = 0
        self.token_ids = []
        self.text = ""
        self.finished = None
        self.codes = []

    def read(self, stub, on_token=lambda: None):
        """Begin or go on; returns when the reply has ended or the server has."""
        if not self.request_id:
            call = stub.StreamGenerate(self.request)
        else:
            call = stub.ResumeStream(
                pb.ResumeStreamRequest(request_id=self.request_id, next_index=len(self.token_ids))
            )
        try:
            for event in call:
                self.take(event)
                on_token()
        except grpc.RpcError as error:
            self.codes.append(error.code().name)

    def take(self, event):
        match event.WhichOneof("event"):
            case "accepted":
                assert self.request_id in ("", event.accepted.request_id)
                self.request_id, self.seed = event.accepted.request_id, event.accepted.seed
            case "delta":
                self.token_ids += event.delta.token_ids
                self.text += event.delta.text
            case "finished":
                self.finished = event.finished


def read_all(served, readers, on_token=lambda: None):
    with Client(served.grpc_address) as client:
        threads = [
            threading.Thread(target=one.read, args=(client._stub, on_token))
            for one in readers
            if one.finished is None
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    folder = tmp_path_factory.mktemp("checkpoint")
    write_served_folder(folder)
    return folder


@contextmanager
def server(tmp_path, checkpoint, *args):
    options = ("--model", str(checkpoint), "--dtype", "float32", "--http-port", "0")
    with starting(tmp_path, *options, "--lanes", "4", "--threads", "1", *args) as served:
        served.wait_ready()
        yield served


def whole_replies(served, readers):
    """What a server says that nobody disturbs, asked with the seeds that were in force."""
    again = []
    for reader in readers:
        request = pb.StreamGenerateRequest()
        request.CopyFrom(reader.request)
        request.sampling.seed = reader.seed
        again.append(Reader(request))
    read_all(served, again)
    return again


def kill_after(served, num_events):
    """Return what counts events, and kills the master at the last of them."""
    count, lock = itertools.count(1), threading.Lock()

    def on_token():
        with lock:
            if next(count) == num_events:
                served.process.send_signal(signal.SIGKILL)

    return on_token


def check_equal(readers, wholes):
    for reader, whole in zip(readers, wholes, strict=True):
        assert set(reader.codes) <= {"UNAVAILABLE"}
        assert reader.token_ids == whole.token_ids
        assert reader.text == whole.text
        assert reader.finished.reason == whole.finished.reason
        assert reader.finished.stop_string == whole.finished.stop_string
        assert reader.finished.usage.completion_tokens == len(whole.token_ids)


@pytest.mark.parametrize("tp", ["1", "2"])
def test_a_master_that_is_killed_in_mid_stream_loses_no_token_and_none_comes_twice(
    tmp_path, checkpoint, tp
):
    folder = tmp_path / "journal"
    args = ("--tp", tp, "--journal", str(folder))
    readers = [Reader(request) for request in requests()]
    for num_events in (60, 90):
        with server(tmp_path, checkpoint, *args) as served:
            ranks = served.wait_ranks(int(tp))
            read_all(served, readers, kill_after(served, num_events))
            assert served.process.wait() == -signal.SIGKILL
        assert all_gone(ranks, within_s=10)
    assert any(one.finished is None for one in readers)
    assert all(one.request_id for one in readers)
    with server(tmp_path, checkpoint, *args) as served:
        read_all(served, readers)
        check_equal(readers, whole_replies(served, readers))
        assert served.terminate() == 0
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}


def test_killed_while_it_loads_and_recovers_nothing_is_lost(tmp_path, checkpoint):
    folder = tmp_path / "journal"
    args = ("--journal", str(folder))
    readers = [Reader(request) for request in requests()[:3]]
    with server(tmp_path, checkpoint, *args) as served:
        read_all(served, readers, kill_after(served, 30))
        served.process.wait()
    (before,) = folder.glob("*.journal")
    content = before.read_bytes()
    for event in ("rank_spawned", "journal_read"):
        options = ("--model", str(checkpoint), "--dtype", "float32", "--http-port", "off")
        with starting(tmp_path, *options, "--lanes", "4", *args) as served:
            served.wait_event(event, timeout_s=200)
            os.kill(served.process.pid, signal.SIGKILL)
            served.process.wait()
        if event != "journal_read":
            assert before.read_bytes() == content
    with server(tmp_path, checkpoint, *args) as served:
        read_all(served, readers)
        check_equal(readers, whole_replies(served, readers))
        assert served.terminate() == 0


def test_after_a_drain_that_was_too_short_replies_go_on(tmp_path, checkpoint):
    args = ("--journal", str(tmp_path / "journal"))
    readers = [Reader(request) for request in requests()[:4]]
    with server(
        tmp_path, checkpoint, *args, "--drain-grace", "0", "--drain-timeout", "0"
    ) as served:
        told = threading.Event()
        reading = threading.Thread(target=read_all, args=(served, readers, told.set))
        reading.start()
        assert told.wait(30)
        assert served.terminate() == 0
        reading.join()
    assert any(one.finished is None for one in readers)
    known = [one for one in readers if one.request_id]
    with server(tmp_path, checkpoint, *args) as served:
        read_all(served, known)
        check_equal(known, whole_replies(served, known))
        assert served.terminate() == 0


def test_a_journal_of_another_model_is_refused_with_both_values(tmp_path, checkpoint):
    other = tmp_path / "other"
    other.mkdir()
    write_served_folder(other, seed=5)
    args = ("--journal", str(tmp_path / "journal"))
    reader = Reader(requests()[0])
    with server(tmp_path, checkpoint, *args) as served:
        read_all(served, [reader], kill_after(served, 5))
        served.process.wait()
    options = ("--model", str(other), "--dtype", "float32", "--http-port", "off")
    with starting(tmp_path, *options, *args) as served:
        assert served.process.wait(60) == 1
        assert "weights_digest was" in served.log_text()
        assert ", and is" in served.log_text()


def test_two_servers_never_share_a_journal(tmp_path, checkpoint):
    args = ("--journal", str(tmp_path / "journal"))
    with server(tmp_path, checkpoint, *args) as served:
        options = ("--model", str(checkpoint), "--dtype", "float32", "--http-port", "off")
        with starting(tmp_path, *options, *args) as second:
            assert second.process.wait(60) == 1
            assert "in use by another server" in second.log_text()
        assert served.terminate() == 0
