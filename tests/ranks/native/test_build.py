import re
import subprocess
import sys
from pathlib import Path

import pytest

from ranks.native import build
from ranks.native.build import CannotCompile, compile_library, find_compiler, is_current
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
