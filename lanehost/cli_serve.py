"""The options of `lanehost serve` and `lanehost launch`, and the settings that they become."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from lanehost.cli_disk import DISK_OPTIONS, build_disk
from lanehost.cli_hosts import HOSTS_OPTIONS, SPARE_OPTION, build_rank_port
from lanehost.cli_images import IMAGE_OPTIONS, build_images, max_staged_tokens
from lanehost.cli_record import RECORD_OPTIONS, build_record
from lanehost.embedded import EMBEDDED_NAME, embedded_model_path
from lanehost.errors import StartupFailed
from lanehost.keys import KeyRing
from lanehost.keys_file import read_keys
from lanehost.settings import (
    DEVICES,
    DTYPES,
    WEIGHTS,
    EngineSettings,
    JournalSettings,
    LineSettings,
    RankGroupSettings,
    RankPortSettings,
    ServeSettings,
)

EMBEDDED = "embedded"
EXIT_CANNOT_START = 1
_RANKS = RankGroupSettings(model_path=Path())
_LINE = LineSettings()
_SERVE = ServeSettings(ranks=_RANKS)
_Command = TypeVar("_Command", bound=Callable[..., Any])


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


# Any: what click.option gives takes a function or a command, and gives it back.
SERVE_OPTIONS: tuple[Any, ...] = (
    click.option(
        "--model",
        default=EMBEDDED,
        show_default=True,
        metavar="PATH|embedded",
        help="A GGUF file, or a Hugging Face folder; `embedded` is the small model that "
        "comes along.",
    ),
    click.option(
        "--model-name", default="", help="What clients call it; default: the model's own."
    ),
    click.option("--tp", default=_RANKS.tp, show_default=True, help="Ranks that share the model."),
    click.option("--host", default=_SERVE.host, show_default=True, help="Address of both doors."),
    click.option(
        "--port", default=_SERVE.port, show_default=True, help="gRPC port; 0 takes a free one."
    ),
    click.option(
        "--http-port",
        type=_PortOrOff(),
        default=str(_SERVE.http_port),
        show_default=True,
        help="OpenAI door; 0 takes a free port, `off` opens none.",
    ),
    click.option(
        "--lanes",
        default=_RANKS.num_lanes,
        show_default=True,
        help="Sequences that run at once; others wait.",
    ),
    click.option(
        "--dtype",
        type=click.Choice(DTYPES),
        default=_RANKS.dtype,
        show_default=True,
        help="What ranks compute with; `auto` goes by the model and the device.",
    ),
    click.option(
        "--weights",
        type=click.Choice(WEIGHTS),
        default=_RANKS.weights,
        show_default=True,
        help="What weights are held as: `auto` as they are in the files, or rounded at load.",
    ),
    click.option(
        "--device",
        type=click.Choice(DEVICES),
        default=_RANKS.device,
        show_default=True,
        help="Where ranks compute.",
    ),
    click.option("--threads", type=int, help="CPU threads of a rank; default: cores / ranks."),
    click.option(
        "--kv-tokens",
        type=int,
        help="Tokens the KV pool holds over all lanes; default: by the model.",
    ),
    click.option(
        "--max-step-tokens",
        default=_RANKS.max_step_tokens,
        show_default=True,
        help="Most tokens that one step runs.",
    ),
    click.option(
        "--max-waiting",
        default=_LINE.max_waiting,
        show_default=True,
        help="Most requests that wait; one more is refused at once.",
    ),
    click.option(
        "--max-waiting-tokens",
        default=_LINE.max_waiting_tokens,
        show_default=True,
        help="Most prompt tokens that wait.",
    ),
    click.option(
        "--max-streams",
        default=_LINE.max_streams,
        show_default=True,
        help="Most requests that are open at once, waiting or running.",
    ),
    click.option(
        "--keys",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Let in only who sends a key of this file, and share fairly among its scopes; "
        "see `lanehost new-key`.",
    ),
    click.option(
        "--load-timeout",
        default=_RANKS.load_timeout_s,
        show_default=True,
        metavar="SECONDS",
        help="Most time to load the model.",
    ),
    click.option(
        "--heartbeat-timeout",
        default=_RANKS.heartbeat_timeout_s,
        show_default=True,
        metavar="SECONDS",
        help="Most time that a rank may say nothing before it is replaced.",
    ),
    click.option(
        "--stall-timeout",
        default=_RANKS.stall_timeout_s,
        show_default=True,
        metavar="SECONDS",
        help="Most time that a rank may stand still in a step before the group is formed anew.",
    ),
    click.option(
        "--max-restarts",
        default=_RANKS.max_restarts,
        show_default=True,
        help="Most losses of ranks in a row, with no finished step between, before the server "
        "exits.",
    ),
    SPARE_OPTION,
    click.option(
        "--drain-grace",
        default=_SERVE.drain_grace_s,
        show_default=True,
        metavar="SECONDS",
        help="After SIGTERM, time in which health says NOT_SERVING and requests are still taken.",
    ),
    click.option(
        "--drain-timeout",
        default=_SERVE.drain_timeout_s,
        show_default=True,
        metavar="SECONDS",
        help="After the grace, most time for open requests to end.",
    ),
    click.option(
        "--prompt-cache",
        type=click.Choice(["on", "off"]),
        default="on",
        show_default=True,
        help="Keep what was computed of prompts for others that begin alike.",
    ),
    click.option(
        "--max-drafts",
        type=int,
        default=EngineSettings().max_drafts,
        show_default=True,
        help="Most tokens that a reply guesses at once from what it said before; 0 guesses none.",
    ),
    click.option(
        "--max-fill-tokens",
        type=int,
        default=EngineSettings().max_fill_tokens,
        show_default=True,
        help="Most prompt tokens in a step that running replies wait for; alone, prompts fill it.",
    ),
    click.option(
        "--max-pass-prompts",
        type=int,
        default=EngineSettings().max_pass_prompts,
        show_default=True,
        help="Most prompts that share one step; 1 runs them one by one.",
    ),
    *RECORD_OPTIONS,
    click.option(
        "--journal",
        type=click.Path(path_type=Path, file_okay=False),
        metavar="DIR",
        help="Keep open requests and their tokens there: a server that is killed and started "
        "again goes on with them. Prompts and replies are in it.",
    ),
    click.option(
        "--journal-mib",
        type=int,
        help="With --journal: most MiB of its files, default 1024; requests beyond are refused.",
    ),
    *DISK_OPTIONS,
    *IMAGE_OPTIONS,
    click.option("--reflection", is_flag=True, help="Let tools such as grpcurl ask for the API."),
    click.option("--log-json", is_flag=True, help="Log one JSON object per line."),
)


def serve_options(command: _Command) -> _Command:
    """Give a command the options of `serve`, in this order."""
    for option in reversed((*SERVE_OPTIONS, *HOSTS_OPTIONS)):
        command = option(command)
    return command


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
        path = find_model(model, find_embedded)
        if model == EMBEDDED:
            options = {**options, "model_name": options["model_name"] or EMBEDDED_NAME}
        return run(_build_settings(path, options, keys))
    except StartupFailed as error:
        click.echo(f"lanehost: cannot start: {error}", err=True)
        return EXIT_CANNOT_START


def find_model(model: str, find_embedded: Callable[[], Path] = embedded_model_path) -> Path:
    """Give the path that `--model` stands for.

    Raises:
        click.BadParameter: There is nothing.
        StartupFailed: The embedded model is not installed.
    """
    return find_embedded() if model == EMBEDDED else _existing(model)


def _build_settings(
    model_path: Path, options: dict[str, Any], keys: KeyRing | None
) -> ServeSettings:
    """Turn options into settings, which check themselves."""
    try:
        return ServeSettings(
            ranks=_build_ranks(model_path, options),
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
                staged_rows=options["staged_rows"],
                max_stall_ms=options["max_stall_ms"],
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
            journal=_journal_settings(options["journal"], max_mib=options["journal_mib"]),
            disk=build_disk(options),
            images=build_images(options),
            record=build_record(options),
        )
    except StartupFailed as error:
        raise click.UsageError(str(error)) from error


def _build_ranks(model_path: Path, options: dict[str, Any]) -> RankGroupSettings:
    return RankGroupSettings(
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
        keeps_spare=options["spare_rank"] == "on",
        rank_port=_own_rank_port(options),
        disk_folder=options["disk_cache"],
        max_staged_tokens=max_staged_tokens(options),
        image_cache_tokens=options["image_cache_tokens"],
        encoder_device=options["encoder_device"],
    )


def _own_rank_port(options: dict[str, Any]) -> RankPortSettings | None:
    """Say where this host, as that of rank 0, takes the others in; None for one host."""
    rank, master, tls = options["rank"], options["master"], options["rank_tls"]
    is_open, interface = options["insecure_rank_port"], options["rank_interface"]
    if master is None:
        given = {
            "--rank": rank is not None,
            "--rank-tls": tls is not None,
            "--insecure-rank-port": is_open,
            "--rank-interface": interface is not None,
        }
        for name, is_given in given.items():
            if is_given:
                raise click.UsageError(f"{name} needs --master HOST:PORT")
        return None
    if rank != 0:
        said = "is left out" if rank is None else f"is {rank}"
        raise click.UsageError(
            f"--rank {said}, with --master `lanehost serve` is rank 0: the others run "
            "`lanehost follow --rank N`"
        )
    return build_rank_port(options, ranks_here=options.get("ranks_here"))


def _journal_settings(folder: Path | None, *, max_mib: int | None) -> JournalSettings | None:
    if folder is None:
        if max_mib is not None:
            raise click.UsageError("--journal-mib needs --journal DIR")
        return None
    if max_mib is None:
        return JournalSettings(folder=folder)
    return JournalSettings(folder=folder, max_mib=max_mib)


def _existing(model: str) -> Path:
    path = Path(model)
    if not path.exists():
        raise click.BadParameter(
            f"{model!r} is no file and no folder; nothing is downloaded: give the path of a "
            "GGUF file or of a Hugging Face folder",
            param_hint="--model",
        )
    return path
