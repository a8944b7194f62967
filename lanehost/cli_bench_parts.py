"""What the commands of `lanehost bench` share: kinds of options, and how a run is told."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from lanehost.embedded import embedded_model_path
from lanehost.errors import LanehostError, RankGroupLost
from lanehost.settings import DEVICES, DTYPES, MAX_TP, WEIGHTS

if TYPE_CHECKING:
    # Late at run time, so that the client commands do not load what only a bench needs.
    from lanehost.bench.running import Report

_EMBEDDED = "embedded"
_EXIT_FAILED = 1
_EXIT_LOST = 4
_EXIT_INTERRUPTED = 130
MAX_TOKENS = 1 << 20


class Counts(click.ParamType):  # type: ignore[type-arg]  # not generic before click 8.2
    """Whole numbers with commas between."""

    name = "N[,N...]"

    def __init__(self, most: int) -> None:
        """Allow 1 to `most`."""
        self._most = most

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        """Read what was given; a default comes as it is."""
        if isinstance(value, tuple):
            return value
        try:
            counts = tuple(int(part) for part in value.split(","))
        except ValueError:
            self.fail(f"{value!r} is not like 64 or 64,256", param, ctx)
        for count in counts:
            if not 1 <= count <= self._most:
                self.fail(f"{count}, allowed is 1 to {self._most}", param, ctx)
        return counts


class _Model(click.ParamType):  # type: ignore[type-arg]  # not generic before click 8.2
    """A path, or `embedded`."""

    name = "PATH|embedded"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Path | None:
        if value == _EMBEDDED:
            return None
        path = Path(value)
        if not path.exists():
            self.fail(f"{value!r} is no file and no folder; nothing is downloaded", param, ctx)
        return path


class _Out(click.Path):
    """A file to write, in a folder that is there: it is too late to learn that after the run."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        path = Path(str(super().convert(value, param, ctx)))
        if not path.parent.is_dir():
            self.fail(f"there is no folder {str(path.parent)!r}", param, ctx)
        return path


COUNT = click.IntRange(1, MAX_TOKENS)
ABOVE_0 = click.FloatRange(min=0, min_open=True)
OUT_FILE = _Out(dir_okay=False)
with_json = click.option(
    "--json", "json_file", type=OUT_FILE, metavar="FILE", help="Write all as JSON."
)
_MODEL_OPTIONS = [
    click.option(
        "--model",
        type=_Model(),
        default=_EMBEDDED,
        show_default=True,
        help="A GGUF file, or a Hugging Face folder.",
    ),
    click.option(
        "--dtype",
        type=click.Choice(DTYPES),
        default="auto",
        show_default=True,
        help="What ranks compute with.",
    ),
    click.option(
        "--weights",
        type=click.Choice(WEIGHTS),
        default="auto",
        show_default=True,
        help="What weights are held as.",
    ),
    click.option(
        "--device", type=click.Choice(DEVICES), default="auto", show_default=True, help="Where."
    ),
    click.option("--threads", type=click.IntRange(1, 1024), help="CPU threads of a rank."),
]


def with_model(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that say which model runs, and how."""
    for option in reversed(_MODEL_OPTIONS):
        command = option(command)
    return command


def with_tp(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command that starts ranks the option that says how many."""
    option = click.option(
        "--tp",
        type=click.IntRange(1, MAX_TP),
        default=1,
        show_default=True,
        help="Ranks that share the model.",
    )
    return option(command)


def model_path(model: Path | None) -> Path:
    """Return the path of a model.

    Raises:
        StartupFailed: It is the embedded one, and not there.
    """
    return embedded_model_path() if model is None else model


@contextmanager
def said_in_a_line() -> Iterator[None]:
    """Say in one line what failed, and end the program with its code."""
    try:
        yield
    except RankGroupLost as error:
        _fail(error, _EXIT_LOST)
    except BrokenPipeError:
        raise  # whoever read our output has enough; click knows what to do
    except (LanehostError, OSError) as error:
        _fail(error, _EXIT_FAILED)
    except KeyboardInterrupt:
        sys.exit(_EXIT_INTERRUPTED)


def _fail(error: Exception, code: int) -> NoReturn:
    say(str(error))
    sys.exit(code)


def say(line: str) -> None:
    """Tell the person who waits."""
    click.echo(f"lanehost: {line}", err=True)


def write(report: "Report", command: str, json_file: Path | None) -> None:
    """Print a report, and write it as JSON where that is wanted."""
    from lanehost.bench.running import measured_where  # noqa: PLC0415

    for line in report.lines:
        click.echo(line)
    if json_file is not None:
        told = {"command": command, "where": measured_where(), **report.told}
        json_file.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
