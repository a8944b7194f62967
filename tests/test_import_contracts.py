"""A wrong import breaks the contract that forbids it: planted in a copy, one at a time."""

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CONFIG = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
CONTRACTS = CONFIG["tool"]["importlinter"]["contracts"]
NAMES = {contract["id"]: contract["name"] for contract in CONTRACTS}

# Module, the line planted in it, the contract that must break.
PLANTS = [
    ("ranks/sampler.py", "import lanehost.job", "one-direction"),
    ("ranks/sampler.py", "import ranks.link", "rank-rooms"),
    ("ranks/plan.py", "import ranks.wire.rank_pb2", "rank-rooms"),
    ("lanehost/text/tokenizer.py", "import torch", "no-torch"),
    ("lanehost/text/tokenizer.py", "import lanehost.rank_group.facts", "master-rooms"),
    ("lanehost/lanes/table.py", "import asyncio", "pure-rooms"),
    ("lanehost/cache/blocks.py", "import time", "pure-rooms"),
    ("lanehost/lanes/lane.py", "import lanehost.engine.inbox", "master-rooms"),
    ("lanehost/http/__init__.py", "import lanehost.server.codec", "master-rooms"),
    ("lanehost/engine/engine.py", "import grpc", "no-grpc"),
    ("lanehost/engine/engine.py", "import lanehost.v1.inference_pb2", "public-stubs"),
    ("lanehost/engine/engine.py", "import lanehost.admin.v1.admin_pb2", "admin-stubs"),
    ("lanehost/engine/engine.py", "import ranks.wire.rank_pb2", "rank-stubs"),
    ("lanehost/rank_group/facts.py", "import ranks.sampler", "plan-and-wire"),
    ("lanehost/http/app.py", "import prometheus_client", "prometheus"),
    ("lanehost/door/prepare.py", "import PIL.Image", "pillow"),
    ("lanehost/recorder/checker.py", "import lanehost.lanes.lane", "recorder-sees"),
    ("lanehost/errors.py", "import lanehost.job", "no-circles"),
    ("lanehost/new_room.py", "import lanehost.job", "master-rooms"),
    ("ranks/new_room.py", "import ranks.plan", "rank-rooms"),
]


def _copy(folder: Path) -> None:
    for package in ("lanehost", "ranks"):
        shutil.copytree(
            ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__")
        )
    shutil.copy(ROOT / "pyproject.toml", folder)


def _broken(folder: Path) -> set[str]:
    """Return the ids of the contracts that are broken in a folder."""
    program = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    run = subprocess.run(
        [sys.executable, "-c", program, "--no-cache"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Contracts: " in run.stdout, run.stdout + run.stderr
    return {ident for ident, name in NAMES.items() if f"{name} BROKEN" in run.stdout}


def test_the_checkout_keeps_every_contract(tmp_path):
    _copy(tmp_path)
    assert _broken(tmp_path) == set()


@pytest.mark.parametrize(("module", "line", "contract"), PLANTS)
def test_a_wrong_import_breaks_its_contract(tmp_path, module, line, contract):
    _copy(tmp_path)
    with (tmp_path / module).open("a", encoding="utf-8") as source:
        source.write(f"\n{line}\n")
    assert contract in _broken(tmp_path)


def test_every_contract_has_a_wrong_import_that_breaks_it():
    assert {contract for _, _, contract in PLANTS} == set(NAMES)


def test_the_master_may_see_no_part_of_the_ranks_that_is_not_named_here():
    (contract,) = (c for c in CONTRACTS if c["id"] == "plan-and-wire")
    parts = {path.stem for path in (ROOT / "ranks").iterdir() if path.stem[0] not in "_."}
    parts -= {"py", "errors", "fault_orders", "gguf_header", "log_sink", "plan", "spare", "wire"}
    assert set(contract["forbidden_modules"]) == {f"ranks.{part}" for part in parts}
