import asyncio
import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from lanehost.cli import main
from lanehost.errors import DoesNotFit, Draining, Overloaded
from lanehost.job import Finished, FinishReason, ImagePart, Prefilled, TextPart, Tokens
from tests.support.fake_door import FINISHED, REPLY, FakeDoor
from tests.support.served_door import serve

WAIT_S = 30


async def _chat(door: FakeDoor, stdin: str, *args: str) -> Result:
    async with serve(door) as served:
        command = ["chat", *args, "--address", served.address]
        invoke = asyncio.to_thread(CliRunner().invoke, main, command, input=stdin)
        return await asyncio.wait_for(invoke, WAIT_S)


def _said(door: FakeDoor, index: int) -> list[str]:
    return [message.content for message in door.requests[index].prompt.messages]


async def test_what_was_said_is_remembered() -> None:
    door = FakeDoor()
    result = await _chat(door, "one\ntwo\n")
    assert result.exit_code == 0
    assert _said(door, 0) == ["one"]
    assert _said(door, 1) == ["one", "Hello é", "two"]
    assert result.stdout.count("Hello é") == 2


async def test_reset_forgets_all_but_the_system_message() -> None:
    door = FakeDoor()
    await _chat(door, "one\n/reset\n\ntwo\n", "--system", "be kind")
    assert _said(door, 1) == ["be kind", "two"]


async def test_an_image_is_shown_with_what_is_said_next_and_remembered(tmp_path: Path) -> None:
    door, path = FakeDoor(), tmp_path / "a cat.png"
    path.write_bytes(b"cat")
    result = await _chat(door, f"/image {path}\n/image none.png\nwhat?\nand?\n")
    assert "1 to show with what you say next\n" in result.stderr
    assert "lanehost: none.png: No such file or directory\n" in result.stderr
    shown = (ImagePart(b"cat"), TextPart("what?"))
    assert _said(door, 0) == [shown]
    assert _said(door, 1) == [shown, "Hello é", "and?"]


async def test_reset_forgets_images_that_were_not_shown_yet(tmp_path: Path) -> None:
    door, path = FakeDoor(), tmp_path / "cat.png"
    path.write_bytes(b"cat")
    await _chat(door, f"/image {path}\n/reset\nwhat?\n")
    assert _said(door, 0) == ["what?"]


async def test_exit_leaves() -> None:
    door = FakeDoor()
    result = await _chat(door, "one\n/exit\ntwo\n")
    assert (result.exit_code, len(door.requests)) == (0, 1)


async def test_the_options_reach_the_server() -> None:
    door = FakeDoor()
    await _chat(door, "one\n", "--temperature", "0.5", "--max-tokens", "3")
    assert (door.requests[0].sampling.temperature, door.requests[0].max_tokens) == (0.5, 3)


async def test_a_question_that_is_refused_is_said_and_forgotten() -> None:
    door = FakeDoor(refusal=DoesNotFit("too long: 9 of 8", have=9, limit=8))
    result = await _chat(door, "one\ntwo\n")
    assert (result.exit_code, _said(door, 1)) == (0, ["two"])
    assert result.stderr.count("lanehost: OUT_OF_RANGE: too long: 9 of 8") == 2


async def test_an_unknown_command_is_said_and_not_asked() -> None:
    door = FakeDoor()
    result = await _chat(door, "/quit\n/etc/hosts is a file\n")
    assert "unknown command; /image FILE, /reset, /exit\n" in result.stderr
    assert [_said(door, index) for index in range(len(door.requests))] == [["/etc/hosts is a file"]]


class _BusyOnce(FakeDoor):
    async def submit(self, request):
        self.refusal = Overloaded("full", retry_after_s=1) if len(self.requests) == 1 else None
        return await super().submit(request)


async def test_a_busy_server_does_not_end_the_chat() -> None:
    door = _BusyOnce()
    result = await _chat(door, "one\ntwo\nthree\n")
    assert "lanehost: RESOURCE_EXHAUSTED: full; try again\n" in result.stderr
    assert (result.exit_code, _said(door, 2)) == (0, ["one", "Hello é", "three"])


async def test_a_reply_that_takes_too_long_does_not_end_the_chat() -> None:
    held = (Prefilled(cached_tokens=0), Tokens(token_ids=(1,), text="partial"))
    result = await _chat(FakeDoor(events=held), "one\n", "--timeout", "0.5")
    assert result.exit_code == 0
    assert "partial\n" in result.stdout
    assert "deadline passed in phase decode (--timeout 0.5)\n" in result.stderr


@pytest.mark.parametrize(
    ("events", "said"),
    [
        ((*REPLY,), " (cut at max_tokens 3)"),
        ((), "(empty reply)"),
    ],
)
async def test_a_reply_that_looks_odd_is_explained(events, said: str) -> None:
    last = Finished(
        reason=FinishReason.LENGTH, matched=None, usage=FINISHED.usage, timing=FINISHED.timing
    )
    result = await _chat(FakeDoor(events=(*events, last)), "one\n")
    assert said in result.stderr
    assert "(" not in result.stdout


async def test_a_whole_reply_is_not_explained() -> None:
    result = await _chat(FakeDoor(), "one\n")
    assert "(" not in result.stderr


async def test_a_server_that_ends_ends_the_chat() -> None:
    result = await _chat(FakeDoor(refusal=Draining("this server is ending")), "one\ntwo\n")
    assert result.exit_code == 1
    assert "lanehost: UNAVAILABLE: this server is ending\n" in result.stderr


async def test_a_chat_file_is_answered_once(tmp_path: Path) -> None:
    path = tmp_path / "chat.json"
    path.write_text(json.dumps([{"role": "user", "content": "hi"}]), encoding="utf-8")
    door = FakeDoor()
    result = await _chat(door, "", "--chat", str(path), "--json", "--system", "be kind")
    assert json.loads(result.stdout)["text"] == "Hello é"
    assert _said(door, 0) == ["be kind", "hi"]


def test_json_needs_a_file() -> None:
    result = CliRunner().invoke(main, ["chat", "--json"])
    assert result.exit_code == 2
    assert "--json needs --chat" in result.output


async def test_ctrl_c_stops_the_reply_and_not_the_program() -> None:
    held = (Prefilled(cached_tokens=0), Tokens(token_ids=(1,), text="partial\n"))
    door = FakeDoor(events=held)
    async with serve(door) as served:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "lanehost", "chat", "--address", served.address),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(WAIT_S):
            process.stdin.write(b"one\n")
            assert await process.stdout.readline() == b"> partial\n"
            process.send_signal(2)
            await door.streams[0].ended.wait()
            door.events = (*REPLY, FINISHED)
            stdout, stderr = await process.communicate(b"two\n")
    assert (process.returncode, door.streams[0].cancelled) == (0, True)
    assert b"(stopped)" in stderr
    assert "Hello é" in stdout.decode()
    assert _said(door, 1) == ["one", "partial\n", "two"]


async def _interrupt_until_it_is_said(process: asyncio.subprocess.Process, line: bytes) -> None:
    """Press Ctrl-C again when it came in the moment between the prompt and the read behind it."""
    reading = asyncio.create_task(process.stderr.readuntil(line))
    while not reading.done():
        process.send_signal(2)
        await asyncio.wait({reading}, timeout=1)
    await reading


async def test_ctrl_c_at_the_prompt_says_how_to_leave() -> None:
    door = FakeDoor()
    async with serve(door) as served:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "lanehost", "chat", "--address", served.address),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(WAIT_S):
            assert await process.stdout.readexactly(2) == b"> "
            assert b"/reset forgets" in await process.stderr.readline()
            await _interrupt_until_it_is_said(process, b"/exit leaves\n")
            stdout, _ = await process.communicate(b"one\n")
    assert (process.returncode, len(door.requests)) == (0, 1)
    assert "Hello é" in stdout.decode()
