"""What the README and the page Clients tell to type works, against the server they start.

A block is run by its label, the second word behind its fence: `run` in a shell or in
Python, `curl` and `grpcurl` by doubles of those programs, `serve` starts the server.
"""

import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.curl import run_curl
from tests.support.grpcurl import run_grpcurl
from tests.support.served import READY_LINE

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", "docs/clients.md")
# `python run` on GitHub, `{ .python .run }` for the site: each renders only its own.
FENCE = re.compile(r"^``` ?(?:\{ )?\.?(\w+) \.?(\w+)(?: \})?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
START_TIMEOUT_S = 240.0
BLOCK_TIMEOUT_S = 60.0
# What a person would say to a program that asks.
TYPED = "Hello\n/exit\n"

pytestmark = pytest.mark.timeout(360)


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A fenced block; `language` and `label` are the words behind its fence."""

    page: str
    language: str
    label: str
    code: str

    def __str__(self) -> str:
        return f"{self.page}: {self.code.split(chr(10))[0]}"


def all_blocks() -> list[Block]:
    return [
        Block(page=page, language=language, label=label, code=code)
        for page in PAGES
        for language, label, code in FENCE.findall((ROOT / page).read_text(encoding="utf-8"))
    ]


def blocks(label: str) -> list[Block]:
    return [block for block in all_blocks() if block.label == label]


def environment() -> dict[str, str]:
    """Let the scripts use the environment that runs this test, wherever it lies."""
    return {**os.environ, "LANEHOST_VENV": sys.prefix, "COLUMNS": "200"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Addresses:
    """Where the server listens; the pages have the default ports, the test takes free ones."""

    grpc: str
    http: str

    def put_into(self, code: str) -> str:
        for default, free in (("127.0.0.1:50051", self.grpc), ("127.0.0.1:8000", self.http)):
            code = code.replace(default, free)
        return code


@pytest.fixture(scope="module")
def addresses():
    (serve,) = blocks("serve")
    process = subprocess.Popen(
        [*shlex.split(serve.code), "--port", "0", "--http-port", "0"],
        cwd=ROOT,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    killer = threading.Timer(START_TIMEOUT_S, process.kill)
    killer.start()
    try:
        ready = next(filter(None, map(READY_LINE.search, process.stdout)), None)
        killer.cancel()
        assert ready is not None, f"it ended with {process.wait()} before it was ready"
        yield Addresses(grpc=ready["grpc"], http=ready["http"])
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        killer.cancel()
        process.kill()
        process.wait()
        process.stdout.close()


def run(block: Block, addresses: Addresses) -> str:
    """Run a block as a reader would; return what it printed."""
    code = addresses.put_into(block.code).replace(".venv/bin/", f"{sys.prefix}/bin/")
    # The commands have the default address without naming it.
    code = re.sub(r"(lanehost (?:generate|chat))", rf"\1 --address {addresses.grpc}", code)
    program = {"sh": ["bash", "-euo", "pipefail", "-c"], "python": [sys.executable, "-c"]}
    done = subprocess.run(
        [*program[block.language], code],
        cwd=ROOT,
        env=environment(),
        input=TYPED,
        capture_output=True,
        text=True,
        check=False,
        timeout=BLOCK_TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_labelled_block_is_run():
    assert {block.label for block in all_blocks()} == {"serve", "run", "curl", "grpcurl"}
    assert {block.page for block in blocks("run")} == set(PAGES)


@pytest.mark.model
@pytest.mark.ranks
@pytest.mark.parametrize("block", blocks("run"), ids=str)
def test_a_block_runs_and_prints_a_reply(block, addresses):
    assert run(block, addresses).strip()


@pytest.mark.model
@pytest.mark.ranks
def test_the_reply_of_the_promise_is_the_same_alone_and_among_others(addresses):
    (block,) = [block for block in blocks("run") if "among_others" in block.code]
    assert run(block, addresses).endswith(" True\n")


@pytest.mark.model
@pytest.mark.ranks
def test_the_chat_of_the_readme_answers(addresses):
    (block,) = [block for block in blocks("run") if "lanehost chat" in block.code]
    _, answer, _ = run(block, addresses).split("> ")
    assert answer.strip()


@pytest.mark.model
@pytest.mark.ranks
@pytest.mark.parametrize("block", blocks("grpcurl"), ids=str)
def test_a_grpcurl_block_gets_what_it_asks_for(block, addresses):
    printed = run_grpcurl(addresses.put_into(block.code), cwd=ROOT)
    assert ('"finished"' in printed) == block.code.strip().endswith("StreamGenerate")


@pytest.mark.model
@pytest.mark.ranks
@pytest.mark.parametrize("block", blocks("curl"), ids=str)
def test_a_curl_block_gets_a_reply(block, addresses):
    printed = run_curl(addresses.put_into(block.code))
    assert '"choices"' in printed
    assert printed.endswith("data: [DONE]\n\n") == ('"stream": true' in block.code)


def test_what_a_page_installs_is_what_the_tests_install():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    known = {re.split(r"[<>=]", one)[0] for one in project["optional-dependencies"]["test"]}
    for page in PAGES:
        text = (ROOT / page).read_text(encoding="utf-8")
        installed = set(re.findall(r"`\.venv/bin/pip install (\S+)`", text))
        assert installed == {"openai"} <= known
