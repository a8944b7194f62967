import dataclasses
import json
from hashlib import blake2b

import pytest

from ranks.errors import BadCheckpoint
from ranks.weights.model_config import (
    FactorRope,
    GemmaConfig,
    LinearRope,
    Llama3Rope,
    ModelConfig,
    Rope,
)

GOOD = ModelConfig(
    family="llama", vocab_size=301, context_length=1024, hidden_size=96, intermediate_size=168,
    num_layers=2, num_heads=6, num_kv_heads=3, head_dim=16, norm_eps=1e-6, rope_theta=1e4,
    rope_scaling=None, has_qkv_bias=False, has_output_bias=False, has_mlp_bias=False,
    has_qk_norm=False, is_tied=False, layer_windows=(None, None),
)  # fmt: skip


@pytest.mark.parametrize(
    "field",
    ["vocab_size", "context_length", "hidden_size", "intermediate_size", "num_layers",
     "num_heads", "num_kv_heads", "head_dim"],
)  # fmt: skip
@pytest.mark.parametrize("value", [0, -3, 1 << 40])
def test_a_size_out_of_bounds_is_named_with_value_and_limit(field, value):
    with pytest.raises(BadCheckpoint, match=f"{field} is {value}, it must be from 1 to"):
        dataclasses.replace(GOOD, **{field: value})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_heads": 7}, "num_heads is 7, not a multiple of num_kv_heads 3"),
        ({"head_dim": 15}, "head_dim is 15"),
        ({"num_heads": 513, "head_dim": 2048}, "head_dim is 2048 for 513 heads"),
        ({"norm_eps": 0.0}, "norm_eps is 0.0"),
        ({"norm_eps": float("nan")}, "norm_eps is nan"),
        ({"rope_theta": float("inf")}, "rope_theta inf"),
    ],
)
def test_numbers_that_contradict_each_other_are_refused(change, message):
    with pytest.raises(BadCheckpoint, match=message):
        dataclasses.replace(GOOD, **change)


@pytest.mark.parametrize("factor", [0.0, -1.0, float("nan"), float("inf")])
def test_rope_factors_are_positive_and_finite(factor):
    with pytest.raises(BadCheckpoint, match="factor is"):
        LinearRope(factor=factor)
    with pytest.raises(BadCheckpoint, match="factor is"):
        FactorRope(factors=(1.0, factor))
    with pytest.raises(BadCheckpoint, match="low_freq_factor is"):
        Llama3Rope(factor=8, low_freq_factor=factor, high_freq_factor=4, original_context_length=64)


def test_the_digest_is_of_all_fields():
    digests = {
        GOOD.digest(),
        dataclasses.replace(GOOD, rope_scaling=LinearRope(factor=2.0)).digest(),
        dataclasses.replace(GOOD, rope_theta=1e5).digest(),
        dataclasses.replace(GOOD, layer_windows=(None, 9)).digest(),
        dataclasses.replace(GOOD, is_tied=True).digest(),
    }
    assert len(digests) == 5
    assert GOOD.digest() == dataclasses.replace(GOOD).digest()


def test_what_only_some_families_have_does_not_change_the_digest_of_others():
    config = GOOD
    assert config.gemma is None
    digest = config.digest()
    gemma = GemmaConfig(
        local_rope=Rope(theta=1e4, scaling=None),
        is_local=(True,),
        score_scale=0.25,
        embedding_scale=8.0,
        norm_offset=1.0,
    )
    changed = {
        dataclasses.replace(config, gemma=one).digest()
        for one in (gemma, dataclasses.replace(gemma, norm_offset=0.0))
    }
    assert len(changed | {digest}) == 3
    # As the version before it had it: the fields that were there then, in their order by name.
    old = {key: value for key, value in dataclasses.asdict(config).items() if key != "gemma"}
    text = json.dumps(old, sort_keys=True)
    assert digest == blake2b(text.encode(), digest_size=32).hexdigest()


@pytest.mark.parametrize("field", ["score_scale", "embedding_scale"])
def test_a_scale_that_is_no_scale_is_refused(field):
    values = {"score_scale": 0.25, "embedding_scale": 8.0, field: float("inf")}
    with pytest.raises(BadCheckpoint, match=f"{field} is inf"):
        GemmaConfig(
            local_rope=Rope(theta=1e4, scaling=None), is_local=(), norm_offset=1.0, **values
        )
