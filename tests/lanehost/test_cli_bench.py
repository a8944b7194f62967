import asyncio
import json
import subprocess
import sys
import xml.etree.ElementTree as ET

import click
import pytest
from click.testing import CliRunner, Result

from lanehost.cli import main
from lanehost.cli_bench import bench
from lanehost.errors import Overloaded
from lanehost.job import Failed, Prefilled
from tests.support.fake_door import REPLY, FakeDoor
from tests.support.served_door import serve

WAIT_S = 30
SHORT = ["--requests", "3", "--warmup", "1", "--prompt-tokens", "5", "--reply-tokens", "4"]
SCENARIOS = {
    "closed": ["--streams", "2"],
    "poisson": ["--rate", "50"],
    "shared-prefix": ["--streams", "2", "--prefix-tokens", "9"],
    "long-prompt": ["--streams", "2", "--long-tokens", "20"],
}


async def _serve(door: FakeDoor, *args: str) -> Result:
    async with serve(door) as served:
        command = ["bench", "serve", *args, "--address", served.address]
        invoke = asyncio.to_thread(CliRunner().invoke, main, command)
        return await asyncio.wait_for(invoke, WAIT_S)


def _bench(*args: str) -> Result:
    return CliRunner().invoke(main, ["bench", *args])


@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_every_scenario_runs_and_tells_people_and_machines_the_same(scenario, tmp_path):
    path = tmp_path / "out.json"
    args = ["--scenario", scenario, *SHORT, *SCENARIOS[scenario], "--json", str(path)]
    result = await _serve(FakeDoor(), *args)
    assert result.exit_code == 0, result.output
    told = json.loads(path.read_text())
    assert told["command"] == "serve"
    assert told["bench"]["scenario"] == scenario
    requests = told["figures"]["num_requests"]
    assert requests == (6 if scenario == "long-prompt" else 3)
    assert f"{requests} requests in " in result.stdout
    assert told["figures"]["num_tokens"] == 4 * requests
    assert told["figures"]["cached_tokens"] == 3 * requests
    assert (told["long_prompt"] is not None) == (scenario == "long-prompt")


async def test_the_prompts_have_the_lengths_that_were_asked_for():
    door = FakeDoor()
    await _serve(door, *SHORT, "--scenario", "shared-prefix", "--prefix-tokens", "9")
    lengths = [len(request.prompt.token_ids) for request in door.requests]
    assert lengths == [5, 14, 14, 14]
    assert {request.max_tokens for request in door.requests} == {4}


async def test_a_run_has_prompts_of_its_own_unless_a_seed_is_given_and_the_report_tells_it(
    tmp_path,
):
    door, path = FakeDoor(), tmp_path / "out.json"
    for seed in ([], [], ["--seed", "9"], ["--seed", "9"]):
        await _serve(door, *SHORT, *seed, "--json", str(path))
    prompts = [request.prompt.token_ids for request in door.requests]
    assert len(set(prompts)) == 3 * 4
    assert set(prompts[8:12]) == set(prompts[12:])
    assert json.loads(path.read_text())["bench"]["seed"] == 9


async def test_a_plot_is_an_svg(tmp_path):
    path = tmp_path / "out.svg"
    result = await _serve(FakeDoor(), *SHORT, "--plot", str(path))
    assert result.exit_code == 0, result.output
    assert ET.parse(path).getroot().tag.endswith("svg")


async def test_when_no_request_succeeds_the_first_error_is_said_and_the_exit_code_is_1():
    result = await _serve(FakeDoor(refusal=Overloaded("the line is full", retry_after_s=1)), *SHORT)
    assert result.exit_code == 1
    assert "RESOURCE_EXHAUSTED: the line is full" in result.stderr
    assert result.stdout == ""


async def test_what_fails_among_others_is_counted():
    class Fickle(FakeDoor):
        async def submit(self, request):
            if len(self.requests) == 2:
                self.events = (Prefilled(cached_tokens=0), *REPLY, Failed(error=self.refused))
            return await super().submit(request)

        refused = Overloaded("full", retry_after_s=1)

    result = await _serve(Fickle(), *SHORT, "--streams", "1")
    assert result.exit_code == 0, result.output
    assert "3 requests in " in result.stdout
    assert "failed: 2 ServerBusy" in result.stdout


async def test_the_key_of_a_file_is_sent(tmp_path):
    path = tmp_path / "key"
    path.write_text("secret")
    assert (await _serve(FakeDoor(key="secret"), *SHORT, "--key-file", str(path))).exit_code == 0
    path.write_text("other")
    refused = await _serve(FakeDoor(key="secret"), *SHORT, "--key-file", str(path))
    assert refused.exit_code == 1
    assert "UNAUTHENTICATED" in refused.stderr


async def test_what_the_context_can_never_hold_is_refused_before_anything_is_sent():
    door = FakeDoor()
    result = await _serve(door, "--prompt-tokens", "100", "--reply-tokens", "64")
    assert result.exit_code == 2
    assert "takes 164 tokens, the model has a context of 128" in result.stderr
    assert door.requests == []


def test_nobody_at_the_address_exits_3():
    result = _bench("serve", "--address", "127.0.0.1:1")
    assert result.exit_code == 3
    assert "nobody answers at 127.0.0.1:1" in result.stderr


@pytest.mark.parametrize(
    ("scenario", "option"),
    [
        ("closed", "--rate"),
        ("closed", "--prefix-tokens"),
        ("closed", "--long-tokens"),
        ("poisson", "--streams"),
        ("shared-prefix", "--rate"),
        ("long-prompt", "--rate"),
        ("long-prompt", "--prefix-tokens"),
    ],
)
def test_an_option_of_another_scenario_is_refused(scenario, option):
    result = _bench("serve", "--scenario", scenario, option, "1")
    assert result.exit_code == 2
    assert f"{option} is not of --scenario {scenario}" in result.stderr


@pytest.mark.parametrize(
    "args",
    [
        ("step", "--lanes", "300"),
        ("step", "--lanes", "0,4"),
        ("step", "--tp", "3"),
        ("step", "--warmup", "0"),
        ("step", "--model", "nothing.gguf"),
        ("quality", "--window", "7"),
        ("quality", "--text", "nothing.txt"),
        ("quality", "--dtype", "float7"),
        ("quality", "--weights", "int3"),
        ("step", "--weights", "int3"),
        ("serve", "--json", "/nowhere/out.json"),
    ],
)
def test_a_value_out_of_range_is_a_wrong_command_line(args):
    assert _bench(*args).exit_code == 2


def test_a_model_that_cannot_be_loaded_is_said_in_a_line(tmp_path):
    path = tmp_path / "model.gguf"
    path.write_bytes(b"not a model")
    result = _bench("quality", "--model", str(path))
    assert result.exit_code == 1
    assert result.stderr.startswith("lanehost: ")
    assert len(result.stderr.splitlines()) == 1


def test_every_option_has_help():
    assert set(bench.commands) == {"serve", "step", "quality", "cache"}
    for command in bench.commands.values():
        options = [one for one in command.params if isinstance(one, click.Option)]
        assert all(option.help for option in options if not option.hidden)


def test_the_client_commands_do_not_load_what_only_a_bench_needs():
    code = "import sys, lanehost.cli; sys.exit('lanehost.bench' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=30).returncode == 0
