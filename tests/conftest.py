"""Properties are judged by what they say, not by how long a machine took over an example.

`--native-library PATH` runs the tests with another build of the kernels, for sanitizers. Nothing
but the tests can name another one: who loads it takes the one beside its sources.
"""

import os
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from ranks.native import build

# Threads of torch that wait for one another without end, each for a processor that another test
# has, take several times as long. Read when torch is loaded; ranks that tests start have it too.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

settings.register_profile(
    "any-machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any-machine")


def pytest_addoption(parser):
    parser.addoption("--native-library", type=Path, help="another build of the kernels")


def pytest_collection_modifyitems(items):
    """Begin with the files that start real ranks: at the end there are short ones to share out."""
    heavy = {item.path for item in items if item.get_closest_marker("ranks")}
    items.sort(key=lambda item: item.path not in heavy)


def pytest_configure(config):
    library = config.getoption("--native-library")
    if library is None:
        return
    # Before anybody has taken it for a default.
    assert "ranks.native.library" not in sys.modules
    build.LIBRARY = library.absolute()
    from ranks.native.library import why_no_library  # noqa: PLC0415

    # Tests of kernels are left out where there is no library: here that would be all.
    reason = why_no_library()
    if reason is not None:
        raise pytest.UsageError(f"--native-library {library}: {reason}")
