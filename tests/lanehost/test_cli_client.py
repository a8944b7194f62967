import asyncio
import json
import socketserver
import sys
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from lanehost.cli import main
from lanehost.errors import Draining, InvalidRequest, LanehostError, RankGroupLost, Starting
from lanehost.job import (
    ChatMessage,
    ChatPrompt,
    DiskUse,
    Failed,
    ImagePart,
    Prefilled,
    Priority,
    Role,
    TextPart,
    TextPrompt,
    TokenPrompt,
    Tokens,
)
from lanehost.server.grpc_server import bind_grpc, build_grpc_server
from lanehost.server.health import Health
from tests.support.fake_door import FakeDoor
from tests.support.served_door import serve

WAIT_S = 30
CHAT = [{"role": "system", "content": "be"}, {"role": "user", "content": "hi"}]
PROMPT = ChatPrompt(
    (ChatMessage(role=Role.SYSTEM, content="be"), ChatMessage(role=Role.USER, content="hi"))
)
OBJECT = {
    "text": "Hello é",
    "token_ids": [10, 11, 12, 2],
    "finish_reason": "eos",
    "usage": {
        "prompt_tokens": 5,
        "cached_tokens": 3,
        "disk_cached_tokens": 0,
        "image_tokens": 0,
        "completion_tokens": 3,
    },
    "seed": 7,
    "request_id": "job-1",
}


async def _run(door: FakeDoor, *args: str, stdin: str | None = None) -> Result:
    async with serve(door) as served:
        command = [*args, "--address", served.address]
        invoke = asyncio.to_thread(CliRunner().invoke, main, command, input=stdin)
        return await asyncio.wait_for(invoke, WAIT_S)


@pytest.fixture
def chat_file(tmp_path: Path) -> Path:
    path = tmp_path / "chat.json"
    path.write_text(json.dumps(CHAT), encoding="utf-8")
    return path


async def test_a_reply_is_printed_with_a_line_end() -> None:
    result = await _run(FakeDoor(), "generate", "--prompt", "hi")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "Hello é\n", "")


async def test_json_is_one_object() -> None:
    result = await _run(FakeDoor(), "generate", "--prompt", "hi", "--json")
    assert json.loads(result.stdout) == OBJECT
    assert result.stdout.count("\n") == 1


async def test_the_options_reach_the_server() -> None:
    door = FakeDoor()
    args = (
        "--max-tokens 3 --temperature 0 --top-p 0.5 --top-k 3 --min-p 0.25 --seed 0 "
        "--stop a --stop b --timeout 9"
    )
    await _run(door, "generate", "--prompt", "hi", *args.split())
    (request,) = door.requests
    sampling = request.sampling
    assert (request.max_tokens, request.stop.strings) == (3, ("a", "b"))
    assert (sampling.temperature, sampling.top_p, sampling.top_k) == (0.0, 0.5, 3)
    assert (sampling.min_p, sampling.seed) == (0.25, 0)
    assert 8 < request.timeout_s < 9


async def test_what_is_left_out_is_the_servers_to_choose() -> None:
    door = FakeDoor()
    await _run(door, "generate", "--prompt", "hi")
    assert (door.requests[0].max_tokens, door.requests[0].sampling.temperature) == (None, None)


@pytest.mark.parametrize(
    ("args", "stdin", "prompt"),
    [
        (["--prompt", "hi"], None, TextPrompt("hi")),
        (["--prompt", ""], None, TextPrompt("")),
        (["--prompt", "-"], "from é\nstdin", TextPrompt("from é\nstdin")),
        (["--token-ids", "1,2, 3"], None, TokenPrompt((1, 2, 3))),
        (["--chat", "-"], json.dumps(CHAT), PROMPT),
        (["--chat", "-"], json.dumps({"messages": CHAT}), PROMPT),
    ],
)
async def test_a_prompt_comes_in_three_kinds(args, stdin, prompt) -> None:
    door = FakeDoor()
    result = await _run(door, "generate", *args, stdin=stdin)
    assert (result.exit_code, door.requests[0].prompt) == (0, prompt)


async def test_a_chat_is_read_from_a_file(chat_file: Path) -> None:
    door = FakeDoor()
    await _run(door, "generate", "--chat", str(chat_file))
    assert door.requests[0].prompt == PROMPT


@pytest.mark.parametrize(
    ("args", "stdin", "said"),
    [
        ([], None, "exactly one of"),
        (["--prompt", "a", "--token-ids", "1"], None, "exactly one of"),
        (["--token-ids", "1,x"], None, "is not like 1,2,3"),
        (["--token-ids", "-1"], None, "id -1, allowed is 0 to 4294967295"),
        (["--prompt", "a", "--max-tokens", "-1"], None, "-1 is not in the range 0<="),
        (["--prompt", "a", "--seed", "-1"], None, "-1 is not in the range"),
        (["--prompt", "a", "--wait", "-1"], None, "-1.0 is not in the range x>=0"),
        (["--prompt", "a", "--model", "m"], None, "the server has one model, and"),
        (["--prompt", "a", "--max-tokens", "x"], None, "--max-tokens"),
        (["--chat", "/no/such/file"], None, "/no/such/file"),
        (["--chat", "-"], "{", "is not JSON"),
        (["--chat", "-"], "{}", "holds no list"),
        (["--chat", "-"], '[{"role": "user"}]', "holds no list"),
        (["--chat", "-"], '[{"role": "user", "content": 1}]', "holds no list"),
        (["--chat", "-"], '[{"role": "tool", "content": ""}]', "messages[0].role is 'tool'"),
    ],
)
async def test_a_wrong_command_line_is_named_and_exits_2(args, stdin, said) -> None:
    door = FakeDoor()
    result = await _run(door, "generate", *args, stdin=stdin)
    assert (result.exit_code, door.requests) == (2, [])
    assert said in result.stderr


async def test_a_refusal_is_one_line_and_exits_1() -> None:
    door = FakeDoor(refusal=InvalidRequest("max_tokens", "is 0, allowed is 1 and more"))
    result = await _run(door, "generate", "--prompt", "hi")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == (
        "lanehost: INVALID_ARGUMENT: max_tokens: is 0, allowed is 1 and more\n"
    )


async def test_the_background_and_a_warm_request_can_be_asked_for() -> None:
    door = FakeDoor()
    await _run(door, "generate", "--prompt", "hi", "--background", "--max-tokens", "0")
    await _run(door, "generate", "--prompt", "hi")
    assert [(one.priority, one.max_tokens) for one in door.requests] == [
        (Priority.BACKGROUND, 0),
        (Priority.FOREGROUND, None),
    ]


async def test_what_the_disk_does_can_be_asked_for() -> None:
    door = FakeDoor()
    await _run(door, "generate", "--prompt", "hi", "--disk-cache", "read")
    assert door.requests[0].disk_use is DiskUse.READ


@pytest.mark.parametrize("command", [["generate", "--prompt", "a"], ["chat"]])
@pytest.mark.parametrize("address", ["localhost", "http://localhost:50051", "::1:50051"])
def test_an_address_that_is_none_is_a_wrong_command_line(command, address: str) -> None:
    result = CliRunner().invoke(main, [*command, "--address", address])
    assert result.exit_code == 2
    assert "should be HOST:PORT" in result.stderr


class _NoGrpc(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        self.request.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def test_a_port_that_speaks_no_grpc_is_told_from_nobody() -> None:
    with socketserver.TCPServer(("127.0.0.1", 0), _NoGrpc) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        address = f"127.0.0.1:{server.server_address[1]}"
        command = ["generate", "--prompt", "hi", "--address", address]
        result = CliRunner().invoke(main, command)
        server.shutdown()
        thread.join()
    assert result.exit_code == 3
    assert result.stderr.startswith(
        f"lanehost: {address} is open, but no gRPC server answers there"
    )
    assert "HTTP port" in result.stderr
    assert result.stderr.count("\n") == 1


class _LoadingDoor(FakeDoor):
    """Loads its model until health is asked for it."""

    def __init__(self) -> None:
        super().__init__()
        self.is_loading = True

    def model_card(self, key):
        if self.is_loading:
            raise Starting("the model is still loading")
        return super().model_card(key)


class _LoadingHealth(Health):
    def __init__(self, door: _LoadingDoor, *, ends: bool) -> None:
        super().__init__()
        self._door = door
        self._ends = ends

    async def Watch(self, request, context):  # noqa: N802 - the name is the wire's
        if self._ends:
            self._door.is_loading = False
            self.set_serving()
        await super().Watch(request, context)


async def _run_loading(*args: str, ends: bool, stdin: str | None = None) -> Result:
    door = _LoadingDoor()
    server = build_grpc_server(door, _LoadingHealth(door, ends=ends), reflection=False)
    address = f"127.0.0.1:{bind_grpc(server, '127.0.0.1', 0)}"
    await server.start()
    command = [*args, "--address", address]
    result = await asyncio.to_thread(CliRunner().invoke, main, command, input=stdin)
    await server.stop(None)
    return result


@pytest.mark.parametrize("args", [["generate", "--prompt", "hi"], ["chat"]])
async def test_a_model_that_still_loads_is_waited_for(args: list[str]) -> None:
    result = await _run_loading(*args, ends=True, stdin="hi\n")
    assert result.exit_code == 0
    assert "Hello é" in result.stdout
    assert result.stderr.startswith("waiting for the model to load\n")


@pytest.mark.parametrize("args", [["generate", "--prompt", "hi"], ["chat"]])
async def test_waiting_for_a_model_has_an_end(args: list[str]) -> None:
    result = await _run_loading(*args, "--wait", "0.1", ends=False)
    said = "lanehost: UNAVAILABLE: the model is still loading (--wait 0.1)\n"
    assert (result.exit_code, result.stderr) == (1, f"waiting for the model to load\n{said}")


async def test_waiting_for_a_model_can_be_off() -> None:
    result = await _run_loading("generate", "--prompt", "hi", "--wait", "0", ends=True)
    assert (result.exit_code, "waiting" in result.stderr) == (1, False)


async def test_a_timeout_is_said_with_its_option_on_a_line_of_its_own() -> None:
    held = (Prefilled(cached_tokens=0), Tokens(token_ids=(1,), text="partial"))
    args = ("generate", "--prompt", "hi", "--timeout", "0.5")
    result = await _run(FakeDoor(events=held), *args)
    said = "lanehost: DEADLINE_EXCEEDED: deadline passed in phase decode (--timeout 0.5)\n"
    assert (result.exit_code, result.stdout, result.stderr) == (1, "partial\n", said)


async def test_a_server_that_ends_during_the_reply_is_one_line_and_exits_4() -> None:
    door = FakeDoor(events=(Prefilled(cached_tokens=0), Tokens(token_ids=(1,), text="partial\n")))
    async with serve(door) as served:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "lanehost", "generate", "--prompt", "hi"),
            *("--address", served.address),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(WAIT_S):
            assert await process.stdout.readline() == b"partial\n"
            await served.server.stop(None)
            _, stderr = await process.communicate()
    assert (process.returncode, stderr) == (4, b"lanehost: the server ended during the reply\n")


@pytest.mark.parametrize(
    "error", [Draining("ending"), RankGroupLost("rank 0 is gone", epoch=1, rank=0)]
)
async def test_a_server_that_says_that_it_ends_during_the_reply_is_exit_4_too(
    error: LanehostError,
) -> None:
    door = FakeDoor(events=(Tokens(token_ids=(1,), text="partial"), Failed(error=error)))
    async with serve(door) as served:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "lanehost", "generate", "--prompt", "hi"),
            *("--address", served.address),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(WAIT_S):
            stdout, stderr = await process.communicate()
    assert (process.returncode, stdout) == (4, b"partial\n")
    assert stderr == f"lanehost: UNAVAILABLE: {error}\n".encode()


@pytest.mark.parametrize("args", [["generate", "--prompt", "hi"], ["chat"]])
def test_nobody_at_the_address_is_one_line_that_says_what_to_start(args: list[str]) -> None:
    result = CliRunner().invoke(main, [*args, "--address", "127.0.0.1:1"])
    assert result.exit_code == 3
    assert result.stderr.startswith("lanehost: nobody answers at 127.0.0.1:1; ")
    assert "`lanehost serve`" in result.stderr
    assert result.stderr.count("\n") == 1


async def test_ctrl_c_ends_the_reply_and_exits_130() -> None:
    door = FakeDoor(events=(Prefilled(cached_tokens=0), Tokens(token_ids=(1,), text="partial\n")))
    async with serve(door) as served:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "lanehost", "generate", "--prompt", "hi"),
            *("--address", served.address),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(WAIT_S):
            assert await process.stdout.readline() == b"partial\n"
            process.send_signal(2)
            _, stderr = await process.communicate()
            await door.streams[0].ended.wait()
    assert (process.returncode, stderr) == (130, b"")
    assert door.streams[0].cancelled


async def test_images_and_a_prompt_are_the_question_of_a_chat(tmp_path: Path) -> None:
    door, paths = FakeDoor(), [tmp_path / "a.png", tmp_path / "b.png"]
    for path in paths:
        path.write_bytes(path.name.encode())
    images = [word for path in paths for word in ("--image", str(path))]
    result = await _run(door, "generate", *images, "--prompt", "what?")
    assert (result.exit_code, result.stdout) == (0, "Hello é\n")
    (message,) = door.requests[0].prompt.messages
    assert message.content == (ImagePart(b"a.png"), ImagePart(b"b.png"), TextPart("what?"))


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--image", "none.png", "--prompt", "x"], "none.png: No such file or directory"),
        (["--image", __file__, "--token-ids", "1"], "--image needs --prompt TEXT"),
    ],
)
async def test_an_image_that_cannot_be_sent_is_a_wrong_command_line(args, said) -> None:
    result = await _run(FakeDoor(), "generate", *args)
    assert (result.exit_code, said in result.stderr) == (2, True)
