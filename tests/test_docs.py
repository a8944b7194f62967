"""The pages say what is: tests, rooms, options, errors and decisions that they name exist."""

import ast
import json
import re
from pathlib import Path

import click

from lanehost import client_errors, errors
from lanehost.cli import main
from lanehost.client import Client
from lanehost.client_codec import Options, Reply
from lanehost.door import model_card
from lanehost.http.body import ChatBody, CompletionBody, MessageBody, StreamOptions
from lanehost.http.parts import ImageUrl
from lanehost.http.strict_object import Body
from lanehost.job import Priority
from lanehost.metrics.metrics import FAMILIES
from tests.support.fake_door import FakeDoor
from tests.support.http_served import http_app

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
MAX_README_LINES = 120

# What a page calls a default that is no plain value.
WORDS_FOR_DEFAULTS = {None: "none", "": "none", False: "off", True: "on"}


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _rows(page: str, heading: str) -> list[list[str]]:
    """Return the cells of the first table below a heading, without its head."""
    return _tables(page, heading)[0]


def _tables(page: str, heading: str) -> list[list[list[str]]]:
    """Return the cells of every table between a heading and the next one."""
    section = re.split(rf"\n##+ {re.escape(heading)}\n", _read(DOCS / page))[1]
    section = re.split(r"\n##+ ", section)[0]
    tables = re.findall(r"(?:^\|.*\n)+", section, re.MULTILINE)
    assert tables, f"no table below {heading} in {page}"
    return [[_cells(line) for line in table.splitlines()[2:]] for table in tables]


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def _named(cell: str) -> list[str]:
    """Return what a cell names in code."""
    return re.findall(r"`([^`]+)`", cell)


def _all_named(page: str, heading: str) -> list[str]:
    return [name for row in _rows(page, heading) for name in _named(row[0])]


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


def test_the_defaults_of_a_request_are_those_of_the_model_card():
    listed = {row[0].strip("`"): row[1] for row in _rows("operate.md", "Defaults of a request")}
    card = {
        name: getattr(model_card.DEFAULT_SAMPLING, name)
        for name in ("temperature", "top_p", "top_k", "min_p", "seed")
    }
    card["max_tokens"] = model_card.DEFAULT_MAX_TOKENS
    assert listed == {
        name: "none" if value is None else f"{value:g}" for name, value in card.items()
    }


def test_the_exit_codes_are_those_that_help_lists():
    tables = _tables("operate.md", "Exit codes")
    for table, command in zip(tables, ("serve", "generate"), strict=True):
        said = (main.commands[command].help or "").split("Exit codes:")[1]
        assert [row[0] for row in table] == re.findall(r"(?:^|,)\s*(\d+) ", said)
    assert main.commands["chat"].help.split("Exit codes:")[1] == said


def test_the_page_clients_lists_every_option_field_method_and_exception():
    assert _all_named("clients.md", "Options") == list(Options.__annotations__)
    assert [row[0].strip("`") for row in _rows("clients.md", "Reply")] == list(Reply.__slots__)
    methods = [name for name in dir(Client) if not name.startswith("_")]
    assert sorted(row[0].strip("`") for row in _rows("clients.md", "Python")) == sorted(methods)
    raised = {
        name
        for name, value in vars(client_errors).items()
        if isinstance(value, type) and issubclass(value, client_errors.ClientError)
    } - {"ClientError"}
    assert set(_all_named("clients.md", "Exceptions")) == raised


def test_the_page_clients_lists_every_path():
    listed = {row[0].strip("`"): row[1] for row in _rows("clients.md", "HTTP")}
    served = {
        re.sub(r":\w+}", "}", route.path): "POST" if route.methods == {"POST"} else "GET"
        for route in http_app(FakeDoor()).routes
    }
    assert listed == served


def test_the_page_clients_lists_every_field_that_is_understood():
    where = {
        "both": {ChatBody, CompletionBody},
        "chat": {ChatBody},
        "completions": {CompletionBody},
    }
    listed = {
        (name, body)
        for row in _rows("clients.md", "Fields that are understood")
        for name in _named(row[0])
        for body in where[row[1]]
    }
    assert listed == {
        (name, body) for body in (ChatBody, CompletionBody) for name in body.model_fields
    }


def test_the_page_clients_lists_every_value_that_asks_for_nothing():
    taken = {
        (place + name, json.dumps(value))
        for body, place in _PLACES.items()
        for name, values in body.not_built.items()
        for value in values
        if not isinstance(value, float)
    }
    listed = {
        (_PLACE_WORDS.get(row[0].split("`")[0], "") + name, value)
        for row in _rows("clients.md", "Fields that are refused")
        for name in _named(row[0])
        for value in _values(row[1])
    }
    assert listed == taken
    assert {name for body in _PLACES for name in body.not_built} == {
        name.split(".")[-1] for name in _all_named("clients.md", "Fields that are refused")
    }


_PLACE_WORDS = {"in a message: ": "messages."}
_PLACES: dict[type[Body], str] = {
    ChatBody: "",
    CompletionBody: "",
    StreamOptions: "stream_options.",
    MessageBody: "messages.",
    ImageUrl: "messages.content.image_url.",
}


def _values(cell: str) -> list[str]:
    """Return the values of a cell as JSON; only null is none."""
    if cell == "only null":
        return []
    first = cell.split(" for a chat", maxsplit=1)[0]
    parts = [first] if first.startswith(("{", "[")) else first.split(", ")
    return [json.dumps(json.loads(part)) for part in parts]


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
    events = _all_named("operate.md", "Logs")
    assert [event for event in events if f'"{event}"' not in source] == []


def test_every_event_of_jobs_and_steps_is_on_the_page():
    notices = _read(ROOT / "lanehost/engine/notices.py")
    said = set(re.findall(r'"((?:job|step|engine)_[a-z_]+)"', notices))
    assert "job_yielded" in said
    assert said - set(_all_named("operate.md", "Logs")) == set()


def test_the_tables_of_metrics_are_what_the_page_tells():
    listed = [row for table in _tables("operate.md", "Metrics") for row in table]
    told = {
        family.name: [family.kind.value, list(family.labels), family.meaning] for family in FAMILIES
    }
    assert len(listed) == len(told)
    for name, kind, labels, meaning in listed:
        assert [kind, _named(labels), meaning] == told[name.strip("`")]


def test_the_rules_of_the_page_name_metrics_and_labels_that_there_are():
    page = _read(DOCS / "operate.md")
    names = {family.name: family.labels for family in FAMILIES}
    for name, selector in re.findall(r"\b(lanehost_\w+)(?:{(.*?)})?", page):
        assert name in names
        for label, values in re.findall(r"(\w+)=~?\"(.*?)\"", selector):
            assert label in names[name]
            known = {*errors.__dict__, *(one.value for one in Priority)}
            assert set(values.split("|")) <= known


def test_the_index_lists_every_decision():
    index = _read(DOCS / "adr" / "index.md")
    files = {path.name for path in (DOCS / "adr").glob("0*.md")}
    assert set(re.findall(r"\((0[\w-]+\.md)\)", index)) == files


def test_the_readme_is_short():
    assert len(_read(ROOT / "README.md").splitlines()) <= MAX_README_LINES
