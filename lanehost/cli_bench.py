"""`lanehost bench`: serve, step and quality; `cache` has a module of its own.

Exit codes: 0 done, 1 nothing could be measured, 2 wrong command line, 3 nobody answers at
the address, 4 the server or the ranks ended, 130 stopped with Ctrl-C.
"""

import secrets
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lanehost.cli_bench_cache import cache
from lanehost.cli_bench_parts import (
    ABOVE_0,
    COUNT,
    MAX_TOKENS,
    OUT_FILE,
    Counts,
    model_path,
    said_in_a_line,
    say,
    with_json,
    with_model,
    with_tp,
    write,
)
from lanehost.cli_client import fail, split, when_loaded, with_server
from lanehost.client import AsyncClient, Client
from lanehost.client_errors import ClientError
from lanehost.settings import BLOCK_SIZE, MAX_LANES, RankGroupSettings

if TYPE_CHECKING:
    # Late at run time, so that the client commands do not load what only a bench needs.
    from lanehost.bench.scenarios import ServeBench
    from lanehost.door.model_card import ModelCard

_SCENARIOS = ("closed", "poisson", "shared-prefix", "long-prompt")
# What is left out, by scenario; an option that has no default there is refused there.
_DEFAULTS: dict[str, dict[str, Any]] = {
    "closed": {"streams": 4, "requests": 64, "reply_tokens": (64,)},
    "poisson": {"rate": 1.0, "requests": 64, "reply_tokens": (64,)},
    "shared-prefix": {
        "streams": 4,
        "requests": 64,
        "prefix_tokens": 256,
        "prompt_tokens": (32,),
        "reply_tokens": (32,),
    },
    "long-prompt": {"streams": 4, "requests": 3, "long_tokens": 1024, "reply_tokens": (128,)},
}
_MAX_SEED = 1 << 32
_ROUNDS = click.IntRange(1, 1000)
_BY_SCENARIO = ("streams", "rate", "requests", "prefix_tokens", "long_tokens", "reply_tokens")


@click.group()
def bench() -> None:
    """Measure a server, the bare loop of steps, the quality of the numbers, or the prompt cache.

    Every report says what its words mean. On a machine that does other work as well, only
    ratios of runs taken in turn say anything.

    \b
    Examples:
      lanehost bench serve --streams 16 --json served.json --plot served.svg
      lanehost bench step --tp 2
      lanehost bench quality
      lanehost bench cache
    """  # noqa: D301 - click wants the character itself


bench.add_command(cache)


@bench.command()
@click.option(
    "--scenario",
    type=click.Choice(_SCENARIOS),
    default="closed",
    show_default=True,
    help="closed: streams that ask again when their reply has ended. poisson: requests that "
    "arrive at random. shared-prefix: one system prompt before all. long-prompt: one comes "
    "while streams run.",
)
@click.option("--streams", type=click.IntRange(1, 1024), help="Requests kept open; default: 4.")
@click.option("--rate", type=ABOVE_0, help="poisson: requests a second; default: 1.")
@click.option("--requests", type=COUNT, help="Requests that count; default: 64, or 3 long prompts.")
@click.option(
    "--warmup",
    type=click.IntRange(0, 1 << 16),
    default=4,
    show_default=True,
    help="Requests before them that do not count.",
)
@click.option(
    "--prompt-tokens",
    type=Counts(MAX_TOKENS),
    help="Tokens of a prompt; several are drawn from. Default: 256, or 32 behind a prefix.",
)
@click.option(
    "--reply-tokens",
    type=Counts(MAX_TOKENS),
    help="Tokens of a reply; several are drawn from. Default: 64; shared-prefix 32; "
    "long-prompt 128.",
)
@click.option(
    "--prefix-tokens", type=COUNT, help="shared-prefix: tokens that all share; default: 256."
)
@click.option("--long-tokens", type=COUNT, help="long-prompt: its tokens; default: 1024.")
@click.option(
    "--ttft-slo", type=ABOVE_0, default=1.0, show_default=True, help="Goal of TTFT, in seconds."
)
@click.option(
    "--itl-slo", type=ABOVE_0, default=0.2, show_default=True, help="Goal of every ITL, likewise."
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    metavar="INTEGER",
    help="Of prompts, lengths and arrivals. Default: a new one, since a server knows the prompts "
    "of the run before; the report tells it.",
)
@click.option("--plot", type=OUT_FILE, metavar="FILE.svg", help="Draw it; needs lanehost[plot].")
@with_json
@with_server
def serve(json_file: Path | None, plot: Path | None, **options: Any) -> None:
    """Measure what clients of a running server see.

    \b
    Examples:
      lanehost bench serve --streams 16 --requests 128
      lanehost bench serve --scenario poisson --rate 2 --ttft-slo 0.5 --json out.json
      lanehost bench serve --scenario long-prompt --long-tokens 2000 --plot out.svg

    \b
    Exit codes: 0 done, 1 no request succeeded, 2 wrong command line, 3 nobody answers at
    the address, 4 the server ended, 130 stopped with Ctrl-C.
    """  # noqa: D301 - click wants the character itself
    from lanehost.bench.plot import check_can_plot  # noqa: PLC0415
    from lanehost.bench.running import run_serve, tell_serve  # noqa: PLC0415

    names = ("address", "key_file", "wait")
    wanted = split({name: options.pop(name) for name in names})
    with said_in_a_line(), wanted.client() as client:
        if plot is not None:
            check_can_plot()
        asked = _serve_bench(options)
        try:
            card = when_loaded(client, wanted, Client.model)
            _check_fits(asked, card)
            make_client = partial(AsyncClient, wanted.address, key=wanted.key)
            served = run_serve(asked, make_client, card, say)
        except ClientError as error:
            fail(error, wanted)
        if served.first_error is not None and all(one.failure for one in served.replies):
            fail(served.first_error, wanted)
        write(tell_serve(asked, served, card, plot), "serve", json_file)


@bench.command()
@with_model
@with_tp
@click.option(
    "--lanes",
    type=Counts(MAX_LANES),
    default=(1, 4, 8, 16),
    show_default="1,4,8,16",
    help="How many lanes decode at once, in turn.",
)
@click.option(
    "--prompt-tokens",
    type=COUNT,
    default=256,
    show_default=True,
    help="Tokens of a prefill, and what lies before every decode.",
)
@click.option(
    "--rounds",
    type=_ROUNDS,
    default=4,
    show_default=True,
    help="Each runs every kind of step, with one in flight and with two.",
)
@click.option(
    "--steps",
    type=COUNT,
    default=16,
    show_default=True,
    help="Decode steps of a round, for each number of lanes.",
)
@click.option(
    "--prefills", type=COUNT, default=2, show_default=True, help="Prefill steps of a round."
)
@click.option(
    "--warmup",
    type=click.IntRange(1, 1 << 16),
    default=4,
    show_default=True,
    help="Decode steps before them that do not count.",
)
@with_json
def step(json_file: Path | None, **options: Any) -> None:
    """Time the bare step loop of ranks: no server, no clients.

    \b
    Examples:
      lanehost bench step
      lanehost bench step --tp 2 --threads 1 --lanes 1,16 --json out.json

    \b
    Exit codes: 0 done, 1 the ranks cannot start or refused a step, 2 wrong command line,
    4 the ranks were lost, 130 stopped with Ctrl-C.
    """  # noqa: D301 - click wants the character itself
    from lanehost.bench.running import run_step  # noqa: PLC0415
    from lanehost.bench.step_loop import LoopSettings  # noqa: PLC0415

    with said_in_a_line():
        loop = LoopSettings(
            lane_counts=options["lanes"],
            prompt_tokens=options["prompt_tokens"],
            num_rounds=options["rounds"],
            num_steps=options["steps"],
            num_prefills=options["prefills"],
            num_warmup=options["warmup"],
        )
        num_lanes = max(loop.lane_counts)
        blocks_per_lane = -(-loop.max_positions // BLOCK_SIZE)
        ranks = RankGroupSettings(
            model_path=model_path(options["model"]),
            tp=options["tp"],
            dtype=options["dtype"],
            weights=options["weights"],
            device=options["device"],
            num_threads=options["threads"],
            num_lanes=num_lanes,
            # A whole prompt is one step, and so are the last blocks of all prompts.
            max_step_tokens=max(loop.prompt_tokens, num_lanes * BLOCK_SIZE),
            kv_tokens=num_lanes * blocks_per_lane * BLOCK_SIZE,
            keeps_spare=False,
        )
        write(run_step(ranks, loop, say), "step", json_file)


@bench.command()
@with_model
@click.option(
    "--window",
    type=COUNT,
    default=512,
    show_default=True,
    help="Tokens of a window; its second half counts.",
)
@click.option(
    "--text",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A text of your own, UTF-8; default: the one that comes along.",
)
@with_json
def quality(json_file: Path | None, **options: Any) -> None:
    """Compare the model as served with its float32 self.

    Runs a fixed text through both: loads the model twice. `--dtype` and `--weights` are of
    the model as served.

    \b
    Examples:
      lanehost bench quality
      lanehost bench quality --model model.gguf --text book.txt --json out.json

    \b
    Exit codes: 0 done, 1 the model or the text cannot be used, 2 wrong command line,
    130 stopped with Ctrl-C.
    """  # noqa: D301 - click wants the character itself
    from lanehost.bench.quality import MIN_WINDOW, OWN_TEXT, QualityBench  # noqa: PLC0415
    from lanehost.bench.running import run_quality  # noqa: PLC0415

    if options["window"] < MIN_WINDOW:
        raise click.UsageError(f"--window is {options['window']}, the least is {MIN_WINDOW}")
    with said_in_a_line():
        asked = QualityBench(
            model_path=model_path(options["model"]),
            dtype=options["dtype"],
            weights=options["weights"],
            device=options["device"],
            num_threads=options["threads"],
            window=options["window"],
        )
        report = run_quality(asked, options["text"] or OWN_TEXT, say)
        write(report, "quality", json_file)


def _serve_bench(options: dict[str, Any]) -> "ServeBench":
    """Read what is asked of a server.

    Raises:
        click.UsageError: An option is of another scenario.
    """
    from lanehost.bench.measured import Goals  # noqa: PLC0415
    from lanehost.bench.scenarios import Scenario, ServeBench  # noqa: PLC0415
    from lanehost.bench.workload import Lengths  # noqa: PLC0415

    scenario = options["scenario"]
    defaults = _DEFAULTS[scenario]
    for name in _BY_SCENARIO:
        if options[name] is not None and name not in defaults:
            raise click.UsageError(f"--{name.replace('_', '-')} is not of --scenario {scenario}")
    given = {name: value for name, value in options.items() if value is not None}
    asked = {"prompt_tokens": (256,), **defaults, **given}
    return ServeBench(
        scenario=Scenario(scenario),
        lengths=Lengths(prompt=asked["prompt_tokens"], reply=asked["reply_tokens"]),
        goals=Goals(ttft_s=asked["ttft_slo"], itl_s=asked["itl_slo"]),
        num_requests=asked["requests"],
        num_warmup=asked["warmup"],
        seed=asked.get("seed", secrets.randbelow(_MAX_SEED)),
        num_streams=asked.get("streams"),
        rate=asked.get("rate"),
        prefix_tokens=asked.get("prefix_tokens", 0),
        long_tokens=asked.get("long_tokens", 0),
    )


def _check_fits(asked: "ServeBench", card: "ModelCard") -> None:
    """Refuse at once what the server would refuse every time.

    Raises:
        click.UsageError: The longest sequence does not fit the model's context.
    """
    if asked.most_tokens > card.context_length:
        raise click.UsageError(
            f"the longest prompt with its reply takes {asked.most_tokens} tokens, "
            f"the model has a context of {card.context_length}"
        )
