import mmap
import re
from pathlib import Path

import pytest

from ranks.large_pages import map_zeros

SIZE = 8 << 20
SMAPS = Path("/proc/self/smaps")


def test_it_is_zero_and_can_be_written():
    memory = map_zeros(SIZE)
    assert len(memory) == SIZE
    assert memory[:4096] == memory[-4096:] == bytes(4096)
    memory[SIZE - 1] = 7
    assert memory[SIZE - 1] == 7


@pytest.mark.skipif(
    not (hasattr(mmap, "MADV_HUGEPAGE") and SMAPS.exists()),
    reason="a system that does not say how memory is mapped",
)
def test_large_pages_are_asked_for():
    def count_asked():
        return len(re.findall(r"^VmFlags:.* hg\b", SMAPS.read_text(), re.MULTILINE))

    before = count_asked()
    memory = map_zeros(SIZE)
    assert count_asked() == before + 1
    memory.close()
    assert count_asked() == before


def test_what_cannot_be_had_is_an_error():
    with pytest.raises(OSError, match="annot allocate memory"):
        map_zeros(1 << 60)
