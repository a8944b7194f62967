"""What the README tells a newcomer to type works, against the server that it starts."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

import pytest
from google.protobuf import json_format

from lanehost.v1 import inference_pb2 as pb
from tests.support.served import READY_LINE

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
START_TIMEOUT_S = 240.0
BLOCK_TIMEOUT_S = 60.0

pytestmark = pytest.mark.timeout(360)


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A fenced block; `language` and `label` are the words behind its fence."""

    language: str
    label: str
    code: str


def blocks(label: str) -> list[Block]:
    fences = re.findall(r"^```(\w+) (\w+)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    found = [Block(language=language, label=word, code=code) for language, word, code in fences]
    return [block for block in found if block.label == label]


def environment() -> dict[str, str]:
    """Let the scripts use the environment that runs this test, wherever it lies."""
    return {**os.environ, "LANEHOST_VENV": sys.prefix, "COLUMNS": "200"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Addresses:
    """Where the server listens; the README has the default ports, the test takes free ones."""

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
    if block.language == "sh" and block.label == "run":
        code = code.rstrip("\n") + f" --address {addresses.grpc}\n"
    program = {"sh": ["bash", "-euc"], "python": [sys.executable, "-c"]}[block.language]
    done = subprocess.run(
        [*program, code],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=BLOCK_TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.model
@pytest.mark.ranks
@pytest.mark.parametrize("block", blocks("run"), ids=lambda block: block.code.split("\n")[0])
def test_a_block_of_the_readme_runs_and_prints_a_reply(block, addresses):
    assert run(block, addresses).strip()


@pytest.mark.model
@pytest.mark.ranks
@pytest.mark.skipif(shutil.which("grpcurl") is None, reason="grpcurl is not installed here")
def test_the_grpcurl_block_runs(addresses):
    (block,) = blocks("grpcurl")
    assert '"finished"' in run(block, addresses)


def test_the_grpcurl_block_sends_a_message_of_the_wire():
    (block,) = blocks("grpcurl")
    words = shlex.split(block.code)
    service, method = words[-1].split("/")
    found = pb.DESCRIPTOR.services_by_name[service.split(".")[-1]].methods_by_name[method]
    assert found.containing_service.full_name == service
    message = getattr(pb, found.input_type.name)()
    json_format.Parse(words[words.index("-d") + 1], message)
    assert json.loads(words[words.index("-d") + 1])["text"] == message.text
    assert (ROOT / "proto" / words[words.index("-proto") + 1]).exists()
