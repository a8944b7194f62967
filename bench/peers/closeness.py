"""How far each side is from the float32 self of the model, over one text.

The reference of llama.cpp's types is llama.cpp on the weights expanded to float32; that of
lanehost is lanehost in float32. Both count the same positions: the second half of windows of
512 tokens.
"""

import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from bench.peers.children import ChildFailed, Command, run
from bench.peers.outputs import Numbers, UnknownOutput, read_kl, read_quality
from bench.peers.shape import Shape
from bench.peers.sides import LANEHOST, LLAMA_TYPES
from bench.peers.tools import Absent, Tools

_WINDOW = 512
_LIMIT_S = 1800


@dataclass(slots=True)
class Closeness:
    """The numbers of each side over a text; a side without is in `without`, with the reason."""

    text: str
    numbers: dict[str, Numbers] = field(default_factory=dict[str, Numbers])
    without: dict[str, str] = field(default_factory=dict[str, str])


def run_closeness(tools: Tools, shape: Shape, text: Path, say: Callable[[str], None]) -> Closeness:
    """Compare lanehost, then each type of llama.cpp."""
    found = Closeness(text=text.name)
    with tempfile.TemporaryDirectory(dir=tools.work) as folder:
        say(f"{text.name}: lanehost")
        try:
            found.numbers[LANEHOST] = _lanehost(tools, shape, text, Path(folder) / "quality.json")
        except (Absent, ChildFailed, UnknownOutput) as err:
            found.without[LANEHOST] = f"failed: {err}"
        base = Path(folder) / "base"
        try:
            say(f"{text.name}: llama.cpp in float32, the reference of its types")
            _perplexity(tools, shape, "F32", "-f", text, "--kl-divergence-base", base)
        except (Absent, ChildFailed) as err:
            found.without["llama.cpp"] = str(err)
            return found
        for kind in LLAMA_TYPES:
            name = f"llama.cpp {kind}"
            say(f"{text.name}: {name}")
            try:
                out = _perplexity(
                    tools, shape, kind, "--kl-divergence-base", base, "--kl-divergence"
                )
                found.numbers[name] = read_kl(out)
            except (Absent, ChildFailed, UnknownOutput) as err:
                found.without[name] = f"failed: {err}"
    return found


def _lanehost(tools: Tools, shape: Shape, text: Path, told: Path) -> Numbers:
    tools.check_native()
    command: Command = [
        *(sys.executable, "-m", "lanehost", "bench", "quality", "--model", tools.model),
        *("--text", text, "--window", str(_WINDOW), "--threads", str(shape.num_threads)),
        *("--json", told),
    ]
    run(command, limit_s=_LIMIT_S)
    return read_quality(told.read_text(encoding="utf-8"))


def _perplexity(tools: Tools, shape: Shape, kind: str, *arguments: str | Path) -> str:
    threads = str(shape.num_threads)
    command: Command = [
        *(tools.llama("llama-perplexity"), "-m", tools.gguf(kind), "-c", str(_WINDOW)),
        *("-t", threads, "-tb", threads, *arguments),
    ]
    return run(command, limit_s=_LIMIT_S).out
