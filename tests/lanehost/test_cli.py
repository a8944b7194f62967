import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from lanehost.cli import main, start
from lanehost.errors import StartupFailed
from lanehost.images.limits import ImageLimits
from lanehost.keys_file import scope_table
from lanehost.settings import (
    ImageSettings,
    JournalSettings,
    RankGroupSettings,
    RecordSettings,
    ServeSettings,
)


class FakeMaster:
    """Takes the place of the master: what it was asked to run."""

    def __init__(self, error: StartupFailed | None = None) -> None:
        self.asked: list[ServeSettings] = []
        self._error = error

    def run(self, settings: ServeSettings) -> int:
        self.asked.append(settings)
        if self._error is not None:
            raise self._error
        return 3


def _absent() -> Path:
    raise StartupFailed("the embedded model is absent; install it")


def _start(master: FakeMaster, *args: str, find_embedded: Callable[[], Path] | None = None) -> int:
    options = main.commands["serve"].make_context("serve", list(args)).params
    return start(options, run=master.run, find_embedded=find_embedded or _absent)


def _run(*args: str):
    return CliRunner().invoke(main, args)


def test_the_version_is_the_packages() -> None:
    assert _run("--version").output == f"lanehost {version('lanehost')}\n"


@pytest.mark.parametrize("args", [(), ("serve",), ("generate",), ("chat",), ("replay",)])
def test_every_command_explains_itself(args: tuple[str, ...]) -> None:
    result = _run(*args, "--help")
    assert result.exit_code == 0
    assert "lanehost serve" in result.output or "Exit codes" in result.output


@pytest.mark.parametrize("args", [(), *((name,) for name in sorted(main.commands))])
def test_the_lines_of_every_help_stay_lines(args: tuple[str, ...]) -> None:
    command = main.commands[args[0]] if args else main
    output = _run(*args, "--help").output
    assert "\\b" not in output
    assert "\b" not in output
    kept = [part for part in command.help.split("\n\n") if part.lstrip().startswith("\b")]
    lines = {line.strip() for part in kept for line in part.splitlines()} - {"\b"}
    assert any(line.startswith("lanehost ") for line in lines)
    assert lines <= {line.strip() for line in output.splitlines()}


def test_every_option_of_serve_has_help() -> None:
    for option in main.commands["serve"].params:
        assert isinstance(option, click.Option)
        assert option.help


def test_the_options_become_settings(tmp_path: Path) -> None:
    args = (
        "--model-name m --tp 2 --host 0.0.0.0 --port 1 --http-port 2 --lanes 3 --dtype int8 "
        "--weights int4 --device cpu --threads 4 --kv-tokens 512 --max-step-tokens 64 "
        "--max-waiting 5 --drain-grace 0.5 "
        "--max-waiting-tokens 6 --max-streams 7 --load-timeout 8 --drain-timeout 9 "
        "--reflection --log-json --record trails --record-prompts --prompt-cache off "
        "--max-drafts 3 --max-fill-tokens 64 --max-pass-prompts 4 --journal kept --journal-mib 16 "
        "--max-image-bytes 1MiB --max-image-pixels 99 --max-images 3 --max-held-images 1GiB "
        "--max-uploads 4 --upload-lifetime 60 --image-cache-tokens 300 --encoder-device cpu "
        "--staged-rows 2000 --max-stall-ms 30 --record-images bytes"
    )
    keys = tmp_path / "keys.toml"
    keys.write_text(scope_table("team-a", "secret", 2))
    master = FakeMaster()
    _start(master, "--model", str(tmp_path), "--keys", str(keys), *args.split())
    (settings,) = master.asked
    ranks, line = settings.ranks, settings.line
    assert settings.journal == JournalSettings(folder=Path("kept"), max_mib=16)
    assert (ranks.model_path, ranks.tp, ranks.num_lanes, ranks.dtype) == (tmp_path, 2, 3, "int8")
    assert ranks.weights == "int4"
    assert (ranks.device, ranks.num_threads, ranks.kv_tokens) == ("cpu", 4, 512)
    assert (ranks.max_step_tokens, ranks.load_timeout_s) == (64, 8)
    assert (line.max_waiting, line.max_waiting_tokens, line.max_streams) == (5, 6, 7)
    assert (settings.host, settings.port, settings.http_port) == ("0.0.0.0", 1, 2)
    assert (settings.model_name, settings.drain_timeout_s) == ("m", 9)
    assert settings.drain_grace_s == 0.5
    assert (settings.reflection, settings.log_json) == (True, True)
    assert settings.record == RecordSettings(
        folder=Path("trails"), keeps_prompts=True, keeps_images=True
    )
    assert (settings.engine.prompt_cache, settings.engine.max_drafts) == (False, 3)
    assert (settings.engine.max_fill_tokens, settings.engine.max_pass_prompts) == (64, 4)
    assert (settings.engine.staged_rows, settings.engine.max_stall_ms) == (2000, 30)
    assert (ranks.max_staged_tokens, ranks.image_cache_tokens) == (2000, 300)
    assert ranks.encoder_device == "cpu"
    assert settings.keys.scope_of("secret") == "team-a"
    assert settings.images == ImageSettings(
        limits=ImageLimits(max_image_bytes=1 << 20, max_image_pixels=99, max_images=3),
        max_held_bytes=1 << 30,
        max_uploads=4,
        upload_lifetime_s=60,
    )


def test_the_defaults_are_those_of_the_settings(tmp_path: Path) -> None:
    master = FakeMaster()
    _start(master, "--model", str(tmp_path))
    assert master.asked == [ServeSettings(ranks=RankGroupSettings(model_path=tmp_path))]


def test_every_option_of_serve_is_used(tmp_path: Path) -> None:
    used: set[str] = set()

    class Options(dict[str, object]):
        def __getitem__(self, name: str) -> object:
            used.add(name)
            return super().__getitem__(name)

    options = main.commands["serve"].make_context("serve", ["--model", str(tmp_path)]).params
    start(Options(options), run=FakeMaster().run)
    assert used == options.keys()


def test_http_can_be_off(tmp_path: Path) -> None:
    master = FakeMaster()
    _start(master, "--model", str(tmp_path), "--http-port", "off")
    assert master.asked[0].http_port is None


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--lanes", "999"], "--lanes is 999, allowed is 1 to 256"),
        (["--port", "70000"], "--port is 70000"),
        (["--tp", "3"], "--tp is 3"),
        (["--max-streams", "0"], "--max-streams is 0"),
        (["--http-port", "x"], "'x' is neither a port number nor 'off'"),
        (["--dtype", "int3"], "int3"),
        (["--weights", "int3"], "int3"),
        (["--weights", "int8", "--dtype", "float32"], "--dtype is 'float32', with --weights int8"),
        (["--nonsense"], "--nonsense"),
        (["--record-prompts"], "--record-prompts needs --record DIR"),
        (["--journal-mib", "8"], "--journal-mib needs --journal DIR"),
        (["--journal", "d", "--journal-mib", "1"], "--journal-mib is 1, allowed is 2 to"),
        (["--model", "/no/such/model"], "'/no/such/model' is no file and no folder"),
        (["--model", "HuggingFaceTB/SmolLM2-135M"], "nothing is downloaded: give the path"),
    ],
)
def test_a_wrong_command_line_is_named_and_exits_2(
    args: list[str], said: str, tmp_path: Path
) -> None:
    result = _run("serve", "--model", str(tmp_path), *args)
    assert result.exit_code == 2
    assert said in result.stderr


def test_a_server_that_cannot_start_says_so_in_one_line(capsys, tmp_path: Path) -> None:
    master = FakeMaster(StartupFailed("port 1 is taken"))
    assert _start(master, "--model", str(tmp_path)) == 1
    assert capsys.readouterr() == ("", "lanehost: cannot start: port 1 is taken\n")


def test_a_file_of_keys_that_is_wrong_stops_the_start(capsys, tmp_path: Path) -> None:
    (tmp_path / "keys.toml").write_text("[scopes.a]")
    master = FakeMaster()
    args = ("--model", str(tmp_path), "--keys", str(tmp_path / "keys.toml"))
    assert (_start(master, *args), master.asked) == (1, [])
    said = "keys.toml: scopes.a.key_digests is no list of at least 1 digest\n"
    assert capsys.readouterr().err.endswith(said)


def test_without_the_embedded_model_the_line_says_what_to_do(capsys) -> None:
    master = FakeMaster()
    assert (_start(master), master.asked) == (1, [])
    said = "lanehost: cannot start: the embedded model is absent; install it\n"
    assert capsys.readouterr() == ("", said)


def test_the_exit_code_is_the_masters(tmp_path: Path) -> None:
    assert _start(FakeMaster(), "--model", str(tmp_path)) == 3


def test_python_m_lanehost_is_lanehost() -> None:
    command = [sys.executable, "-m", "lanehost", "--version"]
    result = subprocess.run(command, capture_output=True, check=False, timeout=30, text=True)
    assert result.stdout.startswith("lanehost ")


def test_the_client_commands_do_not_load_the_master() -> None:
    code = "import sys, lanehost.cli; sys.exit('lanehost.master' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=30).returncode == 0


def test_the_embedded_model_has_a_name_of_its_own_that_the_operator_may_change(
    tmp_path: Path,
) -> None:
    master = FakeMaster()
    for args in ((), ("--model-name", "mine")):
        _start(master, *args, find_embedded=lambda: tmp_path)
    assert [settings.model_name for settings in master.asked] == ["SmolLM2-135M-Instruct", "mine"]
