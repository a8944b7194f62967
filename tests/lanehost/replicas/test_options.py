"""The arguments of the application: checked once, in the words of `lanehost serve`."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from lanehost.errors import StartupFailed
from lanehost.replicas.options import ReplicasOptions, plan_server


def test_a_replica_has_as_many_cpus_as_its_ranks_have_threads():
    plan = plan_server("--model /models/m.gguf --tp 2 --threads 3 --keys /etc/keys.toml")
    assert (plan.num_cpus, plan.num_gpus) == (6, 0)
    assert plan.keys_path == Path("/etc/keys.toml")
    assert plan.arguments == (
        *("serve", "--model", "/models/m.gguf", "--tp", "2", "--threads", "3"),
        *("--keys", "/etc/keys.toml"),
        *("--host", "127.0.0.1", "--port", "0", "--http-port", "0"),
        *("--drain-grace", "0"),
    )


def test_on_cuda_it_has_a_gpu_for_each_rank():
    plan = plan_server("--threads 1 --tp 2 --device cuda")
    assert (plan.num_cpus, plan.num_gpus) == (2, 2)


def test_its_bounds_are_those_of_its_server():
    plan = plan_server("--threads 1 --max-streams 7 --drain-timeout 4 --load-timeout 60")
    assert plan.max_streams == 7
    assert plan.ready_timeout_s > 60
    # Open requests end first, then the server drains, and is killed if it does not.
    assert plan.shutdown_timeout_s >= 4 + 4 + 10


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ("--threads 1 --no-such", "No such option"),
        ("--threads 1 --device moon", "moon"),
        ("--threads 1 --tp 3", "--tp is 3, allowed is 1 to 2"),
        ("--threads 1 --max-streams 0", "--max-streams is 0"),
        ("", "--threads is missing"),
        ("--threads 1 --port 7", "--port is not for replicas"),
        ("--threads 1 --http-port off", "--http-port is not for replicas"),
        ("--threads 1 --host 0.0.0.0", "--host is not for replicas"),
        ("--threads 1 --drain-grace 3", "--drain-grace is not for replicas"),
        ("--threads 1 --rank 0 --master a:1", "--master is not for replicas"),
        ("--threads 1 --record /tmp/x", "--record is not for replicas"),
        ("--threads 1 --record-prompts", "--record-prompts needs --record"),
        ("--threads '1", "No closing quotation"),
        ("--threads 1 extra", "extra"),
    ],
)
def test_what_is_wrong_is_refused_before_anything_starts(options, named):
    with pytest.raises(StartupFailed, match="options: ") as caught:
        plan_server(options)
    assert named in str(caught.value)


@pytest.mark.parametrize(
    "wrong",
    [
        {"replicas": 0},
        {"replicas": 257},
        {"load_factor": 0.5},
        {"spill_above": 0},
        {"head_chars": 0},
        {"max_queued": 0},
        {"no_such": 1},
    ],
)
def test_an_argument_out_of_range_or_unknown_is_refused_by_name(wrong):
    with pytest.raises(ValidationError, match=next(iter(wrong))):
        ReplicasOptions(**wrong)


def test_arguments_come_as_text_from_a_command_line():
    assert ReplicasOptions(replicas="3", load_factor="1.5").replicas == 3
