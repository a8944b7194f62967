"""Rules of this house that no linter knows. Each test is one rule.

A rule that hurts is changed here, in a commit of its own.
"""

import ast
import pkgutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import lanehost

ROOT = Path(__file__).parents[1]
PACKAGES = ("lanehost", "ranks")
MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 50

# Modules without a test file of their own, each with its reason.
NO_MIRRORED_TEST = {
    "lanehost/chaos/seen.py": "data only",
    "lanehost/disk_cache/counters.py": "data only",
    "lanehost/disk_cache/interface.py": "data and a protocol",
    "lanehost/disk_cache/shelf.py": "data and a protocol",
    "lanehost/door/interface.py": "a protocol: nothing to run",
    "lanehost/door/model_card.py": "data only",
    "lanehost/engine/backend.py": "a protocol: nothing to run",
    "lanehost/errors.py": "classes only; tests/lanehost/server/test_status.py walks them all",
    "lanehost/rank_group/events.py": "data only",
    "lanehost/rank_group/watcher.py": "a protocol: nothing to run",
    "ranks/errors.py": "classes only",
    "ranks/native/parts.py": "data and a protocol",
    "ranks/wire/file_messages.py": "data only",
    "ranks/wire/follow_messages.py": "data only",
}

# Modules that need the extra lanehost[ray]; tests/lanehost/replicas/test_app.py imports them.
NEEDS_RAY = {"lanehost.replicas.app", "lanehost.replicas.router"}

# The only __init__.py that may hold code, with its reason.
INIT_WITH_CODE = {"lanehost/__init__.py": "the public names Client and AsyncClient"}

# Modules that run pickle, or a cousin of it, on what they read.
UNSAFE_MODULES = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "marshal", "shelve"}
UNSAFE_CALLS = {
    "allow_pickle",
    "all_gather_object",
    "broadcast_object_list",
    "gather_object",
    "recv_object_list",
    "scatter_object_list",
    "send_object_list",
}
SAFE_TORCH_LOAD = "weights_only"


def _python_files(*folders: str) -> list[Path]:
    files = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    return [path for path in files if "_pb2" not in path.name]


def _modules() -> list[Path]:
    return [p for p in _python_files(*PACKAGES) if p.name not in {"__init__.py", "__main__.py"}]


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def _nodes(path: Path) -> Iterator[ast.AST]:
    return ast.walk(ast.parse(path.read_text(encoding="utf-8")))


def _called_name(node: ast.AST) -> str:
    match node:
        case ast.Call(func=ast.Name(id=name)) | ast.Call(func=ast.Attribute(attr=name)):
            return name
        case _:
            return ""


def _imported(node: ast.AST) -> set[str]:
    match node:
        case ast.Import(names=names):
            return {alias.name for alias in names}
        case ast.ImportFrom(module=str(module), names=names):
            return {module} | {f"{module}.{alias.name}" for alias in names}
        case _:
            return set()


def test_no_file_is_longer_than_400_lines():
    long = {
        _name(path): lines
        for path in _python_files(*PACKAGES, "tests", "scripts")
        if (lines := len(path.read_text(encoding="utf-8").splitlines())) > MAX_FILE_LINES
    }
    assert not long


def test_no_function_is_longer_than_50_lines():
    long = {
        f"{_name(path)}:{node.name}": lines
        for path in _python_files(*PACKAGES, "tests", "scripts")
        for node in _nodes(path)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (lines := (node.end_lineno or 0) - node.lineno + 1) > MAX_FUNCTION_LINES
    }
    assert not long


def _mirror(module: Path) -> Path:
    return ROOT / "tests" / module.relative_to(ROOT).parent / f"test_{module.name}"


def test_every_module_has_its_mirrored_test_file():
    without = {
        _name(module)
        for module in _modules()
        if not (_mirror(module).exists() and "def test_" in _mirror(module).read_text("utf-8"))
    }
    assert without - set(NO_MIRRORED_TEST) == set()


def test_the_list_of_modules_without_a_test_holds_nothing_else():
    stale = {
        name
        for name in NO_MIRRORED_TEST
        if not (ROOT / name).exists() or _mirror(ROOT / name).exists()
    }
    assert not stale


def test_nothing_prints_outside_the_command_line():
    printing = {
        _name(path)
        for path in _python_files(*PACKAGES)
        for node in _nodes(path)
        if _called_name(node) in {"print", "echo"} and "cli" not in path.relative_to(ROOT).parts[1]
    }
    assert not printing


def test_nothing_unpickles():
    unsafe = set()
    for path in _python_files(*PACKAGES, "tests", "scripts"):
        for node in _nodes(path):
            roots = {name.split(".")[0] for name in _imported(node)}
            keywords = {k.arg for k in node.keywords} if isinstance(node, ast.Call) else set()
            if roots & UNSAFE_MODULES or (keywords | {_called_name(node)}) & UNSAFE_CALLS:
                unsafe.add(_name(path))
            if _is_torch_load(node) and SAFE_TORCH_LOAD not in keywords:
                unsafe.add(_name(path))
    assert not unsafe


def _is_torch_load(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name(id="torch"), attr="load")):
            return True
        case _:
            return False


def test_tests_replace_nothing_by_patching():
    patching = {
        _name(path)
        for path in _python_files("tests")
        for node in _nodes(path)
        if any(name.startswith(("unittest.mock", "mock")) for name in _imported(node))
    }
    assert not patching


def test_init_files_hold_only_a_docstring():
    with_code = set()
    for path in _python_files(*PACKAGES):
        if path.name == "__init__.py":
            match ast.parse(path.read_text(encoding="utf-8")).body:
                case [ast.Expr(value=ast.Constant(value=str()))]:
                    pass
                case _:
                    with_code.add(_name(path))
    assert with_code - set(INIT_WITH_CODE) == set()


def test_nothing_is_left_for_later():
    marks = tuple(first + second for first, second in (("TO", "DO"), ("FIX", "ME"), ("XX", "X:")))
    sources = [
        *_python_files(*PACKAGES, "tests", "scripts"),
        *sorted((ROOT / "proto").rglob("*.proto")),
        *(path for path in sorted((ROOT / "scripts").iterdir()) if path.is_file()),
        ROOT / "pyproject.toml",
    ]
    marked = {
        _name(path)
        for path in sources
        if any(mark in path.read_text(encoding="utf-8") for mark in marks)
    }
    assert not marked


@pytest.mark.timeout(60)
def test_the_part_that_decides_never_loads_torch():
    names = [
        info.name
        for info in pkgutil.walk_packages(lanehost.__path__, "lanehost.")
        if not info.name.endswith("__main__") and info.name not in NEEDS_RAY
    ]
    program = (
        "import importlib, sys\n"
        "for name in sys.argv[1:]:\n"
        "    importlib.import_module(name)\n"
        "    assert 'torch' not in sys.modules, name + ' loads torch'\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", program, *names],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
