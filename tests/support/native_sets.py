"""The program that compares sets of instructions, compiled, run and emulated."""

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from ranks.native.build import SOURCES, CannotCompile, compile_library, find_compiler, find_sets

PROGRAM = Path(__file__).parents[1] / "ranks/native/emulated/compare_sets.cpp"
CROSS_COMPILER = "aarch64-linux-gnu-g++"
EMULATOR = "qemu-aarch64"
_TARGET_ROOT = "/usr/aarch64-linux-gnu"


def has_compiler() -> bool:
    try:
        find_compiler(None)
    except CannotCompile:
        return False
    return True


def has_emulator() -> bool:
    return bool(shutil.which(CROSS_COMPILER) and shutil.which(EMULATOR))


@dataclass(frozen=True)
class Comparison:
    """What the program said; `digest` is that of the portable set, if it came so far."""

    exit_code: int
    output: str

    @property
    def digest(self) -> str | None:
        found = re.search(r"digest of portable: (\w{16})\n", self.output)
        return found and found[1]


@dataclass(frozen=True)
class SetsProgram:
    path: Path
    emulator: tuple[str, ...] = ()

    def compare(self, *sets: str, processor: str | None = None) -> Comparison:
        """Compare sets with the portable one, on this processor or on an emulated one."""
        chosen = ("-cpu", processor) if processor else ()
        done = _run([*self.emulator, *chosen, str(self.path), *sets], dict(os.environ))
        return Comparison(exit_code=done.returncode, output=done.stdout + done.stderr)


def link_program(library: Path, folder: Path) -> SetsProgram:
    """The program for this machine, linked against a library."""
    return SetsProgram(_link(find_compiler(None), library, folder))


def cross_compile(folder: Path) -> SetsProgram:
    """The library and the program for aarch64, to be emulated."""
    library = folder / "kernels_aarch64.so"
    compile_library(library, CROSS_COMPILER, sets=find_sets(CROSS_COMPILER))
    program = _link(CROSS_COMPILER, library, folder)
    return SetsProgram(program, (EMULATOR, "-L", _TARGET_ROOT))


def _link(compiler: str, library: Path, folder: Path) -> Path:
    made = folder / "compare_sets"
    # Preloaded sanitizers are for the library, not for the compiler.
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    done = _run(
        [
            compiler, "-std=c++17", "-O1", "-Wall", "-Werror", "-I", str(SOURCES), str(PROGRAM),
            str(library), f"-Wl,-rpath,{library.parent}", "-o", str(made),
        ],
        environment,
    )  # fmt: skip
    if done.returncode:
        raise CannotCompile(done.stderr)
    return made


def _run(command: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
