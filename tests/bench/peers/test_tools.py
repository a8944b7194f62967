"""What is absent is told with what to do; what is made is made once and whole."""

import sys
from importlib.metadata import version

import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFWriter, quants

from bench.peers.children import ChildFailed
from bench.peers.tools import Absent, Tools, head_of, type_of


def write_gguf(path, *, layers, head):
    writer = GGUFWriter(path, "llama")
    for name, kind in {"blk.0.a": layers, "blk.0.b": layers, "token_embd": head}.items():
        weights = quants.quantize(np.ones((4, 32), np.float32), kind)
        writer.add_tensor(f"{name}.weight", weights, raw_dtype=kind)
    writer.add_tensor("norm.weight", np.ones(32, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.fixture
def tools(tmp_path):
    model = tmp_path / "small.gguf"
    write_gguf(model, layers=GGMLQuantizationType.Q4_1, head=GGMLQuantizationType.Q8_0)
    (tmp_path / "work").mkdir()
    (tmp_path / "bin").mkdir()
    return Tools(
        model=model,
        llama_bin=tmp_path / "bin",
        peers_python=sys.executable,
        work=tmp_path / "work",
    )


def make_quantize(tools, body):
    """A program in the place of llama-quantize; it notes how it was called."""
    path = tools.llama_bin / "llama-quantize"
    path.write_text(f'#!/bin/sh\necho "$@" >> {tools.work}/calls\n{body}\n')
    path.chmod(0o755)


def calls(tools):
    return (tools.work / "calls").read_text().splitlines()


def test_the_type_of_a_file_is_that_of_most_weights(tools):
    assert type_of(tools.model) == "Q4_1"
    assert head_of(tools.model) == "Q8_0"


def test_the_file_as_shipped_is_used_for_its_own_type(tools):
    assert tools.gguf("Q4_1") == tools.model


def test_another_type_is_made_once(tools):
    make_quantize(tools, 'cp "$2" "$3"')

    made = [tools.gguf("Q4_0"), tools.gguf("Q4_0")]

    assert made == [tools.work / "small-Q4_0.gguf"] * 2
    part = tools.work / "small-Q4_0.part"
    assert calls(tools) == [f"--allow-requantize {tools.model} {part} Q4_0 2"]


def test_half_a_file_is_never_taken_for_a_whole_one(tools):
    make_quantize(tools, 'echo half > "$3"; exit 1')
    with pytest.raises(ChildFailed):
        tools.gguf("Q4_0")
    make_quantize(tools, 'cp "$2" "$3"')

    assert type_of(tools.gguf("Q4_0")) == "Q4_1"


def test_an_absent_program_is_named(tools):
    with pytest.raises(Absent, match=r"llama-server is not in .*bin"):
        tools.llama("llama-server")


def test_without_a_folder_it_is_told_how_to_give_one(tmp_path):
    tools = Tools(model=tmp_path, llama_bin=None, peers_python=tmp_path, work=tmp_path)
    with pytest.raises(Absent, match="--llama-bin DIR"):
        tools.llama("llama-bench")


def test_the_versions_of_modules_are_told(tools):
    # Of gguf only its package knows the version.
    found = tools.python_has("numpy", "gguf")
    assert found == f"numpy {np.__version__} gguf {version('gguf')}"


def test_an_absent_module_is_told_with_how_to_install_it(tools):
    with pytest.raises(Absent, match="pip install no_such_module there"):
        tools.python_has("no_such_module")
