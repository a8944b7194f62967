import pytest

from ranks.errors import BadCheckpoint
from ranks.weights.json_fields import JsonFields
from ranks.weights.model_config import LinearRope, Rope
from ranks.weights.rope_config import read_rope, read_rope_values


def read(tmp_path, **values):
    return read_rope(JsonFields(tmp_path / "config.json", {"rope_theta": 1e4} | values), 512)


def test_both_forms_are_read_and_the_base_has_a_default(tmp_path):
    linear = {"rope_type": "linear", "factor": 2.0}
    expected = Rope(theta=1e4, scaling=LinearRope(factor=2.0))
    assert read(tmp_path, rope_scaling=linear) == expected
    assert read(tmp_path, rope_parameters=linear) == expected
    assert read(tmp_path, rope_parameters={"rope_theta": 5.0}) == Rope(theta=5.0, scaling=None)
    assert read(tmp_path) == Rope(theta=1e4, scaling=None)


def test_the_length_that_low_frequencies_are_judged_by_defaults_to_the_context(tmp_path):
    values = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    fields = JsonFields(tmp_path / "config.json", {})
    rope = read_rope_values(fields, values, theta=1e4, context_length=512)
    assert rope.scaling.original_context_length == 512


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"rope_scaling": [1]}, "rope_scaling is .*an object is needed"),
        ({"rope_parameters": {"full_attention": {}}}, "entry for 'full_attention'"),
        ({"rope_scaling": {"rope_type": "yarn"}}, "rope_type is 'yarn', supported are"),
        ({"rope_scaling": {"type": "linear"}}, "factor is None"),
        ({"rope_scaling": {"partial_rotary_factor": 0.5}}, "partial_rotary_factor"),
    ],
)
def test_what_is_not_built_is_refused_by_name(tmp_path, values, words):
    with pytest.raises(BadCheckpoint, match=words):
        read(tmp_path, **values)
