"""Blocks of code in the pages."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^``` \{ \.(\w+) \.(\w+) \}\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def page_blocks(page: str, label: str) -> list[tuple[str, str]]:
    """Return language and code of the blocks with this label."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return [(language, code) for language, found, code in FENCE.findall(text) if found == label]
