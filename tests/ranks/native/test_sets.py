"""Every kernel of every set writes the bits of the portable one, here and emulated.

What is compared: `emulated/compare_sets.cpp`. `test_library.py` compares the sets that this
machine has with the reference in numpy; this takes harder inputs and foreign machines.
"""

import pytest

from ranks.native.build import LIBRARY
from tests.support.native_kernels import usable_sets
from tests.support.native_sets import cross_compile, has_compiler, has_emulator, link_program

# Compilers take their time on a busy machine.
pytestmark = pytest.mark.timeout(400)
SETS = usable_sets()
needs_library = pytest.mark.skipif(
    not SETS or not has_compiler(), reason="there is no native library or no compiler here"
)


def emulated(test):
    """Mark a test that needs the library compiled for aarch64: half a minute, or more."""
    without = pytest.mark.skipif(not has_emulator(), reason="scripts/emulate says what is missing")
    return pytest.mark.emulator(without(test))


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    return link_program(LIBRARY, tmp_path_factory.mktemp("here"))


@pytest.fixture(scope="module")
def on_aarch64(tmp_path_factory):
    return cross_compile(tmp_path_factory.mktemp("aarch64"))


@needs_library
def test_sets_of_this_machine_write_what_the_portable_set_writes(here):
    compared = here.compare(*SETS)
    assert compared.exit_code == 0, compared.output
    assert compared.output.count(": 0 of ") == len(SETS)


@needs_library
def test_a_set_that_cannot_run_is_no_set_that_is_equal(here):
    compared = here.compare("sse9")
    assert compared.exit_code == 2
    assert "no such set" in compared.output


@emulated
def test_neon_writes_what_the_portable_set_writes(on_aarch64):
    compared = on_aarch64.compare("neon")
    assert compared.exit_code == 0, compared.output
    assert "neon: 0 of " in compared.output


@emulated
def test_a_processor_without_dot_products_is_given_the_portable_set(on_aarch64):
    refused = on_aarch64.compare("neon", processor="cortex-a53")
    assert refused.exit_code == 2, refused.output
    assert "neon: this processor or this build has no such set" in refused.output


@emulated
@needs_library
def test_the_portable_set_writes_the_same_on_either_machine(here, on_aarch64):
    foreign = on_aarch64.compare(processor="cortex-a53")
    assert foreign.digest is not None, foreign.output
    assert foreign.digest == here.compare().digest
