"""The command: what is run, with what, and where the figures go."""

import json
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from bench.peers import first_token, report
from bench.peers.children import ChildFailed
from bench.peers.closeness import run_closeness
from bench.peers.first_token import run_first_token
from bench.peers.outputs import UnknownOutput
from bench.peers.plot import plot_speeds
from bench.peers.shape import GOALS, Shape
from bench.peers.sides import LANEHOST, SIDE_WORDS, all_sides
from bench.peers.speed import run_rounds
from bench.peers.tools import Absent, Tools
from lanehost.bench.plot import check_can_plot
from lanehost.bench.quality import OWN_TEXT
from lanehost.bench.running import measured_where
from lanehost.cli_bench_parts import OUT_FILE
from lanehost.embedded import embedded_model_path
from lanehost.errors import LanehostError

PARTS = ("speed", "first-token", "quality")
_THERE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--llama-bin",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder of llama.cpp's programs.",
)
@click.option(
    "--peers-python",
    type=_THERE,
    default=sys.executable,
    help="Interpreter that has transformers and ctranslate2; default: the one that runs this.",
)
@click.option(
    "--rounds", type=click.IntRange(1, 100), default=3, show_default=True, help="Rounds in turn."
)
@click.option(
    "--only", type=click.Choice(PARTS), multiple=True, help="A part; may be repeated. Default: all."
)
@click.option(
    "--side",
    "side_names",
    type=click.Choice(SIDE_WORDS),
    multiple=True,
    help="A side of the part speed; may be repeated. Default: all.",
)
@click.option("--model", type=_THERE, help="A GGUF file; default: the embedded one.")
@click.option(
    "--text",
    "texts",
    type=_THERE,
    multiple=True,
    help="A text for the part quality; may be repeated. Default: the one of lanehost.",
)
@click.option(
    "--work",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for converted weights, kept for the next run; default: one that is removed.",
)
@click.option("--json", "json_file", type=OUT_FILE, help="Write all figures, of every round.")
@click.option("--plot", type=OUT_FILE, help="Draw the speeds as SVG; needs leather.")
def main(
    only: tuple[str, ...],
    json_file: Path | None,
    plot: Path | None,
    work: Path | None,
    **given: Any,
) -> None:
    """Run lanehost and its peers in turn on the same model, shape and threads.

    \b
    speed        prefill of 256 tokens; decode in 1, 4, 8, 16 lanes behind 256 tokens
    first-token  16 clients at once: lanehost serve against llama-server
    quality      divergence from float32 beside that of llama.cpp's types

    Two threads on each side. A peer that is not installed is named, and runs nowhere. What is
    needed of each:

    \b
    lanehost      the environment that runs this, the embedded model, the native library
    llama.cpp     in its sources: cmake -B build -DCMAKE_BUILD_TYPE=Release, then
                  cmake --build build --target llama-bench llama-batched-bench llama-server
                  llama-perplexity llama-quantize; --llama-bin build/bin
    ctranslate2,  an environment of their own: pip install torch transformers ctranslate2
    transformers  gguf accelerate; --peers-python its python

    \b
    Examples:
      python bench/peers.py --llama-bin llama.cpp/build/bin --peers-python peers/bin/python
      python bench/peers.py --llama-bin llama.cpp/build/bin --only speed --side q4_0 --rounds 5

    \b
    Exit codes: 0 done, 1 a part could not be measured, 2 wrong command line.
    """  # noqa: D301 - click wants the character itself
    with ExitStack() as stack:
        try:
            if plot is not None:
                check_can_plot()
            model = given["model"] or embedded_model_path()
        except LanehostError as err:
            raise click.ClickException(str(err)) from err
        folder = work or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        run = _Run(
            Tools(
                model=model,
                llama_bin=given["llama_bin"],
                peers_python=given["peers_python"],
                work=folder,
            ),
            given["rounds"],
        )
        parts = {
            "speed": lambda: run.speed(given["side_names"], plot),
            "first-token": run.first_token,
            "quality": lambda: run.quality(given["texts"] or (OWN_TEXT,)),
        }
        asked = {name: part for name, part in parts.items() if not only or name in only}
        is_whole = _measure(asked, json_file)
    sys.exit(0 if is_whole else 1)


def _measure(parts: dict[str, Callable[[], dict[str, Any]]], json_file: Path | None) -> bool:
    """Measure part after part, and write what is known after each; says whether all could be."""
    told: dict[str, Any] = {"where": measured_where(), "goals": GOALS}
    is_whole = True
    for name, part in parts.items():
        try:
            told[name] = part()
        except (Absent, ChildFailed, UnknownOutput) as err:
            is_whole = False
            told[name] = {"without": str(err)}
            click.echo(f"{name}: not measured: {err}\n")
        if json_file is not None:
            json_file.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    return is_whole


class _Run:
    """Runs a part, prints it, and returns it as an object."""

    def __init__(self, tools: Tools, num_rounds: int) -> None:
        self._tools = tools
        self._num_rounds = num_rounds
        self._shape = Shape()

    def speed(self, side_names: tuple[str, ...], plot: Path | None) -> dict[str, Any]:
        """Run the sides that were named, and lanehost."""
        sides = [
            side
            for name, side in all_sides(self._tools).items()
            if not side_names or name in side_names or name == LANEHOST
        ]
        found = run_rounds(sides, self._shape, self._num_rounds, _say)
        notes = {
            side.name: found.without.get(side.name) or found.notes[side.name] for side in sides
        }
        columns = self._shape.columns
        _print(report.speed_lines(found.rounds, columns, notes, found.peak_bytes, LANEHOST))
        if plot is not None:
            plot_speeds(found.rounds, columns, list(notes), plot)
        return {"shape": asdict(self._shape), **asdict(found), "definitions": report.DEFINITIONS}

    def first_token(self) -> dict[str, Any]:
        """Ask both servers."""
        found = run_first_token(self._tools, self._shape, self._num_rounds, _say)
        _print(
            report.first_token_lines(
                found.rounds,
                found.peak_bytes,
                ours=first_token.OURS,
                theirs=first_token.THEIRS,
                num_clients=first_token.NUM_CLIENTS,
            )
        )
        return asdict(found)

    def quality(self, texts: tuple[Path, ...]) -> dict[str, Any]:
        """Compare over each text."""
        found = {}
        for text in texts:
            one = run_closeness(self._tools, self._shape, text, _say)
            _print(report.closeness_lines(one.text, one.numbers, one.without))
            found[one.text] = asdict(one)
        return found


def _say(line: str) -> None:
    click.echo(f"peers: {line}", err=True)


def _print(lines: list[str]) -> None:
    for line in lines:
        click.echo(line)
    click.echo()
