"""What a model reads and multiplies, as its own files say."""

import json
import subprocess
import sys

import pytest
from gguf.constants import GGMLQuantizationType

from ranks.rates import tell_rates
from tests.support.native_kernels import usable_sets
from tests.support.tiny_checkpoints import VOCAB_SIZE, write_gguf
from tests.support.tiny_worlds import load_models

pytestmark = pytest.mark.skipif(not usable_sets(), reason="there is no native library here")


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("rates") / "tiny.gguf"
    write_gguf(path, GGMLQuantizationType.Q4_1, architecture="llama", family="llama_grouped")
    return path


def test_a_native_model_tells_its_packed_bytes_and_a_rate_for_each_part(path):
    told = tell_rates(path, "int8", 2)
    model = load_models(path, 1)[0]
    config = model.config
    assert told["weights"]["head"]["macs"] >= VOCAB_SIZE * config.hidden_size
    wide, narrow = (
        count * config.head_dim for count in (2 * config.num_heads, 2 * config.num_kv_heads)
    )
    of_layer = config.hidden_size * (wide + narrow + 3 * config.intermediate_size)
    assert told["weights"]["products"]["macs"] >= config.num_layers * of_layer
    # Five bits a weight: quants, scale and minimum of a group.
    assert told["weights"]["products"]["bytes"] * 8 == told["weights"]["products"]["macs"] * 5
    assert set(told["ops_per_s"]) == set(told["weights"])
    assert list(told["read_bytes_per_s"]) == ["1", "2"]
    assert told["kv_bytes_per_position"] == narrow * config.num_layers * 2


def test_a_model_in_float32_has_four_bytes_a_weight_and_no_integer_products(path):
    told = tell_rates(path, "float32", 1)
    for part in told["weights"].values():
        assert part["bytes"] == 4 * part["macs"]
    assert told["ops_per_s"] == {}


@pytest.mark.ranks
def test_the_program_tells_what_is_wrong_in_a_line(tmp_path):
    command = [sys.executable, "-m", "ranks.rates", "--model", str(tmp_path / "absent.gguf")]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    line = json.loads(process.stdout.readline())
    assert "no such file" in line["error"]
    assert process.wait() == 1
    process.stdout.close()
    process.stdin.close()
