"""Compile the native library with the system's own compiler; nothing else is needed.

Laws: knows no package but the standard library, because the build of the package runs it
alone. Each instruction set is a file of its own, compiled with its own flags: what runs is
chosen at run time. No flag lets the compiler change a bit of a result: products and sums
are not fused (`-ffp-contract=off`), sums not reordered.

A library knows the digest of its sources, so that one left over from other sources is seen.
"""

import argparse
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

FOLDER = Path(__file__).parent
SOURCES = FOLDER / "csrc"
LIBRARY = FOLDER / "_kernels.so"

_Sets = dict[str, tuple[str, ...]]

_COMPILERS = ("c++", "g++", "clang++")
_FLAGS = (
    "-std=c++17", "-O3", "-fPIC", "-pthread", "-fvisibility=hidden", "-ffp-contract=off",
    "-fno-math-errno", "-fno-tree-reassoc",
)  # fmt: skip
_AVX2 = ("-mavx2", "-mf16c")
_AVX512 = ("-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mavx512vnni")
_COMMON = (
    *("api", "attention", "exchange", "forward", "model", "sampler", "team"),
    "kernels_portable",
)
_X86_SETS: _Sets = {"kernels_avx2": _AVX2, "kernels_avx512": (*_AVX2, *_AVX512)}
_ARM_SETS: _Sets = {"kernels_neon": ("-march=armv8.2-a+dotprod",)}
_SETS = {"x86_64": _X86_SETS, "amd64": _X86_SETS, "aarch64": _ARM_SETS, "arm64": _ARM_SETS}


class CannotCompile(Exception):
    """There is no compiler, or it refuses the sources."""


def source_digest() -> str:
    """SHA-256 over the names and bytes of all sources, and over the flags, in hex."""
    digest = hashlib.sha256(repr((_FLAGS, _SETS)).encode())
    for path in sorted(SOURCES.iterdir()):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def find_compiler(named: str | None) -> str:
    """The compiler that is named, or the first of the usual ones.

    Raises:
        CannotCompile: There is none.
    """
    for name in (named,) if named else _COMPILERS:
        found = shutil.which(name)
        if found:
            return found
    raise CannotCompile(f"no C++ compiler: looked for {named or ', '.join(_COMPILERS)}")


def find_sets(compiler: str) -> dict[str, tuple[str, ...]]:
    """The sources of sets beside the portable one, each with its flags.

    They are those of the machine that the compiler writes for, which is another than this
    one where it is a cross compiler.
    """
    asked = subprocess.run(  # noqa: S603 (the compiler that runs next)
        [compiler, "-dumpmachine"], capture_output=True, text=True, check=False
    )
    named = asked.stdout.strip().split("-")[0] if asked.returncode == 0 else ""
    return _SETS.get((named or platform.machine()).lower(), {})


def compile_library(
    target: Path,
    compiler: str,
    *,
    sets: dict[str, tuple[str, ...]],
    extra_flags: tuple[str, ...] = (),
) -> None:
    """Compile all sources into `target`, which appears whole or not at all.

    A compiler that is too old for a set gives a library without `sets`.

    Raises:
        CannotCompile: The compiler refuses the sources; the message is its own.
    """
    command = [compiler, *_FLAGS, *extra_flags]
    with tempfile.TemporaryDirectory() as scratch:
        made = Path(scratch) / target.name
        try:
            _compile(made, command, sets)
        except CannotCompile:
            if not sets:
                raise
            _compile(made, command, {})
        beside = target.with_name(f".{target.name}.{os.getpid()}")
        shutil.copyfile(made, beside)
        beside.replace(target)


def _compile(target: Path, command: list[str], sets: dict[str, tuple[str, ...]]) -> None:
    command = [*command, f'-DLANEHOST_SOURCES="{source_digest()}"']
    if sets:
        command.append("-DLANEHOST_WIDE_SETS")
    parts: dict[str, tuple[str, ...]] = dict.fromkeys(_COMMON, ()) | sets

    def compile_part(name: str) -> str:
        made = target.with_name(f"{name}.o")
        _run([*command, *parts[name], "-c", str(SOURCES / f"{name}.cpp"), "-o", str(made)])
        return str(made)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = list(pool.map(compile_part, parts))
    _run([*command, "-shared", *objects, "-o", str(target)])


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 (ours)
    if done.returncode:
        raise CannotCompile(f"{' '.join(command)}\n{done.stderr}")


def is_current() -> bool:
    """Whether the library in this folder was made from these sources."""
    return LIBRARY.exists() and source_digest().encode() in LIBRARY.read_bytes()


def main() -> int:
    """Compile in place, unless that was done already; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m ranks.native.build", description=__doc__)
    parser.add_argument("--compiler", default=os.environ.get("CXX"))
    parser.add_argument("--flag", action="append", default=[], help="one more, for sanitizers")
    parser.add_argument("--target", type=Path, default=LIBRARY)
    args = parser.parse_args()
    if args.target == LIBRARY and not args.flag and is_current():
        return 0
    try:
        compiler = find_compiler(args.compiler)
        sets = find_sets(compiler)
        compile_library(args.target, compiler, sets=sets, extra_flags=tuple(args.flag))
    except CannotCompile as err:
        sys.stderr.write(f"{err}\nthe ranks will compute without the native library, slowly\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
