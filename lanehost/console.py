"""What the person who started the server sees: progress while it loads, then one line.

The lines with addresses go to standard output, so that a script can read them; the
progress bar goes to standard error, and only where that is a terminal: elsewhere the
log says the same.
"""

import shlex
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self, TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from lanehost.door.model_card import ModelCard
from lanehost.errors import RankGroupLost
from lanehost.rank_group.facts import LoadPhase, LoadState
from ranks.log_sink import LogSink

_WORDS = {
    LoadPhase.STARTING: "starting ranks",
    LoadPhase.LOADING: "loading weights",
    LoadPhase.FORMING: "forming the rank group",
    LoadPhase.READY: "ready",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Addresses:
    """Where the doors are; `http` is None when there is no HTTP door."""

    grpc: str
    http: str | None


class StartupConsole:
    """Shows the start; used as a block around it."""

    def __init__(self, *, out: TextIO, err: TextIO) -> None:
        """Show nothing yet.

        Args:
            out: Gets the lines with the addresses.
            err: Gets the progress bar, if it is a terminal.
        """
        self._out = LogSink(out)
        self._is_port_told = False
        self._err = LogSink(err)
        console = Console(file=err)
        self._progress = Progress(
            TextColumn("lanehost"),
            BarColumn(bar_width=30),
            TextColumn("{task.description}"),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
            transient=True,
        )
        self._task = self._progress.add_task(_WORDS[LoadPhase.STARTING], total=None)

    def __enter__(self) -> Self:
        """Show the bar."""
        self._progress.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Take the bar away."""
        self._progress.stop()

    def show(self, state: LoadState) -> None:
        """Show how far the ranks are, and once where those of other hosts dial."""
        if state.rank_port and not self._is_port_told:
            self._is_port_told = True
            self._out.write(f"lanehost waits for ranks of other hosts at {state.rank_port}\n")
            self._out.flush()
        ranks = f"{state.num_loaded} of {state.world_size} ranks loaded"
        self._progress.update(
            self._task,
            description=f"{_WORDS[state.phase]} ({ranks})",
            completed=state.done_bytes,
            total=state.total_bytes or None,
        )

    def ready(self, card: ModelCard, addresses: Addresses) -> None:
        """Say where the doors are and how to talk to the model."""
        ranks = "1 rank" if card.world_size == 1 else f"{card.world_size} ranks"
        http = "no HTTP" if addresses.http is None else f"HTTP http://{addresses.http}"
        self._out.write(
            f"lanehost serves {card.name} on {ranks}: gRPC {addresses.grpc}, {http}. "
            f'Try: {_command()} generate --address {addresses.grpc} --prompt "Hello"\n'
        )
        self._out.flush()

    def lost(self, error: RankGroupLost) -> None:
        """Say, as the last line, that the server ends because its ranks are gone."""
        self._err.write(f"lanehost: the ranks were given up ({error}): start the server again\n")
        self._err.flush()


def _command() -> str:
    """Return what a shell finds: the name alone, or with the folder of this environment."""
    beside = Path(sys.executable).with_name("lanehost")
    if shutil.which("lanehost") is None and beside.exists():
        return shlex.quote(str(beside))
    return "lanehost"
