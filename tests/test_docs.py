"""The pages say what is: tests, rooms, options, errors and decisions that they name exist."""

import ast
import re
from pathlib import Path

import click

from lanehost import errors
from lanehost.cli import main

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
MAX_README_LINES = 120

# What a page calls a default that is no plain value.
WORDS_FOR_DEFAULTS = {None: "none", "": "none", False: "off", True: "on"}


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _rows(page: str, heading: str) -> list[list[str]]:
    """Return the cells of the first table below a heading, without its head."""
    section = _read(DOCS / page).split(f"\n## {heading}\n", maxsplit=1)[1].split("\n## ")[0]
    table = re.search(r"(?:^\|.*\n)+", section, re.MULTILINE)
    assert table is not None, f"no table below {heading} in {page}"
    lines = table.group().splitlines()[2:]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def _tests_in(path: Path) -> set[str]:
    return {
        node.name
        for node in ast.walk(ast.parse(_read(path)))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
    }


def _all_tests() -> set[str]:
    return {name for path in (ROOT / "tests").rglob("test_*.py") for name in _tests_in(path)}


def test_every_test_that_the_laws_name_exists():
    named = set(re.findall(r"`(test_\w+)`", _read(DOCS / "laws.md")))
    assert named - _all_tests() == set()


def test_every_law_names_a_test():
    rows = _rows("laws.md", "Held today")
    assert rows
    assert [row for row in rows if "`test_" not in row[-1]] == []


def test_every_path_that_a_page_names_exists():
    # Decisions are history: they may name what is gone.
    pages = [*DOCS.glob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    missing = {
        (page.name, path)
        for page in pages
        for path in re.findall(
            r"`((?:lanehost|ranks|tests|proto|docs|scripts)/[\w/.]+)`", _read(page)
        )
        if not ((ROOT / path).exists() or (ROOT / f"{path}.py").exists())
    }
    assert not missing


def test_the_table_of_rooms_holds_every_room():
    rooms = {
        path.relative_to(ROOT).with_suffix("").as_posix()
        for package in ("lanehost", "ranks")
        for path in (ROOT / package).iterdir()
        if path.suffix == ".py" or (path / "__init__.py").exists()
        if path.name != "__init__.py"
    }
    listed = [
        name
        for row in _rows("rooms.md", "The master") + _rows("rooms.md", "The ranks")
        for name in re.findall(r"`([\w/]+)`", row[0])
    ]
    assert sorted(listed) == sorted(rooms)


def _serve_options() -> dict[str, str]:
    serve = main.commands["serve"]
    options = [param for param in serve.params if isinstance(param, click.Option)]
    return {
        "/".join((*option.opts, *option.secondary_opts)): _word_for(option)
        for option in options
        if not option.hidden
    }


def _word_for(option: click.Option) -> str:
    default = option.to_info_dict()["default"]
    if default in ("", None) or isinstance(default, bool):
        return WORDS_FOR_DEFAULTS[default]
    return f"{default:g}" if isinstance(default, float) else str(default)


def test_the_table_of_options_is_what_serve_takes():
    listed = {row[0].strip("`"): row[1].strip("`") for row in _rows("operate.md", "Options")}
    assert listed == _serve_options()


def test_every_error_has_its_status_on_the_page():
    listed = {name for row in _rows("operate.md", "Statuses") for name in row[1].split(", ")}
    named = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and value.__module__ == errors.__name__
    }
    assert listed == named - {"LanehostError", "StartupFailed"}


def test_every_event_on_the_page_is_logged():
    source = "".join(_read(path) for path in (ROOT / "lanehost").rglob("*.py"))
    events = [row[0].strip("`") for row in _rows("operate.md", "Logs")]
    assert [event for event in events if f'"{event}"' not in source] == []


def test_the_index_lists_every_decision():
    index = _read(DOCS / "adr" / "index.md")
    files = {path.name for path in (DOCS / "adr").glob("0*.md")}
    assert set(re.findall(r"\((0[\w-]+\.md)\)", index)) == files


def test_the_readme_is_short():
    assert len(_read(ROOT / "README.md").splitlines()) <= MAX_README_LINES
