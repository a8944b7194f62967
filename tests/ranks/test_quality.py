"""Two models over windows of ids: what is compared, and the program around it."""

import json
import math
import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ranks.guard import EXIT_MASTER_GONE
from ranks.models.registry import open_checkpoint
from ranks.quality import Alone, check_windows, compare, load
from tests.support.tiny_checkpoints import CONTEXT_LENGTH, VOCAB_SIZE, write_hf_checkpoint

CPU = torch.device("cpu")
WINDOWS = [[(7 * number + 3 * at) % VOCAB_SIZE for at in range(20)] for number in range(3)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("quality") / "model"
    write_hf_checkpoint(path, "llama")
    return path


def logits(*rows):
    return torch.tensor(rows, dtype=torch.float32)


def test_equal_logits_have_no_divergence_and_the_same_top():
    rows = torch.randn(5, 40, generator=torch.Generator().manual_seed(1))
    found = compare(rows, rows.clone(), [1, 2, 3, 4, 5])
    assert found.kl == [0.0] * 5
    assert found.num_same_top == 5
    assert found.reference_nll == found.served_nll


def test_the_divergence_is_of_the_served_from_the_reference_in_nats():
    reference, served = logits([math.log(3), 0.0]), logits([0.0, 0.0])
    found = compare(reference, served, [0])
    assert found.kl == [pytest.approx(0.75 * math.log(1.5) + 0.25 * math.log(0.5))]
    assert found.reference_nll == pytest.approx(-math.log(0.75))
    assert found.served_nll == pytest.approx(-math.log(0.5))


def test_the_top_token_is_compared_position_by_position():
    reference = logits([1, 0, 0], [0, 1, 0], [0, 0, 1])
    served = logits([2, 1, 0], [1, 0, 0], [0, 0, 5])
    assert compare(reference, served, [0, 0, 0]).num_same_top == 2


@given(st.integers(0, 2**31), st.integers(1, 150))
@settings(max_examples=20, deadline=None)
def test_no_divergence_is_negative_however_many_rows_there_are(seed, count):
    generator = torch.Generator().manual_seed(seed)
    reference, served = (torch.randn(count, 9, generator=generator) * 5 for _ in range(2))
    found = compare(reference, served, [0] * count)
    assert len(found.kl) == count
    assert min(found.kl) >= 0


def test_a_window_is_run_from_the_start_whatever_ran_before(folder):
    checkpoint = open_checkpoint(folder)
    model = Alone(load(checkpoint, "float32", CPU), 20)
    first = model.logits(WINDOWS[0], 10)
    model.logits(WINDOWS[1], 10)
    assert first.shape == (10, VOCAB_SIZE)
    assert torch.equal(model.logits(WINDOWS[0], 10), first)


def test_logits_begin_at_the_first_position_that_counts(folder):
    model = Alone(load(open_checkpoint(folder), "float32", CPU), 20)
    whole = model.logits(WINDOWS[0], 0)
    assert torch.equal(model.logits(WINDOWS[0], 12), whole[12:])


@pytest.mark.parametrize(
    ("windows", "first", "message"),
    [
        ([], 2, "there is no window"),
        ([[1, 2, 3]], 2, "a window has 3 tokens, allowed is 4 to 1024"),
        ([[1] * (CONTEXT_LENGTH + 1)], 2, "a window has 1025 tokens"),
        ([[1, 2, VOCAB_SIZE]], 1, f"a token id is not below {VOCAB_SIZE}"),
    ],
)
def test_a_window_that_cannot_be_run_is_refused_with_its_limit(folder, windows, first, message):
    with pytest.raises(ValueError, match=message):
        check_windows(windows, first, open_checkpoint(folder))


def started(model, *args):
    return subprocess.Popen(
        [sys.executable, "-m", "ranks.quality", "--model", str(model), *args],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def ordered(process):
    process.stdin.write(json.dumps({"windows": WINDOWS, "first": 10}) + "\n")
    process.stdin.flush()


@pytest.mark.ranks
def test_the_program_answers_a_line_for_each_window_and_float32_has_no_divergence(folder):
    with started(folder, "--dtype", "float32", "--device", "cpu", "--threads", "1") as process:
        ordered(process)
        lines = [json.loads(line) for line in process.stdout]
        assert process.wait() == 0
    assert [line["kl"] for line in lines] == [[0.0] * 9] * 3
    assert all(line["num_same_top"] == 9 for line in lines)
    assert all(line["served_nll"] == line["reference_nll"] > 0 for line in lines)


@pytest.mark.ranks
def test_the_program_says_what_is_wrong_and_exits_1(tmp_path):
    with started(tmp_path / "nothing") as process:
        ordered(process)
        lines = [json.loads(line) for line in process.stdout]
        assert process.wait() == 1
    assert len(lines) == 1
    assert "no such file or folder" in lines[0]["error"]


@pytest.mark.ranks
def test_the_program_ends_when_whoever_started_it_lets_go_of_its_input(folder):
    with started(folder, "--threads", "1") as process:
        process.stdin.write(json.dumps({"windows": WINDOWS * 100_000, "first": 10}) + "\n")
        process.stdin.flush()
        process.stdout.readline()
        process.stdin.close()
        try:
            assert process.wait(10) == EXIT_MASTER_GONE
        finally:
            process.kill()
