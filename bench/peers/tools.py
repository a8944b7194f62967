"""Where the tools and files of a run are, and the model in the form that each side loads.

Nothing is downloaded. What is made from the model is made once and kept in the work folder.
"""

from dataclasses import dataclass
from pathlib import Path

from gguf import GGUFReader

from bench.peers.children import ChildFailed, Command, run
from ranks.native.library import why_no_library

_QUANTIZE_LIMIT_S = 300
_CONVERT_LIMIT_S = 600
_IMPORT_LIMIT_S = 120
NATIVE_TYPES = ("Q4_0", "Q4_1", "Q8_0")
_HEADS = ("output.weight", "token_embd.weight")


class Absent(Exception):
    """A side is not installed; the message says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """What the person who runs it named."""

    model: Path
    llama_bin: Path | None
    peers_python: Path
    work: Path

    def check_native(self) -> None:
        """See that lanehost computes this model with its native library.

        Without it lanehost falls back to float32, which is not what is to be compared.

        Raises:
            Absent: There is none, or it is of other sources.
        """
        reason = why_no_library()
        if reason is not None and type_of(self.model) in NATIVE_TYPES:
            raise Absent(f"lanehost's native library: {reason}")

    def llama(self, name: str) -> Path:
        """Return one of llama.cpp's programs.

        Raises:
            Absent: It is not there.
        """
        if self.llama_bin is None:
            raise Absent("build llama.cpp and give the folder of its programs: --llama-bin DIR")
        path = self.llama_bin / name
        if not path.is_file():
            raise Absent(f"{name} is not in {self.llama_bin}: build it, cmake --target {name}")
        return path

    def gguf(self, kind: str) -> Path:
        """Return the model as a GGUF of a type; the file as shipped when it is of that type.

        Raises:
            Absent: The tool that makes it is not there.
            ChildFailed: It failed.
        """
        if type_of(self.model) == kind:
            return self.model
        target = self.work / f"{self.model.stem}-{kind}.gguf"
        if not target.exists():
            # Half a file must not be taken for a whole one.
            part = target.with_suffix(".part")
            tool = self.llama("llama-quantize")
            command: Command = [tool, "--allow-requantize", self.model, part, kind, "2"]
            run(command, limit_s=_QUANTIZE_LIMIT_S)
            part.rename(target)
        return target

    def python_has(self, *modules: str) -> str:
        """Return the versions of modules of the peers' interpreter.

        Raises:
            Absent: One cannot be imported.
        """
        program = (
            "import importlib, sys\n"
            "from importlib.metadata import version\n"
            "for name in sys.argv[1:]:\n"
            "    importlib.import_module(name)\n"
            "    print(name, version(name), sep=' ', end=' ')\n"
        )
        command: Command = [self.peers_python, "-c", program, *modules]
        try:
            return run(command, limit_s=_IMPORT_LIMIT_S).out.strip()
        except ChildFailed as err:
            raise Absent(
                f"{self.peers_python} cannot import {', '.join(modules)}: "
                f"pip install {' '.join(modules)} there, or name another: --peers-python"
            ) from err

    def float32_folder(self) -> Path:
        """Return the model as a Hugging Face folder in float32.

        Raises:
            ChildFailed: It cannot be made.
        """
        folder = self.work / "float32"
        if not (folder / "config.json").exists():
            self._convert("--folder", folder)
        return folder

    def ctranslate2_folder(self) -> Path:
        """Return the model as ctranslate2 loads it, with int8 weights.

        Raises:
            ChildFailed: It cannot be made.
        """
        folder = self.work / "ctranslate2"
        if not (folder / "model.bin").exists():
            self._convert("--folder", self.float32_folder(), "--ctranslate2", folder)
        return folder

    def _convert(self, *arguments: str | Path) -> None:
        program = Path(__file__).with_name("convert_model.py")
        command: Command = [self.peers_python, program, "--model", self.model, *arguments]
        run(command, limit_s=_CONVERT_LIMIT_S)


def type_of(path: Path) -> str:
    """Name the type that most tensors of more than one dimension have."""
    kinds = [one.tensor_type.name for one in GGUFReader(path).tensors if len(one.shape) > 1]
    return max(set(kinds), key=kinds.count)


def head_of(path: Path) -> str:
    """Name the type of the weight that makes logits; it is the embedding where they share one."""
    kinds = {one.name: one.tensor_type.name for one in GGUFReader(path).tensors}
    return next(kinds[name] for name in _HEADS if name in kinds)
