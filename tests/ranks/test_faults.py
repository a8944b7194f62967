import socket
import subprocess
import sys
import threading
from dataclasses import replace
from types import SimpleNamespace

import pytest
import structlog
import torch

from ranks.fault_orders import VARIABLE, Act, Point, order_file
from ranks.faults import FaultyModel, FaultyWorker, Injected, Orders, Relay, points_of
from ranks.plan import Chunk, StagedSlice, StepPlan
from tests.support.scripted_master import scripted_master

PROMPT = Chunk(lane_id=0, start=0, token_ids=(5, 6), draws=True)
STAGED = StagedSlice(pass_id=1, chunks=(PROMPT,), first_layer=0, stop_layer=1)


def plan(**parts):
    return StepPlan(step_id=1, epoch=1, **parts)


def give(tmp_path, words):
    order_file(tmp_path, 0).write_text(words)


def orders(tmp_path, cut=lambda: None):
    return Orders(tmp_path, 0, cut=cut)


def test_an_order_is_taken_once_at_its_point_and_said_in_the_log(tmp_path):
    give(tmp_path, "oom decode")
    mine = orders(tmp_path)
    with structlog.testing.capture_logs() as events:
        assert mine.take(Point.PREFILL, Point.STEP) is None
        assert mine.take(Point.DECODE, Point.STEP) is Act.OOM
        assert mine.take(Point.DECODE) is None
    assert [(one["event"], one["fault"], one["point"]) for one in events] == [
        ("fault_injected", "oom", "decode")
    ]


def test_a_partition_is_done_by_who_takes_the_order(tmp_path):
    give(tmp_path, "partition now")
    cuts = []
    orders(tmp_path, cut=lambda: cuts.append(1)).take(Point.NOW)
    assert cuts == [1]


def test_poison_waits_for_its_token_and_stays(tmp_path):
    give(tmp_path, "poison=7 prefill")
    assert orders(tmp_path).take(Point.PREFILL, fed=frozenset({5, 6})) is None
    code = (
        "import sys; from pathlib import Path\n"
        "from ranks.faults import Orders, Point\n"
        "Orders(Path(sys.argv[1]), 0, cut=print).take(Point.PREFILL, fed=frozenset({7}))\n"
    )
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False).returncode == -9
    assert order_file(tmp_path, 0).exists()


def test_a_step_is_a_prefill_a_pass_or_a_decode():
    assert points_of(plan(chunks=(PROMPT,), decodes=(1,))) == (Point.PREFILL, Point.STEP)
    assert points_of(plan(chunks=(PROMPT, PROMPT))) == (Point.PASS, Point.STEP)
    assert points_of(plan(decodes=(1,))) == (Point.DECODE, Point.STEP)
    assert points_of(plan(leaves=(1,))) == ()


class Model:
    name = "inner"

    def forward(self, inputs, kv, collective):
        return torch.zeros(2, 3)

    def run_layers(self, state, first, stop, kv, collective):
        state.x = torch.zeros(2, 3)

    def encode_image(self, pixels):
        return torch.zeros(4, 3)


def faulty(tmp_path):
    return FaultyModel(Model(), orders(tmp_path))


@pytest.mark.parametrize(
    ("act", "error"), [(Act.OOM, MemoryError), (Act.RAISE, Injected), (None, None)]
)
def test_a_model_fails_once_as_told_and_is_itself_again(tmp_path, act, error):
    model = faulty(tmp_path)
    model.act = act
    if error is not None:
        with pytest.raises(error):
            model.forward(None, None, None)
    assert model.forward(None, None, None).tolist() == [[0.0] * 3] * 2
    assert model.name == "inner"


def test_nan_spoils_one_row_and_shape_loses_one(tmp_path):
    model = faulty(tmp_path)
    model.act = Act.NAN
    logits = model.forward(None, None, None)
    assert (logits[0].isnan().all(), logits[1].isfinite().all()) == (True, True)
    model.act = Act.SHAPE
    assert model.forward(None, None, None).shape == (1, 3)


@pytest.mark.parametrize(("act", "error"), [(Act.OOM, MemoryError), (Act.RAISE, Injected)])
def test_a_slice_fails_once_as_told(tmp_path, act, error):
    model, state = faulty(tmp_path), SimpleNamespace(x=None)
    model.slice_act = act
    with pytest.raises(error):
        model.run_layers(state, 0, 1, None, None)
    assert state.x is None
    model.run_layers(state, 0, 1, None, None)
    assert state.x.isfinite().all()


def test_nan_spoils_a_row_of_a_slice_and_shape_loses_one(tmp_path):
    model, state = faulty(tmp_path), SimpleNamespace(x=None)
    model.slice_act = Act.NAN
    model.run_layers(state, 0, 1, None, None)
    assert (state.x[0].isnan().all(), state.x[1].isfinite().all()) == (True, True)
    model.slice_act = Act.SHAPE
    model.run_layers(state, 0, 1, None, None)
    assert state.x.shape == (1, 3)


def test_an_image_fails_once_as_ordered(tmp_path):
    model = faulty(tmp_path)
    for words, error in (("oom encode", MemoryError), ("raise encode", Injected)):
        give(tmp_path, words)
        with pytest.raises(error):
            model.encode_image(None)
    give(tmp_path, "nan encode")
    assert model.encode_image(None).isnan().all()
    give(tmp_path, "shape encode")
    assert model.encode_image(None).shape == (3, 3)
    assert model.encode_image(None).shape == (4, 3)


def test_a_step_with_a_slice_takes_an_order_for_it_beside_that_for_its_rows(tmp_path):
    model, staged = faulty(tmp_path), replace(STAGED, stop_layer=2)
    worker = FaultyWorker(Worker(), orders(tmp_path), [model])
    give(tmp_path, "oom staged")
    worker.run(plan(decodes=(0,)))
    assert (model.act, model.slice_act) == (None, None)
    worker.run(plan(decodes=(0,), staged=staged))
    assert (model.act, model.slice_act) == (None, Act.OOM)
    give(tmp_path, "nan decode")
    worker.run(plan(decodes=(0,), staged=staged))
    assert (model.act, model.slice_act) == (Act.NAN, None)


class Worker:
    """Notes what it is told."""

    def __init__(self):
        self.told = []

    def __getattr__(self, name):
        return lambda *args: self.told.append(name)


def test_a_worker_fails_in_load_and_in_form_and_tells_its_model_what_a_step_is_to_do(tmp_path):
    inner, model = Worker(), faulty(tmp_path)
    worker = FaultyWorker(inner, orders(tmp_path), [model])
    for words, call in (("raise load", worker.load), ("oom form", worker.form)):
        give(tmp_path, words)
        with pytest.raises((Injected, MemoryError)):
            call(None, None)
        call(None, None)
    give(tmp_path, "nan decode")
    worker.run(plan(decodes=(0,)))
    assert model.act is Act.NAN
    for call in (worker.take_file, worker.take_image):
        call(None, None)
    for call in (worker.num_stages, worker.leave, worker.free, worker.close):
        call()
    done = ["take_file", "take_image"]
    assert inner.told == ["load", "form", "run", *done, "num_stages", "leave", "free", "close"]


def test_a_relay_carries_both_ways_until_it_is_cut_and_closes_nothing_then():
    with socket.create_server(("127.0.0.1", 0)) as server:
        relay = Relay(f"127.0.0.1:{server.getsockname()[1]}")
        host, port = relay.address.split(":")
        with socket.create_connection((host, int(port))) as inner:
            outer, _ = server.accept()
            with outer:
                inner.sendall(b"up")
                assert outer.recv(2) == b"up"
                outer.sendall(b"down")
                assert inner.recv(4) == b"down"
                relay.cut()
                inner.sendall(b"lost")
                outer.settimeout(0.2)
                with pytest.raises(TimeoutError):
                    outer.recv(1)


def test_a_relay_hands_on_that_an_end_has_closed():
    with socket.create_server(("127.0.0.1", 0)) as server:
        relay = Relay(f"127.0.0.1:{server.getsockname()[1]}")
        host, port = relay.address.split(":")
        inner = socket.create_connection((host, int(port)))
        outer, _ = server.accept()
        with outer:
            inner.close()
            assert outer.recv(1) == b""


def test_without_its_variable_a_rank_never_looks_for_orders():
    """The module is not even there, and nobody but the program of a rank reads the variable."""
    code = (
        "import sys, os; os.environ.pop(sys.argv[1], None)\n"
        "import ranks.__main__ as program\n"
        "program.stand_guard = lambda fd: None\n"
        "program.log_to_stderr = lambda rank, is_json: None\n"
        "sys.argv[1:] = sys.argv[2:]\n"
        "os.environ['LANEHOST_RANK_TOKEN'] = 't'\n"
        "try:\n    program.main()\nexcept BaseException as err:\n    pass\n"
        "print('ranks.session' in sys.modules, 'ranks.faults' in sys.modules)\n"
    )
    with scripted_master() as master:
        master.hang_up()
        args = f"--master {master.address} --rank 0 --world-size 1 --death-fd 3"
        run = [sys.executable, "-c", code, VARIABLE, *args.split()]
        done = subprocess.run(run, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split()[-2:] == ["True", "False"], done.stderr


def test_the_watching_thread_takes_what_is_to_be_done_at_once(tmp_path):
    cut = threading.Event()
    threading.Thread(target=orders(tmp_path, cut=cut.set).watch, daemon=True).start()
    give(tmp_path, "partition now")
    assert cut.wait(10)
