"""Real ranks that lose a fellow: they leave, form the next epoch, and draw the same tokens."""

import os
import queue
import signal
from pathlib import Path

import pytest

from ranks.plan import StepResult
from ranks.wire.messages import Broken, Form, Leave, Left, Load, Loaded, Ready
from tests.support.epoch_master import epoch_master
from tests.support.failing_rank import failing_rank_command
from tests.support.plan_writer import PlanWriter
from tests.support.shared_ranks import has_library
from tests.support.tiny_checkpoints import write_hf_checkpoint

pytestmark = [pytest.mark.ranks, pytest.mark.timeout(900)]
PROMPT = [11, 250, 7, 99, 42, 3, 180]
NO_MEMORY = b'{"memory": null, "reason": "for a test"}'
BOTH = (0, 1)


@pytest.fixture(scope="module")
def order(tmp_path_factory):
    folder = tmp_path_factory.mktemp("checkpoint")
    write_hf_checkpoint(folder, "llama")
    return Load(
        model_path=str(folder), dtype="float32", weights="auto", device="cpu", num_threads=1,
        block_size=16, max_step_tokens=32, num_lanes=2,
    )  # fmt: skip


def form(epoch):
    # Longer than anybody here waits: whoever is woken was not woken by it.
    return Form(
        epoch=epoch, num_blocks=8, block_size=16, num_lanes=2, max_step_tokens=32,
        collective_timeout_s=200,
    )  # fmt: skip


def load(master, order, *ranks):
    master.say(order, *ranks)
    return [master.hear(rank).collective for rank in ranks]


def enter(master, epoch, *ranks):
    master.say(form(epoch), *ranks)
    assert [master.hear(rank) for rank in ranks] == [Ready(epoch=epoch)] * len(ranks)


def tokens_of(master, epoch):
    """A prompt and two tokens more; gives who wrote the plans, to go on with."""
    writer, drawn = PlanWriter(block_size=16, epoch=epoch), []
    for plan in (writer.plan(prompts={0: PROMPT}), writer.plan(decodes=(0,))):
        master.say(plan, *BOTH)
        results = [master.hear(rank) for rank in BOTH]
        assert all(isinstance(one, StepResult) for one in results)
        assert results[0].digest == results[1].digest
        drawn.append(results[0].drawn[0])
    return writer, drawn


def leave(master, epoch, *ranks):
    master.say(Leave(epoch=epoch), *ranks)
    assert [master.hear(rank) for rank in ranks] == [Left(epoch=epoch)] * len(ranks)


def replace_rank_1(master, order):
    master.processes[1].kill()
    master.processes[1].wait()
    master.start(1)
    load(master, order, 1)


def begin_a_step_without_rank_1(master, writer):
    """Leave rank 0 in a collective, with its heart beating."""
    os.kill(master.processes[1].pid, signal.SIGSTOP)
    plan = writer.plan(decodes=(0,))
    master.say(plan, *BOTH)
    for _ in range(3):
        master.await_step(0, plan.step_id)


def start_both(master, order, collective):
    if collective == "shm" and not has_library():
        pytest.skip("there is no native library on this machine")
    if collective == "gloo":
        master.forced_offers["offers/1"] = NO_MEMORY
    for rank in BOTH:
        master.start(rank)
    assert load(master, order, *BOTH) == [collective] * 2


@pytest.mark.parametrize("collective", ["shm", "gloo"])
def test_a_survivor_goes_on_with_a_fresh_fellow_and_draws_the_same(order, collective):
    with epoch_master(2) as master:
        start_both(master, order, collective)
        enter(master, 1, *BOTH)
        writer, tokens = tokens_of(master, 1)

        # Stopped in a step: the survivor waits, and Leave wakes it.
        begin_a_step_without_rank_1(master, writer)
        leave(master, 1, 0)
        replace_rank_1(master, order)
        enter(master, 2, *BOTH)
        writer, again = tokens_of(master, 2)
        assert again == tokens

        # Killed in a step: the survivor says whose fault it is.
        begin_a_step_without_rank_1(master, writer)
        os.kill(master.processes[1].pid, signal.SIGKILL)
        broken = master.hear(0)
        assert isinstance(broken, Broken)
        assert (broken.epoch, broken.suspect) == (2, 1)
        leave(master, 2, 0)
        replace_rank_1(master, order)

        # Stopped while the group is formed.
        os.kill(master.processes[1].pid, signal.SIGSTOP)
        master.say(form(3), *BOTH)
        leave(master, 3, 0)
        replace_rank_1(master, order)
        enter(master, 4, *BOTH)
        assert tokens_of(master, 4)[1] == tokens


def footprint(pid):
    """Descriptors, threads and maps of a process, and its resident bytes."""
    process = Path(f"/proc/{pid}")
    files, threads = (len(list((process / part).iterdir())) for part in ("fd", "task"))
    maps = len((process / "maps").read_text().splitlines())
    resident = int((process / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return files, threads, maps, resident


@pytest.mark.parametrize("collective", ["shm", "gloo"])
def test_nothing_is_left_of_epochs_that_are_over(order, collective):
    with epoch_master(2) as master:
        start_both(master, order, collective)
        found = []
        for epoch in range(1, 51):
            enter(master, epoch, *BOTH)
            if epoch in (10, 50):
                # Form is read once the memory is free: of the epochs before it is all gone by now.
                found.append([footprint(master.processes[rank].pid) for rank in BOTH])
            tokens_of(master, epoch)
            leave(master, epoch, *BOTH)
    for (files, threads, maps, resident), later in zip(*found, strict=True):
        # One thing left by each of the 40 epochs between would be 40. The threads of gRPC
        # come and go by some, and each has its maps.
        assert later[0] == files
        assert later[1] <= threads + 4
        assert later[2] <= maps + 16
        assert later[3] < resident + (8 << 20)


def test_stages_rise_in_a_long_step_and_stand_still_in_one_that_hangs(order):
    with epoch_master(1) as master:
        master.start(0, failing_rank_command("slow-token=250,hang-token=99"))
        assert isinstance(hear_loaded(master, order), Loaded)
        enter(master, 1, 0)
        writer = PlanWriter(block_size=16)
        master.say(writer.plan(prompts={0: [250] * 30}), 0)
        beats = [master.await_step(0, 1)]
        while master.stream(0).heard.empty():
            beat = master.stream(0).beats.get(timeout=200)
            if beat.step_id == 1:
                beats.append(beat)
        master.hear(0)
        stages = [beat.num_stages for beat in beats]
        assert stages == sorted(stages)
        before = stages[-1]
        master.say(writer.plan(prompts={1: [99]}), 0)
        stood = [master.await_step(0, 2).num_stages for _ in range(4)]
        assert len(set(stood)) == 1
        assert stood[0] >= before + 1
        os.kill(master.processes[0].pid, signal.SIGSTOP)
        assert num_beats_until_silence(master.stream(0)) < 20


def num_beats_until_silence(stream):
    for number in range(20):
        try:
            stream.beats.get(timeout=1.5)
        except queue.Empty:
            return number
    return 20


def hear_loaded(master, order):
    master.say(order, 0)
    return master.hear(0)
