"""The hook of the package's build that compiles the native library of the ranks.

Laws: without a compiler the package is built all the same, for any platform and without the
library; a warning says so, and the ranks compute in numpy.
"""

import importlib.util
import os
import sysconfig
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class NativeBuildHook(BuildHookInterface[Any]):
    """Compiles in place, and puts what it made into the wheel."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile before the wheel is written; `version` says whether it is editable."""
        build = _build_module(Path(self.root))
        try:
            if not build.is_current():
                compiler = build.find_compiler(os.environ.get("CXX") or None)
                sets = build.find_sets(compiler)
                build.compile_library(build.LIBRARY, compiler, sets=sets)
        except build.CannotCompile as err:
            self.app.display_warning(f"built without the native library: {err}")
            return
        if version == "editable":
            return
        place = build.LIBRARY.relative_to(self.root).as_posix()
        build_data["force_include"][str(build.LIBRARY)] = place
        build_data["pure_python"] = False
        # No symbol of Python's is used, so any Python 3 of this platform can load it.
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"py3-none-{platform}"


def _build_module(root: Path) -> ModuleType:
    """`ranks/native/build.py`, loaded by its path: nothing of the package is installed yet."""
    spec = importlib.util.spec_from_file_location("build", root / "ranks/native/build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
