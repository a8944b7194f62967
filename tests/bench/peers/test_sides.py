"""Each side is asked for the same work, by programs in the place of the real ones."""

import json
import sys
from pathlib import Path

import pytest

from bench.peers.shape import Shape
from bench.peers.sides import SIDE_WORDS, Llama, all_sides
from bench.peers.tools import Absent, Tools

SHAPE = Shape(lane_counts=(1, 4))


def make_program(folder, name, answers):
    """A program that notes its arguments and answers by the first that is among them."""
    path = folder / name
    path.write_text(
        f"#!{sys.executable}\nimport sys\n"
        f"call = ' '.join([{name!r}, *sys.argv[1:]])\n"
        f"open({str(folder / 'calls')!r}, 'a').write(call + '\\n')\n"
        f"print(next(text for word, text in {answers!r}.items() if word in sys.argv))\n"
    )
    path.chmod(0o755)


def bench_row(*, prompt, gen, depth, took_ns):
    row = {"n_prompt": prompt, "n_gen": gen, "n_depth": depth, "samples_ns": [took_ns]}
    return json.dumps([row])


class ToolsWithFile(Tools):
    """Tools whose model was quantized before."""

    def gguf(self, kind):
        return self.work / f"small-{kind}.gguf"


@pytest.fixture
def tools(tmp_path):
    work = tmp_path / "work"
    work.mkdir()
    alone = bench_row(prompt=0, gen=24, depth=256, took_ns=10**9)
    prefill = bench_row(prompt=256, gen=0, depth=0, took_ns=10**9)
    make_program(tmp_path, "llama-bench", {"-d": alone, "-p": prefill})
    lines = [{"pp": 256, "tg": 24, "pl": pl, "speed_tg": speed} for pl, speed in ((1, 20), (4, 80))]
    make_program(tmp_path, "llama-batched-bench", {"-npl": "\n".join(map(json.dumps, lines))})
    return ToolsWithFile(
        model=tmp_path / "small.gguf",
        llama_bin=tmp_path,
        peers_python=Path(sys.executable),
        work=work,
    )


def test_of_llama_the_better_figure_of_one_lane_counts(tools):
    measured = Llama(tools, "Q8_0").measure(SHAPE)

    assert measured.speeds == {"prefill": 256.0, "decode 1": 24.0, "decode 4": 80}


def test_llama_is_asked_for_the_shape_with_two_threads_and_room_for_all_lanes(tools):
    Llama(tools, "Q8_0").measure(SHAPE)

    calls = (tools.llama_bin / "calls").read_text().splitlines()
    model = tools.work / "small-Q8_0.gguf"
    lanes = "-npp 256 -ntg 24 -npl 1,4 -c 2048"
    assert calls == [
        f"llama-bench -m {model} -t 2 -o json -r 3 -p 256 -n 0",
        f"llama-bench -m {model} -t 2 -o json -r 3 -p 0 -n 24 -d 256",
        f"llama-batched-bench -m {model} -t 2 -tb 2 --output-format jsonl -pps {lanes}",
    ]


def test_every_side_has_its_word_and_a_name_of_its_own(tools):
    sides = all_sides(tools)

    assert tuple(sides) == SIDE_WORDS
    assert [side.name for side in sides.values()] == [
        "lanehost",
        "llama.cpp Q4_0",
        "llama.cpp Q8_0",
        "llama.cpp Q4_1",
        "ctranslate2 int8",
        "transformers float32",
    ]


def test_a_llama_without_its_programs_is_absent(tools):
    (tools.llama_bin / "llama-batched-bench").unlink()
    with pytest.raises(Absent, match="cmake --target llama-batched-bench"):
        Llama(tools, "Q8_0").prepare()
