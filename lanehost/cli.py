"""The command `lanehost`: argv → settings; nobody else reads argv.

    lanehost serve       run the server
    lanehost generate    one reply, streamed to standard output
    lanehost chat        talk to the model
    lanehost replay      run a recorded trail again
    lanehost bench       measure a server, the step loop, the numbers
    lanehost chaos       break a server on purpose, and judge it
    lanehost new-key     make a key for `serve --keys`

Exit codes of `serve`: 0 after an orderly end, 1 when it cannot start, 2 for a wrong
command line, 3 when the ranks were lost, 4 when a second signal cut the end short.
Those of `generate` and `chat` are in cli_client.py.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

import lanehost.cli_quiet  # noqa: F401 - before anything that loads grpc
from lanehost.cli_bench import bench
from lanehost.cli_chaos import chaos
from lanehost.cli_chat import chat
from lanehost.cli_client import generate
from lanehost.cli_keys import new_key
from lanehost.cli_replay import replay
from lanehost.embedded import EMBEDDED_NAME, embedded_model_path
from lanehost.errors import StartupFailed
from lanehost.keys import KeyRing
from lanehost.keys_file import read_keys
from lanehost.settings import (
    DEVICES,
    DTYPES,
    WEIGHTS,
    EngineSettings,
    LineSettings,
    RankGroupSettings,
    RecordSettings,
    ServeSettings,
)

EMBEDDED = "embedded"
_EXIT_CANNOT_START = 1
_RANKS = RankGroupSettings(model_path=Path())
_LINE = LineSettings()
_SERVE = ServeSettings(ranks=_RANKS)


class _PortOrOff(click.ParamType):  # type: ignore[type-arg]  # not generic before click 8.2
    """A port number, or `off`."""

    name = "PORT|off"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | None:
        if value == "off":
            return None
        try:
            return int(value)
        except ValueError:
            self.fail(f"{value!r} is neither a port number nor 'off'", param, ctx)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="lanehost", message="%(package)s %(version)s")
def main() -> None:
    """Serve a language model whose replies depend on the request alone.

    \b
    Begin with two terminals:
      lanehost serve
      lanehost generate --prompt "The sky is" --max-tokens 16
    """  # noqa: D301 - click wants the character itself


@main.command()
@click.option(
    "--model",
    default=EMBEDDED,
    show_default=True,
    metavar="PATH|embedded",
    help="A GGUF file, or a Hugging Face folder; `embedded` is the small model that comes along.",
)
@click.option("--model-name", default="", help="What clients call it; default: the model's own.")
@click.option("--tp", default=_RANKS.tp, show_default=True, help="Ranks that share the model.")
@click.option("--host", default=_SERVE.host, show_default=True, help="Address of both doors.")
@click.option(
    "--port", default=_SERVE.port, show_default=True, help="gRPC port; 0 takes a free one."
)
@click.option(
    "--http-port",
    type=_PortOrOff(),
    default=str(_SERVE.http_port),
    show_default=True,
    help="OpenAI door; 0 takes a free port, `off` opens none.",
)
@click.option(
    "--lanes",
    default=_RANKS.num_lanes,
    show_default=True,
    help="Sequences that run at once; others wait.",
)
@click.option(
    "--dtype",
    type=click.Choice(DTYPES),
    default=_RANKS.dtype,
    show_default=True,
    help="What ranks compute with; `auto` goes by the model and the device.",
)
@click.option(
    "--weights",
    type=click.Choice(WEIGHTS),
    default=_RANKS.weights,
    show_default=True,
    help="What weights are held as: `auto` as they are in the files, or rounded at load.",
)
@click.option(
    "--device",
    type=click.Choice(DEVICES),
    default=_RANKS.device,
    show_default=True,
    help="Where ranks compute.",
)
@click.option("--threads", type=int, help="CPU threads of a rank; default: cores / ranks.")
@click.option(
    "--kv-tokens", type=int, help="Tokens the KV pool holds over all lanes; default: by the model."
)
@click.option(
    "--max-step-tokens",
    default=_RANKS.max_step_tokens,
    show_default=True,
    help="Most tokens that one step runs.",
)
@click.option(
    "--max-waiting",
    default=_LINE.max_waiting,
    show_default=True,
    help="Most requests that wait; one more is refused at once.",
)
@click.option(
    "--max-waiting-tokens",
    default=_LINE.max_waiting_tokens,
    show_default=True,
    help="Most prompt tokens that wait.",
)
@click.option(
    "--max-streams",
    default=_LINE.max_streams,
    show_default=True,
    help="Most requests that are open at once, waiting or running.",
)
@click.option(
    "--keys",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Let in only who sends a key of this file, and share fairly among its scopes; "
    "see `lanehost new-key`.",
)
@click.option(
    "--load-timeout",
    default=_RANKS.load_timeout_s,
    show_default=True,
    metavar="SECONDS",
    help="Most time to load the model.",
)
@click.option(
    "--heartbeat-timeout",
    default=_RANKS.heartbeat_timeout_s,
    show_default=True,
    metavar="SECONDS",
    help="Most time that a rank may say nothing before it is replaced.",
)
@click.option(
    "--stall-timeout",
    default=_RANKS.stall_timeout_s,
    show_default=True,
    metavar="SECONDS",
    help="Most time that a rank may stand still in a step before the group is formed anew.",
)
@click.option(
    "--max-restarts",
    default=_RANKS.max_restarts,
    show_default=True,
    help="Most losses of ranks in a row, with no finished step between, before the server exits.",
)
@click.option(
    "--drain-grace",
    default=_SERVE.drain_grace_s,
    show_default=True,
    metavar="SECONDS",
    help="After SIGTERM, time in which health says NOT_SERVING and requests are still taken.",
)
@click.option(
    "--drain-timeout",
    default=_SERVE.drain_timeout_s,
    show_default=True,
    metavar="SECONDS",
    help="After the grace, most time for open requests to end.",
)
@click.option(
    "--prompt-cache",
    type=click.Choice(["on", "off"]),
    default="on",
    show_default=True,
    help="Keep what was computed of prompts for others that begin alike.",
)
@click.option(
    "--max-drafts",
    type=int,
    default=EngineSettings().max_drafts,
    show_default=True,
    help="Most tokens that a reply guesses at once from what it said before; 0 guesses none.",
)
@click.option(
    "--max-fill-tokens",
    type=int,
    default=EngineSettings().max_fill_tokens,
    show_default=True,
    help="Most prompt tokens in a step that running replies wait for; alone, prompts fill it.",
)
@click.option(
    "--max-pass-prompts",
    type=int,
    default=EngineSettings().max_pass_prompts,
    show_default=True,
    help="Most prompts that share one step; 1 runs them one by one.",
)
@click.option(
    "--record",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Write a trail of the run there, for `lanehost replay`; replies are in it.",
)
@click.option(
    "--record-prompts", is_flag=True, help="With --record: the prompts' token ids as well."
)
@click.option("--reflection", is_flag=True, help="Let tools such as grpcurl ask for the API.")
@click.option("--log-json", is_flag=True, help="Log one JSON object per line.")
def serve(**options: Any) -> None:
    """Run the server until SIGTERM or Ctrl-C; a second one ends it at once.

    \b
    Examples:
      lanehost serve
      lanehost serve --tp 2 --dtype float32
      lanehost serve --model ./Qwen2.5-0.5B-Instruct --port 50052 --http-port off

    \b
    Exit codes: 0 ended in order, 1 cannot start, 2 wrong command line,
    3 the ranks were given up, 4 a second signal cut the end short, 5 a bug of lanehost.
    """  # noqa: D301 - click wants the character itself
    # Late, so that the client commands do not load the whole master.
    from lanehost import master  # noqa: PLC0415

    sys.exit(start(options, run=master.run))


def start(
    options: dict[str, Any],
    *,
    run: Callable[[ServeSettings], int],
    find_embedded: Callable[[], Path] = embedded_model_path,
) -> int:
    """Run the server and return its exit code; says in one line why it cannot start.

    Args:
        options: The options of `serve`, by name.
        run: The master.
        find_embedded: Gives the embedded model's file.

    Raises:
        click.UsageError: an option is wrong.
    """
    try:
        model = options["model"]
        keys = None if options["keys"] is None else read_keys(options["keys"])
        if model == EMBEDDED:
            named = {**options, "model_name": options["model_name"] or EMBEDDED_NAME}
            return run(_build_settings(find_embedded(), named, keys))
        return run(_build_settings(_existing(model), options, keys))
    except StartupFailed as error:
        click.echo(f"lanehost: cannot start: {error}", err=True)
        return _EXIT_CANNOT_START


def _build_settings(
    model_path: Path, options: dict[str, Any], keys: KeyRing | None
) -> ServeSettings:
    """Turn options into settings, which check themselves."""
    try:
        return ServeSettings(
            ranks=RankGroupSettings(
                model_path=model_path,
                tp=options["tp"],
                dtype=options["dtype"],
                weights=options["weights"],
                device=options["device"],
                num_threads=options["threads"],
                num_lanes=options["lanes"],
                max_step_tokens=options["max_step_tokens"],
                kv_tokens=options["kv_tokens"],
                load_timeout_s=options["load_timeout"],
                heartbeat_timeout_s=options["heartbeat_timeout"],
                stall_timeout_s=options["stall_timeout"],
                max_restarts=options["max_restarts"],
            ),
            line=LineSettings(
                max_waiting=options["max_waiting"],
                max_waiting_tokens=options["max_waiting_tokens"],
                max_streams=options["max_streams"],
            ),
            engine=EngineSettings(
                prompt_cache=options["prompt_cache"] == "on",
                max_drafts=options["max_drafts"],
                max_fill_tokens=options["max_fill_tokens"],
                max_pass_prompts=options["max_pass_prompts"],
            ),
            keys=keys,
            model_name=options["model_name"],
            host=options["host"],
            port=options["port"],
            http_port=options["http_port"],
            reflection=options["reflection"],
            drain_grace_s=options["drain_grace"],
            drain_timeout_s=options["drain_timeout"],
            log_json=options["log_json"],
            record=_record_settings(options["record"], keeps_prompts=options["record_prompts"]),
        )
    except StartupFailed as error:
        raise click.UsageError(str(error)) from error


def _record_settings(folder: Path | None, *, keeps_prompts: bool) -> RecordSettings | None:
    if folder is None:
        if keeps_prompts:
            raise click.UsageError("--record-prompts needs --record DIR")
        return None
    return RecordSettings(folder=folder, keeps_prompts=keeps_prompts)


def _existing(model: str) -> Path:
    path = Path(model)
    if not path.exists():
        raise click.BadParameter(
            f"{model!r} is no file and no folder; nothing is downloaded: give the path of a "
            "GGUF file or of a Hugging Face folder",
            param_hint="--model",
        )
    return path


main.add_command(generate)
main.add_command(chat)
main.add_command(replay)
main.add_command(new_key)
main.add_command(bench)
main.add_command(chaos)
