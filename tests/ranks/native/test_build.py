import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ranks.native import build
from ranks.native.build import (
    CannotCompile,
    compile_library,
    find_compiler,
    find_sets,
    is_current,
)
from ranks.native.library import open_library

ROOT = Path(__file__).parents[3]


def compiler():
    try:
        return find_compiler(None)
    except CannotCompile:
        return None


def test_where_there_is_a_compiler_there_is_a_library_of_these_sources():
    assert is_current() or compiler() is None


def test_a_compiler_that_is_absent_is_named():
    with pytest.raises(CannotCompile, match="looked for no-such-compiler"):
        find_compiler("no-such-compiler")


@pytest.mark.skipif(compiler() is None, reason="there is no compiler on this machine")
def test_a_compiler_that_refuses_leaves_nothing_behind(tmp_path):
    with pytest.raises(CannotCompile, match="-no-such-flag"):
        compile_library(tmp_path / "new.so", compiler(), sets={}, extra_flags=("--no-such-flag",))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(compiler() is None, reason="there is no compiler on this machine")
def test_sources_compile_without_any_set_but_the_portable_one(tmp_path):
    compile_library(tmp_path / "portable.so", compiler(), sets={}, extra_flags=("-O0",))
    assert open_library(path=tmp_path / "portable.so").instruction_set == "portable"


@pytest.mark.skipif(compiler() is None, reason="there is no compiler on this machine")
def test_a_compiler_that_lacks_a_set_leaves_that_set_out(tmp_path):
    too_new = {"kernels_avx2": ("-mno-such-set",)}
    compile_library(tmp_path / "old.so", compiler(), sets=too_new, extra_flags=("-O0",))
    assert open_library(path=tmp_path / "old.so").instruction_set == "portable"


@pytest.mark.parametrize(
    ("answer", "sets"),
    [
        ("echo x86_64-pc-linux-gnu", {"kernels_avx2", "kernels_avx512"}),
        ("echo aarch64-linux-gnu", {"kernels_neon"}),
        ("echo arm64-apple-darwin", {"kernels_neon"}),
        ("echo riscv64-linux-gnu", set()),
    ],
)
def test_sets_are_those_of_the_machine_that_the_compiler_writes_for(tmp_path, answer, sets):
    assert find_sets(fake_compiler(tmp_path, answer)).keys() == sets


@pytest.mark.parametrize("answer", ["exit 1", "echo"])
def test_a_compiler_that_names_no_machine_writes_for_this_one(tmp_path, answer):
    named = fake_compiler(tmp_path, f"echo {platform.machine()}-linux-gnu")
    expected = find_sets(named)
    assert find_sets(fake_compiler(tmp_path, answer)) == expected


def fake_compiler(folder, answer):
    path = folder / "compiler"
    path.write_text(f'#!/bin/sh\n[ "$1" = -dumpmachine ] && {answer}\n')
    path.chmod(0o755)
    return str(path)


def test_a_library_that_is_current_is_not_made_again():
    if not is_current():
        return
    before = build.LIBRARY.stat().st_mtime_ns
    run = subprocess.run([sys.executable, "-m", "ranks.native.build"], cwd=ROOT, check=False)
    assert run.returncode == 0
    assert build.LIBRARY.stat().st_mtime_ns == before


def test_no_source_leaves_its_own_set_of_instructions():
    # A template of the standard library, compiled with wider instructions, might be the
    # copy that the linker takes for all.
    for path in build.SOURCES.glob("*.h"):
        if path.name.startswith(("simd_", "kernels")):
            included = set(re.findall(r"#include <(\w+)", path.read_text()))
            assert included <= {"cstddef", "cstdint", "cstring", "immintrin", "arm_neon"}, path.name


def test_sources_are_short():
    assert all(len(path.read_text().splitlines()) <= 400 for path in build.SOURCES.iterdir())
