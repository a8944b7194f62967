"""The key of `lanehost generate` and `lanehost chat`: from a file, else from the environment."""

import asyncio
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from lanehost.cli import main
from tests.support.fake_door import FakeDoor
from tests.support.served_door import serve

WAIT_S = 30
GENERATE = ("generate", "--prompt", "hi")
CHAT = ("chat",)


async def _run(*args: str, env: str | None = None) -> Result:
    async with serve(FakeDoor(key="secret")) as served:
        invoke = asyncio.to_thread(
            CliRunner(env={"LANEHOST_KEY": env}).invoke,
            main,
            [*args, "--address", served.address],
            input="hi\n",
        )
        return await asyncio.wait_for(invoke, WAIT_S)


@pytest.fixture
def key_file(tmp_path: Path) -> str:
    path = tmp_path / "key"
    path.write_text(" secret\n")
    return str(path)


@pytest.mark.parametrize("command", [GENERATE, CHAT])
async def test_a_key_is_read_from_its_file_or_from_the_environment(command, key_file) -> None:
    for args, env in (
        (("--key-file", key_file), None),
        (("--key-file", key_file), "other"),
        ((), "secret"),
    ):
        result = await _run(*command, *args, env=env)
        assert (result.exit_code, "Hello é" in result.stdout) == (0, True)


@pytest.mark.parametrize("command", [GENERATE, CHAT])
@pytest.mark.parametrize("env", [None, "", "other"])
async def test_a_server_that_wants_another_key_is_one_line_that_says_how(command, env) -> None:
    result = await _run(*command, env=env)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == ("lanehost: UNAUTHENTICATED: who is it? (--key-file, LANEHOST_KEY)\n")


@pytest.mark.parametrize("command", [GENERATE, CHAT])
@pytest.mark.parametrize("content", [b"", b"two words", b"secr\xffet"])
async def test_what_can_be_no_key_is_a_wrong_command_line_and_is_not_repeated(
    command, content: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "key"
    path.write_bytes(content)
    result = await _run(*command, "--key-file", str(path))
    assert result.exit_code == 2
    assert "the key is not 1 to 512 visible characters" in result.stderr
    assert "words" not in result.stderr


def test_there_is_no_option_for_the_key_itself() -> None:
    result = CliRunner().invoke(main, [*GENERATE, "--key", "secret"])
    assert result.exit_code == 2
