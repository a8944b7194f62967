"""The recorder on the real model: the same replies, and trails that run again."""

import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from lanehost import Client
from lanehost.recorder.records import JobEnded, StepReturned
from lanehost.recorder.trail import Torn, Trail, read_file
from tests.support.served import serving
from tests.support.trails import write_file

pytestmark = [pytest.mark.model, pytest.mark.ranks, pytest.mark.timeout(300)]
OPTIONS = ("--lanes", "6", "--kv-tokens", "2048")


def requests():
    """Sixteen: some begin alike, some repeat themselves, greedy and seeded."""
    rng = random.Random(11)
    shared = [rng.randrange(17, 40000) for _ in range(64)]
    loop = [rng.randrange(17, 40000) for _ in range(4)] * 6
    made = []
    for number in range(16):
        own = [rng.randrange(17, 40000) for _ in range(rng.choice((1, 7, 40)))]
        made.append(
            {
                "token_ids": (shared, loop, [])[number % 3] + own,
                "max_tokens": rng.randint(6, 32),
                "temperature": number % 2 * 0.8,
                "seed": number,
                "ignore_eos": True,
            }
        )
    return made


def all_at_once(served):
    """Return the replies; every fifth client leaves early, and has none."""

    def run(numbered):
        number, request = numbered
        if number % 5 != 4:
            return client.generate(**request).token_ids
        with client.stream(**request) as stream:
            next(iter(stream))
        return None

    with Client(served.grpc_address) as client, ThreadPoolExecutor(16) as pool:
        return list(pool.map(run, enumerate(requests())))


def replay(*args):
    command = [sys.executable, "-m", "lanehost", "replay", *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """Replies of a recorded run, and its trail."""
    folder = tmp_path_factory.mktemp("recorded")
    record = ("--record", str(folder / "trails"), "--record-prompts")
    with serving(folder, *OPTIONS, *record) as served:
        replies = all_at_once(served)
    return replies, folder / "trails"


def test_recorded_replies_on_the_real_model_equal_unrecorded_ones(tmp_path, recorded):
    with serving(tmp_path, *OPTIONS) as served:
        assert all_at_once(served) == recorded[0]


def test_a_real_trail_of_mixed_requests_replays_equal_and_a_changed_token_is_named(
    tmp_path, recorded
):
    for against in ("fake", "ranks"):
        equal = replay(recorded[1], "--against", against)
        assert equal.returncode == 0, equal.stdout + equal.stderr
        print(equal.stdout)
    notes = list(Trail(recorded[1]))
    assert "Cancelled" in {note.ending for note in notes if isinstance(note, JobEnded)}
    steps = [note for note in notes if isinstance(note, StepReturned) and note.drawn]
    step = steps[len(steps) // 2]
    lane_id, token_id = step.drawn[0]

    def change(record):
        if isinstance(record, StepReturned) and record.step_id == step.step_id:
            return replace(record, drawn=((lane_id, token_id + 1), *record.drawn[1:]))
        return record

    (path,) = recorded[1].iterdir()
    changed = write_file(tmp_path / "changed", [change(one) for one in read_file(path, Torn())])
    differs = replay(changed)
    assert differs.returncode == 1, differs.stdout + differs.stderr
    assert f"step {step.step_id}, lane {lane_id}, request " in differs.stdout
    print(differs.stdout)


def test_one_request_of_a_real_trail_replays_alone(recorded):
    ended = [note for note in Trail(recorded[1]) if isinstance(note, JobEnded)]
    longest = max(ended, key=lambda note: len(note.token_ids))
    alone = replay(recorded[1], "--request", longest.job_id)
    assert alone.returncode == 0, alone.stdout + alone.stderr
    assert alone.stdout.startswith("EQUAL")


def test_a_trail_replays_equal_on_two_ranks(recorded):
    two = replay(recorded[1], "--tp", "2")
    assert two.returncode == 0, two.stdout + two.stderr


def test_another_model_is_refused_with_both_digests(tmp_path, recorded):
    from tests.support.tiny_checkpoints import write_hf_checkpoint  # noqa: PLC0415 - loads torch

    write_hf_checkpoint(tmp_path, "llama")
    other = replay(recorded[1], "--model", tmp_path)
    assert other.returncode == 2
    assert "weights_digest of the trail is" in other.stderr
