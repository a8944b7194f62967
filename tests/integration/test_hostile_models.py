"""A model file, however broken, is one that loads and runs or a typed error that names it.

And it costs no more memory than its own size allows. For longer, guided by what is covered where
`atheris` is installed: `pytest -m soak tests/integration/test_hostile_models.py -s`.
"""

import json
import random
import re
import struct
import subprocess
import sys
from copy import deepcopy
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ranks.errors import BadCheckpoint
from ranks.models.registry import open_checkpoint
from tests.support.gguf_pieces import take_apart
from tests.support.hostile_models import (
    KINDS,
    Spoiler,
    run_bounded,
    write_small,
)
from tests.support.text_models import write_folder
from tests.support.tiny_checkpoints import write_hf_checkpoint
from tests.support.tiny_gemma3 import write_tiny_gemma3

ROOT = Path(__file__).parents[2]
SOAK_S = 330


@pytest.fixture(scope="module")
def spoiler(tmp_path_factory):
    return Spoiler(tmp_path_factory.mktemp("hostile"))


@pytest.mark.parametrize("kind", KINDS)
def test_a_whole_file_loads_and_runs_in_each_way(tmp_path, kind):
    raw = write_small(tmp_path / "whole.gguf", kind)
    assert take_apart(raw).join() == raw
    expected = {"float32", "text"} if kind == "gemma3" else {"int8", "float32", "text"}
    assert run_bounded(tmp_path / "whole.gguf") == expected


@settings(max_examples=120)
@given(st.randoms(use_true_random=False))
def test_a_spoilt_gguf_loads_or_is_refused_by_name_within_bounds(spoiler, chosen):
    spoiler.try_one(chosen)


def test_among_spoilt_files_some_load_and_some_do_not(spoiler):
    had = [spoiler.try_one(random.Random(number)) for number in range(60)]
    assert {"int8", "float32", "text"} in had
    assert set() in had


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_cut_at_any_border_is_refused(tmp_path, kind):
    path = tmp_path / "cut.gguf"
    raw = write_small(path, kind)
    borders, at = [], 0
    for piece in take_apart(raw).header():
        borders.append(at)
        at += len(piece.raw)
    # Of the hundreds of tokens, whose borders are all alike, a few.
    for border in (*borders[:80], *borders[80:-40:97], *borders[-40:], len(raw) - 40):
        path.write_bytes(raw[:border])
        with pytest.raises(BadCheckpoint, match=r"cut\.gguf"):
            open_checkpoint(path)


@pytest.fixture(scope="module")
def hf_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hostile") / "model"
    write_folder(folder)
    write_hf_checkpoint(folder, "llama3_rope")
    return folder


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from((0, -1, 1, 2, 3, 2**31, 2**63, 10**400, 1e-320, 1e308, float("nan"))),
    st.text(max_size=9),
    st.just("x" * 100_000),
    st.just("\ud800"),
    st.just([]),
    st.just({"rope_type": "llama3", "factor": 10**300}),
    st.lists(st.integers(-2, 2), max_size=3),
)


@settings(max_examples=80)
@given(data=st.data())
def test_a_spoilt_config_loads_or_is_refused_by_name(hf_folder, data):
    path = hf_folder / "config.json"
    whole = path.read_text()
    config = json.loads(whole)
    for _ in range(data.draw(st.integers(1, 2))):
        spoilt = config
        if data.draw(st.booleans()) and isinstance(config["rope_parameters"], dict):
            spoilt = config["rope_parameters"]
        # A copy: what was put in before may itself be drawn upon.
        spoilt[data.draw(st.sampled_from(sorted(spoilt)))] = deepcopy(data.draw(VALUES))
    try:
        path.write_text(json.dumps(config))
        run_bounded(hf_folder)
    finally:
        path.write_text(whole)


@pytest.fixture(scope="module")
def gemma_folder(tmp_path_factory):
    return write_tiny_gemma3(tmp_path_factory.mktemp("hostile") / "gemma")


def test_a_whole_folder_with_eyes_loads_and_runs(gemma_folder):
    assert run_bounded(gemma_folder) == {"float32", "text"}


@settings(max_examples=60)
@given(data=st.data())
def test_a_spoilt_config_of_eyes_loads_or_is_refused_by_name(gemma_folder, data):
    name = data.draw(st.sampled_from(("config.json", "preprocessor_config.json")))
    path = gemma_folder / name
    whole = path.read_text()
    config = json.loads(whole)
    objects = [config, *(one for one in config.values() if isinstance(one, dict))]
    if name == "config.json":
        objects += config["text_config"]["rope_parameters"].values()
    for _ in range(data.draw(st.integers(1, 2))):
        spoilt = data.draw(st.sampled_from(objects))
        spoilt[data.draw(st.sampled_from(sorted(spoilt)))] = deepcopy(data.draw(VALUES))
    try:
        path.write_text(json.dumps(config))
        run_bounded(gemma_folder)
    finally:
        path.write_text(whole)


@settings(max_examples=80)
@given(chosen=st.randoms(use_true_random=False))
def test_a_spoilt_safetensors_file_loads_or_is_refused_by_name(hf_folder, chosen):
    path = hf_folder / "model.safetensors"
    whole = path.read_bytes()
    try:
        path.write_bytes(_spoil_safetensors(whole, chosen))
        run_bounded(hf_folder)
    finally:
        path.write_bytes(whole)


def _spoil_safetensors(whole, chosen):
    """A header with other numbers, names or types, of the right length or not; or a file cut."""
    (size,) = struct.unpack("<Q", whole[:8])
    header, data = whole[8 : 8 + size].decode(), whole[8 + size :]
    match chosen.choice(("number", "type", "name", "cut", "flip", "length")):
        case "number":
            numbers = list(re.finditer(r"\d+", header))
            at = chosen.choice(numbers).span()
            other = chosen.choice(("0", "1", "96", "-1", "1e9", "18446744073709551616", "4"))
            header = header[: at[0]] + other + header[at[1] :]
        case "type":
            other = chosen.choice(("F16", "F64", "I8", "F8_E4M3", "BOOL", "X", "C64", "F4"))
            header = header.replace('"F32"', f'"{other}"', chosen.choice((1, -1)))
        case "name":
            old = chosen.choice(re.findall(r'"(model\.[^"]+)"', header))
            header = header.replace(old, chosen.choice(("", "x" * 90_000, "\\ud800", "lm_head")))
        case "cut":
            return whole[: chosen.randrange(len(whole))]
        case "flip":
            at = chosen.randrange(8 + size)
            return whole[:at] + bytes([chosen.randrange(256)]) + whole[at + 1 :]
        case "length":
            size = chosen.choice((0, 1, size - 1, size + 1, 2**31, 2**63))
            return struct.pack("<Q", size) + whole[8:]
    return struct.pack("<Q", len(header.encode())) + header.encode() + data


@pytest.mark.soak
@pytest.mark.timeout(SOAK_S * 3)
def test_for_minutes_each_spoilt_gguf_loads_or_is_refused():
    command = [sys.executable, "-m", "tests.support.fuzz_models", "--seconds", str(SOAK_S)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-6000:]}"
    (tried,) = re.findall(r"Done (\d+) runs", done.stdout + done.stderr)
    print(f"files tried: {tried}")
    assert int(tried) > SOAK_S
