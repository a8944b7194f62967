"""The sides: what each needs, and how it is made to run the same work.

The decode figures of llama.cpp come from `llama-batched-bench -pps`: one prompt is computed and
its KV copied to every lane, so each lane has the whole prompt before it; copying is not timed.
At one lane the better of that and of `llama-bench` counts.
"""

import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from bench.peers.children import Command, run
from bench.peers.outputs import read_batched_bench, read_llama_bench, read_speeds, read_step
from bench.peers.shape import PREFILL, Shape, decode
from bench.peers.tools import Tools, head_of

LANEHOST = "lanehost"
LLAMA_TYPES = ("Q4_0", "Q8_0", "Q4_1")
SIDE_WORDS = (LANEHOST, *(kind.lower() for kind in LLAMA_TYPES), "ctranslate2", "transformers")
_HERE = Path(__file__).parent
_LIMIT_S = 600
# llama.cpp gives each lane room in steps of so many positions.
_ROOM = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One side in one round."""

    speeds: dict[str, float]
    peak_bytes: int


class Side(Protocol):
    """One program that can run the work."""

    @property
    def name(self) -> str:
        """What the tables call it."""
        ...

    def prepare(self) -> str:
        """Make what it loads; return what is to be known of it.

        Raises:
            Absent: It is not installed.
            ChildFailed: It cannot be made ready.
        """
        ...

    def measure(self, shape: Shape) -> Measured:
        """Run the work once.

        Raises:
            ChildFailed: It failed.
            UnknownOutput: It wrote something else than was expected.
        """
        ...


@dataclass(frozen=True, slots=True)
class Lanehost:
    """The bare step loop of this checkout."""

    tools: Tools
    name: str = LANEHOST

    def prepare(self) -> str:
        """See that the native library is there."""
        self.tools.check_native()
        return "the bare step loop, two steps in flight, file as shipped"

    def measure(self, shape: Shape) -> Measured:
        """Run `lanehost bench step`."""
        with tempfile.TemporaryDirectory() as folder:
            told = Path(folder) / "step.json"
            command: Command = [
                *(sys.executable, "-m", "lanehost", "bench", "step", "--model", self.tools.model),
                *("--threads", str(shape.num_threads), "--json", told, "--rounds", "1"),
                *("--lanes", ",".join(map(str, shape.lane_counts))),
                *("--prompt-tokens", str(shape.prompt_tokens)),
                *("--steps", str(shape.num_steps), "--prefills", str(shape.num_prefills)),
            ]
            ran = run(command, limit_s=_LIMIT_S)
            speeds = read_step(told.read_text(encoding="utf-8"), shape)
        return Measured(speeds=speeds, peak_bytes=ran.peak_bytes)


@dataclass(frozen=True, slots=True)
class Llama:
    """llama.cpp with weights of one type."""

    tools: Tools
    kind: str

    @property
    def name(self) -> str:
        """Name the type."""
        return f"llama.cpp {self.kind}"

    def prepare(self) -> str:
        """Make the GGUF of the type, and look at its head."""
        for tool in ("llama-bench", "llama-batched-bench"):
            self.tools.llama(tool)
        path = self.tools.gguf(self.kind)
        made = "as shipped" if path == self.tools.model else "made from it by llama-quantize"
        return f"{made}, head {head_of(path)}, KV in f16"

    def measure(self, shape: Shape) -> Measured:
        """Run `llama-bench` for the prompt and one lane, `llama-batched-bench` for all."""
        threads = ("-t", str(shape.num_threads))
        bench: Command = [
            self.tools.llama("llama-bench"),
            "-m",
            self.tools.gguf(self.kind),
            *threads,
        ]
        bench += ["-o", "json", "-r", str(shape.num_prefills)]
        prompt, steps = str(shape.prompt_tokens), str(shape.num_steps)
        prefill = run([*bench, "-p", prompt, "-n", "0"], limit_s=_LIMIT_S)
        alone = run([*bench, "-p", "0", "-n", steps, "-d", prompt], limit_s=_LIMIT_S)
        room = -(-(shape.prompt_tokens + shape.num_steps) // _ROOM) * _ROOM
        together = run(
            [
                *(self.tools.llama("llama-batched-bench"), "-m", self.tools.gguf(self.kind)),
                *(*threads, "-tb", str(shape.num_threads), "--output-format", "jsonl", "-pps"),
                *("-npp", prompt, "-ntg", steps, "-npl", ",".join(map(str, shape.lane_counts))),
                *("-c", str(room * max(shape.lane_counts))),
            ],
            limit_s=_LIMIT_S,
        )
        found = read_batched_bench(together.out, shape)
        found[PREFILL] = read_llama_bench(prefill.out, shape)[PREFILL]
        if decode(1) in found:
            one_lane = read_llama_bench(alone.out, shape)[decode(1)]
            found[decode(1)] = max(found[decode(1)], one_lane)
        return Measured(speeds=found, peak_bytes=together.peak_bytes)


@dataclass(frozen=True, slots=True)
class Transformers:
    """transformers in float32."""

    tools: Tools
    name: str = "transformers float32"

    def prepare(self) -> str:
        """Expand the weights."""
        versions = self.tools.python_has("torch", "transformers", "gguf", "accelerate")
        self.tools.float32_folder()
        return f"forward passes alone; {versions}"

    def measure(self, shape: Shape) -> Measured:
        """Run it in an interpreter of its own."""
        folder = self.tools.float32_folder()
        return _run_python(self.tools, "run_transformers.py", folder, shape)


@dataclass(frozen=True, slots=True)
class Ctranslate2:
    """ctranslate2 with int8 weights."""

    tools: Tools
    name: str = "ctranslate2 int8"

    def prepare(self) -> str:
        """Convert the weights, which transformers reads for it."""
        versions = self.tools.python_has("ctranslate2", "transformers", "gguf", "accelerate")
        self.tools.ctranslate2_folder()
        return versions

    def measure(self, shape: Shape) -> Measured:
        """Run it in an interpreter of its own."""
        folder = self.tools.ctranslate2_folder()
        return _run_python(self.tools, "run_ctranslate2.py", folder, shape)


def all_sides(tools: Tools) -> dict[str, Side]:
    """Return every side that there is, installed or not, by the word that asks for it."""
    sides: tuple[Side, ...] = (
        Lanehost(tools),
        *(Llama(tools, kind) for kind in LLAMA_TYPES),
        Ctranslate2(tools),
        Transformers(tools),
    )
    return dict(zip(SIDE_WORDS, sides, strict=True))


def _run_python(tools: Tools, program: str, folder: Path, shape: Shape) -> Measured:
    command: Command = [
        *(tools.peers_python, _HERE / program, "--model", folder),
        *("--prompt-tokens", str(shape.prompt_tokens), "--lanes", *map(str, shape.lane_counts)),
        *("--steps", str(shape.num_steps), "--prefills", str(shape.num_prefills)),
        *("--threads", str(shape.num_threads)),
    ]
    ran = run(command, limit_s=_LIMIT_S)
    return Measured(speeds=read_speeds(ran.out, shape, program), peak_bytes=ran.peak_bytes)
